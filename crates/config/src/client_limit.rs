//! How many calls a program makes to the Kubernetes API.

/// `clientConnection.qps` and `clientConnection.burst`; zero means the customary value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientLimit {
    /// Calls per second in the long run.
    pub qps: f64,
    /// Calls at once before that counts.
    pub burst: u32,
}

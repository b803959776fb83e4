//! Bundles: messages that take effect together.

use bitflags::bitflags;

use super::Message;

/// Number of a bundle, chosen by the controller, unique on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleId(pub u32);

bitflags! {
    /// How a bundle's messages take effect.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct BundleFlags: u16 {
        /// All or none, and no packet sees a part.
        const ATOMIC = 1;
        /// In the order they were added.
        const ORDERED = 1 << 1;
    }
}

/// What a bundle control message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BundleControlType {
    /// Open it.
    OpenRequest,
    /// It is open.
    OpenReply,
    /// Take no more messages.
    CloseRequest,
    /// It takes no more.
    CloseReply,
    /// Put it into effect.
    CommitRequest,
    /// It is in effect.
    CommitReply,
    /// Forget it.
    DiscardRequest,
    /// It is forgotten.
    DiscardReply,
}

/// Opens, closes, commits or discards a bundle; or the answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleControl {
    /// Which bundle.
    pub bundle: BundleId,
    /// What about it.
    pub kind: BundleControlType,
    /// The same flags in all messages of a bundle.
    pub flags: BundleFlags,
}

/// Puts a message into a bundle. The inner message has the transaction id of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleAdd {
    /// Which bundle.
    pub bundle: BundleId,
    /// The same flags in all messages of a bundle.
    pub flags: BundleFlags,
    /// The message: a flow-mod, group-mod or packet-out.
    pub message: Box<Message>,
}

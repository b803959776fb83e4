//! Fields whose value is a set of named bits.

use bitflags::bitflags;

bitflags! {
    /// State of the packet's connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct CtState: u32 {
        /// Opens a connection.
        const NEW = 1;
        /// Belongs to a committed connection.
        const EST = 1 << 1;
        /// Is related to one.
        const REL = 1 << 2;
        /// Goes in the reply direction.
        const RPL = 1 << 3;
        /// Belongs to none and opens none.
        const INV = 1 << 4;
        /// Went through the connection tracker.
        const TRK = 1 << 5;
        /// Its source was translated.
        const SNAT = 1 << 6;
        /// Its destination was translated.
        const DNAT = 1 << 7;
    }
}

bitflags! {
    /// Which fragment a packet is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct IpFrag: u8 {
        /// A fragment.
        const ANY = 1;
        /// One with a non-zero offset; goes with [`IpFrag::ANY`].
        const LATER = 1 << 1;
    }
}

/// Names of [`CtState`] bits, lowest first.
pub(crate) const CT_STATE_NAMES: &[&str] =
    &["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

/// Names of TCP flag bits, lowest first.
pub(crate) const TCP_FLAG_NAMES: &[&str] =
    &["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// Names of tunnel flag bits, lowest first.
pub(crate) const TUN_FLAG_NAMES: &[&str] = &["oam"];

//! Cookies say whose a flow is: bits 63..48 a marker, 47..40 the category, 31..0 an object.

use openflow::Cookie;

/// Bits 63..48 of the cookie of every flow of ours.
pub const COOKIE_MARKER: u16 = 0xa17e;

/// Bits of a cookie that tell the object.
pub const COOKIE_OBJECT: u64 = 0xffff_ffff;

/// The feature a flow belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Category {
    /// Table misses.
    Framework = 0,
    /// Pods, gateway and tunnel.
    PodConnectivity = 1,
    /// Policies.
    NetworkPolicy = 2,
    /// Services.
    Service = 3,
    /// Egress.
    Egress = 4,
    /// Multicast.
    Multicast = 5,
    /// Traffic between clusters.
    Multicluster = 6,
    /// Traceflow.
    Traceflow = 7,
    /// Machines outside the cluster.
    ExternalNodeConnectivity = 8,
}

impl Category {
    /// Bits 47..40 of the cookie, which is also the flows' owner at the switch.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// The cookie of an object's flows; object 0 is the feature itself.
#[must_use]
pub const fn cookie(category: Category, object: u32) -> Cookie {
    Cookie((COOKIE_MARKER as u64) << 48 | (category as u64) << 40 | object as u64)
}

//! Network interfaces: what there is, and (in submodules) making and changing them.
//!
//! Works in the namespace of the [`Rtnl`] handle that is passed. An interface that is gone is
//! `None` for `find_*` and success for [`delete`].
//! Not here: addresses ([`crate::address`]), offloads ([`crate::offload`]), OVS ports (`switch`).

mod change;
mod create;
mod wait;

use nix::errno::Errno;

pub use self::change::{
    delete, rename, set_alias, set_down, set_mac, set_master, set_mtu, set_up,
    set_up_without_ipv6_address,
};
pub use self::create::{
    Veth, VethSpec, create_bridge, create_dummy, create_veth, create_veth_pair,
};
pub use self::wait::{wait_for, wait_up};
pub use crate::mac::{BadMac, IfIndex, MacAddr};
use crate::netlink::{NetlinkError, Rtnl};
use crate::uapi::*;
use crate::wire::{Attrs, Request, string, u32_at, u64_at};

/// Why an operation on a link failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// There is no such link.
    #[error("link {0} not found")]
    NotFound(String),
    /// The name is taken.
    #[error("link {0} exists already")]
    Exists(String),
    /// The kernel would not take this as a name (or alias).
    #[error("{0:?} is not a valid interface name")]
    BadName(String),
    /// It did not come to the wanted state in time.
    #[error("link {link} did not come to the wanted state within {seconds:.1} s: {state}")]
    Deadline {
        /// Which link.
        link: String,
        /// How long was waited.
        seconds: f64,
        /// What it looked like at the end.
        state: String,
    },
    /// The kernel refused, or could not be asked.
    #[error("{action} link {link}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// On which link.
        link: String,
        /// Why not.
        source: NetlinkError,
    },
}

impl LinkError {
    pub(crate) fn from_netlink(action: &'static str, link: String, source: NetlinkError) -> Self {
        match source.errno() {
            Some(Errno::ENODEV) => Self::NotFound(link),
            Some(Errno::EEXIST) => Self::Exists(link),
            _ => Self::Refused { action, link, source },
        }
    }
}

/// What a link is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    /// A NIC or loopback: nothing that a request could create.
    Physical,
    /// One end of a veth pair.
    Veth,
    /// A Linux bridge.
    Bridge,
    /// A dummy.
    Dummy,
    /// A tun or tap, such as the internal port of a `netdev` bridge.
    Tun,
    /// An internal port of the kernel's Open vSwitch.
    Openvswitch,
    /// Anything else, by the kernel's name.
    Other(String),
}

impl LinkKind {
    fn parse(text: &str) -> Self {
        match text {
            "veth" => Self::Veth,
            "bridge" => Self::Bridge,
            "dummy" => Self::Dummy,
            "tun" => Self::Tun,
            "openvswitch" => Self::Openvswitch,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// Counters of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Transmit errors.
    pub tx_errors: u64,
    /// Received packets dropped.
    pub rx_dropped: u64,
    /// Packets dropped before sending.
    pub tx_dropped: u64,
}

/// A network interface as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: IfIndex,
    /// Its name.
    pub name: String,
    /// Its Ethernet address, if it is Ethernet.
    pub mac: Option<MacAddr>,
    /// Its MTU.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Carrier is there: the far end of a veth is up too.
    pub carrier: bool,
    /// Is it the loopback?
    pub loopback: bool,
    /// What it is made of.
    pub kind: LinkKind,
    /// The bridge it is a port of.
    pub master: Option<IfIndex>,
    /// The far end of a veth. In another namespace if [`Link::peer_netnsid`] is set.
    pub peer: Option<IfIndex>,
    /// This namespace's own number for the namespace of the far end.
    pub peer_netnsid: Option<i32>,
    /// Free text that names the owner; set with [`set_alias`].
    pub alias: Option<String>,
    /// Counters.
    pub stats: LinkStats,
}

/// All links, in order of index.
pub fn list(rtnl: &Rtnl) -> Result<Vec<Link>, LinkError> {
    let mut request = Request::new(RTM_GETLINK, 0);
    request.bytes(&ifinfomsg(0, 0, 0));
    rtnl.netlink()
        .dump(&request, |reply| parse(reply.payload))
        .map_err(|source| LinkError::Refused { action: "list", link: "table".into(), source })
}

/// The link of this name.
pub fn find_by_name(rtnl: &Rtnl, name: &str) -> Result<Option<Link>, LinkError> {
    check_name(name)?;
    let mut request = Request::new(RTM_GETLINK, 0);
    request.bytes(&ifinfomsg(0, 0, 0)).attr_str(IFLA_IFNAME, name);
    find(rtnl, request, name.to_owned())
}

/// The link with this index.
pub fn find_by_index(rtnl: &Rtnl, index: IfIndex) -> Result<Option<Link>, LinkError> {
    let mut request = Request::new(RTM_GETLINK, 0);
    request.bytes(&ifinfomsg(index.0, 0, 0));
    find(rtnl, request, index.to_string())
}

/// The link of this name, or [`LinkError::NotFound`].
pub fn get_by_name(rtnl: &Rtnl, name: &str) -> Result<Link, LinkError> {
    find_by_name(rtnl, name)?.ok_or_else(|| LinkError::NotFound(name.to_owned()))
}

/// The link with this index, or [`LinkError::NotFound`].
pub fn get_by_index(rtnl: &Rtnl, index: IfIndex) -> Result<Link, LinkError> {
    find_by_index(rtnl, index)?.ok_or_else(|| LinkError::NotFound(index.to_string()))
}

/// Whether the kernel takes this as an interface name: 1 to 15 bytes, no slash, space or NUL.
pub fn is_valid_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.bytes().any(|byte| {
            byte == b'/' || byte == b':' || byte == 0 || byte.is_ascii_whitespace() || byte == 0x0b
        })
}

fn check_name(name: &str) -> Result<(), LinkError> {
    if is_valid_name(name) { Ok(()) } else { Err(LinkError::BadName(name.to_owned())) }
}

fn find(rtnl: &Rtnl, request: Request, what: String) -> Result<Option<Link>, LinkError> {
    let mut found = None;
    match rtnl.netlink().get(request, |reply| found = parse(reply.payload)) {
        Ok(()) => Ok(found),
        Err(error) if error.errno() == Some(Errno::ENODEV) => Ok(None),
        Err(source) => Err(LinkError::Refused { action: "find", link: what, source }),
    }
}

/// ```text
///   ifinfomsg  family:u8  pad:u8  type:u16  index:i32  flags:u32  change:u32
/// ```
fn ifinfomsg(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}

/// Reads the payload of `RTM_NEWLINK` or `RTM_DELLINK`.
pub(crate) fn parse(payload: &[u8]) -> Option<Link> {
    let flags = u32_at(payload, 8)?;
    let mut link = Link {
        index: IfIndex(u32_at(payload, 4)?),
        name: String::new(),
        mac: None,
        mtu: 0,
        up: flags & IFF_UP != 0,
        carrier: flags & IFF_LOWER_UP != 0,
        loopback: flags & IFF_LOOPBACK != 0,
        kind: LinkKind::Physical,
        master: None,
        peer: None,
        peer_netnsid: None,
        alias: None,
        stats: LinkStats::default(),
    };
    for (kind, value) in Attrs::after(payload, 16) {
        match kind {
            IFLA_IFNAME => link.name = string(value),
            IFLA_ADDRESS => link.mac = MacAddr::from_slice(value),
            IFLA_MTU => link.mtu = u32_at(value, 0)?,
            IFLA_MASTER => link.master = u32_at(value, 0).filter(|&index| index != 0).map(IfIndex),
            IFLA_LINK => link.peer = u32_at(value, 0).filter(|&index| index != 0).map(IfIndex),
            IFLA_LINK_NETNSID => link.peer_netnsid = u32_at(value, 0).map(u32::cast_signed),
            IFLA_IFALIAS => link.alias = Some(string(value)),
            IFLA_CARRIER => link.carrier &= value.first() != Some(&0),
            IFLA_STATS64 => link.stats = parse_stats(value).unwrap_or_default(),
            IFLA_LINKINFO => {
                if let Some(kind) = Attrs(value).find(IFLA_INFO_KIND) {
                    link.kind = LinkKind::parse(&string(kind));
                }
            }
            _ => {}
        }
    }
    Some(link)
}

fn parse_stats(bytes: &[u8]) -> Option<LinkStats> {
    let at = |n: usize| u64_at(bytes, n * 8);
    Some(LinkStats {
        rx_packets: at(0)?,
        tx_packets: at(1)?,
        rx_bytes: at(2)?,
        tx_bytes: at(3)?,
        rx_errors: at(4)?,
        tx_errors: at(5)?,
        rx_dropped: at(6)?,
        tx_dropped: at(7)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_the_kernel_does() {
        for good in ["eth0", "eth0.100", "a", "123456789012345", "web-1f3c"] {
            assert!(is_valid_name(good), "{good}");
        }
        for bad in ["", ".", "..", "1234567890123456", "a/b", "a b", "a:1", "a\0", "a\n"] {
            assert!(!is_valid_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        let mut bytes = vec![0xff; 400];
        for end in 0..bytes.len() {
            let _ = parse(&bytes[..end]);
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(index % 251).unwrap();
        }
        let _ = parse(&bytes);
    }
}

//! Addresses of links: add, delete, list, and bring a link to exactly the wanted ones.
//!
//! IPv6 addresses are added without duplicate address detection: it would hold a Pod's first
//! packets back for two seconds, and addresses here are assigned, not guessed.

use std::net::IpAddr;

use ipnet::IpNet;
use nix::errno::Errno;

use crate::mac::IfIndex;
use crate::netlink::{NetlinkError, Rtnl};
use crate::uapi::*;
use crate::wire::{AF_UNSPEC, Attrs, Request, family_of, ip, u32_at};

/// How far an address is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Everywhere.
    Global,
    /// On the link only.
    Link,
    /// On this host only.
    Host,
}

impl Scope {
    pub(crate) fn to_wire(self) -> u8 {
        match self {
            Self::Global => 0,
            Self::Link => 253,
            Self::Host => 254,
        }
    }

    pub(crate) fn from_wire(value: u8) -> Self {
        match value {
            254.. => Self::Host,
            253 => Self::Link,
            _ => Self::Global,
        }
    }
}

/// Seconds that an address stays; for ever without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Until it is no longer chosen as source.
    pub preferred: u32,
    /// Until it is removed.
    pub valid: u32,
}

/// An address of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The link.
    pub index: IfIndex,
    /// Address and prefix length.
    pub net: IpNet,
    /// How far it is valid.
    pub scope: Scope,
    /// The kernel makes no route to the prefix.
    pub no_prefix_route: bool,
    /// A lease's remaining time, from DHCP or a router advertisement.
    pub lifetime: Option<Lifetime>,
    /// Duplicate address detection has not finished, or failed.
    pub tentative: bool,
    /// A temporary (privacy) address that the kernel renews by itself.
    pub temporary: bool,
}

impl Address {
    /// A permanent address of global scope (link scope for `fe80::/10`).
    pub fn new(index: IfIndex, net: IpNet) -> Self {
        Self {
            index,
            scope: if is_ipv6_link_local(net.addr()) { Scope::Link } else { Scope::Global },
            net,
            no_prefix_route: false,
            lifetime: None,
            tentative: false,
            temporary: false,
        }
    }
}

/// Why an operation on addresses failed.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The link has it already.
    #[error("address {net} is on link {index} already")]
    Exists {
        /// The address.
        net: IpNet,
        /// The link.
        index: IfIndex,
    },
    /// The link is gone.
    #[error("link {0} not found")]
    NoLink(IfIndex),
    /// The table could not be read.
    #[error("list addresses")]
    List(#[source] NetlinkError),
    /// The kernel refused.
    #[error("{action} address {net} on link {index}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// The address.
        net: IpNet,
        /// The link.
        index: IfIndex,
        /// Why not.
        source: NetlinkError,
    },
}

/// Adds an address; [`AddressError::Exists`] when the link has it.
pub fn add(rtnl: &Rtnl, index: IfIndex, net: IpNet) -> Result<(), AddressError> {
    send(rtnl, "add", RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &Address::new(index, net))
}

/// Adds an address, or updates the one the link has.
pub fn replace(rtnl: &Rtnl, address: &Address) -> Result<(), AddressError> {
    send(rtnl, "set", RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, address)
}

/// Removes an address; success when the link, or the address on it, is gone.
pub fn delete(rtnl: &Rtnl, index: IfIndex, net: IpNet) -> Result<(), AddressError> {
    match send(rtnl, "delete", RTM_DELADDR, 0, &Address::new(index, net)) {
        Err(AddressError::NoLink(_)) => Ok(()),
        Err(AddressError::Refused { source, .. })
            if source.errno() == Some(Errno::EADDRNOTAVAIL) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// All addresses of a link, or of every link.
pub fn list(rtnl: &Rtnl, index: Option<IfIndex>) -> Result<Vec<Address>, AddressError> {
    let mut request = Request::new(RTM_GETADDR, 0);
    request.bytes(&ifaddrmsg(AF_UNSPEC, 0, 0, index.unwrap_or(IfIndex(0))));
    let dumped = rtnl.netlink().dump(&request, |reply| {
        parse(reply.payload).filter(|address| index.is_none_or(|index| address.index == index))
    });
    match dumped {
        // A dump for one link that is gone.
        Err(error) if error.errno() == Some(Errno::ENODEV) => Ok(Vec::new()),
        other => other.map_err(AddressError::List),
    }
}

/// Brings a link to exactly these permanent addresses; `fe80::/10` ones that are not named stay.
pub fn set(rtnl: &Rtnl, index: IfIndex, wanted: &[IpNet]) -> Result<(), AddressError> {
    let present = list(rtnl, Some(index))?;
    for &net in wanted {
        if !present.iter().any(|address| address.net == net && !address.tentative) {
            replace(rtnl, &Address::new(index, net))?;
        }
    }
    for address in &present {
        if !wanted.contains(&address.net) && !is_ipv6_link_local(address.net.addr()) {
            delete(rtnl, index, address.net)?;
        }
    }
    Ok(())
}

/// Whether this is a link-local IPv6 address, which belongs to its link and never moves.
pub fn is_ipv6_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn send(
    rtnl: &Rtnl,
    action: &'static str,
    kind: u16,
    flags: u16,
    address: &Address,
) -> Result<(), AddressError> {
    let (index, net) = (address.index, address.net);
    let ip = net.addr();
    let mut request = Request::new(kind, flags);
    request.bytes(&ifaddrmsg(family_of(ip), net.prefix_len(), address.scope.to_wire(), index));
    request.attr_ip(IFA_LOCAL, ip).attr_ip(IFA_ADDRESS, ip);
    let mut bits = 0;
    if ip.is_ipv6() {
        bits |= IFA_F_NODAD;
    }
    if address.no_prefix_route {
        bits |= IFA_F_NOPREFIXROUTE;
    }
    request.attr_u32(IFA_FLAGS, bits);
    if let Some(lifetime) = address.lifetime {
        // ifa_cacheinfo: preferred, valid, created, updated
        let mut info = [0; 16];
        info[..4].copy_from_slice(&lifetime.preferred.to_ne_bytes());
        info[4..8].copy_from_slice(&lifetime.valid.to_ne_bytes());
        request.attr(IFA_CACHEINFO, &info);
    }
    rtnl.netlink().request(request).map_err(|source| match source.errno() {
        Some(Errno::EEXIST) => AddressError::Exists { net, index },
        Some(Errno::ENODEV) => AddressError::NoLink(index),
        _ => AddressError::Refused { action, net, index, source },
    })
}

/// ```text
///   ifaddrmsg  family:u8  prefixlen:u8  flags:u8  scope:u8  index:u32
/// ```
fn ifaddrmsg(family: u8, prefix: u8, scope: u8, index: IfIndex) -> [u8; 8] {
    let [a, b, c, d] = index.0.to_ne_bytes();
    [family, prefix, 0, scope, a, b, c, d]
}

/// Reads the payload of `RTM_NEWADDR` or `RTM_DELADDR`.
pub(crate) fn parse(payload: &[u8]) -> Option<Address> {
    let &[_, prefix, short_flags, scope, ..] = payload else { return None };
    let index = IfIndex(u32_at(payload, 4)?);
    let attrs = Attrs::after(payload, 8);
    // IFA_LOCAL is the address; on IPv6 only IFA_ADDRESS is sent.
    let address = ip(attrs.find(IFA_LOCAL).or_else(|| attrs.find(IFA_ADDRESS))?)?;
    let flags =
        attrs.find(IFA_FLAGS).and_then(|value| u32_at(value, 0)).unwrap_or(u32::from(short_flags));
    let lifetime = attrs
        .find(IFA_CACHEINFO)
        .and_then(|info| Some(Lifetime { preferred: u32_at(info, 0)?, valid: u32_at(info, 4)? }))
        .filter(|lifetime| flags & IFA_F_PERMANENT == 0 && lifetime.valid != u32::MAX);
    Some(Address {
        index,
        net: IpNet::new(address, prefix).ok()?,
        scope: Scope::from_wire(scope),
        no_prefix_route: flags & IFA_F_NOPREFIXROUTE != 0,
        lifetime,
        tentative: flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) != 0,
        // On IPv4 the same bit says "secondary".
        temporary: address.is_ipv6() && flags & (IFA_F_TEMPORARY | IFA_F_MANAGETEMPADDR) != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sent_address_is_read_back() {
        for text in ["10.77.1.2/24", "fd00:77::2/64"] {
            let address = Address::new(IfIndex(7), text.parse().unwrap());
            let mut request = Request::new(RTM_NEWADDR, 0);
            let ip = address.net.addr();
            request.bytes(&ifaddrmsg(family_of(ip), address.net.prefix_len(), 0, IfIndex(7)));
            request.attr_ip(IFA_ADDRESS, ip);
            let bytes = request.finish(1);
            assert_eq!(parse(&bytes[16..]), Some(address));
            for end in 0..bytes.len() {
                let _ = parse(&bytes[..end]);
            }
        }
    }
}

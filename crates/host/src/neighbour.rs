//! Neighbour entries: permanent ones, addresses that the host answers for (proxy), and asking for
//! those that are not known yet.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::mac::{IfIndex, MacAddr};
use crate::monitor::{Monitor, Topics};
use crate::netlink::{NetlinkError, Rtnl};
use crate::uapi::*;
use crate::wire::{AF_UNSPEC, Attrs, Request, family_of, ip, u16_at, u32_at};

/// A neighbour entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The link.
    pub index: IfIndex,
    /// The neighbour's address.
    pub ip: IpAddr,
    /// Its MAC, once known.
    pub mac: Option<MacAddr>,
    /// Never expires, was set by someone.
    pub permanent: bool,
    /// Not a neighbour: an address that the host answers for.
    pub proxy: bool,
}

/// Why an operation on neighbours failed.
#[derive(Debug, thiserror::Error)]
pub enum NeighbourError {
    /// The table could not be read.
    #[error("list neighbours")]
    List(#[source] NetlinkError),
    /// The kernel refused.
    #[error("{action} neighbour {ip} on link {index}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// The neighbour.
        ip: IpAddr,
        /// The link.
        index: IfIndex,
        /// Why not.
        source: NetlinkError,
    },
}

/// Sets a permanent entry, in the place of whatever was there.
pub fn set_permanent(
    rtnl: &Rtnl,
    index: IfIndex,
    ip: IpAddr,
    mac: MacAddr,
) -> Result<(), NeighbourError> {
    let mut request = Request::new(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
    request.bytes(&ndmsg(family_of(ip), index, NUD_PERMANENT, 0));
    request.attr_ip(NDA_DST, ip).attr(NDA_LLADDR, &mac.0);
    send(rtnl, request, "set", ip, index)
}

/// Removes an entry; success when it is not there.
pub fn delete(rtnl: &Rtnl, index: IfIndex, ip: IpAddr) -> Result<(), NeighbourError> {
    remove(rtnl, index, ip, 0)
}

/// Makes the host answer ARP or neighbour solicitations for an address on this link.
pub fn add_proxy(rtnl: &Rtnl, index: IfIndex, ip: IpAddr) -> Result<(), NeighbourError> {
    let mut request = Request::new(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
    request.bytes(&ndmsg(family_of(ip), index, NUD_PERMANENT, NTF_PROXY));
    request.attr_ip(NDA_DST, ip);
    send(rtnl, request, "set proxy", ip, index)
}

/// Ends [`add_proxy`]; success when it is not there.
pub fn delete_proxy(rtnl: &Rtnl, index: IfIndex, ip: IpAddr) -> Result<(), NeighbourError> {
    remove(rtnl, index, ip, NTF_PROXY)
}

/// All entries of a link, or of every link; proxies are listed too.
pub fn list(rtnl: &Rtnl, index: Option<IfIndex>) -> Result<Vec<Neighbour>, NeighbourError> {
    let mut found = Vec::new();
    for flags in [0, NTF_PROXY] {
        let mut request = Request::new(RTM_GETNEIGH, 0);
        request.bytes(&ndmsg(AF_UNSPEC, IfIndex(0), 0, flags));
        let dumped = rtnl.netlink().dump(&request, |reply| {
            parse(reply.payload).filter(|entry| index.is_none_or(|index| entry.index == index))
        });
        found.extend(dumped.map_err(NeighbourError::List)?);
    }
    Ok(found)
}

/// Makes the kernel ask for the MACs of these neighbours and returns those it got within
/// `patience`, known ones at once.
pub fn resolve(
    rtnl: &Rtnl,
    index: IfIndex,
    ips: &[IpAddr],
    patience: Duration,
) -> Result<Vec<(IpAddr, MacAddr)>, NeighbourError> {
    let deadline = Instant::now() + patience;
    // Subscribed before the first question, so that no answer falls between.
    let monitor =
        Monitor::open_in(rtnl.netns(), Topics::NEIGHBOURS).map_err(NeighbourError::List)?;
    for &ip in ips {
        let mut request = Request::new(RTM_NEWNEIGH, NLM_F_CREATE);
        request.bytes(&ndmsg(family_of(ip), index, 0, NTF_USE)).attr_ip(NDA_DST, ip);
        send(rtnl, request, "ask for", ip, index)?;
    }
    loop {
        let known = list(rtnl, Some(index))?;
        let mac_of = |ip: &IpAddr| {
            let entry = known.iter().find(|entry| entry.ip == *ip && !entry.proxy)?;
            Some((*ip, entry.mac?))
        };
        let found: Vec<_> = ips.iter().filter_map(mac_of).collect();
        let left = deadline.saturating_duration_since(Instant::now());
        if found.len() == ips.len() || left.is_zero() {
            return Ok(found);
        }
        monitor.wait(left).map_err(NeighbourError::List)?;
    }
}

fn remove(rtnl: &Rtnl, index: IfIndex, ip: IpAddr, flags: u8) -> Result<(), NeighbourError> {
    let mut request = Request::new(RTM_DELNEIGH, 0);
    request.bytes(&ndmsg(family_of(ip), index, 0, flags)).attr_ip(NDA_DST, ip);
    match send(rtnl, request, "delete", ip, index) {
        Err(NeighbourError::Refused { source, .. })
            if matches!(source.errno(), Some(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO)) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn send(
    rtnl: &Rtnl,
    request: Request,
    action: &'static str,
    ip: IpAddr,
    index: IfIndex,
) -> Result<(), NeighbourError> {
    rtnl.netlink().request(request).map_err(|source| NeighbourError::Refused {
        action,
        ip,
        index,
        source,
    })
}

/// ```text
///   ndmsg  family:u8  pad:u8[3]  index:i32  state:u16  flags:u8  type:u8
/// ```
fn ndmsg(family: u8, index: IfIndex, state: u16, flags: u8) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[0] = family;
    bytes[4..8].copy_from_slice(&index.0.to_ne_bytes());
    bytes[8..10].copy_from_slice(&state.to_ne_bytes());
    bytes[10] = flags;
    bytes
}

fn parse(payload: &[u8]) -> Option<Neighbour> {
    let attrs = Attrs::after(payload, 12);
    Some(Neighbour {
        index: IfIndex(u32_at(payload, 4)?),
        ip: ip(attrs.find(NDA_DST)?)?,
        mac: attrs.find(NDA_LLADDR).and_then(MacAddr::from_slice),
        permanent: u16_at(payload, 8)? & NUD_PERMANENT != 0,
        proxy: payload.get(10)? & NTF_PROXY != 0,
    })
}

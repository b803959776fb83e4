//! The kernel's connection tracking table: list and delete entries that hold an address.
//!
//! Entries are read in place from the kernel's dump; only those that a filter matches are copied.
//! A deletion sends back the entry's own tuple, zone and id, so that it hits this entry or none.
//! Not here: the conntrack of userspace Open vSwitch (`switch`, by its control socket).

use std::net::IpAddr;
use std::sync::Arc;

use nix::errno::Errno;

use crate::netlink::{Family, Netlink, NetlinkError, nfgenmsg};
use crate::netns::Netns;
use crate::uapi::*;
use crate::wire::{Attrs, Request, be16, be32, family_of, ip};

/// Why an operation on conntrack failed.
#[derive(Debug, thiserror::Error)]
pub enum ConntrackError {
    /// The table could not be read.
    #[error("list conntrack entries")]
    List(#[source] NetlinkError),
    /// An entry could not be deleted.
    #[error("delete conntrack entry {entry}")]
    Delete {
        /// The entry.
        entry: Box<Entry>,
        /// Why not.
        source: NetlinkError,
    },
    /// A task was abandoned.
    #[error("conntrack call was abandoned")]
    Abandoned,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Source port, for protocols that have ports.
    pub src_port: Option<u16>,
    /// Destination port, for protocols that have ports.
    pub dst_port: Option<u16>,
}

/// A tracked connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As the connection was opened.
    pub original: Tuple,
    /// As replies are expected: other than the mirror image when translated.
    pub reply: Tuple,
    /// Conntrack zone, 0 where none was set.
    pub zone: u16,
    /// Connection mark.
    pub mark: u32,
    /// Status bits (`IPS_*`).
    pub status: u32,
    /// Seconds until it expires.
    pub timeout: u32,
    id: Option<u32>,
    family: u8,
    raw_tuple: Vec<u8>,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tuple { src, dst, protocol, .. } = self.original;
        write!(f, "protocol {protocol} {src} -> {dst} zone {}", self.zone)
    }
}

/// Which entries are meant. Empty matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// One of these is source or destination, in either direction.
    pub addresses: Vec<IpAddr>,
    /// The zone is this one.
    pub zone: Option<u16>,
    /// The IP protocol is this one.
    pub protocol: Option<u8>,
    /// The original direction goes to this address.
    pub dst: Option<IpAddr>,
    /// The original direction goes to this port.
    pub dst_port: Option<u16>,
    /// Replies come from this address and port.
    pub server: Option<(IpAddr, u16)>,
}

impl Filter {
    /// Everything that involves an address, in any zone.
    pub fn address(address: IpAddr) -> Self {
        Self { addresses: vec![address], ..Self::default() }
    }

    /// Everything in a zone.
    pub fn zone(zone: u16) -> Self {
        Self { zone: Some(zone), ..Self::default() }
    }

    /// The family of all its addresses, if they have one.
    fn family(&self) -> u8 {
        let all = self.addresses.iter().chain(&self.dst);
        let mut families = all.map(|&address| family_of(address));
        let first = families.next().unwrap_or(NFPROTO_UNSPEC);
        if families.all(|family| family == first) { first } else { NFPROTO_UNSPEC }
    }

    fn matches(&self, view: &View<'_>) -> bool {
        let holds = |tuple: &Tuple| {
            self.addresses.contains(&tuple.src) || self.addresses.contains(&tuple.dst)
        };
        (self.addresses.is_empty() || holds(&view.original) || holds(&view.reply))
            && self.zone.is_none_or(|zone| zone == view.zone)
            && self.protocol.is_none_or(|protocol| protocol == view.original.protocol)
            && self.dst.is_none_or(|ip| ip == view.original.dst)
            && self.dst_port.is_none_or(|port| Some(port) == view.original.dst_port)
            && self
                .server
                .is_none_or(|(ip, port)| (ip, Some(port)) == (view.reply.src, view.reply.src_port))
    }
}

/// A handle on the conntrack table of one network namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Conntrack {
    netlink: Arc<Netlink>,
}

impl Conntrack {
    /// Opens a handle on the calling thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { netlink: Arc::new(Netlink::open(Family::Netfilter)?) })
    }

    /// Opens a handle on another namespace; it stays there.
    pub fn open_in(netns: &Netns) -> Result<Self, NetlinkError> {
        netns.run(Self::open)?
    }

    /// The entries that match.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Entry>, ConntrackError> {
        // The kernel can leave out what is of another family or (since 6.8) zone.
        let mut request = message(IPCTNL_MSG_CT_GET, filter.family());
        if let Some(zone) = filter.zone {
            request.attr(CTA_ZONE, &zone.to_be_bytes());
        }
        let dumped = self.netlink.dump(&request, |reply| {
            View::parse(reply.payload)
                .filter(|view| filter.matches(view))
                .map(|view| view.to_entry())
        });
        match dumped {
            // No conntrack in this kernel: nothing is tracked.
            Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => Ok(Vec::new()),
            other => other.map_err(ConntrackError::List),
        }
    }

    /// Deletes the entries that match; returns how many there were. One that ended meanwhile is
    /// no error.
    pub fn delete(&self, filter: &Filter) -> Result<usize, ConntrackError> {
        let entries = self.list(filter)?;
        let mut deleted = 0;
        for entry in entries {
            let mut request = message(IPCTNL_MSG_CT_DELETE, entry.family);
            request.attr(CTA_TUPLE_ORIG | NLA_F_NESTED, &entry.raw_tuple);
            if entry.zone != 0 {
                request.attr(CTA_ZONE, &entry.zone.to_be_bytes());
            }
            if let Some(id) = entry.id {
                request.attr_be32(CTA_ID, id);
            }
            match self.netlink.request(request) {
                Ok(()) => deleted += 1,
                Err(error) if error.errno() == Some(Errno::ENOENT) => {}
                Err(source) => {
                    return Err(ConntrackError::Delete { entry: Box::new(entry), source });
                }
            }
        }
        Ok(deleted)
    }

    /// As [`Conntrack::delete`], for async callers.
    pub async fn delete_async(&self, filter: Filter) -> Result<usize, ConntrackError> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.delete(&filter))
            .await
            .map_err(|_| ConntrackError::Abandoned)?
    }
}

fn message(kind: u16, family: u8) -> Request {
    let mut request = Request::new(NFNL_SUBSYS_CTNETLINK << 8 | kind, 0);
    request.bytes(&nfgenmsg(family, 0));
    request
}

/// An entry as it stands in the receive buffer.
struct View<'a> {
    family: u8,
    original: Tuple,
    reply: Tuple,
    zone: u16,
    raw_tuple: &'a [u8],
    rest: Attrs<'a>,
}

impl<'a> View<'a> {
    fn parse(payload: &'a [u8]) -> Option<Self> {
        let attrs = Attrs::after(payload, 4);
        let (mut original, mut reply, mut zone) = (None, None, None);
        for (kind, value) in attrs {
            match kind {
                CTA_TUPLE_ORIG => original = Some(value),
                CTA_TUPLE_REPLY => reply = Some(value),
                CTA_ZONE => zone = be16(value),
                _ => {}
            }
        }
        let raw_tuple = original?;
        // A zone that holds for one direction only stands in that direction's tuple.
        let in_tuple = || Attrs(raw_tuple).find(CTA_TUPLE_ZONE).and_then(be16);
        Some(Self {
            family: *payload.first()?,
            original: parse_tuple(raw_tuple)?,
            reply: parse_tuple(reply?)?,
            zone: zone.or_else(in_tuple).unwrap_or(0),
            raw_tuple,
            rest: attrs,
        })
    }

    fn to_entry(&self) -> Entry {
        let number = |kind| self.rest.find(kind).and_then(be32);
        Entry {
            original: self.original,
            reply: self.reply,
            zone: self.zone,
            mark: number(CTA_MARK).unwrap_or(0),
            status: number(CTA_STATUS).unwrap_or(0),
            timeout: number(CTA_TIMEOUT).unwrap_or(0),
            id: number(CTA_ID),
            family: self.family,
            raw_tuple: self.raw_tuple.to_vec(),
        }
    }
}

fn parse_tuple(bytes: &[u8]) -> Option<Tuple> {
    let addresses = Attrs(Attrs(bytes).find(CTA_TUPLE_IP)?);
    let protocol = Attrs(Attrs(bytes).find(CTA_TUPLE_PROTO)?);
    let either = |v4, v6| addresses.find(v4).or_else(|| addresses.find(v6)).and_then(ip);
    Some(Tuple {
        src: either(CTA_IP_V4_SRC, CTA_IP_V6_SRC)?,
        dst: either(CTA_IP_V4_DST, CTA_IP_V6_DST)?,
        protocol: *protocol.find(CTA_PROTO_NUM)?.first()?,
        src_port: protocol.find(CTA_PROTO_SRC_PORT).and_then(be16),
        dst_port: protocol.find(CTA_PROTO_DST_PORT).and_then(be16),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_payload() -> Vec<u8> {
        let mut request = message(0, 2);
        for (kind, src, dst) in [
            (CTA_TUPLE_ORIG, [10, 0, 0, 1], [10, 96, 0, 1]),
            (CTA_TUPLE_REPLY, [10, 0, 0, 2], [10, 0, 0, 1]),
        ] {
            request.nest(kind, |tuple| {
                tuple.nest(CTA_TUPLE_IP, |addresses| {
                    addresses.attr(CTA_IP_V4_SRC, &src).attr(CTA_IP_V4_DST, &dst);
                });
                tuple.nest(CTA_TUPLE_PROTO, |protocol| {
                    protocol.attr_u8(CTA_PROTO_NUM, 17);
                    protocol.attr(CTA_PROTO_SRC_PORT, &1000_u16.to_be_bytes());
                    protocol.attr(CTA_PROTO_DST_PORT, &53_u16.to_be_bytes());
                });
            });
        }
        request.attr(CTA_ZONE, &65520_u16.to_be_bytes());
        request.attr_be32(CTA_MARK, 7).attr_be32(CTA_ID, 99);
        request.finish(1)[16..].to_vec()
    }

    #[test]
    fn filters_look_at_both_directions_and_the_zone() {
        let payload = mk_payload();
        let view = View::parse(&payload).unwrap();
        let all = Filter::default();
        for (name, filter, want) in [
            ("all", all.clone(), true),
            ("original source", Filter::address([10, 0, 0, 1].into()), true),
            ("original destination", Filter::address([10, 96, 0, 1].into()), true),
            ("translated destination", Filter::address([10, 0, 0, 2].into()), true),
            ("someone else", Filter::address([10, 0, 0, 3].into()), false),
            ("zone", Filter::zone(65520), true),
            ("other zone", Filter::zone(0), false),
            ("port", Filter { dst_port: Some(53), protocol: Some(17), ..all.clone() }, true),
            ("other port", Filter { dst_port: Some(54), ..all.clone() }, false),
            ("dialled", Filter { dst: Some([10, 96, 0, 1].into()), ..all.clone() }, true),
            ("not dialled", Filter { dst: Some([10, 0, 0, 2].into()), ..all.clone() }, false),
            ("server", Filter { server: Some(([10, 0, 0, 2].into(), 1000)), ..all.clone() }, true),
            ("its port", Filter { server: Some(([10, 0, 0, 2].into(), 53)), ..all.clone() }, false),
            ("no server", Filter { server: Some(([10, 96, 0, 1].into(), 1000)), ..all }, false),
        ] {
            assert_eq!(filter.matches(&view), want, "{name}");
        }
        let entry = view.to_entry();
        assert_eq!((entry.mark, entry.id, entry.original.src_port), (7, Some(99), Some(1000)));
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        let payload = mk_payload();
        for end in 0..payload.len() {
            let _ = View::parse(&payload[..end]);
            let mut damaged = payload.clone();
            damaged[end] ^= 0xff;
            let _ = View::parse(&damaged).map(|view| view.to_entry());
        }
    }
}

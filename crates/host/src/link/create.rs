//! Makes links: veth pairs across namespaces, bridges, dummies.
//!
//! Every link is made *down*, complete in one request: name, MAC, MTU and master are there before
//! anyone can see it. Bringing it up is the caller's next step ([`super::set_up`]), after the
//! kernel's own copy of its frames is dropped ([`crate::netfilter`]).

use std::os::fd::AsRawFd;

use super::{IfIndex, LinkError, MacAddr, check_name, find_by_name, get_by_name, ifinfomsg};
use crate::netlink::Rtnl;
use crate::netns::Netns;
use crate::uapi::*;
use crate::wire::Request;

/// A veth pair between the host (the namespace of the handle) and a Pod.
#[derive(Debug, Clone, Copy)]
pub struct VethSpec<'a> {
    /// Name of the host's end.
    pub host_name: &'a str,
    /// Its MAC; the kernel picks one when there is none.
    pub host_mac: Option<MacAddr>,
    /// Where the Pod's end is made: it never appears on the host.
    pub pod_netns: &'a Netns,
    /// Name of the Pod's end.
    pub pod_name: &'a str,
    /// Its MAC; the kernel picks one when there is none.
    pub pod_mac: Option<MacAddr>,
    /// MTU of both ends.
    pub mtu: u32,
    /// The bridge whose port the host's end is from the start: on `netdev` the one that stays down,
    /// so that the node's kernel never forwards for the Pod.
    pub master: Option<IfIndex>,
}

/// A veth pair that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Veth {
    /// Index of the host's end, in the host's namespace.
    pub host: IfIndex,
    /// MAC of the host's end.
    pub host_mac: MacAddr,
    /// Index of the Pod's end, in the Pod's namespace.
    pub pod: IfIndex,
}

/// Makes a veth pair with one end in the Pod's namespace. Both ends are down.
pub fn create_veth(rtnl: &Rtnl, spec: &VethSpec<'_>) -> Result<Veth, LinkError> {
    check_name(spec.host_name)?;
    check_name(spec.pod_name)?;
    let mut request = newlink(spec.host_name);
    request.attr_u32(IFLA_MTU, spec.mtu);
    if let Some(mac) = spec.host_mac {
        request.attr(IFLA_ADDRESS, &mac.0);
    }
    if let Some(master) = spec.master {
        request.attr_u32(IFLA_MASTER, master.0);
    }
    request.nest(IFLA_LINKINFO, |info| {
        info.attr(IFLA_INFO_KIND, b"veth");
        info.nest(IFLA_INFO_DATA, |data| {
            data.nest(VETH_INFO_PEER, |peer| {
                peer.bytes(&ifinfomsg(0, 0, 0));
                peer.attr_str(IFLA_IFNAME, spec.pod_name);
                peer.attr_u32(IFLA_MTU, spec.mtu);
                if let Some(mac) = spec.pod_mac {
                    peer.attr(IFLA_ADDRESS, &mac.0);
                }
                peer.attr(IFLA_NET_NS_FD, &spec.pod_netns.as_raw_fd().to_ne_bytes());
            });
        });
    });
    match send(rtnl, request, "create veth", spec.host_name) {
        // The kernel does not say which of the two names is taken.
        Err(LinkError::Exists(_)) if find_by_name(rtnl, spec.host_name)?.is_none() => {
            return Err(LinkError::Exists(spec.pod_name.to_owned()));
        }
        other => other?,
    }
    let host = get_by_name(rtnl, spec.host_name)?;
    Ok(Veth {
        host: host.index,
        host_mac: host.mac.unwrap_or_default(),
        pod: host.peer.ok_or_else(|| LinkError::NotFound(spec.pod_name.to_owned()))?,
    })
}

/// Makes a veth pair with both ends in the handle's namespace, both down.
pub fn create_veth_pair(
    rtnl: &Rtnl,
    name: &str,
    peer_name: &str,
    mtu: u32,
) -> Result<Veth, LinkError> {
    let pod_netns = rtnl.netns();
    let (host_mac, pod_mac, master) = (None, None, None);
    let spec = VethSpec {
        host_name: name,
        host_mac,
        pod_netns,
        pod_name: peer_name,
        pod_mac,
        mtu,
        master,
    };
    create_veth(rtnl, &spec)
}

/// Makes a Linux bridge, down. A bridge that stays down takes the frames of its ports away from
/// the kernel and forwards none.
pub fn create_bridge(rtnl: &Rtnl, name: &str) -> Result<IfIndex, LinkError> {
    create_plain(rtnl, name, b"bridge", "create bridge")
}

/// Makes a dummy link, down.
pub fn create_dummy(rtnl: &Rtnl, name: &str) -> Result<IfIndex, LinkError> {
    create_plain(rtnl, name, b"dummy", "create dummy")
}

fn create_plain(
    rtnl: &Rtnl,
    name: &str,
    kind: &[u8],
    action: &'static str,
) -> Result<IfIndex, LinkError> {
    check_name(name)?;
    let mut request = newlink(name);
    request.nest(IFLA_LINKINFO, |info| {
        info.attr(IFLA_INFO_KIND, kind);
    });
    send(rtnl, request, action, name)?;
    Ok(get_by_name(rtnl, name)?.index)
}

fn newlink(name: &str) -> Request {
    let mut request = Request::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    request.bytes(&ifinfomsg(0, 0, 0)).attr_str(IFLA_IFNAME, name);
    request
}

fn send(rtnl: &Rtnl, request: Request, action: &'static str, name: &str) -> Result<(), LinkError> {
    rtnl.netlink()
        .request(request)
        .map_err(|source| LinkError::from_netlink(action, name.to_owned(), source))
}

//! Changes and deletes links.

use nix::errno::Errno;

use super::{IfIndex, LinkError, MacAddr, check_name, ifinfomsg};
use crate::netlink::Rtnl;
use crate::uapi::*;
use crate::wire::{AF_INET6, Request};

/// The kernel's limit on an alias (`IFALIASZ`), without its NUL.
const MAX_ALIAS: usize = 255;

/// Brings a link up.
pub fn set_up(rtnl: &Rtnl, index: IfIndex) -> Result<(), LinkError> {
    change(rtnl, index, "bring up", (IFF_UP, IFF_UP), |_| {})
}

/// Brings a link up that never gets a link-local IPv6 address of its own.
///
/// For host ends of veths and for uplinks under OVS: there such an address makes the node's kernel
/// speak to the Pod (MLD, router solicitations) and OVS take it for a tunnel end point.
pub fn set_up_without_ipv6_address(rtnl: &Rtnl, index: IfIndex) -> Result<(), LinkError> {
    // Up and mode go in two requests, mode first: within one the kernel would bring it up first.
    let quiet = change(rtnl, index, "switch off IPv6 autoconfiguration of", (0, 0), |request| {
        request.nest(IFLA_AF_SPEC, |families| {
            families.nest(u16::from(AF_INET6), |inet6| {
                inet6.attr_u8(IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
            });
        });
    });
    match quiet {
        // No IPv6 on this link (disabled in the kernel, or an MTU below 1280): nothing to prevent.
        Err(LinkError::Refused { ref source, .. })
            if matches!(source.errno(), Some(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP)) => {}
        other => other?,
    }
    set_up(rtnl, index)
}

/// Takes a link down.
pub fn set_down(rtnl: &Rtnl, index: IfIndex) -> Result<(), LinkError> {
    change(rtnl, index, "take down", (0, IFF_UP), |_| {})
}

/// Sets the MTU.
pub fn set_mtu(rtnl: &Rtnl, index: IfIndex, mtu: u32) -> Result<(), LinkError> {
    change(rtnl, index, "set the MTU of", (0, 0), |request| {
        request.attr_u32(IFLA_MTU, mtu);
    })
}

/// Sets the Ethernet address.
pub fn set_mac(rtnl: &Rtnl, index: IfIndex, mac: MacAddr) -> Result<(), LinkError> {
    change(rtnl, index, "set the MAC of", (0, 0), |request| {
        request.attr(IFLA_ADDRESS, &mac.0);
    })
}

/// Renames a link; older kernels want it down.
pub fn rename(rtnl: &Rtnl, index: IfIndex, name: &str) -> Result<(), LinkError> {
    check_name(name)?;
    change(rtnl, index, "rename", (0, 0), |request| {
        request.attr_str(IFLA_IFNAME, name);
    })
}

/// Sets the alias: text by which an owner finds its links again. Empty removes it.
pub fn set_alias(rtnl: &Rtnl, index: IfIndex, alias: &str) -> Result<(), LinkError> {
    if alias.len() > MAX_ALIAS || alias.contains('\0') {
        return Err(LinkError::BadName(alias.to_owned()));
    }
    change(rtnl, index, "set the alias of", (0, 0), |request| {
        request.attr(IFLA_IFALIAS, alias.as_bytes());
    })
}

/// Makes a link a port of a bridge, or (`None`) of no bridge.
pub fn set_master(rtnl: &Rtnl, index: IfIndex, master: Option<IfIndex>) -> Result<(), LinkError> {
    change(rtnl, index, "set the master of", (0, 0), |request| {
        request.attr_u32(IFLA_MASTER, master.map_or(0, |master| master.0));
    })
}

/// Deletes a link (and with it a veth's far end); success when it is not there. Takes tens of
/// milliseconds in the kernel: keep it off a reply's path.
pub fn delete(rtnl: &Rtnl, index: IfIndex) -> Result<(), LinkError> {
    let mut request = Request::new(RTM_DELLINK, 0);
    request.bytes(&ifinfomsg(index.0, 0, 0));
    match rtnl.netlink().request(request) {
        Err(error) if error.errno() == Some(Errno::ENODEV) => Ok(()),
        other => {
            other.map_err(|source| LinkError::from_netlink("delete", index.to_string(), source))
        }
    }
}

fn change(
    rtnl: &Rtnl,
    index: IfIndex,
    action: &'static str,
    (flags, mask): (u32, u32),
    fill: impl FnOnce(&mut Request),
) -> Result<(), LinkError> {
    let mut request = Request::new(RTM_SETLINK, 0);
    request.bytes(&ifinfomsg(index.0, flags, mask));
    fill(&mut request);
    rtnl.netlink()
        .request(request)
        .map_err(|source| LinkError::from_netlink(action, index.to_string(), source))
}

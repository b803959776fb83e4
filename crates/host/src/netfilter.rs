//! Per-device drop chains in `table netdev antrea`, by raw netlink: 0.1 ms where starting `nft`
//! takes 3.
//!
//! Userspace Open vSwitch sees a copy of each frame by AF_PACKET; the kernel's own copy has to be
//! dropped, or the node answers and forwards beside the switch. The chain hooks the device's
//! ingress behind the taps, its policy is drop and it has no rule:
//! ```text
//!   table netdev antrea {
//!       chain drop-web-1f3c { type filter hook ingress device "web-1f3c" priority 0; policy drop; }
//!   }
//! ```
//! It is set before the link is brought up. `nft list ruleset` shows it, and `nft flush ruleset`
//! takes it away: [`Watch`] wakes the owner, who compares [`DropChains::list`] with what it
//! wants and puts back what is missing.
//! Not here: `table inet antrea` ([`crate::nft`]).

mod watch;

use std::sync::Arc;

use nix::errno::Errno;

pub use self::watch::{TableFamily, Watch};
use crate::link::is_valid_name;
use crate::netlink::{Family, Netlink, NetlinkError, nfgenmsg};
use crate::netns::Netns;
use crate::uapi::*;
use crate::wire::{Attrs, Request, be32, string};

const TABLE: &str = "antrea";
const PREFIX: &str = "drop-";
const COMMENT: &str = "kernel copy of what OVS takes";
/// Tag of a comment inside the user data that `nft` keeps beside a chain.
const UDATA_CHAIN_COMMENT: u8 = 0;

/// Why a drop chain could not be made, removed or listed.
#[derive(Debug, thiserror::Error)]
pub enum NetfilterError {
    /// The device is not there; older kernels hook only what exists.
    #[error("link {0} not found")]
    NoDevice(String),
    /// The kernel refused.
    #[error("{action} drop chain of {device}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// Of which device.
        device: String,
        /// Why not.
        source: NetlinkError,
    },
    /// The chains could not be listed.
    #[error("list drop chains")]
    List(#[source] NetlinkError),
}

/// A handle on the drop chains of one network namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DropChains {
    netlink: Arc<Netlink>,
}

/// A drop chain that is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DropChain {
    /// The device it was made for, by the chain's name.
    pub device: String,
    /// The devices the kernel hooks; none once the device is gone on some kernels.
    pub hooked: Vec<String>,
    /// Whether it drops what no rule of it accepts.
    pub drops: bool,
}

impl DropChain {
    /// Whether it does its work for its device.
    pub fn is_right(&self) -> bool {
        self.drops && self.hooked == [self.device.as_str()]
    }
}

impl DropChains {
    /// Opens a handle on the calling thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { netlink: Arc::new(Netlink::open(Family::Netfilter)?) })
    }

    /// Opens a handle on another namespace; it stays there.
    pub fn open_in(netns: &Netns) -> Result<Self, NetlinkError> {
        netns.run(Self::open)?
    }

    /// Drops the kernel's copy of what comes in by this device; success when it does already.
    pub fn add(&self, device: &str) -> Result<(), NetfilterError> {
        check(device)?;
        match self.send(vec![new_table(), new_chain(device)], "add", device) {
            // A chain of this name stands elsewhere (the device was deleted and made again, or a
            // hand was at it): it is made anew in the same instant.
            Err(NetfilterError::Refused { source, .. })
                if matches!(source.errno(), Some(Errno::EEXIST | Errno::EOPNOTSUPP)) =>
            {
                let anew = vec![new_table(), delete_chain(device), new_chain(device)];
                self.send(anew, "add", device)
            }
            other => other,
        }
    }

    /// Removes the drop chain of a device; success when it is not there.
    pub fn delete(&self, device: &str) -> Result<(), NetfilterError> {
        check(device)?;
        self.send_delete(delete_chain(device), "delete", device)
    }

    /// The drop chains that are there, in order of device.
    pub fn list(&self) -> Result<Vec<DropChain>, NetfilterError> {
        let mut chains = self
            .netlink
            .dump(&message(NFT_MSG_GETCHAIN, 0), |reply| parse(reply.payload))
            .map_err(NetfilterError::List)?;
        chains.sort();
        Ok(chains)
    }

    /// Removes the whole `table netdev antrea`; success when it is not there.
    pub fn delete_all(&self) -> Result<(), NetfilterError> {
        let mut table = message(NFT_MSG_DELTABLE, 0);
        table.attr_str(NFTA_TABLE_NAME, TABLE);
        self.send_delete(table, "delete", "all devices")
    }

    fn send_delete(
        &self,
        request: Request,
        action: &'static str,
        device: &str,
    ) -> Result<(), NetfilterError> {
        match self.send(vec![request], action, device) {
            Err(NetfilterError::NoDevice(_)) => Ok(()),
            other => other,
        }
    }

    fn send(
        &self,
        requests: Vec<Request>,
        action: &'static str,
        device: &str,
    ) -> Result<(), NetfilterError> {
        self.netlink.transaction(NFNL_SUBSYS_NFTABLES, requests).map_err(|source| {
            match source.errno() {
                Some(Errno::ENOENT | Errno::ENODEV) => NetfilterError::NoDevice(device.to_owned()),
                _ => NetfilterError::Refused { action, device: device.to_owned(), source },
            }
        })
    }
}

fn check(device: &str) -> Result<(), NetfilterError> {
    if is_valid_name(device) { Ok(()) } else { Err(NetfilterError::NoDevice(device.to_owned())) }
}

fn chain_name(device: &str) -> String {
    format!("{PREFIX}{device}")
}

fn message(kind: u16, flags: u16) -> Request {
    let mut request = Request::new(NFNL_SUBSYS_NFTABLES << 8 | kind, flags);
    request.bytes(&nfgenmsg(NFPROTO_NETDEV, 0));
    request
}

/// Takes the table as it is when it exists: there is no NLM_F_EXCL.
fn new_table() -> Request {
    let mut table = message(NFT_MSG_NEWTABLE, NLM_F_CREATE);
    table.attr_str(NFTA_TABLE_NAME, TABLE);
    table
}

/// Takes the chain as it is when it exists with this hook.
fn new_chain(device: &str) -> Request {
    let mut chain = message(NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    chain.attr_str(NFTA_CHAIN_TABLE, TABLE);
    chain.attr_str(NFTA_CHAIN_NAME, &chain_name(device));
    chain.nest(NFTA_CHAIN_HOOK, |hook| {
        hook.attr_be32(NFTA_HOOK_HOOKNUM, NF_NETDEV_INGRESS);
        hook.attr_be32(NFTA_HOOK_PRIORITY, 0);
        hook.attr_str(NFTA_HOOK_DEV, device);
    });
    chain.attr_be32(NFTA_CHAIN_POLICY, NF_DROP);
    chain.attr_str(NFTA_CHAIN_TYPE, "filter");
    chain.attr(NFTA_CHAIN_USERDATA, &comment());
    chain
}

fn delete_chain(device: &str) -> Request {
    let mut chain = message(NFT_MSG_DELCHAIN, 0);
    chain.attr_str(NFTA_CHAIN_TABLE, TABLE);
    chain.attr_str(NFTA_CHAIN_NAME, &chain_name(device));
    chain
}

/// User data is a list of tag:u8, length:u8, value; a comment's value ends with NUL.
fn comment() -> Vec<u8> {
    let length = u8::try_from(COMMENT.len() + 1).expect("the comment is short");
    let mut bytes = vec![UDATA_CHAIN_COMMENT, length];
    bytes.extend_from_slice(COMMENT.as_bytes());
    bytes.push(0);
    bytes
}

fn parse(payload: &[u8]) -> Option<DropChain> {
    let attrs = Attrs::after(payload, 4);
    if payload.first() != Some(&NFPROTO_NETDEV) || string(attrs.find(NFTA_CHAIN_TABLE)?) != TABLE {
        return None;
    }
    let device = string(attrs.find(NFTA_CHAIN_NAME)?).strip_prefix(PREFIX)?.to_owned();
    let mut hooked = Vec::new();
    if let Some(hook) = attrs.find(NFTA_CHAIN_HOOK) {
        for (kind, value) in Attrs(hook) {
            match kind {
                NFTA_HOOK_DEV => hooked.push(string(value)),
                NFTA_HOOK_DEVS => hooked.extend(
                    Attrs(value)
                        .filter(|(kind, _)| *kind == NFTA_DEVICE_NAME)
                        .map(|(_, name)| string(name)),
                ),
                _ => {}
            }
        }
    }
    hooked.dedup();
    let drops = attrs.find(NFTA_CHAIN_POLICY).and_then(be32) == Some(NF_DROP);
    Some(DropChain { device, hooked, drops })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_read_without_panic() {
        for end in 0..300 {
            let _ = parse(&vec![NFPROTO_NETDEV; end]);
            let _ = parse(&vec![0xff; end]);
        }
    }
}

//! Linux networking of a node, without `ip`, `ethtool`, `sysctl` or a shell.
//!
//! Turns requests about links, addresses, routes, neighbours, namespaces, kernel parameters,
//! offloads, conntrack and nftables into netlink messages and system calls; only `nft`, `iptables`
//! and CNI IPAM plugins are run as programs. Netlink calls are synchronous, because the kernel does
//! their work inside the system call; [`Rtnl::call`] takes them off an async thread.
//!
//! Deleting what is gone is success everywhere. Every error says what was tried, and on what.
//! Not here: Open vSwitch (`switch`), decisions what a node needs (the agent).

pub mod address;
pub mod command;
pub mod conntrack;
pub mod garp;
pub mod ipam;
pub mod iptables_forward;
pub mod iptables_leftovers;
pub mod link;
pub mod mac;
pub mod memory;
pub mod monitor;
pub mod neighbour;
pub mod netfilter;
pub mod netlink;
pub mod netns;
pub mod nft;
pub mod offload;
pub mod route;
pub mod service;
pub mod sysctl;
mod uapi;
pub mod uplink;
mod wire;

pub use mac::{IfIndex, MacAddr};
pub use netlink::{NetlinkError, Rtnl};
pub use netns::Netns;

//! The CNI server on a real node: namespaces, netlink, Open vSwitch's userspace datapath, lease
//! files and the plugin's own code. Judged by `ip`, `ovs-vsctl`, `ovs-ofctl`, `nft` and packets.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test")]

mod cni_real {
    pub(crate) mod node;

    mod chain;
    mod connect;
    mod damage;
    mod database;
    mod parallel;
    mod switch_away;
}

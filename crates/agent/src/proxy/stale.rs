//! Forgets UDP connections to servers and addresses that are gone: a client that keeps its port would
//! be sent there for ever.
//!
//! On the `system` datapath connections are the kernel's, on the userspace one ovs-vswitchd has a
//! table of its own.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use host::conntrack::{Conntrack, Filter};
use pipeline::fields::{CT_ZONE, CT_ZONE_V6, VIRTUAL_NODE_PORT_IP, VIRTUAL_NODE_PORT_IP_V6};
use pipeline::service::FrontendAddress;
use services::Stale;
use switch::unixctl::{UnixCtl, UnixCtlError};

const FLUSH: &str = "dpctl/flush-conntrack";
const UDP: u8 = 17;

/// The table of connections that the datapath uses.
#[derive(Clone, Debug)]
pub(crate) enum Forget {
    /// The kernel's.
    Kernel(Conntrack),
    /// That of the ovs-vswitchd which runs with this directory.
    Userspace(PathBuf),
}

impl Forget {
    /// Forgets all of these; goes on where one fails, and returns the first failure.
    pub(super) async fn forget(&self, stale: &BTreeSet<Stale>) -> Result<()> {
        let mut outcome = Ok(());
        for one in stale {
            let forgotten = match self {
                Self::Kernel(conntrack) => conntrack
                    .delete_async(filter(one))
                    .await
                    .map(drop)
                    .context("forget connections of the kernel"),
                Self::Userspace(run_dir) => {
                    flush(run_dir, one).await.context("forget connections of ovs-vswitchd")
                }
            };
            outcome = outcome.and(forgotten);
        }
        outcome
    }
}

async fn flush(run_dir: &std::path::Path, stale: &Stale) -> Result<(), UnixCtlError> {
    // Found anew each time: its name changes when ovs-vswitchd starts again.
    let ctl = UnixCtl::find(run_dir)?;
    let words = words(stale);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    ctl.call(FLUSH, &words).await.map(drop)
}

/// The address as the switch sees it.
fn dialled(address: FrontendAddress) -> IpAddr {
    match address {
        FrontendAddress::Ip(ip) => ip,
        FrontendAddress::NodePort { ipv6: false } => VIRTUAL_NODE_PORT_IP.into(),
        FrontendAddress::NodePort { ipv6: true } => VIRTUAL_NODE_PORT_IP_V6.into(),
    }
}

fn zone(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { CT_ZONE } else { CT_ZONE_V6 }
}

fn filter(stale: &Stale) -> Filter {
    let ip = dialled(stale.address);
    Filter {
        zone: Some(zone(ip)),
        protocol: Some(UDP),
        dst: Some(ip),
        dst_port: Some(stale.port),
        server: stale.server,
        ..Filter::default()
    }
}

/// Arguments of the command: a zone, what the client sent, and where answers come from.
fn words(stale: &Stale) -> Vec<String> {
    let ip = dialled(stale.address);
    let name = if ip.is_ipv4() { "nw" } else { "ipv6" };
    let mut words = vec![
        format!("zone={}", zone(ip)),
        format!("ct_{name}_dst={ip},ct_nw_proto={UDP},ct_tp_dst={}", stale.port),
    ];
    words.extend(stale.server.map(|(server, port)| {
        format!("ct_{name}_src={server},ct_nw_proto={UDP},ct_tp_src={port}")
    }));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_said_to_either_table() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let cluster = Stale {
            address: FrontendAddress::Ip(ip("10.96.0.10")),
            port: 53,
            server: Some((ip("10.1.0.7"), 5353)),
        };
        assert_eq!(
            words(&cluster),
            [
                "zone=65520",
                "ct_nw_dst=10.96.0.10,ct_nw_proto=17,ct_tp_dst=53",
                "ct_nw_src=10.1.0.7,ct_nw_proto=17,ct_tp_src=5353",
            ]
        );
        let seen = filter(&cluster);
        assert_eq!(
            (seen.zone, seen.dst, seen.dst_port),
            (Some(65520), Some(ip("10.96.0.10")), Some(53))
        );
        assert_eq!(seen.server, cluster.server);
        let node_port =
            Stale { address: FrontendAddress::NodePort { ipv6: true }, port: 30053, server: None };
        assert_eq!(
            words(&node_port),
            ["zone=65510", "ct_ipv6_dst=fc01::aabb:ccdd:eefe,ct_nw_proto=17,ct_tp_dst=30053"]
        );
    }
}

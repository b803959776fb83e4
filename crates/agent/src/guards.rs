//! Puts back the drop chains of the userspace datapath when someone took them away.
//!
//! Without its chain a link's frames reach the node's kernel as well (see `netdev`). `nft flush
//! ruleset` by hand, or another program's restart, removes them; this loop is woken by any change
//! of nftables and adds what is missing. It only adds: chains of requests under way are not its
//! business.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use host::link;
use host::netfilter::{DropChains, NetfilterError, TableFamily, Watch};
use host::netlink::Rtnl;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cni::PodRecord;

/// A look without a wake-up, in case one was lost.
const PATROL: Duration = Duration::from_secs(60);

/// The loop and its sources.
pub struct Guards {
    /// The kernel of this node.
    pub rtnl: Rtnl,
    /// The link that `br-phy` holds.
    pub uplink: String,
    /// Pod interfaces.
    pub interfaces: watch::Receiver<Arc<Vec<PodRecord>>>,
}

impl Guards {
    /// Runs until cancelled.
    pub async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let drops = DropChains::open().context("open netfilter")?;
        let mut changes =
            Watch::open_in(self.rtnl.netns(), TableFamily::Netdev).context("follow nftables")?;
        loop {
            let interfaces = self.interfaces.borrow_and_update().clone();
            let pods = interfaces.iter().map(|record| record.host_name.to_string());
            let devices: Vec<String> = [self.uplink.clone()].into_iter().chain(pods).collect();
            let drops = drops.clone();
            let mended = self.rtnl.call(move |rtnl| mend(rtnl, &drops, &devices)).await?;
            match mended {
                Ok(mended) if mended.is_empty() => {}
                Ok(mended) => tracing::warn!(links = ?mended, "drop chains were missing: put back"),
                Err(error) => tracing::error!("drop chains: {error:#}"),
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                changed = changes.changed() => changed.context("follow nftables")?,
                // A chain that went before its Pod was known was nobody's when it went.
                changed = self.interfaces.changed() => if changed.is_err() { return Ok(()) },
                () = tokio::time::sleep(PATROL) => {}
            }
        }
    }
}

/// Adds the chains that are missing or not right, and returns for which links.
fn mend(rtnl: &Rtnl, drops: &DropChains, devices: &[String]) -> Result<Vec<String>> {
    let present = drops.list()?;
    let mut mended = Vec::new();
    for device in devices {
        if present.iter().any(|chain| chain.device == *device && chain.is_right()) {
            continue;
        }
        if link::find_by_name(rtnl, device)?.is_none() {
            continue;
        }
        match drops.add(device) {
            Err(NetfilterError::NoDevice(_)) => continue,
            added => added?,
        }
        // The link may have gone between: then the chain goes too, as some kernels keep it.
        if link::find_by_name(rtnl, device)?.is_none() {
            drops.delete(device)?;
            continue;
        }
        mended.push(device.clone());
    }
    Ok(mended)
}

#[cfg(test)]
mod tests {
    use host::link::create_veth_pair;
    use testkit::netns::{in_netns, sh};

    use super::*;

    fn mk_record(host_name: &str) -> PodRecord {
        PodRecord {
            attachment: cni_api::Attachment::new("c1", "eth0").unwrap(),
            pod: crate::cni::PodName::default(),
            netns: String::new(),
            network: String::new(),
            host_name: crate::cni::HostIfName::existing(host_name),
            mac: openflow::MacAddr([0; 6]),
            ips: Vec::new(),
            ofport: openflow::OfPort(70),
        }
    }

    #[test]
    #[ignore = "needs root: make test"]
    fn a_pod_that_came_without_its_chain_gets_it() {
        in_netns(|| {
            let rtnl = Rtnl::open().unwrap();
            create_veth_pair(&rtnl, "pod-a", "far-a", 1500).unwrap();
            create_veth_pair(&rtnl, "up", "far-up", 1500).unwrap();
            let (interfaces_tx, interfaces) = watch::channel(Arc::new(Vec::new()));
            let guards = Guards { rtnl, uplink: "up".into(), interfaces };
            let stop = CancellationToken::new();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let guarded = async |device: &str| {
                    let chains = DropChains::open().unwrap();
                    let wait = async {
                        while !chains.list().unwrap().iter().any(|chain| chain.device == device) {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    };
                    tokio::time::timeout(Duration::from_secs(20), wait).await.expect(device);
                };
                let watcher = async {
                    guarded("up").await;
                    // The chain went while the Pod was being connected.
                    interfaces_tx.send_replace(Arc::new(vec![mk_record("pod-a")]));
                    guarded("pod-a").await;
                    stop.cancel();
                };
                let (ended, ()) = tokio::join!(guards.run(stop.clone()), watcher);
                ended.unwrap();
            });
        });
    }

    #[test]
    #[ignore = "needs root: make test"]
    fn flushed_chains_come_back_and_absent_links_get_none() {
        in_netns(|| {
            let rtnl = Rtnl::open().unwrap();
            let drops = DropChains::open().unwrap();
            create_veth_pair(&rtnl, "pod-a", "far-a", 1500).unwrap();
            let devices = ["pod-a".to_owned(), "gone".to_owned()];
            assert_eq!(mend(&rtnl, &drops, &devices).unwrap(), ["pod-a"]);
            assert!(mend(&rtnl, &drops, &devices).unwrap().is_empty());
            sh("nft flush ruleset");
            assert_eq!(mend(&rtnl, &drops, &devices).unwrap(), ["pod-a"]);
            let seen = sh("nft list ruleset");
            assert!(seen.contains("policy drop") && seen.contains("pod-a"), "{seen}");
            assert!(!seen.contains("gone"), "{seen}");
        });
    }
}

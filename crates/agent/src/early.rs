//! Services on a node that has no Pod CIDR yet (`proxyAll`).
//!
//! Without kube-proxy nobody else leads the node's own processes to the `kubernetes` Service, and
//! among them may be the controller that gives nodes their Pod CIDRs. So the node is brought up
//! without Pod addresses, and programs of the hosts are reached; endpoints that are Pods of other
//! nodes have to wait. Once the Pod CIDR is there all of this ends and the agent comes up as ever: it
//! finds the flows on the switch and sends what differs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube_io::Client;
use services::HostWants;
use switch::bridge::Bridge;
use switch::ovsdb_session::OvsdbSession;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bring_up::{self, FIRST_OWNERS, Ground};
use crate::gateway::LayoutFound;
use crate::health::NodeHealth;
use crate::nodes::{ClusterNode, NodeList};
use crate::options::Options;
use crate::policy;
use crate::proxy::setup;

/// What an earlier agent left on the bridge is nobody's to delete before the node is complete.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// How long what was set last may take to be on the switch, and what runs to end.
const LAST_PATIENCE: Duration = Duration::from_secs(10);

/// What it takes to serve.
pub(crate) struct Early<'a> {
    pub(crate) options: &'a Options,
    pub(crate) ovsdb: &'a OvsdbSession,
    pub(crate) client: &'a Client,
    pub(crate) nodes_rx: &'a watch::Receiver<NodeList>,
    pub(crate) health: &'a NodeHealth,
}

impl Early<'_> {
    /// Serves until the node has a Pod CIDR, and gives what Services want of the host: the gateway is
    /// about to get another MAC, which costs its routes, and they have to be there again at once.
    ///
    /// # Errors
    /// When the node cannot be brought up, or is another one than before.
    pub(crate) async fn serve(
        &self,
        ground: &Ground,
        own: &ClusterNode,
    ) -> Result<Option<Arc<HostWants>>> {
        tracing::info!(
            "this node has no Pod CIDR yet: Services are served to its own programs meanwhile"
        );
        let network = bring_up::bring_up(self.options, self.ovsdb, ground, own).await?;
        // No Pod is there for policies to protect.
        let bridge = bring_up::start_bridge(self.options, &network, NEVER, Vec::new());
        let (host_tx, host_rx) = watch::channel(None);
        let first_list = self.nodes_rx.borrow().clone();
        let (node_loop, _) = bring_up::lay(
            self.options,
            &network,
            &bridge,
            self.health,
            &first_list,
            host_rx.clone(),
        )
        .await?;
        if network.layout == LayoutFound::Other {
            // Nothing is sent before all say so, and flows of another layout are of no use.
            for owner in FIRST_OWNERS {
                bridge.synced(owner);
            }
        }
        // Policies are about Pods.
        let (policies, _) = policy::channel();
        let shown = setup::Shown { counts_tx: watch::Sender::default(), host_tx, policies };
        let seen = (self.client, self.nodes_rx.clone());
        let node = &network.node;
        let services = setup::prepare(self.options, network.datapath, node, &bridge, seen, shown)?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(services.run(stop.clone()));
        tasks.spawn(node_loop.run(self.nodes_rx.clone(), stop.clone()));
        tokio::select! {
            biased;
            complete = complete(self.nodes_rx.clone(), &self.options.node_name) => complete?,
            ended = tasks.join_next() => match ended {
                Some(ended) => ended.context("a task of the agent panicked").flatten()?,
                None => bail!("the tasks of the agent ended by themselves"),
            },
        }
        end(&bridge, &stop, tasks).await;
        tracing::info!("this node has its Pod CIDR");
        let wants = host_rx.borrow().clone();
        Ok(wants)
    }
}

/// Waits until the node's entry in the list has a Pod CIDR.
async fn complete(mut nodes_rx: watch::Receiver<NodeList>, own_name: &str) -> Result<()> {
    let has_cidr = |nodes: &NodeList| {
        let own = nodes.iter().flat_map(|nodes| nodes.iter()).find(|node| node.name == own_name);
        own.is_some_and(|own| !own.pod_cidrs.is_empty())
    };
    nodes_rx.wait_for(has_cidr).await.map(drop).context("the list of nodes ended")
}

/// Ends what runs, so that nobody but the next one writes to the bridge.
async fn end(bridge: &Bridge, stop: &CancellationToken, mut tasks: JoinSet<Result<()>>) {
    stop.cancel();
    let ended = async {
        while tasks.join_next().await.is_some() {}
        // What is on its way arrives. What is refused is seen again.
        let _ = bridge.barrier().await;
    };
    if tokio::time::timeout(LAST_PATIENCE, ended).await.is_err() {
        tracing::warn!("what served Services until now did not end in time: given up");
    }
    tasks.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_is_complete_once_it_has_a_pod_cidr() {
        let mk = |name: &str, cidr: &str| ClusterNode {
            name: name.into(),
            pod_cidrs: cidr.parse().into_iter().collect(),
            addresses: Vec::new(),
            zone: None,
        };
        let list = |own: &str| Some(Arc::new(vec![mk("other", "10.1.1.0/24"), mk("us", own)]));
        let (nodes_tx, nodes_rx) = watch::channel(list(""));
        let mut waiting = std::pin::pin!(complete(nodes_rx, "us"));
        assert!(futures::poll!(&mut waiting).is_pending());
        nodes_tx.send_replace(None);
        assert!(futures::poll!(&mut waiting).is_pending(), "nothing is known for a while");
        nodes_tx.send_replace(list("10.1.0.0/24"));
        waiting.await.unwrap();
    }
}

//! A node and its Pods: what the node itself sends reaches them whatever policies say, as probes of
//! the kubelet have to. What it forwards for others does not, though it may masquerade it, so that
//! both come from the gateway's address.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::super::spoof_windows::nft;
use super::IN_FORCE;
use super::table::PORTS;
use crate::addressing;
use crate::cluster;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::NodeLayout;
use crate::pods;
use crate::probe;
use crate::sandbox::Sandbox;
use crate::state::Store;

/// Port of the node that leads to the Pod.
const FORWARDED: u16 = 18080;
/// How long an exchange may take.
const ANSWER: Duration = Duration::from_secs(2);
/// How long is waited for an answer that must not come.
const SILENCE: Duration = Duration::from_millis(400);
/// Exchanges that must fail in a row, and those of the node that must not.
const IN_A_ROW: usize = 5;

const POLICY: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: only-its-node, namespace: \"x\"}
spec:
  podSelector: {matchLabels: {pod: a}}
  policyTypes: [Ingress]
";

/// Forwards a port of the node to a Pod, for others and for the node itself, and masquerades what goes
/// there; no longer once dropped.
struct Forward<'a>(&'a NodeLayout);

impl<'a> Forward<'a> {
    fn start(node: &'a NodeLayout, from: IpAddr, to: SocketAddr) -> Result<Self> {
        let (ip, pod) = (if from.is_ipv4() { "ip" } else { "ip6" }, to.ip());
        let text = format!(
            "add table inet forward; \
             add chain inet forward there {{ type nat hook prerouting priority dstnat; }}; \
             add chain inet forward out {{ type nat hook output priority -100; }}; \
             add chain inet forward back {{ type nat hook postrouting priority srcnat; }}; \
             add rule inet forward there {ip} daddr {from} tcp dport {FORWARDED} dnat {ip} to {to}; \
             add rule inet forward out {ip} daddr {from} tcp dport {FORWARDED} dnat {ip} to {to}; \
             add rule inet forward back {ip} daddr {pod} masquerade"
        );
        let forward = Self(node);
        nft(node, &[&text])?;
        Ok(forward)
    }
}

impl Drop for Forward<'_> {
    fn drop(&mut self) {
        let _ = nft(self.0, &["delete table inet forward"]);
    }
}

/// Tries both for each address of the Pod x/a. Returns how many exchanges were made.
pub(super) fn run(store: &Store) -> Result<usize> {
    let sandbox = pods::find(store, "x/a")?;
    let state = store.get();
    let place = state.nodes.iter().find(|node| node.name == sandbox.node);
    let n = place.ok_or_else(|| LabError::new("the Pod is on no node of the lab"))?.n;
    let node = store.layout().node(&sandbox.node);
    let mut n_exchanges = 0;
    for address in sandbox.addresses() {
        let of_node = addressing::node(state.variant.family, n);
        let from = of_node.into_iter().find(|own| own.is_ipv4() == address.is_ipv4());
        let from = from.ok_or_else(|| LabError::new(format!("{} has no address", sandbox.node)))?;
        n_exchanges += through(store, &node, &sandbox, SocketAddr::new(from, FORWARDED), address)
            .doing(|| format!("{address} behind {from}"))?;
    }
    Ok(n_exchanges)
}

fn through(
    store: &Store,
    node: &NodeLayout,
    sandbox: &Sandbox,
    front: SocketAddr,
    address: IpAddr,
) -> Result<usize> {
    let target = SocketAddr::new(address, PORTS[0]);
    let outside = store.layout().outside_netns();
    let _forward = Forward::start(node, front.ip(), target)?;
    let seen = probe::tcp_who(&outside, front, ANSWER).doing(|| "without a policy".into())?.peer;
    if !sandbox.gateways().contains(&seen) {
        return Err(LabError::new(format!("not masqueraded: the Pod saw {seen}")));
    }
    cluster::apply(store, POLICY)?;
    let refused = || probe::tcp_who(&outside, front, SILENCE).is_err();
    wait_for(IN_FORCE, "what the node forwards is denied", || refused().then_some(()))?;
    for _ in 0..IN_A_ROW {
        if !refused() {
            return Err(LabError::new("what the node forwards and masquerades passes"));
        }
        own(node.netns(), target)?;
        // By the way that is another one only once the destination is translated.
        own(node.netns(), front)?;
    }
    super::delete(store, POLICY)?;
    wait_for(IN_FORCE, "what the node forwards is answered again", || (!refused()).then_some(()))?;
    Ok(2 + 3 * IN_A_ROW)
}

/// An exchange of the node itself.
fn own(netns: &Path, target: SocketAddr) -> Result<()> {
    let answer = probe::tcp_who(netns, target, ANSWER);
    answer.map(drop).doing(|| "the node itself and its isolated Pod".into())
}

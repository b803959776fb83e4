//! The audit log: which rule met which connection, for rules that ask for it and for Kubernetes
//! policies of a namespace that does.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kube_io::objects::ObjectPath;
use serde_json::json;

use super::carry_out;
use super::native::{acnp, gone};
use super::steps::policy;
use super::table::{Place, World};
use crate::cluster;
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::probe;
use crate::state::Store;

/// How long a connection is waited for that may not be answered.
const SHORT: Duration = Duration::from_millis(200);
/// How long an exchange may take that is allowed.
const LONG: Duration = Duration::from_secs(5);
/// Exchanges of which each makes a line.
const N_EXCHANGES: usize = 200;
/// The agent writes the date and the time before each line.
const N_TIME_WORDS: usize = 2;

/// A line that is expected; what differs from connection to connection is not in it.
struct Expected<'a> {
    from: &'a Place,
    table: &'static str,
    policy: &'static str,
    rule: &'static str,
    verdict: &'static str,
    label: &'static str,
}

/// Looks for the lines, and gives their number.
pub(super) fn run(store: &Store, world: &World) -> Result<usize> {
    annotate(store, "true")?;
    let policies = [
        acnp(
            "audited",
            "securityops",
            "5",
            "appliedTo:\n- namespaceSelector: {matchLabels: {ns: x}}\n  \
             podSelector: {matchLabels: {pod: a}}\ningress:\n\
             - {name: drop-y, action: Drop, enableLogging: true, logLabel: from-y, \
             from: [{namespaceSelector: {matchLabels: {ns: \"y\"}}}]}\n\
             - {name: allow-z, action: Allow, enableLogging: true, \
             from: [{namespaceSelector: {matchLabels: {ns: z}}}]}\n",
        ),
        policy(
            "x",
            "audited",
            "podSelector: {matchLabels: {pod: a}}\ningress:\n\
             - from: [{podSelector: {matchLabels: {pod: b}}}]",
        ),
    ];
    for policy in &policies {
        carry_out(store, policy)?;
    }
    let (tiered, native) = ("AntreaPolicyIngressRule", "AntreaClusterNetworkPolicy:audited");
    let line = |from, table, policy, rule, verdict, label| {
        let (namespace, pod) = from;
        let from = world.place(namespace, pod);
        Expected { from, table, policy, rule, verdict, label }
    };
    let expected = [
        line(("y", "a"), tiered, native, "drop-y", "Drop", "from-y"),
        line(("z", "a"), tiered, native, "allow-z", "Allow", "<nil>"),
        line(("x", "b"), "IngressRule", "K8sNetworkPolicy:x/audited", "<nil>", "Allow", "<nil>"),
        line(("x", "c"), "IngressDefaultRule", "K8sNetworkPolicy", "<nil>", "Drop", "<nil>"),
    ];
    let mut n_lines = 0;
    for expected in &expected {
        for address in &world.place("x", "a").addresses {
            await_line(store, expected, *address)?;
            n_lines += 1;
        }
    }
    nothing_lost(world)?;
    for policy in policies {
        carry_out(store, &gone(policy))?;
    }
    annotate(store, "false")?;
    Ok(n_lines)
}

/// Connects until the log of some node has the line.
fn await_line(store: &Store, expected: &Expected<'_>, to: IpAddr) -> Result<()> {
    let of_family = |ip: &&IpAddr| ip.is_ipv4() == to.is_ipv4();
    let from = expected.from.addresses.iter().find(of_family);
    let from = from.ok_or_else(|| LabError::new("the Pod has no address of the family"))?;
    let (src, dst) = (from.to_string(), to.to_string());
    let is_it = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().skip(N_TIME_WORDS).collect();
        let [table, policy, rule, way, verdict, _, pod, from, _, to, port, protocol, _, label, ..] =
            words[..]
        else {
            return false;
        };
        (table, policy, rule) == (expected.table, expected.policy, expected.rule)
            && (way, verdict, pod) == ("Ingress", expected.verdict, "x/a")
            && (from, to, port, protocol) == (&*src, &*dst, "80", "TCP")
            && label == expected.label
    };
    let what = format!(
        "a line of {} {} {} from {src} to {dst}",
        expected.table, expected.policy, expected.verdict
    );
    wait_for(Duration::from_secs(20), &what, || {
        let _ = probe::tcp_connect(&expected.from.netns, SocketAddr::new(to, 80), SHORT);
        logs(store).lines().any(is_it).then_some(())
    })
}

/// What all nodes have logged.
fn logs(store: &Store) -> String {
    let nodes = store.get().nodes;
    let log = |name: &str| store.layout().node(name).dir().join("log/networkpolicy/np.log");
    let texts = nodes.iter().map(|node| std::fs::read_to_string(log(&node.name)));
    texts.map(Result::unwrap_or_default).collect()
}

/// Each of many connections that are logged is answered.
fn nothing_lost(world: &World) -> Result<()> {
    let (from, to) = (world.place("z", "a"), world.place("x", "a"));
    let target = SocketAddr::new(to.addresses[0], 80);
    for n in 0..N_EXCHANGES {
        crate::interrupt::check()?;
        probe::tcp_who(&from.netns, target, LONG)
            .map_err(|error| LabError::new(format!("logged connection {n}: {}", error.chain())))?;
    }
    Ok(())
}

/// Whether Kubernetes policies of namespace `x` are logged.
fn annotate(store: &Store, value: &str) -> Result<()> {
    let path =
        ObjectPath { group: "", version: "v1", plural: "namespaces", namespace: None, name: "x" };
    let key = "networkpolicy.antrea.io/enable-logging";
    let patch = json!({"metadata": {"annotations": {key: value}}});
    cluster::run_async(async {
        let client = cluster::admin(store).await?;
        let set = kube_io::objects::merge(&client, path, &patch).await;
        set.map_err(|error| LabError::new(error.chain()))
    })
}

//! One agent with much to do: what it needs, and how long a policy with many peers takes.
//!
//! The node's Pods are real; the other nodes are objects of the API alone, and so are the peers of
//! the policies: addresses that nobody has.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{TryStreamExt, stream};
use kube_io::Client;
use kube_io::objects::{self, ObjectPath};
use serde_json::{Value, json};

use super::{Figure, on_lab, tenths};
use crate::error::{Doing, LabError, Result};
use crate::layout::NodeLayout;
use crate::process::ProcessId;
use crate::state::{Mode, Store};
use crate::ui::Progress;
use crate::up::UpOptions;
use crate::variant::Variant;
use crate::{agent, cluster, interrupt, ovs};

/// Pods on the node.
const N_PODS: usize = 100;
/// Nodes without anything behind them.
const N_NODES: usize = 999;
/// Policies, and the addresses that each of them lets in.
const N_POLICIES: usize = 1_000;
const N_PEERS: usize = 50;
/// Addresses that the one large policy lets in.
const N_MANY: usize = 15_000;
/// Requests at the same time.
const AT_ONCE: usize = 16;
/// Longest time until the switch has what is wanted.
const PATIENCE: Duration = Duration::from_secs(120);
/// After this time nothing is left of the changes but what they changed.
const SETTLED: Duration = Duration::from_secs(10);
/// Pause between two looks at the switch.
const LOOK: Duration = Duration::from_millis(5);

/// Measures on a lab of one node, which is ended afterwards.
///
/// # Errors
/// When the lab does not come up, or the switch does not get what is wanted.
pub fn run(dir: &Path, bin_dir: PathBuf, progress: &Progress) -> Result<Vec<Figure>> {
    let options = UpOptions::new(1, Variant::default(), Mode::Cluster, bin_dir);
    on_lab(dir, "benchl", &options, progress, measure)
}

fn measure(store: &Store, progress: &Progress) -> Result<Vec<Figure>> {
    let node = store.layout().node("node-1");
    let process = store.get().process(agent::ROLE, Some("node-1"));
    let process = process.ok_or_else(|| LabError::new("no agent runs"))?;
    let mut steps = Vec::new();
    let mut look = |what: &str| -> Result<()> {
        let (kb, flows) = (resident_kb(process)?, n_flows(&node)?);
        steps.push(json!({ "after": what, "residentKb": kb, "flows": flows }));
        Ok(())
    };
    look("start")?;
    cluster::make_pods(store, N_PODS, progress)?;
    look(&format!("{N_PODS} Pods"))?;
    let many = cluster::run_async(async {
        let client = cluster::admin(store).await?;
        progress.step(&format!("{N_NODES} Nodes"));
        let before = n_flows(&node)?;
        create_all(&client, (0..N_NODES).map(foreign_node)).await?;
        await_flows(&node, before + N_NODES).await?;
        look(&format!("{N_NODES} more Nodes"))?;

        progress.step(&format!("{N_POLICIES} policies with {N_PEERS} peers each"));
        let before = n_flows(&node)?;
        create_all(&client, (0..N_POLICIES).map(small_policy)).await?;
        await_flows(&node, before + N_POLICIES * N_PEERS).await?;
        look(&format!("{N_POLICIES} policies"))?;

        progress.step(&format!("a policy with {N_MANY} peers"));
        let before = n_flows(&node)?;
        let (path, policy) = large_policy();
        let begun = Instant::now();
        create(&client, &path, &policy).await?;
        await_flows(&node, before + N_MANY).await?;
        let took = begun.elapsed();
        look("the large policy")?;
        tokio::time::sleep(SETTLED).await;
        look("ten seconds later")?;
        Ok(took)
    })?;
    let first = |step: &Value| step["residentKb"].as_f64().unwrap_or_default();
    let flows = |step: &Value| step["flows"].as_f64().unwrap_or_default();
    let (start, end) = (&steps[0], &steps[steps.len() - 1]);
    let per_flow = (first(end) - first(start)) * 1024.0 / (flows(end) - flows(start)).max(1.0);
    Ok(vec![
        Figure {
            name: "agent with much to do".into(),
            values: json!({
                "atRestKb": first(start), "settledKb": first(end),
                "bytesPerFlow": per_flow.round(), "steps": steps,
            }),
            how: "VmRSS of antrea-agent and ovs-ofctl dump-aggregate br-int".into(),
        },
        Figure {
            name: format!("a policy with {N_MANY} distinct /32 peers"),
            values: json!({ "createdToOnTheSwitchMs": tenths(many.as_secs_f64() * 1e3) }),
            how: "before POST of a NetworkPolicy until dump-aggregate counts its flows".into(),
        },
    ])
}

fn resident_kb(process: ProcessId) -> Result<u64> {
    process.rss_kb().ok_or_else(|| LabError::new("the agent ended"))
}

fn n_flows(node: &NodeLayout) -> Result<usize> {
    let text = ovs::ofctl(node, "dump-aggregate", &[])?;
    let count = text.split("flow_count=").nth(1).and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| LabError::new(format!("no count of flows in: {}", text.trim())))
}

/// Waits until there are at least so many flows.
async fn await_flows(node: &NodeLayout, wanted: usize) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let there = n_flows(node)?;
        if there >= wanted {
            return Ok(());
        }
        interrupt::check()?;
        if Instant::now() > deadline {
            return Err(LabError::new(format!("the switch has {there} flows of {wanted}")));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Where an object goes, with names of its own.
struct Place {
    group: &'static str,
    plural: &'static str,
    namespace: Option<&'static str>,
    name: String,
}

async fn create(client: &Client, path: &Place, object: &Value) -> Result<()> {
    let Place { group, plural, namespace, name } = path;
    let path =
        ObjectPath { group, version: "v1", plural, namespace: *namespace, name: name.as_str() };
    let made = objects::create(client, path, object).await;
    made.map_err(|error| LabError::new(error.chain())).doing(|| format!("make {plural} {name}"))
}

async fn create_all(client: &Client, wanted: impl Iterator<Item = (Place, Value)>) -> Result<()> {
    stream::iter(wanted.map(Ok))
        .try_for_each_concurrent(AT_ONCE, |(path, object)| async move {
            create(client, &path, &object).await
        })
        .await
}

/// A Node with a prefix for Pods and an address, and no machine.
fn foreign_node(n: usize) -> (Place, Value) {
    let name = format!("foreign-{n}");
    let [high, low] = u16::try_from(n).unwrap_or_default().to_be_bytes();
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {
            "podCIDR": format!("10.{}.{low}.0/24", 200 + high),
            "podCIDRs": [format!("10.{}.{low}.0/24", 200 + high)],
            "unschedulable": true,
        },
        "status": {"addresses": [
            {"type": "InternalIP", "address": format!("172.31.{high}.{low}")},
        ]},
    });
    (Place { group: "", plural: "nodes", namespace: None, name }, node)
}

/// So many addresses that nobody has, from the `first` one on.
fn peers(first: usize, n: usize) -> Vec<Value> {
    let base = u32::from(Ipv4Addr::new(11, 0, 0, 0));
    let address = |i: usize| Ipv4Addr::from(base + u32::try_from(i).unwrap_or_default());
    (first..first + n).map(|i| json!({"ipBlock": {"cidr": format!("{}/32", address(i))}})).collect()
}

fn policy(name: String, selector: &Value, peers: Vec<Value>) -> (Place, Value) {
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "demo"},
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": peers}],
        },
    });
    let (group, plural) = ("networking.k8s.io", "networkpolicies");
    (Place { group, plural, namespace: Some("demo"), name }, policy)
}

fn small_policy(n: usize) -> (Place, Value) {
    policy(format!("small-{n}"), &json!({}), peers(n * N_PEERS, N_PEERS))
}

fn large_policy() -> (Place, Value) {
    policy("large".into(), &json!({}), peers(N_POLICIES * N_PEERS, N_MANY))
}

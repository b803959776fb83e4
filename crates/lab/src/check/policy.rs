//! Kubernetes NetworkPolicies: who reaches whom, as a table of real exchanges.
//!
//! Three namespaces with three Pods each, over TCP, UDP and SCTP, two ports. Each step changes something
//! and says which exchanges there are from then on; every other exchange must fail.

mod audit;
pub(super) mod controllers;
pub(super) mod faults;
pub(super) mod fqdn;
mod host;
mod knock;
pub(super) mod native;
pub(super) mod restarts;
mod steps;
mod table;
mod traffic;

use std::time::{Duration, Instant};

use kube_io::objects::ObjectPath;
use serde_json::json;

use super::cluster::nothing_forbidden;
use super::{Context, Lab, Outcome};
use crate::cluster;
use crate::error::{Doing, LabError, Result};
use crate::interrupt;
use crate::layout::Layout;
use crate::state::Store;
use crate::ui::Progress;
use crate::up::{self, UpOptions};
use steps::{Do, Scene};
use table::World;

/// A change is in force everywhere after this time at the latest.
const IN_FORCE: Duration = Duration::from_secs(30);

/// Namespaces and Pods of the tables.
pub(super) const NAMES: ([&str; 3], [&str; 3]) = (["x", "y", "z"], ["a", "b", "c"]);

/// Their manifests.
fn world() -> String {
    let (namespaces, pods) = NAMES;
    let mut text = String::new();
    for namespace in namespaces {
        // Quoted: some readers take a bare y for a boolean.
        text.push_str(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: \"{namespace}\", \
             labels: {{ns: \"{namespace}\"}}}}\n---\n"
        ));
        for pod in pods {
            text.push_str(&format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {pod}, namespace: \"{namespace}\", \
                 labels: {{pod: {pod}}}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
                 containers:\n"
            ));
            for port in table::PORTS {
                text.push_str(&format!(
                    "  - name: c{port}\n    image: antrea-lab/echo\n    ports:\n    \
                     - {{containerPort: {port}, name: serve-{port}-tcp, protocol: TCP}}\n    \
                     - {{containerPort: {port}, name: serve-{port}-udp, protocol: UDP}}\n    \
                     - {{containerPort: {port}, name: serve-{port}-sctp, protocol: SCTP}}\n"
                ));
            }
            text.push_str("---\n");
        }
    }
    text
}

/// A lab with the Pods of the tables.
pub(super) fn start(context: &Context<'_>, name: &str, n_nodes: u8) -> Result<(Lab, World)> {
    start_with(context, name, n_nodes, 1)
}

/// A lab with the Pods of the tables, and some controllers.
fn start_with(
    context: &Context<'_>,
    name: &str,
    n_nodes: u8,
    n_controllers: u8,
) -> Result<(Lab, World)> {
    let layout = Layout::beside(context.dir, name)?;
    let options = UpOptions { n_controllers, ..context.cluster(n_nodes) };
    let lab = Lab(up::run(&layout, &options, &Progress::start())?);
    cluster::apply(&lab.0, &world())?;
    let world = World::await_pods(&lab.0)?;
    Ok((lab, world))
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let (lab, world) = start(context, "policy", 2)?;
    let store = &lab.0;
    let world = world.with_sctp(store)?;
    let mut seen = Seen::default();
    world.await_table(&|_| true, IN_FORCE).doing(|| "before any policy".into())?;
    for scene in steps::all(&world) {
        interrupt::check()?;
        context.progress.step(scene.name);
        play(store, &world, &scene, &mut seen)?;
    }
    context.progress.step("the node itself, and what it forwards");
    seen.n_exchanges += host::run(store)?;
    nothing_forbidden(store)?;
    Ok(Outcome::Passed(json!({
        "tables": seen.n_tables,
        "exchanges": seen.n_exchanges,
        "longestTableMs": seen.longest.as_millis(),
    })))
}

#[derive(Default)]
struct Seen {
    n_tables: usize,
    n_exchanges: usize,
    longest: Duration,
}

/// Plays a scene to its end and takes back what it did.
fn play(store: &Store, world: &World, scene: &Scene, seen: &mut Seen) -> Result<()> {
    for (n, step) in scene.steps.iter().enumerate() {
        for what in &step.what {
            carry_out(store, what)?;
        }
        let began = Instant::now();
        world
            .await_table(&*step.allows, IN_FORCE)
            .doing(|| format!("{}, step {}", scene.name, n + 1))?;
        seen.n_tables += 1;
        seen.n_exchanges += world.n_cells();
        seen.longest = seen.longest.max(began.elapsed());
    }
    for what in &scene.undo {
        carry_out(store, what)?;
    }
    for step in &scene.steps {
        for what in &step.what {
            if let Do::Apply(text) = what {
                delete(store, text)?;
            }
        }
    }
    Ok(())
}

fn carry_out(store: &Store, what: &Do) -> Result<()> {
    match what {
        Do::Apply(text) => cluster::apply(store, text),
        Do::Delete(text) => delete(store, text),
        Do::LabelPod { namespace, pod, label } => {
            let namespace = Some(*namespace);
            let path =
                ObjectPath { group: "", version: "v1", plural: "pods", namespace, name: pod };
            set_label(store, path, *label)
        }
        Do::LabelNamespace { namespace, label } => {
            let (group, plural, name) = ("", "namespaces", *namespace);
            let path = ObjectPath { group, version: "v1", plural, namespace: None, name };
            set_label(store, path, *label)
        }
    }
}

fn set_label(store: &Store, path: ObjectPath<'_>, (key, value): (&str, &str)) -> Result<()> {
    let patch = json!({"metadata": {"labels": {key: value}}});
    cluster::run_async(async {
        let client = cluster::admin(store).await?;
        let set = kube_io::objects::merge(&client, path, &patch).await;
        set.map_err(|error| LabError::new(error.chain()))
    })
}

/// Deletes the policies and groups that a manifest names.
fn delete(store: &Store, text: &str) -> Result<()> {
    let object: serde_json::Value =
        serde_saphyr::from_str(text).doing(|| "read a manifest".into())?;
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = word(&object["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let plural = match object["kind"].as_str() {
        Some("NetworkPolicy") => "networkpolicies",
        Some("ClusterNetworkPolicy") => "clusternetworkpolicies",
        Some("ClusterGroup") => "clustergroups",
        other => return Err(LabError::new(format!("no way to delete a {other:?}"))),
    };
    let (namespace, name) =
        (word(&object["metadata"]["namespace"]), word(&object["metadata"]["name"]));
    let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let path = ObjectPath { group, version, plural, namespace, name: &name };
    cluster::run_async(async {
        let client = cluster::admin(store).await?;
        let deleted = kube_io::objects::delete(&client, path).await;
        deleted.map_err(|error| LabError::new(error.chain()))
    })
}

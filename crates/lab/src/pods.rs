//! Pods of a lab without an API server: made by hand, with the same runner as the kubelet's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::container::{ContainerSpec, RestartPolicy};
use crate::echo;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::probe;
use crate::sandbox::{PodIdentity, Runtime, Sandbox, SandboxPhase, builtin_server};
use crate::state::{Mode, Store};
use crate::up::POD_PATIENCE;

/// Name of the one container of such a Pod.
pub const CONTAINER: &str = "main";

/// A Pod as `pod list` shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// Its namespace in Kubernetes.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node it is on.
    pub node: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Its network namespace.
    pub netns: String,
    /// Its port on the bridge.
    pub port: Option<String>,
    /// How it is, in the words of `kubectl get pods`.
    pub state: String,
    /// More about that, where there is more.
    pub reason: Option<String>,
    /// Whether it has a network and its program runs.
    pub ready: bool,
}

/// All sandboxes of the lab, by node and age.
#[must_use]
pub fn all(store: &Store) -> Vec<Sandbox> {
    let nodes = store.get().nodes;
    nodes.iter().flat_map(|n| Runtime::new(store.layout(), &n.name).list()).collect()
}

/// All Pods that have a network of their own.
#[must_use]
pub fn ready(store: &Store) -> Vec<Sandbox> {
    let mut found = all(store);
    found.retain(|s| s.phase == SandboxPhase::Ready && !s.host_network && !s.is_dead());
    found
}

/// Finds a Pod by `NAME` or `NAMESPACE/NAME`.
///
/// # Errors
/// When there is none, or several.
pub fn find(store: &Store, name: &str) -> Result<Sandbox> {
    let mut found: Vec<Sandbox> =
        all(store).into_iter().filter(|s| s.pod.name == name || s.pod.key() == name).collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(LabError::new(format!("no Pod {name}"))
            .hint(format!("{} shows all", store.layout().command("pod list")))),
        _ => {
            Err(LabError::new(format!("several Pods are called {name}"))
                .hint("write NAMESPACE/NAME"))
        }
    }
}

/// Makes a Pod and waits until its program answers, if it is the built-in one.
///
/// # Errors
/// When its network or its program cannot be had; nothing of it is left then.
pub fn add(
    store: &Store,
    node: &str,
    pod: &PodIdentity,
    command: Option<Vec<String>>,
) -> Result<Sandbox> {
    refuse_with_api(store)?;
    store.get().node(node)?;
    validate(pod)?;
    let runtime = Runtime::new(store.layout(), node);
    if all(store).iter().any(|s| s.pod.namespace == pod.namespace && s.pod.name == pod.name) {
        return Err(LabError::new(format!("Pod {} exists", pod.key())).hint(format!(
            "{} removes it",
            store.layout().command(&format!("pod del {}", pod.key()))
        )));
    }
    let mut sandbox = runtime.reserve(pod, false, BTreeMap::new())?;
    let made = start(&runtime, &mut sandbox, command);
    if let Err(error) = made {
        // The first failure is what the user needs to see.
        if runtime.remove(&sandbox).is_err() {
            let _ = crate::netns::remove(&sandbox.netns);
            let _ = runtime.forget(&sandbox);
        }
        return Err(error);
    }
    Ok(sandbox)
}

/// Refuses names that Kubernetes would refuse.
fn validate(pod: &PodIdentity) -> Result<()> {
    let edge = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |text: &str| {
        let bytes = text.as_bytes();
        matches!((bytes.first(), bytes.last()), (Some(a), Some(z)) if edge(*a) && edge(*z))
            && bytes.len() <= 63
            && bytes.iter().all(|c| edge(*c) || *c == b'-')
    };
    let rule = "lower case letters, digits and '-', letters or digits at both ends, 63 at most";
    if pod.name.len() > 253 || !pod.name.split('.').all(label) {
        return Err(LabError::new(format!("{:?} is no name of a Pod", pod.name))
            .hint(format!("a name is parts joined by '.', each of {rule}; 253 in all")));
    }
    if !label(&pod.namespace) {
        return Err(LabError::new(format!("{:?} is no name of a namespace", pod.namespace))
            .hint(format!("a namespace is {rule}")));
    }
    Ok(())
}

fn start(runtime: &Runtime, sandbox: &mut Sandbox, command: Option<Vec<String>>) -> Result<()> {
    let key = sandbox.pod.key();
    runtime
        .attach(sandbox, POD_PATIENCE)
        .doing(|| format!("make Pod {key} on {}", sandbox.node))?;
    let builtin = command.is_none();
    let spec = match command {
        Some(argv) => ContainerSpec {
            argv,
            env: default_env(sandbox),
            cwd: None,
            restart: RestartPolicy::Never,
        },
        None => builtin_server(&key)?,
    };
    let container = runtime.launch(sandbox, CONTAINER, 0, &spec)?;
    if builtin {
        await_server(sandbox)?;
    } else {
        wait_for(Duration::from_secs(5), &format!("the program of {key} starts"), || {
            (container.running().is_some() || container.exit().is_some()).then_some(())
        })?;
        if let (None, Some(exit)) = (container.running(), container.exit()) {
            let why = exit.message.unwrap_or_else(|| format!("exit code {}", exit.code));
            return Err(LabError::new(format!("the program of Pod {key} does not start: {why}"))
                .hint("a Pod's program is one of this machine's file system, by its whole path"));
        }
    }
    Ok(())
}

/// Waits until the built-in server of a Pod answers inside its own namespace.
///
/// # Errors
/// When it does not in time.
pub fn await_server(sandbox: &Sandbox) -> Result<()> {
    let addresses = sandbox.addresses();
    if addresses.is_empty() {
        return Err(LabError::new(format!("Pod {} has no address", sandbox.pod.key())));
    }
    for address in addresses {
        let target = SocketAddr::new(address, echo::PORT);
        let what = format!("the server of {} answers at {address}", sandbox.pod.key());
        wait_for(Duration::from_secs(10), &what, || {
            probe::tcp_who(&sandbox.netns, target, Duration::from_secs(1)).ok()
        })?;
    }
    Ok(())
}

/// Removes a Pod.
///
/// # Errors
/// When CNI DEL fails; it can be tried again then.
pub fn del(store: &Store, sandbox: &Sandbox, grace: Duration) -> Result<()> {
    refuse_with_api(store)?;
    let runtime = Runtime::new(store.layout(), &sandbox.node);
    runtime.end_containers(sandbox, grace);
    runtime.remove(sandbox).doing(|| format!("remove Pod {}", sandbox.pod.key()))
}

/// Removes a Pod and makes it again in a new sandbox, with the same program.
///
/// # Errors
/// When one of both fails.
pub fn renew(store: &Store, sandbox: &Sandbox) -> Result<Sandbox> {
    let runtime = Runtime::new(store.layout(), &sandbox.node);
    let command = runtime.container(sandbox, CONTAINER, 0).spec().and_then(|spec| {
        let builtin = builtin_server(&sandbox.pod.key()).ok()?;
        (spec.argv != builtin.argv).then_some(spec.argv)
    });
    del(store, sandbox, Duration::ZERO)?;
    add(store, &sandbox.node, &sandbox.pod, command)
}

/// What `pod list` shows.
#[must_use]
pub fn rows(store: &Store) -> Vec<PodRow> {
    all(store)
        .into_iter()
        .map(|s| {
            let (state, reason) = Runtime::new(store.layout(), &s.node).words(&s);
            PodRow {
                addresses: s.addresses().iter().map(ToString::to_string).collect(),
                port: s.host_interface(),
                ready: state == "Running",
                state,
                reason,
                netns: s.netns.display().to_string(),
                namespace: s.pod.namespace,
                name: s.pod.name,
                node: s.node,
            }
        })
        .collect()
}

/// The environment of a Pod's program.
#[must_use]
pub fn default_env(sandbox: &Sandbox) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
        ("HOSTNAME".into(), sandbox.pod.name.clone()),
        ("HOME".into(), "/root".into()),
    ])
}

fn refuse_with_api(store: &Store) -> Result<()> {
    if store.get().mode == Mode::Standalone {
        return Ok(());
    }
    Err(LabError::new("this lab has an API server, Pods are made through it")
        .hint("use kubectl; antrea-lab pod add and del are for antrea-lab up --standalone"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        let long = "a".repeat(64);
        for (namespace, name, good) in [
            ("default", "web-0.x", true),
            ("default", "9", true),
            ("default", "Web", false),
            ("default", "a_b", false),
            ("default", "-a", false),
            ("default", "a..b", false),
            ("default", "", false),
            ("default", "../x", false),
            ("default", "a/b", false),
            ("default", long.as_str(), false),
            ("a.b", "web", false),
            ("", "web", false),
        ] {
            let pod =
                PodIdentity { namespace: namespace.into(), name: name.into(), uid: "u".into() };
            assert_eq!(validate(&pod).is_ok(), good, "{namespace}/{name}");
        }
    }
}

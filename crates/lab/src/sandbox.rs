//! Pod sandboxes of one node: a namespace, its attachment by CNI, and containers in it.
//!
//! What exists is recorded in one directory per sandbox before it is made, so that whoever comes
//! after a crash (the next kubelet, `down`) can go on or clean up. Used by the lab's kubelet and,
//! without an API server, by `antrea-lab pod`.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use rand::RngExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cni::{Attachment, CniFailure, NetworkList, Plugins};
use crate::container::{ContainerDir, ContainerSpec, RestartPolicy};
use crate::error::{Doing, LabError, Result};
use crate::layout::{Layout, NodeLayout};
use crate::{interrupt, netns, state};

/// Which Pod a sandbox belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodIdentity {
    /// Its namespace in Kubernetes.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl PodIdentity {
    /// Namespace and name, as kubectl writes them.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// How far a sandbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SandboxPhase {
    /// Namespace or attachment may be missing.
    Creating,
    /// Attached.
    Ready,
}

/// One sandbox, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// Its id, the container id of CNI.
    pub id: String,
    /// Its Pod.
    pub pod: PodIdentity,
    /// The node it is on.
    pub node: String,
    /// Its namespace: its own, or the node's for a Pod with the host's network.
    pub netns: PathBuf,
    /// Whether it uses the node's network.
    pub host_network: bool,
    /// How far it is.
    pub phase: SandboxPhase,
    /// When it was made.
    pub created: Timestamp,
    /// What plugins with capabilities were asked for.
    #[serde(default)]
    pub capabilities: BTreeMap<String, Value>,
    /// The result of CNI ADD.
    pub result: Option<Value>,
}

impl Sandbox {
    /// Addresses that ADD gave, in its order.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let Some(ips) = self.result.as_ref().and_then(|r| r["ips"].as_array()) else {
            return Vec::new();
        };
        ips.iter()
            .filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok())
            .collect()
    }

    /// Whether its namespace is gone, as after a reboot: it can only be removed then.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.phase == SandboxPhase::Ready && !self.host_network && !netns::exists(&self.netns)
    }

    /// Gateways that ADD gave, in its order.
    #[must_use]
    pub fn gateways(&self) -> Vec<IpAddr> {
        let ips = self.result.as_ref().and_then(|r| r["ips"].as_array());
        ips.into_iter().flatten().filter_map(|ip| ip["gateway"].as_str()?.parse().ok()).collect()
    }

    /// Name of the interface on the node's side, which is the port's name on the bridge.
    #[must_use]
    pub fn host_interface(&self) -> Option<String> {
        self.interface(|sandbox| sandbox.is_empty()).map(|(name, _)| name)
    }

    /// MAC address of the interface in the Pod.
    #[must_use]
    pub fn mac(&self) -> Option<String> {
        self.interface(|sandbox| !sandbox.is_empty()).map(|(_, mac)| mac)
    }

    fn interface(&self, wanted: impl Fn(&str) -> bool) -> Option<(String, String)> {
        let interfaces = self.result.as_ref()?["interfaces"].as_array()?;
        let found =
            interfaces.iter().find(|i| wanted(i["sandbox"].as_str().unwrap_or_default()))?;
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        Some((text("name"), text("mac")))
    }
}

/// Why a sandbox could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A plugin failed.
    #[error("attach the Pod to the network")]
    Cni(#[from] CniFailure),
    /// Something on the machine failed.
    #[error(transparent)]
    Machine(#[from] LabError),
}

/// Makes and removes the sandboxes of one node.
#[derive(Clone, Debug)]
pub struct Runtime {
    layout: Layout,
    node: NodeLayout,
    node_name: String,
    plugins: Plugins,
}

impl Runtime {
    /// The runtime of a node.
    #[must_use]
    pub fn new(layout: &Layout, node_name: &str) -> Self {
        let node = layout.node(node_name);
        let plugins = Plugins {
            path: vec![node.cni_bin(), "/opt/cni/bin".into(), "/usr/lib/cni".into()],
            node_netns: node.netns().to_owned(),
        };
        Self { layout: layout.clone(), node, node_name: node_name.into(), plugins }
    }

    /// The node's paths.
    #[must_use]
    pub fn node(&self) -> &NodeLayout {
        &self.node
    }

    /// Where the plugins are.
    #[must_use]
    pub fn plugins(&self) -> &Plugins {
        &self.plugins
    }

    /// All sandboxes of the node, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Sandbox> {
        let Ok(entries) = fs::read_dir(self.node.pods()) else { return Vec::new() };
        let mut found: Vec<Sandbox> = entries
            .flatten()
            .filter_map(|e| fs::read(e.path().join("sandbox.json")).ok())
            .filter_map(|text| serde_json::from_slice(&text).ok())
            .collect();
        found.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        found
    }

    /// Records a sandbox without making anything.
    ///
    /// # Errors
    /// When its directory cannot be written.
    pub fn reserve(
        &self,
        pod: &PodIdentity,
        host_network: bool,
        capabilities: BTreeMap<String, Value>,
    ) -> Result<Sandbox> {
        let id = new_id();
        let netns = if host_network {
            self.node.netns().to_owned()
        } else {
            self.layout.netns(&format!("pod-{}", &id[..12]))
        };
        let sandbox = Sandbox {
            id,
            pod: pod.clone(),
            node: self.node_name.clone(),
            netns,
            host_network,
            phase: SandboxPhase::Creating,
            created: Timestamp::now(),
            capabilities,
            result: None,
        };
        self.save(&sandbox)?;
        Ok(sandbox)
    }

    /// Makes the namespace and attaches it; asks again while the agent says that it is not ready
    /// and the time is not over.
    ///
    /// # Errors
    /// When it cannot be made; what was made so far is then removed, the record stays.
    pub fn attach(&self, sandbox: &mut Sandbox, patience: Duration) -> Result<(), SandboxError> {
        if sandbox.host_network {
            sandbox.phase = SandboxPhase::Ready;
            return Ok(self.save(sandbox)?);
        }
        if !netns::exists(&sandbox.netns) {
            netns::remove(&sandbox.netns)?;
            netns::create(&sandbox.netns)?;
        }
        let list = NetworkList::read(&self.node.cni_conf())?;
        let attachment = self.attachment(sandbox);
        let mut last = None;
        let added = interrupt::wait_for(patience, "the Pod's network", || {
            match self.plugins.add(&list, &attachment) {
                Ok(result) => Some(Ok(result)),
                Err(error) => {
                    // What half an ADD of a chain left is removed before the next try.
                    let _ = self.plugins.del(&list, &attachment, None);
                    if error.is_try_again() {
                        last = Some(error);
                        return None;
                    }
                    Some(Err(error))
                }
            }
        });
        let result = match (added, last) {
            (Ok(Ok(result)), _) => result,
            (Ok(Err(error)), _) | (Err(_), Some(error)) => {
                netns::remove(&sandbox.netns)?;
                return Err(error.into());
            }
            (Err(error), None) => return Err(error.into()),
        };
        sandbox.result = Some(result);
        sandbox.phase = SandboxPhase::Ready;
        Ok(self.save(sandbox)?)
    }

    /// Detaches and removes a sandbox and its directory.
    ///
    /// # Errors
    /// When CNI DEL fails: the record then stays, so that it is tried again.
    pub fn remove(&self, sandbox: &Sandbox) -> Result<(), SandboxError> {
        self.end_containers(sandbox, Duration::ZERO);
        if !sandbox.host_network {
            let list = NetworkList::read(&self.node.cni_conf())?;
            let mut attachment = self.attachment(sandbox);
            if !netns::exists(&sandbox.netns) {
                attachment.netns = String::new();
            }
            self.plugins.del(&list, &attachment, sandbox.result.as_ref())?;
            netns::remove(&sandbox.netns)?;
        }
        self.forget(sandbox)?;
        Ok(())
    }

    /// Removes the directory of a sandbox.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn forget(&self, sandbox: &Sandbox) -> Result<()> {
        let dir = self.dir(sandbox);
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).doing(|| format!("remove {}", dir.display()))
            }
            _ => Ok(()),
        }
    }

    /// The directory of one attempt to run a container.
    #[must_use]
    pub fn container(&self, sandbox: &Sandbox, container: &str, attempt: u32) -> ContainerDir {
        ContainerDir(self.dir(sandbox).join("c").join(container).join(attempt.to_string()))
    }

    /// Attempts of a container so far, by number.
    #[must_use]
    pub fn attempts(&self, sandbox: &Sandbox, container: &str) -> Vec<u32> {
        let dir = self.dir(sandbox).join("c").join(container);
        let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
        let mut found: Vec<u32> =
            entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
        found.sort_unstable();
        found
    }

    /// Ports on which built-in servers of the sandbox answer now.
    #[must_use]
    pub fn echo_ports(&self, sandbox: &Sandbox) -> Vec<u16> {
        self.container_dirs(sandbox)
            .into_iter()
            .filter(|dir| dir.running().is_some() && dir.exit().is_none())
            .filter_map(|dir| builtin_port(&dir.spec()?))
            .collect()
    }

    /// How the Pod is: its network first, then the first container that does not simply run.
    #[must_use]
    pub fn words(&self, sandbox: &Sandbox) -> (String, Option<String>) {
        if sandbox.phase == SandboxPhase::Creating {
            return ("ContainerCreating".into(), Some("it has no network yet".into()));
        }
        let names = fs::read_dir(self.dir(sandbox).join("c")).into_iter().flatten().flatten();
        let mut states: Vec<_> = names
            .filter_map(|e| e.file_name().into_string().ok())
            .filter_map(|name| {
                let newest = *self.attempts(sandbox, &name).last()?;
                Some(self.container(sandbox, &name, newest).words())
            })
            .collect();
        // What failed tells more than what runs, and what runs more than what is done.
        let weight = |word: &str| match word {
            "Completed" => 2,
            "Running" => 1,
            _ => 0,
        };
        states.sort_by_key(|(word, _)| weight(word));
        states.into_iter().next().unwrap_or_else(|| ("ContainerCreating".into(), None))
    }

    /// Starts a container in the sandbox.
    ///
    /// # Errors
    /// When its keeper cannot be started.
    pub fn launch(
        &self,
        sandbox: &Sandbox,
        container: &str,
        attempt: u32,
        spec: &ContainerSpec,
    ) -> Result<ContainerDir> {
        let dir = self.container(sandbox, container, attempt);
        dir.launch(spec, &sandbox.netns, self.layout.dir())?;
        Ok(dir)
    }

    /// Ends all containers: asks, waits, kills.
    pub fn end_containers(&self, sandbox: &Sandbox, grace: Duration) {
        let dirs = self.container_dirs(sandbox);
        if !grace.is_zero() {
            for dir in &dirs {
                dir.signal(Signal::SIGTERM);
            }
            let _ = interrupt::wait_for(grace, "containers end", || {
                dirs.iter().all(|d| d.exit().is_some()).then_some(())
            });
        }
        for dir in &dirs {
            dir.kill();
        }
    }

    fn container_dirs(&self, sandbox: &Sandbox) -> Vec<ContainerDir> {
        let Ok(containers) = fs::read_dir(self.dir(sandbox).join("c")) else { return Vec::new() };
        containers
            .flatten()
            .filter_map(|c| fs::read_dir(c.path()).ok())
            .flat_map(|attempts| attempts.flatten())
            .map(|attempt| ContainerDir(attempt.path()))
            .collect()
    }

    /// What CNI is told about a sandbox.
    #[must_use]
    pub fn attachment(&self, sandbox: &Sandbox) -> Attachment {
        let pod = &sandbox.pod;
        Attachment {
            container_id: sandbox.id.clone(),
            netns: sandbox.netns.display().to_string(),
            ifname: "eth0".into(),
            args: format!(
                "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};\
                 K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
                pod.namespace, pod.name, sandbox.id, pod.uid
            ),
            capabilities: sandbox.capabilities.clone(),
        }
    }

    fn dir(&self, sandbox: &Sandbox) -> PathBuf {
        self.node.pods().join(&sandbox.id)
    }

    fn save(&self, sandbox: &Sandbox) -> Result<()> {
        let dir = self.dir(sandbox);
        fs::create_dir_all(&dir).doing(|| format!("create {}", dir.display()))?;
        state::write(&dir.join("sandbox.json"), sandbox)
    }
}

/// The echo server as a container, for images that the lab does not have.
///
/// # Errors
/// When our own program cannot be found.
pub fn builtin_server(pod: &str) -> Result<ContainerSpec> {
    let me = std::env::current_exe().doing(|| "find our own program".into())?;
    Ok(ContainerSpec {
        argv: vec![path_text(&me), "pod-server".into(), "--name".into(), pod.into()],
        env: BTreeMap::new(),
        cwd: None,
        restart: RestartPolicy::Never,
    })
}

/// The port of a built-in server; none for another program.
fn builtin_port(spec: &ContainerSpec) -> Option<u16> {
    if spec.argv.get(1).map(String::as_str) != Some("pod-server") {
        return None;
    }
    match spec.argv.iter().position(|a| a == "--port") {
        Some(i) => spec.argv.get(i + 1)?.parse().ok(),
        None => Some(crate::echo::PORT),
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// A new sandbox id, as long as those of container runtimes.
fn new_id() -> String {
    let bytes: [u8; 32] = rand::rng().random();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_and_interfaces_come_from_the_result() {
        let sandbox = Sandbox {
            id: new_id(),
            pod: PodIdentity { namespace: "a".into(), name: "b".into(), uid: "c".into() },
            node: "node-1".into(),
            netns: "/run/netns/x".into(),
            host_network: false,
            phase: SandboxPhase::Ready,
            created: Timestamp::now(),
            capabilities: BTreeMap::new(),
            result: Some(json!({
                "interfaces": [
                    {"name": "b-1a2b3c", "mac": "02:00:00:00:00:01", "sandbox": ""},
                    {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/x"}],
                "ips": [{"address": "10.77.1.2/24", "gateway": "10.77.1.1", "interface": 1}]})),
        };
        assert_eq!(sandbox.addresses(), ["10.77.1.2".parse::<IpAddr>().unwrap()]);
        assert_eq!(sandbox.host_interface().unwrap(), "b-1a2b3c");
        assert_eq!(sandbox.mac().unwrap(), "02:00:00:00:00:02");
        assert_eq!(sandbox.id.len(), 64);
    }

    #[test]
    fn sandboxes_are_found_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("lab")).unwrap();
        let runtime = Runtime::new(&layout, "node-1");
        let pod = PodIdentity { namespace: "a".into(), name: "b".into(), uid: "c".into() };
        let made = runtime.reserve(&pod, false, BTreeMap::new()).unwrap();
        assert_eq!(runtime.list(), std::slice::from_ref(&made));
        runtime.forget(&made).unwrap();
        assert!(runtime.list().is_empty());
    }
}

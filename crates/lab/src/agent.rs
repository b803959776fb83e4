//! Prepares and starts the agent of a node.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::addressing;
use crate::cni::{Attachment, Plugins};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::NodeLayout;
use crate::process::{Start, last_words};
use crate::state::{LabState, Mode, Proxy, Store};

/// Role of the agent in the state file.
pub const ROLE: &str = "agent";

const READY_DEADLINE: Duration = Duration::from_secs(60);

/// Writes the node's files: agent configuration, CNI configuration, plugin directory.
///
/// # Errors
/// When one cannot be written.
pub fn prepare(store: &Store, node: &str) -> Result<()> {
    let state = store.get();
    let layout = store.layout().node(node);
    for dir in [layout.run(), layout.state(), layout.cni_lib(), layout.cni_bin(), layout.pods()] {
        fs::create_dir_all(&dir).doing(|| format!("create {}", dir.display()))?;
    }
    let conf = layout.agent_conf();
    let text = serde_saphyr::to_string(&agent_conf(&layout, &state))
        .doing(|| "encode the agent's configuration".into())?;
    fs::write(&conf, text).doing(|| format!("write {}", conf.display()))?;
    let list = layout.cni_conf();
    if let Some(dir) = list.parent() {
        fs::create_dir_all(dir).doing(|| format!("create {}", dir.display()))?;
    }
    let text = serde_json::to_string_pretty(&cni_conf(&layout))
        .doing(|| "encode the CNI configuration".into())?;
    fs::write(&list, text).doing(|| format!("write {}", list.display()))?;
    // Configurations call the plugin `antrea`; the build calls the program `antrea-cni`.
    let link = layout.cni_bin().join("antrea");
    if !link.exists() {
        std::os::unix::fs::symlink(state.bin_dir.join("antrea-cni"), &link)
            .doing(|| format!("link {}", link.display()))?;
    }
    Ok(())
}

/// Writes the file that tells agents about each other where no API server does.
///
/// # Errors
/// When it cannot be written.
pub fn write_cluster_file(store: &Store) -> Result<()> {
    let path = store.layout().dir().join("nodes.yaml");
    let state = store.get();
    let family = state.variant.family;
    let nodes: Vec<Value> = state
        .nodes
        .iter()
        .map(|node| {
            json!({
                "name": node.name,
                "podCIDRs": addressing::standalone_pod_cidrs(family, node.n),
                "addresses": addressing::node(family, node.n),
            })
        })
        .collect();
    let text = serde_saphyr::to_string(&json!({ "nodes": nodes }))
        .doing(|| "encode the list of nodes".into())?;
    fs::write(&path, text).doing(|| format!("write {}", path.display()))
}

/// Starts the agent without waiting for it.
///
/// # Errors
/// When it cannot be started.
pub fn start(store: &Store, node: &str) -> Result<()> {
    let state = store.get();
    let layout = store.layout().node(node);
    let mut start = Start::new(state.bin_dir.join("antrea-agent"), layout.log(ROLE))
        .owned_by(store.layout().dir())
        .in_netns(layout.netns())
        .env("NODE_NAME", node)
        .env("POD_NAME", format!("antrea-agent-{node}"))
        .env("POD_NAMESPACE", "kube-system")
        .path_arg("--config", &layout.agent_conf())
        .path_arg("--state-dir", &layout.state())
        .path_arg("--run-dir", &layout.run())
        .path_arg("--log_dir", &layout.dir().join("log"))
        .arg("--logtostderr");
    if state.mode == Mode::Standalone {
        start = start.path_arg("--cluster-file", &store.layout().dir().join("nodes.yaml"));
    }
    let id = start.spawn()?;
    store.record_process(ROLE, Some(node), id)
}

/// Waits until the agent answers CNI requests.
///
/// # Errors
/// When it ends, or is not ready in time.
pub fn await_ready(store: &Store, node: &str) -> Result<()> {
    let layout = store.layout().node(node);
    let log = layout.log(ROLE);
    let ready = wait_for(READY_DEADLINE, &format!("the agent of {node} is ready"), || {
        let alive = store.get().process(ROLE, Some(node)).is_some_and(|id| id.is_alive());
        if !alive {
            return Some(false);
        }
        is_ready(&layout).then_some(true)
    });
    let why = match ready {
        Ok(true) => return Ok(()),
        Ok(false) => "it ended".to_owned(),
        Err(error) => error.chain(),
    };
    crate::interrupt::check()?;
    Err(LabError::new(format!("the agent of {node} is not ready: {why}; {}", last_words(&log, 6)))
        .hint(format!("its whole log is {}", log.display())))
}

/// Whether the agent serves Pods: it says so itself when it is asked by CNI STATUS.
#[must_use]
pub fn is_ready(node: &NodeLayout) -> bool {
    // The socket is there before the agent is ready; without it a process is not worth while.
    if !node.cni_sock().exists() {
        return false;
    }
    let plugins = Plugins { path: vec![node.cni_bin()], node_netns: node.netns().to_owned() };
    let nobody = Attachment {
        container_id: String::new(),
        netns: String::new(),
        ifname: String::new(),
        args: String::new(),
        capabilities: BTreeMap::new(),
    };
    let stdin = json!({
        "cniVersion": "1.1.0", "name": "antrea", "type": "antrea", "cniSocket": node.cni_sock(),
    });
    plugins.run("STATUS", &stdin, &nobody).is_ok()
}

/// Whether the program of a chained plugin is on this machine.
fn installed(plugin: &str) -> bool {
    ["/opt/cni/bin", "/usr/lib/cni"].iter().any(|d| std::path::Path::new(d).join(plugin).exists())
}

fn agent_conf(node: &NodeLayout, state: &LabState) -> Value {
    let (mode, variant) = (state.mode, state.variant);
    let mut conf = json!({
        "ovsBridge": crate::ovs::BRIDGE,
        "ovsDatapathType": variant.datapath.name(),
        "ovsRunDir": node.ovs(),
        "hostGateway": "antrea-gw0",
        "cniSocket": node.cni_sock(),
        "trafficEncapMode": "encap",
        "tunnelType": variant.tunnel.name(),
    });
    if mode != Mode::Standalone {
        match state.proxy {
            Proxy::Pods => {}
            Proxy::All => conf["antreaProxy"] = json!({ "proxyAll": true }),
            Proxy::Direct => {
                conf["antreaProxy"] = json!({ "proxyAll": true, "defaultLoadBalancerMode": "dsr" });
                conf["featureGates"] = json!({ "LoadBalancerModeDSR": true });
            }
        }
        conf["clientConnection"] = json!({ "kubeconfig": node.kubeconfig("agent") });
        // The outside host plays the DNS server, where a scenario has one.
        let outside = addressing::outside(variant.family);
        conf["dnsServerOverride"] = json!(outside.first().map(ToString::to_string));
    }
    conf
}

/// What `/etc/cni/net.d/10-antrea.conflist` holds on a real node, with this node's paths.
fn cni_conf(node: &NodeLayout) -> Value {
    let mut plugins = vec![json!({
        "type": "antrea",
        "cniSocket": node.cni_sock(),
        "ipam": { "type": "host-local", "dataDir": node.cni_lib() },
    })];
    for (plugin, capability) in [("portmap", "portMappings"), ("bandwidth", "bandwidth")] {
        if installed(plugin) {
            plugins.push(json!({ "type": plugin, "capabilities": { capability: true } }));
        }
    }
    json!({ "cniVersion": "1.0.0", "name": "antrea", "plugins": plugins })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::layout::Layout;

    #[test]
    fn configurations_name_the_nodes_own_sockets() {
        let layout = Layout::new(Path::new("/run/x")).unwrap();
        let node = layout.node("node-1");
        let conf = |mode| agent_conf(&node, &LabState::new(mode, "/bin".into()));
        let alone = conf(Mode::Standalone);
        assert_eq!(alone["ovsRunDir"], "/run/x/nodes/node-1/ovs");
        assert!(alone.get("clientConnection").is_none());
        assert!(conf(Mode::Cluster).get("clientConnection").is_some());
        assert!(conf(Mode::Cluster).get("antreaProxy").is_none());
        let mut all = LabState::new(Mode::Cluster, "/bin".into());
        all.proxy = Proxy::All;
        assert_eq!(agent_conf(&node, &all)["antreaProxy"]["proxyAll"], true);
        assert!(agent_conf(&node, &all).get("featureGates").is_none());
        all.proxy = Proxy::Direct;
        let direct = agent_conf(&node, &all);
        assert_eq!(direct["antreaProxy"]["proxyAll"], true);
        assert_eq!(direct["antreaProxy"]["defaultLoadBalancerMode"], "dsr");
        assert_eq!(cni_conf(&node)["plugins"][0]["type"], "antrea");
    }
}

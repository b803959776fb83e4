//! The Node object: registered, kept alive by its Lease, ready when its network is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube_io::apis::common::ConditionStatus;
use kube_io::lease;
use kube_io::nodes::{self, NodeCondition, NodeRegistration};

use super::{Kubelet, VERSION};
use crate::agent;
use crate::error::Result;
use crate::layout::NodeLayout;

/// Label of a Node: which lab made it.
pub const MAKER: &str = "antrea-lab/maker";
const LOOK: Duration = Duration::from_millis(100);
const LOOK_WHEN_READY: Duration = Duration::from_secs(1);
const REPORT: Duration = Duration::from_secs(10);

/// Registers and reports for ever.
pub(super) async fn run(kubelet: Kubelet) -> Result<()> {
    let registration = registration(&kubelet);
    let mut uid = register(&kubelet, &registration).await;
    let mut reported: Option<(bool, Instant)> = None;
    let mut renewed: Option<Instant> = None;
    let mut since = Timestamp::now();
    loop {
        let node = kubelet.runtime.node().clone();
        let ready = tokio::task::spawn_blocking(move || is_ready(&node)).await.unwrap_or(false);
        let due = reported.is_none_or(|(was, at)| was != ready || at.elapsed() > REPORT);
        if due {
            if reported.is_none_or(|(was, _)| was != ready) {
                since = Timestamp::now();
            }
            let conditions = conditions(ready, since);
            let now = Timestamp::now();
            match nodes::heartbeat(&kubelet.client, &kubelet.node, &conditions, now).await {
                Ok(()) => {
                    tracing::info!(ready, "node reported");
                    reported = Some((ready, Instant::now()));
                }
                // Somebody deleted the Node, or the API server lost it in a restart.
                Err(error) if error.is_not_found() => {
                    uid = register(&kubelet, &registration).await;
                }
                Err(error) => tracing::warn!(error = %error.chain(), "report the node"),
            }
        }
        if renewed.is_none_or(|at| at.elapsed() >= kubelet.renew_every) {
            match lease::renew_node(&kubelet.client, &kubelet.node, &uid).await {
                Ok(()) => renewed = Some(Instant::now()),
                Err(error) => tracing::warn!(%error, "renew the node's lease"),
            }
        }
        let look = if ready { LOOK_WHEN_READY } else { LOOK };
        tokio::time::sleep(look.min(kubelet.renew_every)).await;
    }
}

async fn register(kubelet: &Kubelet, registration: &NodeRegistration) -> String {
    loop {
        match nodes::register(&kubelet.client, registration).await {
            Ok(node) => {
                tracing::info!(node = %kubelet.node, "registered");
                return node.uid;
            }
            Err(error) => tracing::warn!(error = %error.chain(), "register the node"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The network is ready when it is configured and the agent answers.
fn is_ready(node: &NodeLayout) -> bool {
    node.cni_conf().exists() && agent::is_ready(node)
}

fn conditions(ready: bool, since: Timestamp) -> Vec<NodeCondition> {
    let condition = |type_: &str, status, reason: &str, message: &str| NodeCondition {
        type_: type_.into(),
        status,
        reason: reason.into(),
        message: message.into(),
        last_transition: since,
    };
    let ready = if ready {
        condition("Ready", ConditionStatus::True, "KubeletReady", "the lab's kubelet is ready")
    } else {
        condition(
            "Ready",
            ConditionStatus::False,
            "KubeletNotReady",
            "network plugin not ready: the agent does not answer on its CNI socket",
        )
    };
    vec![
        condition(
            "MemoryPressure",
            ConditionStatus::False,
            "KubeletHasSufficientMemory",
            "not measured in a lab",
        ),
        condition(
            "DiskPressure",
            ConditionStatus::False,
            "KubeletHasNoDiskPressure",
            "not measured in a lab",
        ),
        condition(
            "PIDPressure",
            ConditionStatus::False,
            "KubeletHasSufficientPID",
            "not measured in a lab",
        ),
        ready,
    ]
}

fn registration(kubelet: &Kubelet) -> NodeRegistration {
    let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    let kernel = nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    NodeRegistration {
        name: kubelet.node.clone(),
        labels: BTreeMap::from([
            pair("kubernetes.io/hostname", &kubelet.node),
            pair("kubernetes.io/os", "linux"),
            pair("kubernetes.io/arch", arch),
            pair("beta.kubernetes.io/os", "linux"),
            pair("beta.kubernetes.io/arch", arch),
            pair(MAKER, &kubelet.maker),
        ]),
        annotations: BTreeMap::new(),
        internal_addresses: kubelet.addresses.clone(),
        capacity: BTreeMap::from([pair("pods", "250"), pair("cpu", "8"), pair("memory", "16Gi")]),
        kubelet_port: Some(super::secure::PORT),
        node_info: BTreeMap::from([
            pair("kernelVersion", &kernel),
            pair("osImage", "network namespace"),
            pair("containerRuntimeVersion", "lab://1"),
            pair("kubeletVersion", VERSION),
            pair("operatingSystem", "linux"),
            pair("architecture", arch),
        ]),
    }
}

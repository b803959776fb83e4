//! The API server process of a lab: our own server, or the way to one that is not ours.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelab::{Options, Server};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{accounts, controllers, egress, foreign, manifests};
use crate::addressing;
use crate::error::{Doing, LabError, Result};
use crate::layout::{API_PORT, Layout};
use crate::netns;
use crate::state::{self, Mode, Store};
use crate::variant::IpFamily;

/// What the process writes once others can use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Port on loopback, of a server of ours.
    pub port: Option<u16>,
}

/// Where [`Ready`] is written.
#[must_use]
pub fn ready_file(layout: &Layout) -> PathBuf {
    layout.dir().join("apiserver.json")
}

/// Runs the process until it is ended.
///
/// # Errors
/// When it cannot serve.
pub fn run(layout: &Layout) -> Result<()> {
    crate::ui::log_to_stderr();
    let store = Store::open(layout)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .doing(|| "start the runtime".into())?;
    match store.get().mode {
        Mode::Cluster => runtime.block_on(serve(&store)),
        Mode::External => runtime.block_on(foreign::run(&store)),
        Mode::Standalone => Err(LabError::new("this lab has no API server")),
    }
}

async fn serve(store: &Store) -> Result<()> {
    let layout = store.layout();
    let state = store.get();
    // After a restart the kubeconfigs that are in use stay valid: same port, same authority.
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, state.api_port.unwrap_or(0)));
    let local = TcpListener::bind(local).doing(|| format!("listen on {local}"))?;
    let port = local.local_addr().doing(|| "read the port".into())?.port();
    let family = state.variant.family;
    let mut listeners = listen_on_underlay(layout, family)?;
    listeners.push(local);
    let options = Options {
        listeners,
        kubelet_dir: Some(layout.dir().join("nodes")),
        kubelet_advice: format!("{} starts it", layout.command("node start NODE kubelet")),
        service_cidrs: addressing::service_cidrs(family),
        node_grace: state.node_grace,
        dial: Some(dial_from_underlay(layout)),
        ..Options::new(layout.dir().join("apiserver"))
    };
    let server = Server::start(options).await.doing(|| "start the API server".into())?;
    for text in manifests() {
        server.apply_yaml(text).doing(|| "apply the cluster's manifests".into())?;
    }
    for text in controllers::registration() {
        server.apply_yaml(text).doing(|| "apply the controller's manifests".into())?;
    }
    let admin = server
        .admin_kubeconfig(&format!("https://127.0.0.1:{port}"))
        .doing(|| "make the administrator's kubeconfig".into())?;
    write_secret(&layout.admin_kubeconfig(), &admin)?;
    let nodes: Vec<String> = state.nodes.iter().map(|n| n.name.clone()).collect();
    for account in accounts(layout, &nodes) {
        let (url, name) = (addressing::api_url(family), account.service_account);
        let text = match &account.node {
            Some(node) => server.kubeconfig_on_node(&url, "kube-system", name, node),
            None => server.kubeconfig_for(&url, "kube-system", name),
        };
        let text = text.doing(|| format!("make a kubeconfig for {}", account.service_account))?;
        write_secret(&account.kubeconfig, &text)?;
    }
    state::write(&ready_file(layout), &Ready { port: Some(port) })?;
    tracing::info!(port, "ready");
    tokio::select! {
        ended = until_ended() => ended?,
        () = controllers::follow_health(store, |slices| {
            let told = server.apply_yaml(&slices).map(drop).doing(|| "apply".into());
            std::future::ready(told)
        }) => {}
    }
    server.shutdown().await;
    Ok(())
}

/// The controller is on the underlay, as the nodes are.
fn dial_from_underlay(layout: &Layout) -> kubelab::Dial {
    let netns = layout.underlay_netns();
    Arc::new(move |address: SocketAddr| {
        let netns = netns.clone();
        Box::pin(async move { egress::dial(&netns, address).await })
    })
}

pub(super) fn listen_on_underlay(layout: &Layout, family: IpFamily) -> Result<Vec<TcpListener>> {
    let bind = |address| {
        netns::enter(&layout.underlay_netns(), || TcpListener::bind((address, API_PORT)))?
            .doing(|| format!("listen on {address} of the underlay"))
    };
    addressing::api_server(family).into_iter().map(bind).collect()
}

/// The cluster of a kubeconfig's current context, with its authority in the file itself.
pub(crate) fn current_cluster(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).doing(|| format!("read {}", path.display()))?;
    let config: Value =
        serde_saphyr::from_str(&text).doing(|| format!("decode {}", path.display()))?;
    let named = |list: &str, name: &Value| -> Option<Value> {
        config[list].as_array()?.iter().find(|e| e["name"] == *name).cloned()
    };
    let context = named("contexts", &config["current-context"])
        .ok_or_else(|| LabError::new(format!("{} has no current context", path.display())))?;
    let mut cluster = named("clusters", &context["context"]["cluster"])
        .map(|entry| entry["cluster"].clone())
        .ok_or_else(|| LabError::new(format!("{} has no cluster", path.display())))?;
    if let Some(file) = cluster["certificate-authority"].as_str() {
        let file = path.parent().unwrap_or(Path::new("/")).join(file);
        let pem = fs::read(&file).doing(|| format!("read {}", file.display()))?;
        use base64::Engine;
        let encoded = base64::engine::general_purpose::STANDARD.encode(pem);
        cluster["certificate-authority-data"] = json!(encoded);
        if let Some(members) = cluster.as_object_mut() {
            members.remove("certificate-authority");
        }
    }
    Ok(cluster)
}

/// Tokens are for root only.
pub(super) fn write_secret(path: &Path, text: &str) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).doing(|| format!("create {}", dir.display()))?;
    }
    fs::write(path, text).doing(|| format!("write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .doing(|| format!("protect {}", path.display()))
}

pub(super) async fn until_ended() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).doing(|| "listen for SIGTERM".into())?;
    let mut int = signal(SignalKind::interrupt()).doing(|| "listen for SIGINT".into())?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_cluster_is_found_with_its_authority() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), "PEM").unwrap();
        let path = dir.path().join("config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: b\ncontexts:\n\
                    - {name: a, context: {cluster: x}}\n- {name: b, context: {cluster: y}}\n\
                    clusters:\n- {name: x, cluster: {server: 'https://x'}}\n\
                    - {name: y, cluster: {server: 'https://y', certificate-authority: ca.pem}}\n";
        fs::write(&path, text).unwrap();
        let cluster = current_cluster(&path).unwrap();
        assert_eq!(cluster, json!({"server": "https://y", "certificate-authority-data": "UEVN"}));
    }
}

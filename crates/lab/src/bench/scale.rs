//! A large cluster without its nodes: the real controller reads 100,000 Pods and 75,000 policies, and
//! 1,000 agents follow it.
//!
//! A server of ours answers the lists of Namespaces, Pods and NetworkPolicies from pages that are
//! ready in memory, and hands everything else on to the lab's API server; an agent here is the
//! client of the real agent, with its node's token, that takes all its node gets and drops it. Both
//! are this process: what they cost is told apart from the controller's share.

mod front;
mod pages;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apiserver::pki::Authority;
use apiserver::server::{TlsServer, tls_config};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::StreamExt;
use kube_io::controlplane::{Controlplane, Event, Route};
use kube_io::{Client, ClientOptions};
use kubelab::client::{Client as Raw, Credential};
use kubelab::{Options, RunningServer, Server};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Figure, tenths};
use crate::cluster::{self, controllers};
use crate::error::{Doing, LabError, Result};
use crate::layout::Layout;
use crate::process::{ProcessId, Start, end_all, last_words};
use crate::state;
use crate::ui::Progress;
use crate::variant::IpFamily;
use front::Front;

/// Nodes that the Pods are spread over, each with an agent.
const N_NODES: usize = 1_000;
/// Longest time for any step.
const PATIENCE: Duration = Duration::from_secs(60);
/// Name in the controller's certificate.
const SERVER_NAME: &str = "antrea.kube-system.svc";

/// Measures with so many namespaces of four Pods and three policies each; everything is on loopback
/// and ends with it.
///
/// # Errors
/// When a server or the controller does not come up, or an agent does not get what is its node's.
pub fn run(
    dir: &Path,
    bin_dir: PathBuf,
    n_namespaces: usize,
    progress: &Progress,
) -> Result<Vec<Figure>> {
    let layout = Layout::beside(dir, "benchs")?;
    let _lock = state::lock(&layout)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .doing(|| "start the runtime".into())?;
    let measured = runtime.block_on(measure(layout.dir(), &bin_dir, n_namespaces, progress));
    runtime.shutdown_timeout(Duration::from_secs(2));
    let removed = fs::remove_dir_all(layout.dir());
    let figures = measured?;
    removed.doing(|| format!("remove {}", layout.dir().display()))?;
    Ok(figures)
}

/// Ends the controller, however the measurement ends.
struct Controller(ProcessId);

impl Drop for Controller {
    fn drop(&mut self) {
        if !end_all(&[self.0], Duration::from_secs(5)).is_empty() {
            crate::ui::warn("the controller does not end");
        }
    }
}

async fn measure(
    dir: &Path,
    bin_dir: &Path,
    n_namespaces: usize,
    progress: &Progress,
) -> Result<Vec<Figure>> {
    fs::create_dir_all(dir).doing(|| format!("create {}", dir.display()))?;
    progress.step(&format!("lists of {} Pods", 4 * n_namespaces));
    let lists = pages::Lists::make(n_namespaces, N_NODES)?;
    let list_mb = lists.n_bytes() >> 20;
    progress.step("API server");
    let api_port = free_port()?;
    let api = start_api(dir, api_port).await?;
    let authority = Authority::create("scale").doing(|| "make an authority".into())?;
    let front = Arc::new(Front::new(lists, api.addresses()[0], api.ca_pem())?);
    let (front_server, port) = start_front(&authority, &front)?;
    let kubeconfig = dir.join("controller.kubeconfig");
    let cluster = json!({
        "server": format!("https://127.0.0.1:{port}"),
        "certificate-authority-data": BASE64.encode(authority.cert_pem()),
    });
    let token =
        api.token_for("kube-system", "antrea-controller").doing(|| "make a token".into())?;
    write(&kubeconfig, &cluster::token_kubeconfig(&cluster, "antrea-controller", &token)?)?;

    progress.step("controller");
    let log = dir.join("controller.log");
    let started = Instant::now();
    let controller = Controller(start_controller(dir, bin_dir, &kubeconfig, api_port, &log)?);
    let ca_pem = await_ready(&api, controller.0, &log).await?;
    let ready = started.elapsed();
    let first_byte = front.first_list().ok_or_else(|| LabError::new("nothing was listed"))?;
    let from_first_byte = ready.saturating_sub(first_byte.duration_since(started));
    let at_ready = Usage::of(controller.0)?;

    progress.step(&format!("{N_NODES} agents"));
    let route = Route::Direct {
        url: format!("https://127.0.0.1:{api_port}"),
        server_name: SERVER_NAME.into(),
        ca_pem,
    };
    let clients = clients(dir, &api, &route).await?;
    let started = Instant::now();
    let own_before = ProcessId::me().and_then(ProcessId::cpu_seconds).unwrap_or_default();
    let (stop, objects) = follow_all(clients).await?;
    let in_sync = started.elapsed();
    let own_cpu = ProcessId::me().and_then(ProcessId::cpu_seconds).unwrap_or_default() - own_before;
    let after = Usage::of(controller.0)?;
    stop.cancel();
    drop(controller);
    front_server.shutdown(Duration::from_secs(1)).await;
    api.shutdown().await;
    Ok(vec![Figure {
        name: format!(
            "controller, {n_namespaces} namespaces, {} Pods, {} policies, {N_NODES} agents",
            4 * n_namespaces,
            3 * n_namespaces
        ),
        values: json!({
            "listMb": list_mb,
            "firstByteToComputedSeconds": tenths(from_first_byte.as_secs_f64()),
            "readyCpuSeconds": tenths(at_ready.cpu_seconds),
            "readyPeakMb": at_ready.peak_mb,
            "agentsInSyncSeconds": tenths(in_sync.as_secs_f64()),
            "objectsTold": objects,
            "cpuSeconds": tenths(after.cpu_seconds),
            "peakMb": after.peak_mb,
            "residentMb": after.resident_mb,
            "simulatorCpuSecondsForAgents": tenths(own_cpu),
        }),
        how: "antrea-lab bench scale".into(),
    }])
}

/// What a process has used so far.
struct Usage {
    cpu_seconds: f64,
    peak_mb: u64,
    resident_mb: u64,
}

impl Usage {
    fn of(process: ProcessId) -> Result<Self> {
        let gone = || LabError::new("the controller ended");
        let path = format!("/proc/{}/status", process.pid);
        let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
        let mb = |field: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(field))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? >> 10)
        };
        Ok(Self {
            cpu_seconds: process.cpu_seconds().ok_or_else(gone)?,
            peak_mb: mb("VmHWM:").ok_or_else(gone)?,
            resident_mb: mb("VmRSS:").ok_or_else(gone)?,
        })
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(|| format!("write {}", path.display()))
}

/// A port that nobody has now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").doing(|| "find a free port".into())?;
    Ok(listener.local_addr().doing(|| "read the port".into())?.port())
}

/// Starts the API server, for which the controller is at a port of loopback.
async fn start_api(dir: &Path, controller: u16) -> Result<RunningServer> {
    let listener = TcpListener::bind("127.0.0.1:0").doing(|| "listen on loopback".into())?;
    let options = Options {
        listeners: vec![listener],
        node_grace: Duration::from_secs(3600),
        dial: Some(Arc::new(move |_| {
            Box::pin(tokio::net::TcpStream::connect(("127.0.0.1", controller)))
        })),
        ..Options::new(dir.join("apiserver"))
    };
    let server = Server::start(options).await.doing(|| "start the API server".into())?;
    for text in cluster::manifests() {
        server.apply_yaml(text).doing(|| "apply the cluster's manifests".into())?;
    }
    let slices = controllers::slices(IpFamily::Ipv4, 1, true);
    for text in controllers::registration().into_iter().chain([slices.as_str()]) {
        server.apply_yaml(text).doing(|| "apply the controller's manifests".into())?;
    }
    let nodes: Vec<Value> = (0..N_NODES)
        .map(|n| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": pages::node(n)}}))
        .collect();
    let nodes = json!({"apiVersion": "v1", "kind": "NodeList", "items": nodes}).to_string();
    server.apply_yaml(&nodes).doing(|| "make Nodes".into())?;
    Ok(server)
}

fn start_front(authority: &Authority, front: &Arc<Front>) -> Result<(TlsServer, u16)> {
    let identity =
        authority.issue_serving(&["127.0.0.1".to_owned()]).doing(|| "make a certificate".into())?;
    let tls = tls_config(&identity, None).doing(|| "set up TLS".into())?;
    let listener = TcpListener::bind("127.0.0.1:0").doing(|| "listen on loopback".into())?;
    let port = listener.local_addr().doing(|| "read the port".into())?.port();
    listener.set_nonblocking(true).doing(|| "set up the listener".into())?;
    let listener =
        tokio::net::TcpListener::from_std(listener).doing(|| "use the listener".into())?;
    let handler = Arc::clone(front) as Arc<dyn apiserver::server::Handler>;
    Ok((TlsServer::start(vec![listener], tls, handler, CancellationToken::new()), port))
}

fn start_controller(
    dir: &Path,
    bin_dir: &Path,
    kubeconfig: &Path,
    port: u16,
    log: &Path,
) -> Result<ProcessId> {
    let conf = dir.join("antrea-controller.conf");
    let text = json!({ "clientConnection": { "kubeconfig": kubeconfig }, "apiPort": port });
    write(&conf, &serde_saphyr::to_string(&text).doing(|| "encode a configuration".into())?)?;
    Start::new(bin_dir.join("antrea-controller"), log)
        .owned_by(dir)
        .env("POD_NAME", "antrea-controller-scale")
        .env("POD_NAMESPACE", "kube-system")
        .path_arg("--config", &conf)
        .path_arg("--run-dir", dir)
        .arg("--logtostderr")
        .spawn()
}

/// Waits until the controller has computed all policies; gives the authority of its certificate.
async fn await_ready(api: &RunningServer, controller: ProcessId, log: &Path) -> Result<String> {
    let identity = api.admin_identity().doing(|| "make an identity".into())?;
    let url = format!("https://127.0.0.1:{}", api.addresses()[0].port());
    let kubernetes = Raw::new(&url, api.ca_pem(), Credential::Certificate(identity))
        .doing(|| "set up a client".into())?;
    let deadline = Instant::now() + PATIENCE;
    let said = |words: &str| fs::read_to_string(log).is_ok_and(|log| log.contains(words));
    while !(said("policies are computed") && said("shows the common serving certificate")) {
        crate::interrupt::check()?;
        if !controller.is_alive() || Instant::now() > deadline {
            let words = last_words(log, 6);
            return Err(LabError::new(format!("the controller is not ready: {words}")));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let path = "/api/v1/namespaces/kube-system/configmaps/antrea-ca";
    let map = kubernetes
        .json(hyper::Method::GET, path, "application/json", None)
        .await
        .doing(|| "read the controller's authority".into())?;
    let ca_pem = map["data"]["ca.crt"].as_str();
    Ok(ca_pem.ok_or_else(|| LabError::new("antrea-ca holds no authority"))?.to_owned())
}

async fn clients(dir: &Path, api: &RunningServer, route: &Route) -> Result<Vec<Controlplane>> {
    let path = dir.join("agent.kubeconfig");
    let url = format!("https://127.0.0.1:{}", api.addresses()[0].port());
    let mut clients = Vec::new();
    for n in 0..N_NODES {
        let node = pages::node(n);
        let text = api
            .kubeconfig_on_node(&url, "kube-system", "antrea-agent", &node)
            .doing(|| "make an agent's kubeconfig".into())?;
        write(&path, &text)?;
        let client = Client::from_kubeconfig(&path, &ClientOptions::new("antrea-lab", "0"))
            .await
            .doing(|| "set up an agent's client".into())?;
        let way = Controlplane::new(&client, route, &node);
        clients.push(way.doing(|| "set up an agent's way".into())?);
    }
    Ok(clients)
}

/// Lets all agents follow until each has everything; gives how many objects that were.
async fn follow_all(clients: Vec<Controlplane>) -> Result<(CancellationToken, usize)> {
    let stop = CancellationToken::new();
    let (heard_tx, mut heard_rx) = tokio::sync::mpsc::unbounded_channel();
    let n = 3 * clients.len();
    for client in clients {
        tokio::spawn(hold(client.network_policies(), heard_tx.clone(), stop.clone()));
        tokio::spawn(hold(client.applied_to_groups(), heard_tx.clone(), stop.clone()));
        tokio::spawn(hold(client.address_groups(), heard_tx.clone(), stop.clone()));
    }
    let (mut n_complete, mut objects, mut failure) = (0, 0, String::new());
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while n_complete < n {
        match tokio::time::timeout_at(deadline, heard_rx.recv()).await {
            Ok(Some(Heard::Complete(more))) => {
                n_complete += 1;
                objects += more;
            }
            Ok(Some(Heard::Failed(why))) => failure = why,
            Ok(None) | Err(_) => {
                let text = format!("{n_complete} of {n} streams are complete; {failure}");
                return Err(LabError::new(text));
            }
        }
    }
    Ok((stop, objects))
}

/// What an agent's stream tells.
enum Heard {
    /// All first objects are there, so many.
    Complete(usize),
    /// It failed, and is tried again.
    Failed(String),
}

/// Takes what comes until `stop`.
async fn hold<T, P>(
    mut events: impl futures::Stream<Item = Event<T, P>> + Unpin,
    heard_tx: tokio::sync::mpsc::UnboundedSender<Heard>,
    stop: CancellationToken,
) {
    let mut is_complete = false;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        let heard = match event {
            Some(Event::Replaced { objects, .. }) if !is_complete => {
                is_complete = true;
                Heard::Complete(objects.len())
            }
            Some(Event::Failed(why)) => Heard::Failed(why),
            Some(_) => continue,
            None => return,
        };
        if heard_tx.send(heard).is_err() {
            return;
        }
    }
}

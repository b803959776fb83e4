//! The lab's kubelet: makes one node of a namespace, and its Pods of namespaces and processes.
//!
//! Registers the Node, keeps its Lease and conditions, runs the Pods that are bound to it through
//! the same runner as a lab without an API server, and answers exec and log requests on a unix
//! socket. All it needs to go on after a restart is on disk.
//!
//! Not here: images, volumes, probes, resource limits: a container is a command of the machine's
//! file system, or the built-in server.

mod containers;
mod events;
mod exec;
mod logs;
mod manager;
pub mod node;
mod secure;
mod server;
mod status;
mod worker;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube_io::{Client, ClientOptions};

use crate::error::{Doing, Result};
use crate::layout::Layout;
use crate::sandbox::Runtime;

/// Version that the Node shows; the API that this kubelet speaks.
const VERSION: &str = "v1.36.0-antrea-lab";

/// What a kubelet is told at its start.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// The lab's directory.
    pub layout: Layout,
    /// Its node.
    pub node: String,
    /// The node's addresses, its main one first.
    pub addresses: Vec<IpAddr>,
    /// How it reaches the API server.
    pub kubeconfig: PathBuf,
    /// Time between renewals of its Lease.
    pub renew_every: Duration,
    /// Where its API is.
    pub serve: Serve,
}

/// Where a kubelet serves its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// On its unix socket.
    Socket,
    /// On its Node's address too.
    Everywhere,
}

/// What all parts of a kubelet share.
#[derive(Clone)]
struct Kubelet {
    client: Client,
    runtime: Arc<Runtime>,
    node: String,
    addresses: Vec<IpAddr>,
    renew_every: Duration,
    /// Which lab its Node belongs to.
    maker: String,
}

/// Runs until the process is ended. Pods go on without it.
///
/// # Errors
/// When the kubeconfig or the socket cannot be used.
pub fn run(options: KubeletOptions) -> Result<()> {
    crate::ui::log_to_stderr();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(32)
        .enable_all()
        .build()
        .doing(|| "start the runtime".into())?;
    runtime.block_on(serve(options))
}

async fn serve(options: KubeletOptions) -> Result<()> {
    let client_options = ClientOptions {
        qps: 200.0,
        burst: 400,
        ..ClientOptions::new("antrea-lab-kubelet", VERSION)
    };
    let client = Client::from_kubeconfig(&options.kubeconfig, &client_options)
        .await
        .doing(|| format!("use {}", options.kubeconfig.display()))?;
    let kubelet = Kubelet {
        client,
        runtime: Arc::new(Runtime::new(&options.layout, &options.node)),
        node: options.node,
        addresses: options.addresses,
        renew_every: options.renew_every,
        maker: options.layout.identity(),
    };
    let socket = kubelet.runtime.node().kubelet_sock();
    let listener = server::listen(&socket)?;
    tokio::select! {
        result = server::serve(kubelet.clone(), listener) => result,
        result = secure::serve(kubelet.clone()), if options.serve == Serve::Everywhere => result,
        never = node::run(kubelet.clone()) => never,
        never = manager::run(kubelet) => never,
    }
}

//! A lab API server behind a proxy whose connections can be cut.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube_io::{Client, ClientOptions, Keyed, WatchEvent, apply};
use kubelab::testing::{TestServer, start_with};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Files of `deploy/` that every cluster of the lab has.
const DEPLOY: &[&str] = &[
    "crds/antreaagentinfos.yaml",
    "crds/antreacontrollerinfos.yaml",
    "rbac.yaml",
    "config.yaml",
    "lab/rbac.yaml",
];

pub(crate) struct World {
    server: TestServer,
    pub(crate) proxy: Proxy,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with_window(4096).await
    }

    pub(crate) async fn with_window(window: usize) -> Self {
        let server = start_with(|options| options.watch_window = window).await.unwrap();
        let proxy = Proxy::start(server.server.addresses()[0]).await;
        Self { server, proxy }
    }

    pub(crate) async fn admin(&self) -> Client {
        self.client("admin", self.server.admin_kubeconfig().unwrap()).await
    }

    pub(crate) async fn admin_through_proxy(&self) -> Client {
        let url = format!("https://{}", self.proxy.addr);
        self.client("proxied", self.server.server.admin_kubeconfig(&url).unwrap()).await
    }

    /// A client with the rights of a ServiceAccount of kube-system.
    pub(crate) async fn service_account(&self, name: &str) -> Client {
        let text = self.server.server.kubeconfig_for(&self.server.url, "kube-system", name);
        self.client(name, text.unwrap()).await
    }

    async fn client(&self, name: &str, kubeconfig: String) -> Client {
        let path: PathBuf = self.server.dir().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, kubeconfig).unwrap();
        Client::from_kubeconfig(&path, &ClientOptions::new("test", "v0")).await.unwrap()
    }

    pub(crate) async fn apply_deploy(&self) {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        let admin = self.admin().await;
        for file in DEPLOY {
            let text = std::fs::read_to_string(deploy.join(file)).unwrap();
            if let Err(error) = apply::manifests(&admin, &text).await {
                panic!("{file}: {error}: {:?}", std::error::Error::source(&error));
            }
        }
    }
}

/// The next event, within a time in which a lab's server answers for sure.
pub(crate) async fn next<V: Keyed + std::fmt::Debug>(
    watch: &mut (impl Stream<Item = WatchEvent<V>> + Unpin),
) -> WatchEvent<V> {
    let event = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
    event.expect("an event in time").expect("watches do not end")
}

/// Whether connections are cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// All are closed, new ones too.
    Yes,
    /// They pass.
    No,
}

/// Passes TCP connections on.
pub(crate) struct Proxy {
    addr: SocketAddr,
    cut: watch::Sender<Cut>,
}

impl Proxy {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (cut, seen) = watch::channel(Cut::No);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut seen = seen.clone();
                tokio::spawn(async move {
                    let passed = async {
                        let mut far = TcpStream::connect(server).await?;
                        tokio::io::copy_bidirectional(&mut near, &mut far).await
                    };
                    tokio::select! {
                        _ = passed => {}
                        _ = seen.wait_for(|cut| *cut == Cut::Yes) => {}
                    }
                });
            }
        });
        Self { addr, cut }
    }

    pub(crate) fn set(&self, cut: Cut) {
        self.cut.send_replace(cut);
    }
}

#![allow(dead_code, reason = "not every test uses all of it")]
//! A lab cluster and controllers on it, as tasks or as processes of their own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use antrea_config::{ControllerConfig, Environment};
use antrea_controller::{Args, Settings};
use antrea_runtime::LogArgs;
use hyper::Method;
use kube_io::lease::{ApiStore, LeaseStore, Terms};
use kube_io::nodes::{self, NodeRegistration};
use kube_io::{Client, ClientOptions, apply, controller_info};
use kubelab::client::Answer;
use kubelab::testing::TestServer;
use serde_json::{Value, json};

const NAMESPACE: &str = "kube-system";
const DEPLOY: &[&str] =
    &["crds/antreaagentinfos.yaml", "crds/antreacontrollerinfos.yaml", "rbac.yaml"];

pub(crate) struct World {
    server: TestServer,
}

impl World {
    pub(crate) async fn start() -> Self {
        antrea_runtime::install_crypto();
        let world = Self { server: kubelab::testing::start().await.unwrap() };
        let admin = world.admin().await;
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        for file in DEPLOY {
            let text = std::fs::read_to_string(deploy.join(file)).unwrap();
            apply::manifests(&admin, &text).await.unwrap();
        }
        world
    }

    /// Adds the kinds of policies.
    pub(crate) async fn add_policy_kinds(&self) {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        for kind in
            ["clusternetworkpolicies", "networkpolicies", "tiers", "clustergroups", "groups"]
        {
            let text = std::fs::read_to_string(deploy.join(format!("{kind}.yaml"))).unwrap();
            self.apply(&text).await;
        }
    }

    /// Registers the controllers' API and webhooks, served on these ports of this machine.
    pub(crate) async fn register(&self, ports: &[u16]) {
        let service = "apiVersion: v1\nkind: Service\nmetadata: {name: antrea, namespace: kube-system}\n\
             spec: {ports: [{port: 443, protocol: TCP}]}\n";
        self.apply(service).await;
        for (n, port) in ports.iter().enumerate() {
            let slice = format!(
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  \
                 name: antrea-{n}\n  namespace: kube-system\n  \
                 labels: {{kubernetes.io/service-name: antrea}}\naddressType: IPv4\n\
                 ports: [{{name: '', port: {port}, protocol: TCP}}]\n\
                 endpoints: [{{addresses: [127.0.0.1], conditions: {{ready: true}}}}]\n"
            );
            self.apply(&slice).await;
        }
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        let text = std::fs::read_to_string(deploy.join("aggregation.yaml")).unwrap();
        self.apply(&text).await;
    }

    /// Applies manifests as the administrator.
    pub(crate) async fn apply(&self, text: &str) {
        apply::manifests(&self.admin().await, text).await.unwrap();
    }

    /// Applies manifests as the administrator; says what the server has against it.
    pub(crate) async fn try_apply(&self, text: &str) -> Result<(), String> {
        let applied = apply::manifests(&self.admin().await, text).await;
        applied.map(drop).map_err(|error| {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            text
        })
    }

    /// Sends a request as the administrator.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let client = self.server.admin_client().unwrap();
        client.send(method, path, headers, body).await.unwrap()
    }

    /// Reads an object or a list; null if there is none.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.send(Method::GET, path, &[], &Value::Null).await;
        if answer.code == 200 { answer.json() } else { Value::Null }
    }

    /// Makes an object; gives the code and what the server answers.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let headers = [("content-type", "application/json")];
        let answer = self.send(Method::POST, path, &headers, body).await;
        (answer.code, answer.json())
    }

    /// Says that a Pod runs and has an address.
    pub(crate) async fn pod_runs(&self, namespace: &str, name: &str, ip: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
        let headers = [("content-type", "application/merge-patch+json")];
        let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
        let answer = self.send(Method::PATCH, &path, &headers, &json!({"status": status})).await;
        assert_eq!(answer.code, 200, "{:?}", answer.body);
    }

    /// A client with the token of the agent of a Node.
    pub(crate) async fn agent(&self, node: &str) -> Client {
        let path = self.server.dir().join(format!("agent-{node}.kubeconfig"));
        let (server, url) = (&self.server.server, &self.server.url);
        let text = server.kubeconfig_on_node(url, NAMESPACE, "antrea-agent", node).unwrap();
        std::fs::write(&path, text).unwrap();
        Client::from_kubeconfig(&path, &ClientOptions::new("test", "v0")).await.unwrap()
    }

    pub(crate) async fn admin(&self) -> Client {
        let path = self.server.write_kubeconfig().unwrap();
        Client::from_kubeconfig(&path, &ClientOptions::new("test", "v0")).await.unwrap()
    }

    pub(crate) async fn add_node(&self, name: &str) {
        let registration = NodeRegistration { name: name.into(), ..NodeRegistration::default() };
        nodes::register(&self.admin().await, &registration).await.unwrap();
    }

    /// Who holds the Lease.
    pub(crate) async fn holder(&self) -> Option<String> {
        let store = ApiStore::new(&self.admin().await, NAMESPACE, "antrea-controller");
        store.read().await.unwrap()?.holder().map(str::to_owned)
    }

    /// Pod of the controller that reports.
    pub(crate) async fn reporting_pod(&self) -> Option<String> {
        controller_info::get(&self.admin().await).await.ok()?.pod_ref?.name
    }

    /// Waits for a condition, and says what else there is when it does not come about.
    pub(crate) async fn eventually(
        &self,
        within: Duration,
        what: &str,
        condition: impl AsyncFn() -> bool,
    ) {
        let start = Instant::now();
        while !condition().await {
            if start.elapsed() > within {
                let nodes = nodes::list(&self.admin().await).await.map(|(all, _)| all);
                panic!(
                    "not within {within:?}: {what}\nholder {:?}\n{nodes:#?}",
                    self.holder().await
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A configuration file whose kubeconfig has the controller's own rights.
    fn config(&self, name: &str, text: &str) -> String {
        let kubeconfig = self.server.dir().join(format!("{name}.kubeconfig"));
        let server = &self.server.server;
        let content = server.kubeconfig_for(&self.server.url, NAMESPACE, "antrea-controller");
        std::fs::write(&kubeconfig, content.unwrap()).unwrap();
        let kubeconfig = kubeconfig.display();
        format!("clientConnection: {{kubeconfig: {kubeconfig}}}\napiPort: {}\n{text}", free_port())
    }

    /// Settings of a controller that hands over fast.
    pub(crate) fn settings(&self, name: &str, text: &str) -> Settings {
        let config = ControllerConfig::parse(&self.config(name, text)).unwrap();
        let variables = [("POD_NAME".to_owned(), name.to_owned())].into();
        let args = Args {
            config: None,
            bind_address: "127.0.0.1".parse().unwrap(),
            run_dir: self.server.dir().join(name),
            log: LogArgs::default(),
        };
        let mut settings = Settings::new(&args, config, Environment::from_map(&variables));
        settings.terms = Terms {
            lease_duration: Duration::from_secs(4),
            renew_deadline: Duration::from_secs(3),
            retry_period: Duration::from_millis(200),
        };
        settings
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A controller in a process of its own.
pub(crate) struct Controller {
    pub(crate) name: String,
    /// Port of its API on 127.0.0.1.
    pub(crate) port: u16,
    child: Child,
}

impl Controller {
    pub(crate) fn spawn(world: &World, name: &str, text: &str) -> Self {
        let dir = world.server.dir();
        let config: PathBuf = dir.join(format!("{name}.conf"));
        let text = world.config(name, text);
        let port = text.split("apiPort: ").nth(1).unwrap().lines().next().unwrap();
        let port = port.parse().unwrap();
        std::fs::write(&config, text).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_antrea-controller"))
            .arg("--config")
            .arg(&config)
            .arg("--bind-address=127.0.0.1")
            .arg("--run-dir")
            .arg(dir.join(name))
            .arg("--v=2")
            .env("POD_NAME", name)
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self { name: name.into(), port, child }
    }

    /// Ends it without a chance to clean up.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end; true if it did so by itself and without an error.
    pub(crate) fn terminate(&mut self, within: Duration) -> bool {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        let start = Instant::now();
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status.success(),
                None if start.elapsed() > within => return false,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

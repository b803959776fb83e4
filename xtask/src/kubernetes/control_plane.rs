//! etcd, kube-apiserver and kube-controller-manager on an address of loopback.
//!
//! The API server is set up as that of a cluster: RBAC, tokens of ServiceAccounts, aggregation, a
//! certificate for kubelets. Its way to what is inside the lab is the lab's socket. It is started
//! again whenever it ends; everything ends with this process, however that ends.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use apiserver::pki::{Authority, Identity, write_private};
use clap::ValueEnum;

/// The API server answers after this time.
const READY: Duration = Duration::from_secs(60);
/// What is asked to end has ended after this time, or is killed.
const GRACE: Duration = Duration::from_secs(10);
/// Whom kubelets see when the API server asks them.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";
const PORT: u16 = 6443;

/// Addresses of Pods and Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Both.
    Dual,
}

impl Family {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Dual => "dual",
        }
    }

    /// The lab's ranges of Services.
    fn service_ranges(self) -> &'static str {
        match self {
            Self::Ipv4 => "10.96.0.0/12",
            Self::Ipv6 => "fd00:10:96::/112",
            Self::Dual => "10.96.0.0/12,fd00:10:96::/112",
        }
    }

    /// Where the lab forwards to the API server, which Pods are told.
    fn advertised(self) -> &'static str {
        match self {
            Self::Ipv4 | Self::Dual => "172.30.0.254",
            Self::Ipv6 => "fd00:ac:1e::fe",
        }
    }

    /// The first address of the range of Services, which is the API server's.
    fn own_service(self) -> &'static str {
        match self {
            Self::Ipv4 | Self::Dual => "10.96.0.1",
            Self::Ipv6 => "fd00:10:96::1",
        }
    }
}

/// A control plane that runs; ended when dropped.
pub(super) struct ControlPlane {
    dir: PathBuf,
    programs: PathBuf,
    egress_socket: PathBuf,
    /// In the order of their start.
    children: Vec<Child>,
    api_server: Option<Supervisor>,
}

impl ControlPlane {
    /// Starts all of it anew, without anything of a former one.
    pub(super) fn start(
        programs: &Path,
        dir: &Path,
        egress_socket: &Path,
        family: Family,
    ) -> Result<Self> {
        for name in ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"] {
            if !programs.join(name).exists() {
                bail!("{} is missing", programs.join(name).display());
            }
        }
        let _ = fs::remove_dir_all(dir);
        for part in ["pki", "log"] {
            fs::create_dir_all(dir.join(part))
                .with_context(|| format!("create {}", dir.display()))?;
        }
        let mut control = Self {
            dir: dir.to_owned(),
            programs: programs.to_owned(),
            egress_socket: egress_socket.to_owned(),
            children: Vec::new(),
            api_server: None,
        };
        let address = own_address();
        control.write_files(address, family)?;
        let etcd = control.etcd(address);
        control.children.push(spawn(&control.log("etcd"), &etcd)?);
        let arguments = control.api_server_arguments(address, family);
        let log = control.log("kube-apiserver");
        control.api_server = Some(Supervisor::start(arguments, log, control.pid_file())?);
        control.await_ready()?;
        let binding = "--clusterrole=system:kubelet-api-admin";
        let user = format!("--user={KUBELET_CLIENT}");
        control.kubectl(&["create", "clusterrolebinding", KUBELET_CLIENT, binding, &user])?;
        let manager = control.manager(address);
        control.children.push(spawn(&control.log("kube-controller-manager"), &manager)?);
        Ok(control)
    }

    /// Kubeconfig of the administrator.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.pki("admin.kubeconfig")
    }

    /// The file with the API server's process.
    pub(super) fn pid_file(&self) -> PathBuf {
        self.dir.join("kube-apiserver.pid")
    }

    pub(super) fn egress_socket(&self) -> &Path {
        &self.egress_socket
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// What the API server says that it is.
    pub(super) fn version(&self) -> Result<String> {
        let said = self.kubectl(&["version"])?;
        let line = said.lines().find(|line| line.starts_with("Server Version"));
        line.map(str::to_owned).context("kubectl tells no version of the server")
    }

    /// Ends all of it, and removes what is not of use afterwards.
    pub(super) fn stop(self) {
        let dir = self.dir.clone();
        drop(self);
        for part in ["pki", "etcd", "volumes"] {
            let _ = fs::remove_dir_all(dir.join(part));
        }
    }

    fn pki(&self, name: &str) -> PathBuf {
        self.dir.join("pki").join(name)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }

    fn program(&self, name: &str) -> String {
        self.programs.join(name).display().to_string()
    }

    fn write_files(&self, address: Ipv4Addr, family: Family) -> Result<()> {
        let authority = Authority::create("kubernetes")?;
        let proxies = Authority::create("front-proxy")?;
        let names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            &address.to_string(),
            family.advertised(),
            family.own_service(),
        ];
        let serving = authority.issue_serving(&names.map(str::to_owned))?;
        self.write_identity("kube-apiserver", &serving)?;
        self.write_identity("kubelet-client", &authority.issue_client(KUBELET_CLIENT, None)?)?;
        self.write_identity("front-proxy", &proxies.issue_client("front-proxy", None)?)?;
        // Its key signs tokens; the certificate is where the API server finds the public half.
        self.write_identity("tokens", &authority.issue_client("tokens", None)?)?;
        fs::write(self.pki("ca.crt"), authority.cert_pem()).context("write the authority")?;
        fs::write(self.pki("front-proxy-ca.crt"), proxies.cert_pem())
            .context("write the authority of proxies")?;
        for (name, user, group) in [
            ("admin", "admin", Some("system:masters")),
            ("manager", "system:kube-controller-manager", None),
        ] {
            self.write_identity(name, &authority.issue_client(user, group)?)?;
            let text = format!(
                "apiVersion: v1\nkind: Config\nclusters:\n- name: kubernetes\n  cluster:\n    \
                 server: https://{address}:{PORT}\n    certificate-authority: {ca}\nusers:\n\
                 - name: {name}\n  user:\n    client-certificate: {cert}\n    client-key: {key}\n\
                 contexts:\n- name: kubernetes\n  context: {{cluster: kubernetes, user: {name}}}\n\
                 current-context: kubernetes\n",
                ca = self.pki("ca.crt").display(),
                cert = self.pki(&format!("{name}.crt")).display(),
                key = self.pki(&format!("{name}.key")).display(),
            );
            fs::write(self.pki(&format!("{name}.kubeconfig")), text)
                .context("write a kubeconfig")?;
        }
        let egress = format!(
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n\
             egressSelections:\n- name: cluster\n  connection:\n    proxyProtocol: HTTPConnect\n    \
             transport: {{uds: {{udsName: {}}}}}\n",
            self.egress_socket.display()
        );
        fs::write(self.pki("egress.yaml"), egress).context("write the egress configuration")
    }

    fn write_identity(&self, name: &str, identity: &Identity) -> Result<()> {
        let certificate = self.pki(&format!("{name}.crt"));
        fs::write(&certificate, &identity.cert_pem)
            .with_context(|| format!("write {}", certificate.display()))?;
        Ok(write_private(&self.pki(&format!("{name}.key")), identity.key_pem.as_bytes())?)
    }

    fn etcd(&self, address: Ipv4Addr) -> Vec<String> {
        let (clients, peers) = (format!("http://{address}:2379"), format!("http://{address}:2380"));
        vec![
            self.program("etcd"),
            "--name=one".into(),
            format!("--data-dir={}", self.dir.join("etcd").display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=one={peers}"),
            // Nothing of it outlives the run.
            "--unsafe-no-fsync".into(),
        ]
    }

    fn api_server_arguments(&self, address: Ipv4Addr, family: Family) -> Vec<String> {
        let file = |name: &str| self.pki(name).display().to_string();
        vec![
            self.program("kube-apiserver"),
            format!("--etcd-servers=http://{address}:2379"),
            format!("--bind-address={address}"),
            format!("--secure-port={PORT}"),
            format!("--advertise-address={}", family.advertised()),
            format!("--service-cluster-ip-range={}", family.service_ranges()),
            format!("--tls-cert-file={}", file("kube-apiserver.crt")),
            format!("--tls-private-key-file={}", file("kube-apiserver.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            "--authorization-mode=Node,RBAC".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", file("tokens.crt")),
            format!("--service-account-signing-key-file={}", file("tokens.key")),
            format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
            "--requestheader-allowed-names=front-proxy".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            format!("--proxy-client-cert-file={}", file("front-proxy.crt")),
            format!("--proxy-client-key-file={}", file("front-proxy.key")),
            "--enable-aggregator-routing=true".into(),
            format!("--egress-selector-config-file={}", file("egress.yaml")),
            format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
            format!("--kubelet-client-key={}", file("kubelet-client.key")),
            "--kubelet-preferred-address-types=InternalIP".into(),
            // The lab's kubelet speaks WebSocket, not SPDY.
            "--feature-gates=TranslateStreamCloseWebsocketRequests=false".into(),
            "--profiling=false".into(),
        ]
    }

    fn manager(&self, address: Ipv4Addr) -> Vec<String> {
        let file = |name: &str| self.pki(name).display().to_string();
        vec![
            self.program("kube-controller-manager"),
            format!("--kubeconfig={}", file("manager.kubeconfig")),
            format!("--authentication-kubeconfig={}", file("manager.kubeconfig")),
            format!("--authorization-kubeconfig={}", file("manager.kubeconfig")),
            format!("--bind-address={address}"),
            // antrea-controller gives Nodes their prefixes.
            "--allocate-node-cidrs=false".into(),
            "--use-service-account-credentials".into(),
            format!("--service-account-private-key-file={}", file("tokens.key")),
            format!("--root-ca-file={}", file("ca.crt")),
            format!("--flex-volume-plugin-dir={}", self.dir.join("volumes").display()),
            "--leader-elect=false".into(),
        ]
    }

    fn await_ready(&self) -> Result<()> {
        let deadline = Instant::now() + READY;
        loop {
            match self.kubectl(&["get", "--raw", "/readyz"]) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    return Err(error).with_context(|| {
                        format!("the API server is not ready; see {}", self.logs().display())
                    });
                }
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = Command::new(self.programs.join("kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(args)
            .output()
            .context("run kubectl")?;
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(api_server) = self.api_server.take() {
            api_server.stop();
        }
        for mut child in self.children.drain(..).rev() {
            end(&mut child);
        }
    }
}

/// Starts the API server again whenever it ends, as a node's init would.
struct Supervisor {
    stopping: Arc<AtomicBool>,
    child: Arc<Mutex<Child>>,
    thread: JoinHandle<()>,
}

impl Supervisor {
    fn start(arguments: Vec<String>, log: PathBuf, pid_file: PathBuf) -> Result<Self> {
        let first = spawn(&log, &arguments)?;
        write_pid(&pid_file, &first)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let child = Arc::new(Mutex::new(first));
        let thread = std::thread::spawn({
            let (stopping, child) = (Arc::clone(&stopping), Arc::clone(&child));
            move || {
                while !stopping.load(Ordering::SeqCst) {
                    let mut running = child.lock().unwrap_or_else(PoisonError::into_inner);
                    let has_ended = matches!(running.try_wait(), Ok(Some(_)));
                    if has_ended && !stopping.load(Ordering::SeqCst) {
                        match spawn(&log, &arguments) {
                            Ok(next) => *running = next,
                            Err(error) => println!("start the API server again: {error:#}"),
                        }
                        if let Err(error) = write_pid(&pid_file, &running) {
                            println!("{error:#}");
                        }
                    }
                    drop(running);
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        });
        Ok(Self { stopping, child, thread })
    }

    fn stop(self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = self.thread.join();
        end(&mut self.child.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Replaced whole: a reader never sees half a number.
fn write_pid(path: &Path, child: &Child) -> Result<()> {
    let part = path.with_extension("part");
    fs::write(&part, child.id().to_string())
        .and_then(|()| fs::rename(&part, path))
        .with_context(|| format!("write {}", path.display()))
}

/// Starts a program that ends with us, however we end.
fn spawn(log: &Path, arguments: &[String]) -> Result<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(log);
    let log = log.context("open a log")?;
    let errors = log.try_clone().context("open a log")?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("start {}", arguments.first().map_or("", String::as_str)))
}

/// Asks a program to end, and kills it when it does not.
fn end(child: &mut Child) {
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    let deadline = Instant::now() + GRACE;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An address of loopback that no other run has.
fn own_address() -> Ipv4Addr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 77, high, low)
}

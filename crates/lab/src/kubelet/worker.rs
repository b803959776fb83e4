//! The life of one Pod on this node: sandbox, containers, status, end.
//!
//! Level-triggered: every round looks at the disk and at what is wanted, does what is missing, and
//! reports what changed. A restarted kubelet finds sandbox and containers where they were.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube_io::pods::{self, Container, PodKey, PodStatus, PodView};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Kubelet;
use super::containers::{self, Facts, Next, Seen, for_init, restart_policy};
use super::events;
use super::manager::Wanted;
use super::status::{self, Known, Since};
use crate::container::{ContainerDir, RestartPolicy};
use crate::error::{Doing, LabError, Result};
use crate::preflight::find_program;
use crate::sandbox::{PodIdentity, Runtime, Sandbox, SandboxPhase};

/// Between two looks at containers.
const LOOK: Duration = Duration::from_millis(100);
/// How long one attempt to attach a Pod asks an agent that is not ready.
const ATTACH_PATIENCE: Duration = Duration::from_secs(5);
/// Before a failed step is tried again.
const RETRY: Duration = Duration::from_secs(1);

struct Worker {
    kubelet: Kubelet,
    pod: PodIdentity,
    known: Known,
    since: Since,
    sent: Option<PodStatus>,
    /// Containers that were launched, until it is known whether their command started.
    launched: Vec<(String, ContainerDir)>,
}

/// Runs until the Pod is gone.
pub(super) async fn run(kubelet: Kubelet, pod: PodIdentity, mut wanted: watch::Receiver<Wanted>) {
    let key = pod.key();
    let mut worker = Worker {
        kubelet,
        pod,
        known: Known::default(),
        since: Since::new(),
        sent: None,
        launched: Vec::new(),
    };
    loop {
        let now = wanted.borrow_and_update().clone();
        let wait = match now {
            Wanted::Gone => match worker.tear_down().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(pod = key, error = error.chain(), "take down");
                    RETRY
                }
            },
            Wanted::Exists(view) if view.deleting => {
                match worker.terminate(&view, &mut wanted).await {
                    Ok(()) => RETRY,
                    Err(error) => {
                        tracing::warn!(pod = key, error = error.chain(), "terminate");
                        RETRY
                    }
                }
            }
            Wanted::Exists(view) => match worker.sync(&view).await {
                Ok(()) => LOOK,
                Err(error) => {
                    tracing::warn!(pod = key, error = error.chain(), "run");
                    RETRY
                }
            },
        };
        // A closed channel means that the kubelet ends: Pods go on without it.
        let changed = tokio::time::timeout(wait, wanted.changed()).await;
        if matches!(changed, Ok(Err(_))) {
            return;
        }
    }
}

impl Worker {
    async fn sync(&mut self, view: &PodView) -> Result<()> {
        self.known.started.get_or_insert_with(Timestamp::now);
        let mut sandbox = self.find();
        self.observe(view, sandbox.as_ref());
        self.tell_started();
        let over = matches!(status::phase(view, &self.known), "Succeeded" | "Failed")
            || view.is_terminated();
        if over {
            // Its address is of no more use, and its logs stay until it is deleted.
            return self.report(view).await;
        }
        if sandbox.as_ref().is_none_or(|s| s.phase != SandboxPhase::Ready || s.is_dead()) {
            self.report(view).await?;
            match self.attach(view, sandbox).await {
                Ok(made) => {
                    self.known.waiting = None;
                    sandbox = Some(made);
                }
                Err(error) => {
                    let why = error.chain();
                    if self.known.waiting.as_ref() != Some(&why) {
                        let message = format!("Failed to create pod sandbox: {why}");
                        events::warning(
                            &self.kubelet,
                            &self.pod,
                            "FailedCreatePodSandBox",
                            message,
                        );
                    }
                    self.known.waiting = Some(why);
                    self.report(view).await?;
                    return Err(error);
                }
            }
        }
        if let Some(sandbox) = &sandbox {
            self.observe(view, Some(sandbox));
            self.start_due(view, sandbox)?;
            self.observe(view, Some(sandbox));
        }
        self.report(view).await
    }

    fn runtime(&self) -> &Arc<Runtime> {
        &self.kubelet.runtime
    }

    fn find(&self) -> Option<Sandbox> {
        let mut all = self.runtime().list();
        all.retain(|s| s.pod.uid == self.pod.uid);
        all.pop()
    }

    async fn attach(&self, view: &PodView, found: Option<Sandbox>) -> Result<Sandbox> {
        let runtime = Arc::clone(self.runtime());
        let (pod, host_network) = (self.pod.clone(), view.spec.host_network);
        let capabilities = capabilities(view);
        let work = move || {
            let mut sandbox = match found {
                Some(dead) if dead.is_dead() => {
                    runtime.remove(&dead).doing(|| format!("end the sandbox of {}", pod.key()))?;
                    runtime.reserve(&pod, host_network, capabilities)?
                }
                Some(sandbox) => sandbox,
                None => runtime.reserve(&pod, host_network, capabilities)?,
            };
            runtime
                .attach(&mut sandbox, ATTACH_PATIENCE)
                .doing(|| format!("make the sandbox of {}", pod.key()))?;
            Ok(sandbox)
        };
        blocking(work).await
    }

    /// Reads from disk how containers are.
    fn observe(&mut self, view: &PodView, sandbox: Option<&Sandbox>) {
        let Some(sandbox) = sandbox else { return };
        self.known.sandbox = Some(sandbox.id.clone());
        self.known.pod_ips = match sandbox.phase {
            SandboxPhase::Creating => Vec::new(),
            SandboxPhase::Ready if sandbox.host_network => self.kubelet.addresses.clone(),
            SandboxPhase::Ready => sandbox.addresses(),
        };
        let runtime = Arc::clone(self.runtime());
        let look = |containers: &[Container]| -> BTreeMap<String, Seen> {
            containers.iter().map(|c| (c.name.clone(), seen(&runtime, sandbox, &c.name))).collect()
        };
        self.known.init = look(&view.spec.init_containers);
        self.known.main = look(&view.spec.containers);
    }

    /// Starts every container whose time has come.
    fn start_due(&mut self, view: &PodView, sandbox: &Sandbox) -> Result<()> {
        let policy = restart_policy(view);
        for container in &view.spec.init_containers {
            let seen = self.known.init.get(&container.name).cloned().unwrap_or_default();
            if seen.exit.as_ref().is_some_and(|e| e.code == 0) {
                continue;
            }
            // The next one waits for the success of this one.
            return self.start_if_due(view, sandbox, container, &seen, for_init(policy));
        }
        for container in &view.spec.containers {
            let seen = self.known.main.get(&container.name).cloned().unwrap_or_default();
            self.start_if_due(view, sandbox, container, &seen, policy)?;
        }
        Ok(())
    }

    fn start_if_due(
        &mut self,
        view: &PodView,
        sandbox: &Sandbox,
        container: &Container,
        seen: &Seen,
        policy: RestartPolicy,
    ) -> Result<()> {
        let attempt = match containers::next(seen, policy, Timestamp::now()) {
            Next::Start(attempt) => attempt,
            Next::Nothing | Next::Wait(_) => return Ok(()),
        };
        if attempt > 1 {
            let message = format!("Back-off restarting failed container {}", container.name);
            events::warning(&self.kubelet, &self.pod, "BackOff", message);
        }
        let facts = Facts {
            node: self.kubelet.node.clone(),
            host_ip: self.kubelet.addresses.first().map(ToString::to_string).unwrap_or_default(),
            pod_ips: self.known.pod_ips.iter().map(ToString::to_string).collect(),
        };
        let runs = containers::runs(container, |name| find_program(name).is_some());
        if let Some(said) = containers::ignored_args(container, runs).filter(|_| attempt == 0) {
            events::warning(&self.kubelet, &self.pod, "ArgsIgnored", said);
        }
        let spec = containers::spec(view, container, &facts, policy, runs)?;
        let launched = self.runtime().launch(sandbox, &container.name, attempt, &spec)?;
        self.launched.push((container.name.clone(), launched));
        tracing::info!(pod = self.pod.key(), container = container.name, attempt, "launched");
        // Logs of the attempt before stay for `kubectl logs --previous`.
        for old in self.runtime().attempts(sandbox, &container.name) {
            if old + 1 < attempt {
                let _ = std::fs::remove_dir_all(
                    self.runtime().container(sandbox, &container.name, old).0,
                );
            }
        }
        Ok(())
    }

    /// Tells of each launched container whether its command started.
    fn tell_started(&mut self) {
        let Self { kubelet, pod, launched, .. } = self;
        launched.retain(|(name, dir)| {
            if dir.running().is_some() {
                events::normal(kubelet, pod, "Started", format!("Started container {name}"));
                return false;
            }
            let Some(exit) = dir.exit() else { return true };
            let why = exit.message.unwrap_or_else(|| format!("exit code {}", exit.code));
            let message = format!("Error: failed to start container {name}: {why}");
            events::warning(kubelet, pod, "Failed", message);
            false
        });
    }

    async fn report(&mut self, view: &PodView) -> Result<()> {
        let status = status::status(
            view,
            &self.known,
            &self.kubelet.addresses,
            &mut self.since,
            Timestamp::now(),
        );
        if self.sent.as_ref() == Some(&status) {
            return Ok(());
        }
        match pods::patch_status(&self.kubelet.client, &self.key(), &status).await {
            Ok(_) => {
                self.sent = Some(status);
                Ok(())
            }
            // Gone, or another Pod took the name: the watch will say so.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(LabError::new(error.chain())),
        }
    }

    /// Asks containers to end, waits, takes the sandbox down, and removes the Pod from the API.
    async fn terminate(
        &mut self,
        view: &PodView,
        wanted: &mut watch::Receiver<Wanted>,
    ) -> Result<()> {
        if let Some(sandbox) = self.find() {
            self.observe(view, Some(&sandbox));
            self.report(view).await?;
            let names = || view.spec.init_containers.iter().chain(&view.spec.containers);
            let dirs: Vec<_> = names()
                .filter_map(|c| {
                    let attempt = *self.runtime().attempts(&sandbox, &c.name).last()?;
                    Some(self.runtime().container(&sandbox, &c.name, attempt))
                })
                .collect();
            if !dirs.is_empty() {
                events::normal(&self.kubelet, &self.pod, "Killing", "Stopping containers".into());
            }
            for dir in &dirs {
                dir.signal(Signal::SIGTERM);
            }
            let asked = tokio::time::Instant::now();
            loop {
                // A second, shorter request may arrive meanwhile.
                let grace = match &*wanted.borrow() {
                    Wanted::Gone => 0,
                    Wanted::Exists(now) => now.deletion_grace_seconds.unwrap_or(30),
                };
                let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
                let ended = dirs.iter().all(|d| d.keeper().is_none() || d.exit().is_some());
                if ended || asked.elapsed() >= grace {
                    break;
                }
                tokio::time::sleep(LOOK / 2).await;
            }
            let killing = dirs.clone();
            blocking(move || {
                for dir in &killing {
                    dir.kill();
                }
                Ok(())
            })
            .await?;
            self.observe(view, Some(&sandbox));
            self.report(view).await?;
        }
        self.tear_down().await?;
        pods::delete_now(&self.kubelet.client, &self.key())
            .await
            .map_err(|error| LabError::new(error.chain()))
    }

    async fn tear_down(&self) -> Result<()> {
        let runtime = Arc::clone(self.runtime());
        let uid = self.pod.uid.clone();
        blocking(move || {
            for sandbox in runtime.list().iter().filter(|s| s.pod.uid == uid) {
                runtime
                    .remove(sandbox)
                    .doing(|| format!("remove the sandbox of {}", sandbox.pod.key()))?;
            }
            Ok(())
        })
        .await
    }

    fn key(&self) -> PodKey {
        PodKey {
            namespace: self.pod.namespace.clone(),
            name: self.pod.name.clone(),
            uid: self.pod.uid.clone(),
        }
    }
}

fn seen(runtime: &Runtime, sandbox: &Sandbox, container: &str) -> Seen {
    let attempts = runtime.attempts(sandbox, container);
    let Some(attempt) = attempts.last().copied() else { return Seen::default() };
    let dir = runtime.container(sandbox, container, attempt);
    let last = attempts.iter().rev().nth(1).and_then(|before| {
        let dir = runtime.container(sandbox, container, *before);
        Some((dir.running(), dir.exit()?))
    });
    Seen { attempt: Some(attempt), running: dir.running(), exit: dir.exit(), last }
}

/// What plugins with capabilities are asked for.
fn capabilities(view: &PodView) -> BTreeMap<String, Value> {
    let mut asked = BTreeMap::new();
    let mappings: Vec<Value> = view
        .spec
        .containers
        .iter()
        .flat_map(|c| &c.ports)
        .filter_map(|port| {
            let mut mapping = json!({
                "hostPort": port.host_port?,
                "containerPort": port.container_port,
                "protocol": port.protocol.as_deref().unwrap_or("TCP").to_lowercase(),
            });
            if let Some(ip) = &port.host_ip {
                mapping["hostIP"] = json!(ip);
            }
            Some(mapping)
        })
        .collect();
    if !mappings.is_empty() {
        asked.insert("portMappings".into(), Value::Array(mappings));
    }
    let rate = |key: &str| view.annotations.get(key).and_then(|v| bits_per_second(v));
    let (ingress, egress) =
        (rate("kubernetes.io/ingress-bandwidth"), rate("kubernetes.io/egress-bandwidth"));
    if ingress.is_some() || egress.is_some() {
        let mut limits = json!({});
        for (name, rate) in [("ingress", ingress), ("egress", egress)] {
            if let Some(rate) = rate {
                limits[format!("{name}Rate")] = json!(rate);
                limits[format!("{name}Burst")] = json!(i64::from(i32::MAX));
            }
        }
        asked.insert("bandwidth".into(), limits);
    }
    asked
}

/// Reads a quantity such as `10M`.
fn bits_per_second(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(LabError::new("a blocking step panicked")))
}

#[cfg(test)]
mod tests {
    use kube_io::pods::ContainerPort;

    use super::*;

    #[test]
    fn ports_and_bandwidth_become_capabilities() {
        let mut view = PodView::default();
        assert!(capabilities(&view).is_empty());
        view.annotations.insert("kubernetes.io/ingress-bandwidth".into(), "10M".into());
        view.spec.containers = vec![Container {
            ports: vec![
                ContainerPort { container_port: 80, ..ContainerPort::default() },
                ContainerPort {
                    container_port: 53,
                    host_port: Some(5353),
                    protocol: Some("UDP".into()),
                    ..ContainerPort::default()
                },
            ],
            ..Container::default()
        }];
        let asked = capabilities(&view);
        assert_eq!(
            asked["portMappings"],
            json!([{"hostPort": 5353, "containerPort": 53, "protocol": "udp"}])
        );
        assert_eq!(asked["bandwidth"]["ingressRate"], 10_000_000);
        assert!(asked["bandwidth"].get("egressRate").is_none());
    }

    #[test]
    fn quantities() {
        for (text, want) in
            [("5", Some(5)), ("2k", Some(2000)), ("1Mi", Some(1 << 20)), ("1X", None), ("", None)]
        {
            assert_eq!(bits_per_second(text), want, "{text}");
        }
    }
}

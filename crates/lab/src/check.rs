//! Scenarios: what the network promises, tried on a lab made for it.
//!
//! Each scenario passes, fails, or is impossible here with the reason. They share one lab, which
//! is made beside any other and ended afterwards; `clean` makes and ends its own. What a killed
//! `check` left is ended by the next one.

mod address_reuse;
mod agent_restart;
mod clean;
mod cluster;
mod cni_churn;
mod cni_faults;
mod containerd;
mod expected;
pub(crate) mod frames;
mod go_node;
mod kubernetes;
mod layout_upgrade;
mod leftovers;
mod load;
mod mtu;
mod ovs_restart;
mod policy;
mod reboot;
mod services;
mod spoof;
mod spoof6;
mod spoof_windows;
mod switch_faults;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::NodeComponent;
use crate::component;
use crate::error::{LabError, Result};
use crate::interrupt;
use crate::layout::Layout;
use crate::matrix;
use crate::pods;
use crate::sandbox::{PodIdentity, Sandbox};
use crate::state::{self, Mode, Store};
use crate::ui::{self, Progress};
use crate::up::{self, UpOptions};
use crate::variant::Variant;

/// How a scenario ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// All it asserts is so.
    Passed,
    /// Something is not so.
    Failed,
    /// It cannot be tried here.
    Impossible,
}

/// What a scenario says when it did not fail.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It passed; figures worth knowing.
    Passed(Value),
    /// It cannot be tried here.
    Impossible(String),
}

/// One line of the result.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Which scenario.
    pub scenario: &'static str,
    /// In which kind of lab.
    #[serde(flatten)]
    pub variant: Variant,
    /// How it ended.
    pub result: Verdict,
    /// Why it failed or is impossible.
    pub reason: Option<String>,
    /// Figures worth knowing.
    pub details: Value,
    /// What is wrong with that in the light of the committed list of results.
    pub objection: Option<String>,
    /// Seconds it took.
    pub seconds: f64,
}

impl Row {
    /// Whether it did not fail, and is what the committed list says.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        self.result != Verdict::Failed && self.objection.is_none()
    }
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// The lab that all scenarios share: two nodes, no API server.
    SharedLab,
    /// Nothing: it makes its own.
    Nothing,
    /// An API server, ours or another: it makes a lab for it.
    ApiServer,
    /// Kubernetes' own API server.
    Kubernetes,
}

impl Needs {
    /// Whether a scenario can be run with an API server that is not ours, or without.
    fn suits(self, kubernetes: Option<&Kubernetes>) -> bool {
        match self {
            Self::SharedLab | Self::Nothing => kubernetes.is_none(),
            Self::ApiServer => true,
            Self::Kubernetes => kubernetes.is_some(),
        }
    }
}

/// An API server that is not ours.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    /// How it is reached.
    pub kubeconfig: PathBuf,
    /// Where its way into labs listens.
    pub egress_socket: Option<PathBuf>,
    /// File with its process; somebody starts it again when that ends.
    pub pid_file: Option<PathBuf>,
}

struct Scenario {
    name: &'static str,
    about: &'static str,
    needs: Needs,
    run: fn(&Context<'_>) -> Result<Outcome>,
}

/// What a scenario works with.
pub struct Context<'a> {
    store: Option<&'a Store>,
    dir: &'a Path,
    variant: Variant,
    bin_dir: &'a Path,
    kubernetes: Option<&'a Kubernetes>,
    progress: &'a Progress,
}

impl Context<'_> {
    /// A lab with an API server, the one that is to be checked against.
    fn cluster(&self, n_nodes: u8) -> UpOptions {
        let options = |mode| UpOptions::new(n_nodes, self.variant, mode, self.bin_dir.to_owned());
        match self.kubernetes {
            None => options(Mode::Cluster),
            Some(theirs) => UpOptions {
                kubeconfig: Some(theirs.kubeconfig.clone()),
                egress_socket: theirs.egress_socket.clone(),
                ..options(Mode::External)
            },
        }
    }

    /// The shared lab.
    fn store(&self) -> Result<&Store> {
        self.store.ok_or_else(|| LabError::new("this scenario has no shared lab"))
    }

    /// Makes an echo Pod that the scenario removes at its end.
    fn pod(&self, node: &str, name: &str) -> Result<Pod<'_>> {
        let store = self.store()?;
        let identity = PodIdentity {
            namespace: "check".into(),
            name: name.into(),
            uid: format!("check-{name}-{}", jiff::Timestamp::now().as_microsecond()),
        };
        let sandbox = pods::add(store, node, &identity, None)?;
        Ok(Pod { store, sandbox, removed: false })
    }
}

/// A Pod of a scenario; removed when dropped.
struct Pod<'a> {
    store: &'a Store,
    sandbox: Sandbox,
    removed: bool,
}

impl Pod<'_> {
    /// Removes it now.
    fn remove(&mut self) -> Result<()> {
        if self.removed {
            return Ok(());
        }
        pods::del(self.store, &self.sandbox, Duration::ZERO)?;
        self.removed = true;
        Ok(())
    }

    /// Makes it anew: as when a kubelet finds that its sandbox is of no more use.
    fn renew(&mut self) -> Result<()> {
        self.sandbox = pods::renew(self.store, &self.sandbox)?;
        Ok(())
    }

    /// Takes over the sandbox that somebody else made for it anew.
    fn follow(&mut self) -> Result<()> {
        self.sandbox = pods::find(self.store, &self.sandbox.pod.key())?;
        Ok(())
    }

    /// Where its server answers first.
    fn target(&self) -> Result<SocketAddr> {
        self.targets().first().copied().ok_or_else(|| LabError::new("the Pod has no address"))
    }

    /// Where its server answers: once for each family.
    fn targets(&self) -> Vec<SocketAddr> {
        let addresses = self.sandbox.addresses();
        addresses.into_iter().map(|a| SocketAddr::new(a, crate::echo::PORT)).collect()
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            ui::warn(format!("remove Pod {}: {}", self.sandbox.pod.key(), error.chain()));
        }
    }
}

/// Every scenario, in the order they run.
const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "matrix",
        about: "Pods, nodes and the outside reach each other, with the right address seen",
        needs: Needs::SharedLab,
        run: matrix_scenario,
    },
    Scenario {
        name: "mtu",
        about: "a full-size packet that must not be fragmented crosses between nodes",
        needs: Needs::SharedLab,
        run: mtu::run,
    },
    Scenario {
        name: "spoof",
        about: "forged addresses, ARP, tunnel packets and detours by MAC do not arrive",
        needs: Needs::SharedLab,
        run: spoof::run,
    },
    Scenario {
        name: "address-reuse",
        about: "a Pod that gets a used address inherits no connection of the former one",
        needs: Needs::SharedLab,
        run: address_reuse::run,
    },
    Scenario {
        name: "cni-faults",
        about: "bad requests get the specified error, leave nothing, and the retry succeeds",
        needs: Needs::SharedLab,
        run: cni_faults::run,
    },
    Scenario {
        name: "cni-churn",
        about: "1,000 ADDs and DELs, 20 at once, leave nothing behind",
        needs: Needs::SharedLab,
        run: cni_churn::run,
    },
    Scenario {
        name: "containerd",
        about: "containerd's own client connects a container by our plugins, and it leaves nothing",
        needs: Needs::SharedLab,
        run: containerd::run,
    },
    Scenario {
        name: "agent-restart",
        about: "the agents are killed, stopped and started under traffic: no packet is lost",
        needs: Needs::SharedLab,
        run: agent_restart::run,
    },
    Scenario {
        name: "layout-upgrade",
        about: "an agent of another table layout takes over under traffic: connections survive",
        needs: Needs::SharedLab,
        run: layout_upgrade::run,
    },
    Scenario {
        name: "go-node",
        about: "a node that a Go agent had is taken over under traffic, and its rules are removed",
        needs: Needs::SharedLab,
        run: go_node::run,
    },
    Scenario {
        name: "ovs-restart",
        about: "ovs-vswitchd is killed and started: flows come back by themselves",
        needs: Needs::SharedLab,
        run: ovs_restart::run,
    },
    Scenario {
        name: "ovsdb-restart",
        about: "ovsdb-server is killed and started: connections survive, Pods are made as before",
        needs: Needs::SharedLab,
        run: switch_faults::database_server,
    },
    Scenario {
        name: "ovs-both-restart",
        about: "both processes of Open vSwitch are killed and started: traffic flows again",
        needs: Needs::SharedLab,
        run: switch_faults::both,
    },
    Scenario {
        name: "database-lost",
        about: "Open vSwitch's database is lost: the node recovers, and Pods that are made anew",
        needs: Needs::SharedLab,
        run: switch_faults::database_lost,
    },
    Scenario {
        name: "reboot",
        about: "a node is rebooted: its Pods come back, and nothing of the former ones is left",
        needs: Needs::SharedLab,
        run: reboot::run,
    },
    Scenario {
        name: "cluster",
        about: "Pods through the API and kubectl; a kubelet that restarts takes its Pods over",
        needs: Needs::Nothing,
        run: cluster::run,
    },
    Scenario {
        name: "policy",
        about: "Kubernetes NetworkPolicies let pass and drop what they say, cell by cell",
        needs: Needs::ApiServer,
        run: policy::run,
    },
    Scenario {
        name: "policy-native",
        about: "Antrea's policies: tiers, priorities, Drop, Reject, Pass, groups, status, audit log",
        needs: Needs::ApiServer,
        run: policy::native::run,
    },
    Scenario {
        name: "policy-faults",
        about: "no packet passes or is lost wrongly while agents and the controller come and go",
        needs: Needs::ApiServer,
        run: policy::faults::run,
    },
    Scenario {
        name: "policy-restarts",
        about: "a closed Pod stays closed while its bridge, switch, agent or port is made anew",
        needs: Needs::ApiServer,
        run: policy::restarts::run,
    },
    Scenario {
        name: "fqdn",
        about: "names in policies: open or closed at once after the answer, by UDP and TCP, for its time",
        needs: Needs::ApiServer,
        run: policy::fqdn::run,
    },
    Scenario {
        name: "controllers",
        about: "three controllers are killed one by one while policies change under traffic",
        needs: Needs::ApiServer,
        run: policy::controllers::run,
    },
    Scenario {
        name: "services",
        about: "Pods reach Services: spread, hairpin, affinity, refusals, endpoints that change or are no Pods",
        needs: Needs::ApiServer,
        run: services::run,
    },
    Scenario {
        name: "services-node",
        about: "nodes and the outside reach Services: node ports, load balancers, policies, ranges",
        needs: Needs::ApiServer,
        run: services::node::run,
    },
    Scenario {
        name: "services-dsr",
        about: "load balancers with direct server return: the endpoint's node answers, and sees the client",
        needs: Needs::ApiServer,
        run: services::direct::run,
    },
    Scenario {
        name: "services-start",
        about: "without kube-proxy a node serves Services before it has a Pod CIDR, to who gives it one",
        needs: Needs::Nothing,
        run: services::start::run,
    },
    Scenario {
        name: "policy-services",
        about: "policies by the Service that is dialled, and at NodePorts: who may, and who is told not to",
        needs: Needs::Nothing,
        run: services::rules::run,
    },
    Scenario {
        name: "services-faults",
        about: "no request fails while all endpoints are replaced and while agents restart",
        needs: Needs::ApiServer,
        run: services::faults::run,
    },
    Scenario {
        name: "kubernetes",
        about: "with Kubernetes' own API server: kubectl, Deployments, admission, its restart under traffic",
        needs: Needs::Kubernetes,
        run: kubernetes::run,
    },
    Scenario {
        name: "clean",
        about: "up and down, also interrupted, leave the machine as it was",
        needs: Needs::Nothing,
        run: clean::run,
    },
];

/// Names of all scenarios and what they assert.
#[must_use]
pub fn list() -> Vec<(&'static str, &'static str)> {
    SCENARIOS.iter().map(|s| (s.name, s.about)).collect()
}

/// Runs scenarios in every kind of lab that is asked for; all scenarios when none is named. When
/// the user interrupts, the results are those had until then.
///
/// # Errors
/// When a name is unknown, or the shared lab does not come up.
pub fn run(
    dir: &Path,
    names: &[String],
    variants: &[Variant],
    kubernetes: Option<&Kubernetes>,
    bin_dir: PathBuf,
    progress: &Progress,
) -> Result<Vec<Row>> {
    for name in names {
        if !SCENARIOS.iter().any(|s| s.name == name) {
            let known: Vec<_> = SCENARIOS.iter().map(|s| s.name).collect();
            return Err(LabError::new(format!("no scenario {name}"))
                .hint(format!("scenarios: {}", known.join(", "))));
        }
    }
    let named = |s: &&Scenario| names.iter().any(|n| n == s.name);
    if let Some(other) = SCENARIOS.iter().filter(named).find(|s| !s.needs.suits(kubernetes)) {
        return Err(match kubernetes {
            None => LabError::new(format!("scenario {} needs --kubeconfig", other.name))
                .hint("cargo xtask test-kubernetes starts Kubernetes' own API server for it"),
            Some(_) => LabError::new(format!("scenario {} takes no --kubeconfig", other.name)),
        });
    }
    let wanted: Vec<&Scenario> = SCENARIOS
        .iter()
        .filter(|s| if names.is_empty() { s.needs.suits(kubernetes) } else { named(s) })
        .collect();
    // Beside the lab that `--dir` names, so that both can run.
    let layout = Layout::beside(dir, "check")?;
    let _lock = state::lock(&layout)?;
    let mut rows = Vec::new();
    for variant in variants {
        let place = Place { layout: &layout, variant: *variant, kubernetes, bin_dir: &bin_dir };
        run_variant(&place, &wanted, progress, &mut rows);
        if interrupt::requested() {
            break;
        }
    }
    Ok(rows)
}

/// Where scenarios run, and in which kind of lab.
struct Place<'a> {
    layout: &'a Layout,
    variant: Variant,
    kubernetes: Option<&'a Kubernetes>,
    bin_dir: &'a Path,
}

/// Runs scenarios in one kind of lab.
fn run_variant(place: &Place<'_>, wanted: &[&Scenario], progress: &Progress, rows: &mut Vec<Row>) {
    let Place { layout, variant, kubernetes, bin_dir } = *place;
    if let Some(obstacle) = variant.datapath.obstacle() {
        let outcome = || Ok(Outcome::Impossible(obstacle.into()));
        rows.extend(wanted.iter().map(|s| row(s.name, variant, Instant::now(), outcome())));
        return;
    }
    let lab = if wanted.iter().any(|s| s.needs == Needs::SharedLab) {
        progress.step(&format!("starting a lab of two nodes: {variant}"));
        let options = UpOptions::new(2, variant, Mode::Standalone, bin_dir.to_owned());
        Some(up::run(layout, &options, &Progress::start()).map(Lab))
    } else {
        None
    };
    for scenario in wanted {
        if interrupt::requested() {
            return;
        }
        let store = match (scenario.needs, &lab) {
            (Needs::SharedLab, Some(Ok(lab))) => Some(&lab.0),
            (Needs::SharedLab, Some(Err(error))) => {
                // Other kinds of labs may come up all the same.
                let error = LabError::new(format!("its lab does not come up: {}", error.chain()));
                rows.push(row(scenario.name, variant, Instant::now(), Err(error)));
                continue;
            }
            _ => None,
        };
        let context = Context { store, dir: layout.dir(), variant, bin_dir, kubernetes, progress };
        progress.step(&format!("{}: {}", scenario.name, scenario.about));
        let started = Instant::now();
        let row = row(scenario.name, variant, started, (scenario.run)(&context));
        progress.step(&format!("{}: {}", scenario.name, words(&row)));
        if interrupt::requested() {
            // What a scenario that was cut short says is not its result.
            return;
        }
        if let (Verdict::Failed, Some(store)) = (row.result, store) {
            heal(store);
        }
        rows.push(row);
    }
}

/// Starts what a failed scenario left dead, so that the others can be tried.
fn heal(store: &Store) {
    use NodeComponent::{Agent, Ovsdb, Vswitchd};
    for node in store.get().nodes {
        for component in [Ovsdb, Vswitchd, Agent] {
            if !component::runs(store, &node.name, component)
                && let Err(error) = component::start(store, &node.name, component)
            {
                ui::warn(error.chain());
            }
        }
    }
}

fn row(
    scenario: &'static str,
    variant: Variant,
    started: Instant,
    outcome: Result<Outcome>,
) -> Row {
    let (result, reason, details) = match outcome {
        Ok(Outcome::Passed(details)) => (Verdict::Passed, None, details),
        Ok(Outcome::Impossible(reason)) => (Verdict::Impossible, Some(reason), Value::Null),
        Err(error) => (Verdict::Failed, Some(error.chain()), Value::Null),
    };
    let objection =
        expected::objection(expected::LIST, scenario, variant, result, reason.as_deref());
    let seconds = started.elapsed().as_secs_f64();
    Row { scenario, variant, result, reason, details, objection, seconds }
}

fn words(row: &Row) -> String {
    let word = match row.result {
        Verdict::Passed => "passed",
        Verdict::Failed => "FAILED",
        Verdict::Impossible => "impossible",
    };
    let word = match &row.objection {
        Some(objection) => format!("UNEXPECTED ({objection}): {word}"),
        None => word.to_owned(),
    };
    match &row.reason {
        Some(reason) => {
            // The whole of it is in the JSON form.
            let line: String = reason.replace('\n', " ").chars().take(400).collect();
            format!("{word}: {line}")
        }
        None => format!("{word} {}", row.details),
    }
}

/// Prints results for people.
pub fn print(rows: &[Row]) {
    let head = ["SCENARIO", "FAMILY", "TUNNEL", "DATAPATH", "SECONDS", "RESULT"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(|r| {
        vec![
            r.scenario.into(),
            r.variant.family.name().into(),
            r.variant.tunnel.name().into(),
            r.variant.datapath.name().into(),
            format!("{:.1}", r.seconds),
            words(r),
        ]
    }));
    ui::table(&table);
}

/// Ends the lab when the scenarios are over, however they end.
struct Lab(Store);

impl Drop for Lab {
    fn drop(&mut self) {
        if self.0.get().mode == Mode::External {
            // Pods are not gone before their nodes let go of them.
            heal(&self.0);
            if let Err(error) = crate::cluster::foreign::sweep(&self.0) {
                ui::warn(format!("what the scenario made stays in the cluster: {}", error.chain()));
            }
        }
        if let Err(error) = crate::down::run(&self.0, &Progress::start()) {
            ui::warn(error.chain());
        }
    }
}

fn matrix_scenario(context: &Context<'_>) -> Result<Outcome> {
    let _pods = [
        context.pod("node-1", "matrix-1")?,
        context.pod("node-1", "matrix-2")?,
        context.pod("node-2", "matrix-3")?,
        context.pod("node-2", "matrix-4")?,
    ];
    let seen = matrix::run(context.store()?)?;
    if seen.n_failed == 0 {
        return Ok(Outcome::Passed(json!({ "exchanges": seen.n_passed })));
    }
    let first = seen.cells.iter().find(|c| !c.pass);
    let why = first.map(|c| format!("{} -> {}: {:?}", c.from, c.to, c.error)).unwrap_or_default();
    Err(LabError::new(format!("{} exchanges failed, first {why}", seen.n_failed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_have_names_of_their_own() {
        let mut names: Vec<_> = list().into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SCENARIOS.len());
    }

    #[test]
    fn an_unknown_scenario_is_refused_with_the_known_ones() {
        let error = run(
            Path::new("/run/x"),
            &["nonsense".into()],
            &[],
            None,
            "/".into(),
            &Progress::start(),
        )
        .unwrap_err();
        assert!(error.next_step().unwrap().contains("agent-restart"));
    }

    #[test]
    fn scenarios_run_where_they_can() {
        let theirs =
            Kubernetes { kubeconfig: "/nonexist".into(), egress_socket: None, pid_file: None };
        let refused = |name: &str, kubernetes| {
            let names = [name.to_owned()];
            let progress = Progress::start();
            run(Path::new("/run/x"), &names, &[], kubernetes, "/".into(), &progress)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(refused("kubernetes", None), "scenario kubernetes needs --kubeconfig");
        assert_eq!(refused("spoof", Some(&theirs)), "scenario spoof takes no --kubeconfig");
        assert!(Needs::ApiServer.suits(None) && Needs::ApiServer.suits(Some(&theirs)));
    }
}

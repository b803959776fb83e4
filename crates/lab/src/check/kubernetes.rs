//! A lab with Kubernetes' own API server and controller manager: what they do that ours need not.
//!
//! Workloads and EndpointSlices of the controller manager, schemas and webhooks in the way of what
//! users write, kubelets and the controller asked through the API server, and its restart.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::cluster::{deletion, kubectl, nothing_forbidden};
use super::{Context, Lab, Outcome};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::Layout;
use crate::state::{Proxy, Store};
use crate::traffic::Datagrams;
use crate::ui::Progress;
use crate::up::{self, UpOptions};
use crate::variant::IpFamily;
use crate::{addressing, cluster, demo, matrix, pods, probe};

/// Replicas of the Deployment.
const N_PODS: usize = 6;
/// A change is in force everywhere after this time: the controller manager may have lost its watches
/// with the API server, and waits before it tries again.
const IN_FORCE: Duration = Duration::from_secs(60);
/// One exchange takes no longer.
const ANSWERED: Duration = Duration::from_secs(2);
/// Datagrams that are received around each fault.
const FLOWING: u64 = 200;
/// How often the API server is killed.
const N_KILLS: usize = 3;
const NODE_PORT: u16 = 30080;

const WORKLOAD: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: demo}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: demo}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: antrea-lab/echo, ports: [{containerPort: 8080, name: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo}
spec:
  type: NodePort
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: http, nodePort: 30080}]
---
apiVersion: v1
kind: Pod
metadata: {name: talk, namespace: demo, labels: {app: talk}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: x, command: [sh, -c, "echo I am $NAME; exec sleep 100000"],
     env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}
"#;

/// What keeps the talker from the workload.
const DENY: &str = r#"
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: deny}
spec:
  priority: 5
  tier: securityops
  appliedTo: [{podSelector: {matchLabels: {app: web}}}]
  ingress: [{action: Drop, from: [{podSelector: {matchLabels: {app: talk}}}]}]
"#;

/// The same by Kubernetes' own policies: nobody is let in.
const ISOLATE: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: isolate, namespace: demo}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}
"#;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let layout = Layout::beside(context.dir, "kubernetes")?;
    let options = UpOptions { proxy: Proxy::All, ..context.cluster(3) };
    let quiet = Progress::start();
    let lab = Lab(up::run(&layout, &options, &quiet)?);
    let store = &lab.0;
    let step = |what: &str| context.progress.step(what);

    step("a Deployment, its Service and its EndpointSlices");
    cluster::apply(store, WORKLOAD)?;
    await_workload(store)?;
    let seen = matrix::run(store)?;
    if seen.n_failed > 0 {
        return Err(LabError::new(format!("{} exchanges failed", seen.n_failed)));
    }
    let world = World::of(store)?;
    world.await_open(true, "the Service answers")?;
    step("what kubectl asks");
    let n_asked = kubectl_works(store)?;
    step("what is refused, and by whom");
    let n_refused = refusals(store)?;
    step("policies are enforced, and say so");
    policies(&world)?;
    step("replicas come and go");
    scaling(&world)?;
    // An API server that has just been started knows no rights yet, and says so.
    nothing_forbidden(store)?;
    let outages = match context.kubernetes.and_then(|theirs| theirs.pid_file.as_deref()) {
        Some(pid_file) => {
            step("the API server is killed under traffic");
            let mut outages = Vec::new();
            for _ in 0..N_KILLS {
                outages.push(api_server_restart(&world, pid_file)?.as_millis());
            }
            json!(outages)
        }
        None => json!("not tried: --api-server-pid is missing"),
    };
    step("deletion leaves nothing");
    kubectl_ok(store, &["delete", "deployment,service", "web"])?;
    deletion(store)?;
    Ok(Outcome::Passed(json!({
        "upSeconds": store.get().up_seconds,
        "exchanges": seen.n_passed,
        "kubectlCommands": n_asked,
        "refusals": n_refused,
        "apiServerOutagesMs": outages,
    })))
}

/// Waits as people do.
fn await_workload(store: &Store) -> Result<()> {
    kubectl_ok(store, &["rollout", "status", "deployment/web", "--timeout=60s"])?;
    kubectl_ok(store, &["wait", "--for=condition=Ready", "pod/talk", "--timeout=60s"]).map(drop)
}

fn kubectl_ok(store: &Store, args: &[&str]) -> Result<String> {
    match kubectl(store, args)? {
        (true, said) => Ok(said),
        (false, said) => Err(LabError::new(format!("kubectl {}: {}", args.join(" "), said.trim()))),
    }
}

/// Who asks, and what is asked.
struct World<'a> {
    store: &'a Store,
    /// Addresses of the Service.
    service: Vec<SocketAddr>,
}

impl<'a> World<'a> {
    fn of(store: &'a Store) -> Result<Self> {
        let path = "jsonpath={.spec.clusterIPs[*]}";
        let said = kubectl_ok(store, &["get", "service", "web", "-o", path])?;
        let parse = |text: &str| text.parse().doing(|| format!("read the address {text}"));
        let all: Result<Vec<_>> = said.split_whitespace().map(parse).collect();
        let service = all?.into_iter().map(|ip| SocketAddr::new(ip, 80)).collect();
        Ok(Self { store, service })
    }

    /// Why the talker and the nodes reach the Service, or do not, other than they should.
    fn objection(&self, open: bool) -> Result<Option<String>> {
        let talk = pods::find(self.store, "talk")?;
        for target in &self.service {
            let answer = probe::tcp_who(&talk.netns, *target, ANSWERED);
            if answer.is_ok() != open {
                return Ok(Some(format!("a Pod to {target}: {answer:?}")));
            }
        }
        if !open {
            return Ok(None);
        }
        // Nodes reach it whatever policies say; the outside by their ports.
        let state = self.store.get();
        let outside = self.store.layout().outside_netns();
        for node in &state.nodes {
            for address in addressing::node(state.variant.family, node.n) {
                let target = SocketAddr::new(address, NODE_PORT);
                if let Err(error) = probe::tcp_who(&outside, target, ANSWERED) {
                    return Ok(Some(format!("the outside to {target}: {}", error.chain())));
                }
            }
        }
        Ok(None)
    }

    fn await_open(&self, open: bool, what: &str) -> Result<()> {
        let mut last = String::new();
        let waited = wait_for(IN_FORCE, what, || match self.objection(open) {
            Ok(None) => Some(()),
            Ok(Some(why)) => {
                last = why;
                None
            }
            Err(error) => {
                last = error.chain();
                None
            }
        });
        waited.map_err(|error| LabError::new(format!("{}; {last}", error.chain())))
    }
}

/// What people type, with how it ends.
fn kubectl_works(store: &Store) -> Result<usize> {
    let own = match store.get().variant.family {
        IpFamily::Ipv4 | IpFamily::Dual => "10.77.",
        IpFamily::Ipv6 => "fd00:10:77:",
    };
    let cases: [(&[&str], bool, &str); 16] = [
        (&["get", "nodes", "-o", "wide"], true, "Ready"),
        (&["get", "pods", "-o", "wide"], true, "node-1"),
        (&["logs", "talk"], true, "I am talk"),
        (&["logs", "talk", "-c", "nobody"], false, "container nobody is not valid"),
        (&["exec", "talk", "--", "ip", "-br", "address", "show", "eth0"], true, own),
        (&["exec", "talk", "--", "sh", "-c", "echo to stderr >&2; exit 7"], false, "exit code 7"),
        (&["describe", "pod", "talk"], true, "Started container c"),
        (&["rollout", "status", "deployment/web"], true, "successfully rolled out"),
        (&["get", "endpointslices"], true, "8080"),
        (&["explain", "acnp.spec.ingress"], true, "Allow, Drop, Reject, Pass"),
        (&["get", "tiers"], true, "securityops"),
        (&["get", "antreaagentinfos"], true, "node-3"),
        (&["get", "antreacontrollerinfos"], true, "antrea-controller"),
        (&["get", "appliedtogroups"], true, ""),
        (
            &["auth", "can-i", "--list", "--as", "system:serviceaccount:kube-system:antrea-agent"],
            true,
            "nodestatssummaries.controlplane.antrea.io",
        ),
        (&["get", "pod", "nobody"], false, "not found"),
    ];
    for (args, works, want) in cases {
        let (success, said) = kubectl(store, args)?;
        if success != works || !said.contains(want) {
            return Err(LabError::new(format!("kubectl {}: {}", args.join(" "), said.trim())));
        }
    }
    Ok(cases.len())
}

/// Manifests that the schema or a webhook refuses, with what it says.
fn refusals(store: &Store) -> Result<usize> {
    let other = DENY.replace("name: deny", "name: other");
    let tier = "apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: mine}\n\
                spec: {priority: 100}\n";
    let cases = [
        (other.replace("securityops", "nosuch"), "there is no tier \"nosuch\""),
        (other.replace("Drop", "Dorp"), "Unsupported value: \"Dorp\""),
        (other.replace("priority: 5", "priority: five"), "spec.priority"),
        (other.replace("priority: 5", "prioritty: 5"), "prioritty"),
        (tier.to_owned(), "priority"),
    ];
    for (manifest, want) in &cases {
        let said = match cluster::apply(store, manifest) {
            Ok(()) => "nothing".into(),
            Err(error) => error.chain(),
        };
        if !said.contains(want) {
            return Err(LabError::new(format!("said {said} of what lacks {want:?}: {manifest}")));
        }
    }
    let (deleted, said) = kubectl(store, &["delete", "tier", "securityops"])?;
    if deleted || !said.contains("belongs to the system") {
        return Err(LabError::new(format!("kubectl delete tier: {}", said.trim())));
    }
    Ok(cases.len() + 1)
}

/// Both kinds of policies close the Service for the talker, and open it when they go.
fn policies(world: &World<'_>) -> Result<()> {
    let store = world.store;
    cluster::apply(store, DENY)?;
    world.await_open(false, "Antrea's policy is in force")?;
    let path = "jsonpath={.status.phase} {.status.observedGeneration}";
    wait_for(IN_FORCE, "the policy's status says so", || {
        let said = kubectl_ok(store, &["get", "acnp", "deny", "-o", path]).ok()?;
        (said == "Realized 1").then_some(())
    })?;
    kubectl_ok(store, &["delete", "acnp", "deny"])?;
    world.await_open(true, "nothing is in force")?;
    cluster::apply(store, ISOLATE)?;
    world.await_open(false, "Kubernetes' policy is in force")?;
    kubectl_ok(store, &["delete", "networkpolicy", "isolate"])?;
    world.await_open(true, "nothing is in force again")
}

/// The Service follows the Deployment to nothing and back.
fn scaling(world: &World<'_>) -> Result<()> {
    kubectl_ok(world.store, &["scale", "deployment/web", "--replicas=0"])?;
    world.await_open(false, "the Service has no endpoints")?;
    kubectl_ok(world.store, &["scale", "deployment/web", &format!("--replicas={N_PODS}")])?;
    world.await_open(true, "the Service has endpoints again")?;
    await_workload(world.store)
}

/// Datagrams go on while the API server is away; once it is back, policies are enforced as before.
/// Gives the time until it answered again.
fn api_server_restart(world: &World<'_>, pid_file: &std::path::Path) -> Result<Duration> {
    let store = world.store;
    let ready: Vec<_> = pods::ready(store).into_iter().filter(|p| p.pod.name != "talk").collect();
    let (from, to) = demo::across(&ready)
        .ok_or_else(|| LabError::new("the scheduler put all Pods on one node"))?;
    let target = SocketAddr::new(to.addresses()[0], crate::echo::PORT);
    let datagrams = Datagrams::start("across nodes", &from.netns, target)?;
    let flowing = |what: &str| {
        let before = datagrams.received();
        wait_for(IN_FORCE, what, || (datagrams.received() > before + FLOWING).then_some(()))
    };
    flowing("datagrams flow")?;
    let text =
        std::fs::read_to_string(pid_file).doing(|| format!("read {}", pid_file.display()))?;
    let pid: i32 = text.trim().parse().doing(|| format!("read the process in {text:?}"))?;
    let killed = Instant::now();
    kill(Pid::from_raw(pid), Signal::SIGKILL).doing(|| "kill the API server".into())?;
    flowing("datagrams flow without the API server")?;
    wait_for(IN_FORCE, "the API server is back", || {
        let anew = std::fs::read_to_string(pid_file).ok().filter(|now| *now != text);
        anew.and_then(|_| kubectl_ok(store, &["get", "--raw", "/readyz"]).ok())
    })?;
    let outage = killed.elapsed();
    cluster::apply(store, DENY)?;
    world.await_open(false, "a policy is in force after the API server's restart")?;
    kubectl_ok(store, &["delete", "acnp", "deny"])?;
    world.await_open(true, "its end is in force")?;
    flowing("datagrams flow after the restart")?;
    let report = datagrams.finish();
    if report.lost() > 0 {
        let lost = report.lost();
        return Err(LabError::new(format!("{lost} datagrams lost without the API server")));
    }
    Ok(outage)
}

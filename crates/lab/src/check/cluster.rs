//! A lab with an API server: Pods through the API, what kubectl asks, and a kubelet that restarts.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Context, Lab, Outcome};
use crate::agent;
use crate::cli::{ClusterComponent, NodeComponent};
use crate::cluster;
use crate::component::{self, kill, start};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::Layout;
use crate::matrix;
use crate::pods;
use crate::preflight::find_program;
use crate::preflight::program;
use crate::state::{Mode, Store};
use crate::status;
use crate::traffic::Datagrams;
use crate::ui::Progress;
use crate::up::{self, UpOptions};
use crate::variant::IpFamily;

const N_PODS: usize = 6;
/// A tenth of what is usual, so that nobody has to wait long for a Node to be taken for lost.
const NODE_GRACE: Duration = Duration::from_secs(4);

/// One Pod that ends, one that fails for ever, one that talks and stays.
const EXAMPLES: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: once, namespace: demo}
spec:
  restartPolicy: Never
  initContainers:
  - {name: first, image: x, command: [sh, -c, "echo first"]}
  containers:
  - {name: c, image: x, command: [sh, -c, "echo done"]}
---
apiVersion: v1
kind: Pod
metadata: {name: crash, namespace: demo}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: x, command: [sh, -c, "echo crashing; exit 3"]}
---
apiVersion: v1
kind: Pod
metadata: {name: nostart, namespace: demo}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: x, command: [/no/such/program]}
---
apiVersion: v1
kind: Pod
metadata: {name: talk, namespace: demo}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: x
    command: [sh, -c, "for i in 1 2 3; do echo line $i of $(NAME); done; exec sleep 100000"]
    env:
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
"#;

/// Made after the control plane was gone for a while.
const LATER: &str = "
apiVersion: v1
kind: Pod
metadata: {name: later, namespace: demo}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: echo, image: antrea-lab/echo}
";

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let layout = Layout::beside(context.dir, "cluster")?;
    let options = UpOptions {
        node_grace: NODE_GRACE,
        ..UpOptions::new(3, context.variant, Mode::Cluster, context.bin_dir.to_owned())
    };
    let quiet = Progress::start();
    let lab = Lab(up::run(&layout, &options, &quiet)?);
    let store = &lab.0;
    cluster::make_pods(store, N_PODS, &quiet)?;
    let seen = matrix::run(store)?;
    if seen.n_failed > 0 {
        return Err(LabError::new(format!("{} exchanges failed", seen.n_failed)));
    }
    let noticed = kubelet_restart(store)?;
    let asked = match find_program("kubectl") {
        Some(_) => kubectl_works(store)?,
        None => 0,
    };
    control_plane_faults(store, &quiet)?;
    let rebooted = reboot(store, &quiet)?;
    deletion(store)?;
    nothing_forbidden(store)?;
    Ok(Outcome::Passed(json!({
        "upSeconds": store.get().up_seconds,
        "exchanges": seen.n_passed,
        "kubectlCommands": asked,
        "silentKubeletNoticedMs": noticed.as_millis(),
        "podsBackAfterRebootMs": rebooted.as_millis(),
    })))
}

/// Waits until a Node is ready, or not.
fn await_node(store: &Store, node: &str, ready: bool) -> Result<()> {
    cluster::run_async(async {
        let client = cluster::admin(store).await?;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let seen = kube_io::nodes::get(&client, node).await;
            if seen.as_ref().is_ok_and(|seen| seen.ready == ready) {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                return Err(LabError::new(format!("{node}: ready is not {ready}: {seen:?}")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}

/// A Node whose kubelet is gone is taken for lost.
fn silent_node(store: &Store, node: &str) -> Result<()> {
    await_node(store, node, false)?;
    if find_program("kubectl").is_none() {
        return Ok(());
    }
    let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].reason} {.spec.taints[*].key}";
    let (_, seen) = kubectl(store, &["get", "node", node, "-o", path])?;
    if seen == "NodeStatusUnknown node.kubernetes.io/unreachable" {
        return Ok(());
    }
    Err(LabError::new(format!("{node} without kubelet is shown as {seen:?}")))
}

/// Pods go on while no kubelet runs, and the next one takes them over as they are.
fn kubelet_restart(store: &Store) -> Result<Duration> {
    let made = pods::ready(store);
    let (from, to) = crate::demo::across(&made)
        .ok_or_else(|| LabError::new("the scheduler put all Pods on one node"))?;
    let address = to.addresses()[0];
    let target = std::net::SocketAddr::new(address, crate::echo::PORT);
    let datagrams = Datagrams::start("across nodes", &from.netns, target)?;
    let flowing = || {
        let before = datagrams.received();
        wait_for(Duration::from_secs(20), "datagrams flow around a kubelet restart", || {
            (datagrams.received() > before + 200).then_some(())
        })
    };
    flowing()?;
    kill(store, &to.node, NodeComponent::Kubelet)?;
    let killed = Instant::now();
    silent_node(store, &to.node)?;
    let noticed = killed.elapsed();
    flowing()?;
    start(store, &to.node, NodeComponent::Kubelet)?;
    await_node(store, &to.node, true)?;
    wait_for(Duration::from_secs(10), "the kubelet answers again", || {
        std::os::unix::net::UnixStream::connect(store.layout().node(&to.node).kubelet_sock()).ok()
    })?;
    // Its reports go to the API as before: a deletion later shows it.
    flowing()?;
    let report = datagrams.finish();
    if report.lost() > 0 {
        return Err(LabError::new(format!(
            "{} datagrams lost while the kubelet restarted",
            report.lost()
        )));
    }
    if pods::ready(store).len() != made.len() {
        return Err(LabError::new("the restarted kubelet has other sandboxes"));
    }
    Ok(noticed)
}

/// Pods reach each other while nothing of the control plane runs; once it is back, all is as before,
/// and Pods are made.
fn control_plane_faults(store: &Store, progress: &Progress) -> Result<()> {
    use ClusterComponent::{Apiserver, Controller, Scheduler};
    let made = pods::ready(store);
    let (from, to) = crate::demo::across(&made)
        .ok_or_else(|| LabError::new("the scheduler put all Pods on one node"))?;
    let target = std::net::SocketAddr::new(to.addresses()[0], crate::echo::PORT);
    let datagrams = Datagrams::start("across nodes", &from.netns, target)?;
    component::stop_cluster(store, Controller)?;
    component::stop_cluster(store, Scheduler)?;
    component::kill_cluster(store, Apiserver)?;
    let before = datagrams.received();
    wait_for(Duration::from_secs(20), "datagrams flow without a control plane", || {
        (datagrams.received() > before + 500).then_some(())
    })?;
    let problems = status::look(store).problems;
    if problems.iter().filter(|p| p.contains("component start")).count() != 3 {
        return Err(LabError::new(format!(
            "the status does not say what is stopped: {problems:?}"
        )));
    }
    for component in [Apiserver, Controller, Scheduler] {
        component::start_cluster(store, component)?;
    }
    let report = datagrams.finish();
    if report.lost() > 0 {
        let lost = report.lost();
        return Err(LabError::new(format!("{lost} datagrams lost without a control plane")));
    }
    cluster::await_nodes(store, progress)?;
    let now = pods::ready(store);
    if made.iter().any(|pod| !now.contains(pod)) {
        return Err(LabError::new("Pods were lost with the API server"));
    }
    cluster::apply(store, LATER)?;
    wait_for(Duration::from_secs(20), "a new Pod runs", || {
        pods::rows(store).iter().any(|r| r.name == "later" && r.ready).then_some(())
    })?;
    wait_for(Duration::from_secs(20), "the status is healthy again", || {
        status::look(store).healthy.then_some(())
    })
}

/// A rebooted node's kubelet finds its sandboxes dead and makes its Pods anew.
fn reboot(store: &Store, progress: &Progress) -> Result<Duration> {
    let former = pods::ready(store);
    let node = former.first().map(|pod| pod.node.clone()).unwrap_or_default();
    let running = |name: &str| pods::rows(store).iter().any(|r| r.name == name && r.ready);
    let names: Vec<_> = former
        .iter()
        .filter(|pod| pod.node == node && running(&pod.pod.name))
        .map(|pod| pod.pod.name.clone())
        .collect();
    let began = Instant::now();
    component::reboot(store, &node)?;
    wait_for(Duration::from_secs(30), "the Pods of a rebooted node run again", || {
        let now = pods::ready(store);
        let anew = |name: &String| {
            now.iter().any(|pod| pod.pod.name == *name && !former.iter().any(|f| f.id == pod.id))
        };
        names.iter().all(|name| anew(name) && running(name)).then_some(())
    })?;
    cluster::await_nodes(store, progress)?;
    let is_echo = |name: &str| name.starts_with("demo-") || name == "later";
    for pod in pods::ready(store).iter().filter(|pod| is_echo(&pod.pod.name)) {
        pods::await_server(pod)?;
    }
    let took = began.elapsed();
    let seen = matrix::run(store)?;
    match seen.cells.iter().find(|cell| !cell.pass) {
        None => Ok(took),
        Some(c) => Err(LabError::new(format!(
            "{} exchanges failed after a reboot of {node}, first {} -> {}: {:?}",
            seen.n_failed, c.from, c.to, c.error
        ))),
    }
}

/// Runs kubectl as the administrator; gives whether it succeeded and all it said.
pub(super) fn kubectl(store: &Store, args: &[&str]) -> Result<(bool, String)> {
    let kubeconfig =
        status::kubeconfig(store).ok_or_else(|| LabError::new("this lab has no API server"))?;
    let output = program("kubectl")
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["-n", "demo"])
        .args(args)
        .output()
        .doing(|| "run kubectl".into())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.success(), text))
}

/// What people type.
fn kubectl_works(store: &Store) -> Result<usize> {
    let run = |args: &[&str]| kubectl(store, args);
    cluster::apply(store, EXAMPLES)?;
    let phases = "jsonpath={range .items[*]}{.metadata.name}={.status.phase} {end}";
    wait_for(Duration::from_secs(30), "the examples run", || {
        let (_, text) = run(&["get", "pods", "-o", phases]).ok()?;
        let all = ["once=Succeeded", "crash=Running", "talk=Running", "nostart=Failed"];
        all.iter().all(|want| text.contains(want)).then_some(())
    })?;
    let own = match store.get().variant.family {
        IpFamily::Ipv4 | IpFamily::Dual => "10.77.",
        IpFamily::Ipv6 => "fd00:10:77:",
    };
    let cases: [(&[&str], bool, &str); 15] = [
        (&["get", "nodes"], true, "Ready"),
        (&["get", "pods", "-o", "wide"], true, "node-1"),
        (&["logs", "talk"], true, "line 3 of talk"),
        (&["logs", "talk", "--tail=1", "--timestamps"], true, "Z line 3 of talk"),
        (&["logs", "once", "-c", "first"], true, "first"),
        (&["logs", "once"], true, "done"),
        (&["exec", "talk", "--", "ip", "-br", "address", "show", "eth0"], true, own),
        (&["exec", "talk", "--", "sh", "-c", "echo to stderr >&2; exit 7"], false, "exit code 7"),
        (&["exec", "talk", "--", "/no/such/program"], false, "No such file"),
        (&["logs", "talk", "-c", "nobody"], false, "container nobody is not valid"),
        (&["describe", "pod", "talk"], true, "Started container c"),
        (&["describe", "pod", "nostart"], true, "failed to start container c"),
        (&["get", "pods"], true, "StartError"),
        (&["get", "pods", "--field-selector", "status.phase=Succeeded"], true, "once"),
        (&["get", "pod", "nobody"], false, "not found"),
    ];
    for (args, works, want) in cases {
        let (success, text) = run(args)?;
        if success != works || !text.contains(want) {
            return Err(LabError::new(format!("kubectl {}: {}", args.join(" "), text.trim())));
        }
    }
    wait_for(Duration::from_secs(20), "kubectl logs --previous", || {
        let (success, text) = run(&["logs", "crash", "--previous"]).ok()?;
        (success && text.contains("crashing")).then_some(())
    })?;
    let (_, text) = run(&["describe", "pod", "nostart"])?;
    if text.contains("Started container") {
        return Err(LabError::new("kubectl describe calls a container started that did not start"));
    }
    for (name, want) in [
        ("once", "Completed"),
        ("crash", "CrashLoopBackOff"),
        ("nostart", "StartError"),
        ("talk", "Running"),
    ] {
        wait_for(Duration::from_secs(20), &format!("Pod {name} is shown as {want}"), || {
            pods::rows(store).iter().any(|r| r.name == name && r.state == want).then_some(())
        })?;
    }
    let talk = pods::find(store, "talk")?;
    kill(store, &talk.node, NodeComponent::Kubelet)?;
    let advice = store.layout().command(&format!("node start {} kubelet", talk.node));
    for args in [&["exec", "talk", "--", "true"][..], &["logs", "talk"], &["attach", "talk"]] {
        let (success, text) = run(args)?;
        if success || !text.contains(&advice) {
            let said = format!("kubectl {} without kubelet: {}", args[0], text.trim());
            return Err(LabError::new(said));
        }
    }
    start(store, &talk.node, NodeComponent::Kubelet)?;
    Ok(cases.len() + 5)
}

/// Every component has the rights it needs: none was refused anything.
pub(super) fn nothing_forbidden(store: &Store) -> Result<()> {
    let layout = store.layout();
    let controllers = cluster::controllers::all(store).map(cluster::controllers::role);
    let mut logs: Vec<_> =
        controllers.chain([cluster::ROLE_SCHEDULER]).map(|role| layout.log(role)).collect();
    for node in store.get().nodes {
        let paths = layout.node(&node.name);
        logs.extend([paths.log(agent::ROLE), paths.log(cluster::ROLE_KUBELET)]);
    }
    for log in logs {
        let text = std::fs::read_to_string(&log).doing(|| format!("read {}", log.display()))?;
        if let Some(line) = text.lines().find(|l| l.contains("is forbidden")) {
            return Err(LabError::new(format!("{}: {line}", log.display())));
        }
    }
    Ok(())
}

/// Deleted Pods leave nothing on their nodes.
pub(super) fn deletion(store: &Store) -> Result<()> {
    cluster::delete_pods(store, "demo")?;
    wait_for(Duration::from_secs(30), "all sandboxes are gone", || {
        pods::all(store).is_empty().then_some(())
    })?;
    let left = crate::netns::with_prefix(&format!("{}pod-", store.layout().prefix()));
    if left.is_empty() {
        return Ok(());
    }
    Err(LabError::new(format!("namespaces left: {left:?}")))
}

//! Policies hold while agents and the controller come and go, and while they are changed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::steps::{Do, policy};
use super::table::{Cell, Place, World};
use super::traffic::{Report, Traffic, Way};
use super::{Context, IN_FORCE, Outcome, carry_out, nothing_forbidden, start};
use crate::agent;
use crate::cli::{ClusterComponent, NodeComponent};
use crate::component;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::pods;
use crate::probe;
use crate::state::Store;

/// How often policies are changed.
const N_CHANGES: usize = 40;
/// For so long after a change a userspace switch may judge by what it cached before.
const FORGOTTEN: Duration = Duration::from_millis(2500);
/// What the agent says when policies are in force.
const IN_FORCE_WORDS: &str = "policies are in force";

/// `x/a` takes only what `x/b` sends to port 80, `z/c` sends only to `y`.
pub(super) fn policies() -> [Do; 2] {
    [
        policy(
            "x",
            "in",
            "podSelector: {matchLabels: {pod: a}}\npolicyTypes: [Ingress]\ningress:\n\
             - from: [{podSelector: {matchLabels: {pod: b}}}]\n  \
             ports: [{port: 80}, {port: 80, protocol: UDP}]",
        ),
        policy(
            "z",
            "out",
            "podSelector: {matchLabels: {pod: c}}\npolicyTypes: [Egress]\negress:\n\
             - to: [{namespaceSelector: {matchLabels: {ns: \"y\"}}}]",
        ),
    ]
}

pub(in super::super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let (lab, world) = start(context, "policyf", 2)?;
    let store = &lab.0;
    for policy in &policies() {
        carry_out(store, policy)?;
    }
    await_policies(&world)?;
    let mut n_tried = 0;
    let mut under_traffic = |what: &str, faults: &dyn Fn(&Traffic) -> Result<()>| {
        context.progress.step(what);
        let traffic = Traffic::start(&allowed(&world), &denied(&world))?;
        faults(&traffic)?;
        traffic.flows(500)?;
        let report = traffic.finish();
        n_tried += report.n_tried();
        Ok((what.to_owned(), report))
    };
    let strict = |(what, report): (String, Report)| report.check(&what);
    let nodes: Vec<String> = store.get().nodes.into_iter().map(|node| node.name).collect();

    under_traffic("agents are killed and started", &|traffic| {
        for node in &nodes {
            let before = n_in_force(store, node)?;
            component::kill(store, node, NodeComponent::Agent)?;
            traffic.flows(200)?;
            component::start(store, node, NodeComponent::Agent)?;
            await_in_force(store, node, before)?;
        }
        Ok(())
    })
    .and_then(strict)?;
    under_traffic("the controller is killed and started", &|traffic| {
        component::kill_cluster(store, ClusterComponent::Controller)?;
        traffic.flows(1000)?;
        component::start_cluster(store, ClusterComponent::Controller)?;
        traffic.flows(3000)
    })
    .and_then(strict)?;
    under_traffic("agents start while there is no controller", &|traffic| {
        component::kill_cluster(store, ClusterComponent::Controller)?;
        for node in &nodes {
            let before = n_in_force(store, node)?;
            component::kill(store, node, NodeComponent::Agent)?;
            component::start(store, node, NodeComponent::Agent)?;
            await_in_force(store, node, before)?;
            traffic.flows(200)?;
        }
        component::start_cluster(store, ClusterComponent::Controller)?;
        traffic.flows(3000)
    })
    .and_then(strict)?;
    let (what, while_changed) = under_traffic("policies are changed", &|traffic| {
        for n in 0..N_CHANGES {
            change(store, n)?;
            traffic.flows(20)?;
        }
        Ok(())
    })?;
    let changed_at = Instant::now();
    while_changed.check_changed(&what, context.variant.datapath, N_CHANGES)?;
    // What was changed last holds, on all nodes, and nothing is misjudged any more.
    await_policies(&world)?;
    wait_for(2 * FORGOTTEN, "the switch has forgotten older decisions", || {
        (changed_at.elapsed() > FORGOTTEN).then_some(())
    })?;
    under_traffic("nothing changes any more", &|traffic| traffic.flows(1000)).and_then(strict)?;
    context.progress.step("a node is rebooted while there is no controller");
    let n_after_reboot = reboot(store, &world)?;
    nothing_forbidden(store)?;
    Ok(Outcome::Passed(json!({
        "packetsAndConnections": n_tried,
        "deniedWhileRebooted": n_after_reboot,
        "changes": N_CHANGES,
        "misjudgedWhileChanged": while_changed.n_wrong,
    })))
}

/// What is denied stays so while the node's Pods come back, though nobody tells of policies: those
/// that were known last hold, for Pods with new addresses as well. Returns how often that was tried.
fn reboot(store: &Store, world: &World) -> Result<u64> {
    let node = pods::find(store, "x/a")?.node;
    component::kill_cluster(store, ClusterComponent::Controller)?;
    let (stop, n_tried) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let ways = denied(world).map(|(from, to, port)| {
            let key = |place: &Place| format!("{}/{}", place.namespace, place.pod);
            (key(from), key(to), port)
        });
        let (stop, n_tried) = (&stop, &n_tried);
        let probes = ways.map(|way| {
            scope.spawn(move || {
                let mut passed = Vec::new();
                while !stop.load(Ordering::Relaxed) && passed.is_empty() {
                    let (n, wrong) = try_denied(store, &way);
                    n_tried.fetch_add(n, Ordering::Relaxed);
                    passed.extend(wrong);
                }
                passed
            })
        });
        let rebooted = come_back(store, &node);
        stop.store(true, Ordering::Relaxed);
        let passed = probes.into_iter().flat_map(|probe| probe.join().unwrap_or_default());
        let passed: Vec<String> = passed.collect();
        rebooted?;
        match passed.as_slice() {
            [] => Ok(()),
            all => Err(LabError::new(format!("passes after a reboot: {}", all.join("; ")))),
        }
    })?;
    component::start_cluster(store, ClusterComponent::Controller)?;
    // Once there is a controller, what is allowed passes too.
    let world = World::await_pods(store)?;
    await_policies(&world)?;
    Ok(n_tried.into_inner())
}

/// Reboots, and waits until all Pods are there and nothing is denied any more that is denied only
/// because policies are not known.
fn come_back(store: &Store, node: &str) -> Result<()> {
    let before = n_in_force(store, node)?;
    component::reboot(store, node)?;
    await_in_force(store, node, before)?;
    let world = World::await_pods(store)?;
    // A port whose policies nobody confirms opens after a while.
    let (from, to) = (world.place("y", "b"), world.place("x", "c"));
    for ip in &to.addresses {
        let target = std::net::SocketAddr::new(*ip, 80);
        wait_for(Duration::from_secs(20), "Pods without policies reach each other", || {
            probe::tcp_who(&from.netns, target, Duration::from_secs(1)).ok()
        })?;
    }
    // And then for a while.
    let since = Instant::now();
    wait_for(2 * FORGOTTEN, "denied traffic is tried", || {
        (since.elapsed() > FORGOTTEN).then_some(())
    })
}

/// Tries a way that is denied, wherever its ends are now; what passes.
fn try_denied(store: &Store, (from, to, port): &(String, String, u16)) -> (u64, Option<String>) {
    let (Ok(source), Ok(target)) = (pods::find(store, from), pods::find(store, to)) else {
        std::thread::sleep(Duration::from_millis(10));
        return (0, None);
    };
    let mut n = 0;
    for ip in target.addresses() {
        let target = std::net::SocketAddr::new(ip, *port);
        // A namespace that is going, or not there yet, is no way either.
        let answer = probe::tcp_who(&source.netns, target, Duration::from_millis(100));
        n += 1;
        if answer.is_ok_and(|answer| answer.pod == *to) {
            return (n, Some(format!("{from} -> {to} at {target}")));
        }
    }
    (n, None)
}

pub(super) fn allowed(world: &World) -> [Way<'_>; 2] {
    [
        (world.place("x", "b"), world.place("x", "a"), 80),
        (world.place("z", "c"), world.place("y", "a"), 80),
    ]
}

pub(super) fn denied(world: &World) -> [Way<'_>; 3] {
    [
        (world.place("y", "b"), world.place("x", "a"), 80),
        (world.place("x", "b"), world.place("x", "a"), 81),
        (world.place("z", "c"), world.place("x", "c"), 80),
    ]
}

pub(super) fn await_policies(world: &World) -> Result<()> {
    let table = |cell: &Cell<'_>| {
        let into = cell.to() != ("x", "a") || (cell.from() == ("x", "b") && cell.port() == 80);
        into && (cell.from() != ("z", "c") || cell.to().0 == "y")
    };
    world.await_table(&table, IN_FORCE).doing(|| "policies come into force".into())
}

/// Changes that leave what is tried as it is: the same said otherwise, and said by more policies.
fn change(store: &Store, n: usize) -> Result<()> {
    let others = ["c", "d", "e"][n % 3];
    let changed = policy(
        "x",
        "in",
        &format!(
            "podSelector: {{matchExpressions: [{{key: pod, operator: In, values: [a, {others}]}}]}}\n\
             policyTypes: [Ingress]\ningress:\n- from: [{{podSelector: {{matchExpressions: [{{key: \
             pod, operator: In, values: [b, q{}]}}]}}}}]\n  \
             ports: [{{port: 80}}, {{port: 80, protocol: UDP}}]",
            n % 5
        ),
    );
    let extra = policy(
        "x",
        "extra",
        "podSelector: {matchLabels: {pod: a}}\npolicyTypes: [Ingress]\ningress:\n\
         - from: [{podSelector: {matchLabels: {pod: b}}}]\n  \
         ports: [{port: 80, protocol: UDP}, {port: 80}]",
    );
    let no_extra = match &extra {
        Do::Apply(text) => Do::Delete(text.clone()),
        other => return carry_out(store, other),
    };
    match n % 4 {
        0 | 2 => carry_out(store, &changed),
        1 => carry_out(store, &extra),
        _ if n + 1 == N_CHANGES => {
            carry_out(store, &policies()[0])?;
            carry_out(store, &no_extra)
        }
        _ => carry_out(store, &no_extra),
    }
}

/// How often the agent of a node said that policies are in force.
pub(super) fn n_in_force(store: &Store, node: &str) -> Result<usize> {
    let log = store.layout().node(node).log(agent::ROLE);
    let text = std::fs::read_to_string(&log).doing(|| format!("read {}", log.display()))?;
    Ok(text.matches(IN_FORCE_WORDS).count())
}

pub(super) fn await_in_force(store: &Store, node: &str, before: usize) -> Result<()> {
    wait_for(Duration::from_secs(20), &format!("policies are in force on {node}"), || {
        n_in_force(store, node).is_ok_and(|n| n > before).then_some(())
    })
}

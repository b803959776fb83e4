//! Antrea's own policies: tiers, priorities, actions, groups, and the status that kubectl shows.

use std::time::{Duration, Instant};

use serde_json::json;

use super::steps::{Do, Scene, policy, scene, step};
use super::table::{Cell, World};
use super::{Context, Outcome, Seen, audit, carry_out, nothing_forbidden, play, start};
use crate::check::cluster::kubectl;
use crate::cli::{ClusterComponent, NodeComponent};
use crate::component;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::{self, wait_for};
use crate::preflight::find_program;
use crate::probe;
use crate::state::Store;

/// A rejected exchange ends by itself long before this.
const SOON: Duration = Duration::from_millis(1500);
const X_A: (&str, &str) = ("x", "a");
/// Traffic is reported once in this time.
const REPORTED: Duration = Duration::from_secs(65);
/// A report is shown in this time after a start of everything.
const COUNTED: Duration = Duration::from_secs(100);
/// Packets that are to be counted.
const N_COUNTED: u16 = 10;

pub(in super::super) fn run(context: &Context<'_>) -> Result<Outcome> {
    if find_program("kubectl").is_none() {
        return Ok(Outcome::Impossible("kubectl is not installed".into()));
    }
    let (lab, world) = start(context, "policyn", 2)?;
    let store = &lab.0;
    let world = world.with_sctp(store)?;
    await_tiers(store)?;
    let mut seen = Seen::default();
    for scene in scenes() {
        interrupt::check()?;
        context.progress.step(scene.name);
        play(store, &world, &scene, &mut seen)?;
    }
    context.progress.step("rejects");
    let rejected_in = rejects(store, &world)?;
    context.progress.step("status");
    status(store)?;
    evaluation(store)?;
    carry_out(store, &gone(acnp("reject", "application", "5", &into_a("Reject", "y"))))?;
    context.progress.step("audit log");
    let n_lines = audit::run(store, &world)?;
    context.progress.step("statistics");
    rejects(store, &world)?;
    let counted_in = statistics(store, &world)?;
    nothing_forbidden(store)?;
    Ok(Outcome::Passed(json!({
        "tables": seen.n_tables,
        "exchanges": seen.n_exchanges,
        "rejectedInMs": rejected_in.as_millis(),
        "auditLines": n_lines,
        "countedInS": counted_in.as_secs(),
    })))
}

/// The controller makes the tiers that always exist.
fn await_tiers(store: &Store) -> Result<()> {
    wait_for(Duration::from_secs(20), "the tiers are made", || {
        let (_, text) = kubectl(store, &["get", "tiers", "-o", "name"]).ok()?;
        ["emergency", "securityops", "networkops", "platform", "application", "baseline"]
            .iter()
            .all(|tier| text.contains(&format!("/{tier}")))
            .then_some(())
    })
}

pub(super) fn acnp(name: &str, tier: &str, priority: &str, rest: &str) -> Do {
    let rest: String = rest.lines().map(|line| format!("  {line}\n")).collect();
    Do::Apply(format!(
        "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  tier: {tier}\n  priority: {priority}\n{rest}"
    ))
}

/// Takes back what was applied.
pub(super) fn gone(what: Do) -> Do {
    match what {
        Do::Apply(text) => Do::Delete(text),
        other => other,
    }
}

/// To `x/a`, from a namespace, with an action.
fn into_a(action: &str, namespace: &str) -> String {
    format!(
        "appliedTo:\n- namespaceSelector: {{matchLabels: {{ns: x}}}}\n  \
         podSelector: {{matchLabels: {{pod: a}}}}\ningress:\n- action: {action}\n  \
         from: [{{namespaceSelector: {{matchLabels: {{ns: \"{namespace}\"}}}}}}]\n"
    )
}

fn scenes() -> Vec<Scene> {
    let from = |cell: &Cell<'_>, namespace: &str| cell.to() == X_A && cell.from().0 == namespace;
    vec![
        scene(
            "Drop goes before what a Kubernetes policy allows",
            vec![step(
                vec![
                    policy("x", "all", "podSelector: {}\npolicyTypes: [Ingress]\ningress: [{}]"),
                    acnp("drop", "securityops", "5", &into_a("Drop", "y")),
                ],
                move |cell| !from(cell, "y"),
            )],
        ),
        scene(
            "Allow goes before what a Kubernetes policy isolates",
            vec![step(
                vec![
                    policy("x", "deny", "podSelector: {}\npolicyTypes: [Ingress]"),
                    acnp("allow", "securityops", "5", &into_a("Allow", "y")),
                ],
                move |cell| cell.to().0 != "x" || from(cell, "y"),
            )],
        ),
        scene(
            "tiers, then priorities decide",
            vec![
                step(
                    vec![
                        acnp("late", "application", "1", &into_a("Drop", "y")),
                        acnp("early", "emergency", "100", &into_a("Allow", "y")),
                    ],
                    |_| true,
                ),
                step(
                    vec![acnp("earlier", "emergency", "99.5", &into_a("Drop", "y"))],
                    move |cell| !from(cell, "y"),
                ),
                step(
                    vec![acnp("earlier", "emergency", "100.5", &into_a("Drop", "y"))],
                    |_| true,
                ),
            ],
        ),
        scene(
            "Pass leaves it to Kubernetes policies",
            vec![step(
                vec![
                    acnp("pass", "emergency", "1", &into_a("Pass", "y")),
                    acnp("drop", "application", "1", &into_a("Drop", "y")),
                    policy(
                        "x",
                        "b",
                        "podSelector: {matchLabels: {pod: a}}\ningress:\n\
                         - from: [{namespaceSelector: {}, podSelector: {matchLabels: {pod: b}}}]",
                    ),
                ],
                |cell| cell.to() != X_A || cell.from().1 == "b",
            )],
        ),
        scene(
            "the baseline tier counts where no Kubernetes policy isolates",
            vec![
                step(
                    vec![acnp("base", "baseline", "1", &into_a("Drop", "y"))],
                    move |cell| !from(cell, "y"),
                ),
                step(
                    vec![policy(
                        "x",
                        "y",
                        "podSelector: {matchLabels: {pod: a}}\ningress:\n\
                         - from: [{namespaceSelector: {matchLabels: {ns: \"y\"}}}]",
                    )],
                    |cell| cell.to() != X_A || cell.from().0 == "y",
                ),
            ],
        ),
        scene(
            "egress, and a policy of a namespace",
            vec![step(
                vec![
                    acnp(
                        "out",
                        "platform",
                        "3",
                        "appliedTo: [{namespaceSelector: {matchLabels: {ns: z}}}]\negress:\n\
                         - action: Drop\n  to: [{namespaceSelector: {matchLabels: {ns: x}}}]\n  \
                         ports: [{protocol: TCP, port: 80}]\n",
                    ),
                    Do::Apply(
                        "apiVersion: crd.antrea.io/v1beta1\nkind: NetworkPolicy\nmetadata: \
                         {name: np, namespace: \"y\"}\nspec:\n  priority: 5\n  appliedTo: \
                         [{podSelector: {matchLabels: {pod: a}}}]\n  ingress:\n  - action: Drop\n    \
                         from: [{podSelector: {matchLabels: {pod: b}}}]\n"
                            .into(),
                    ),
                ],
                |cell| {
                    let out = cell.from().0 == "z"
                        && cell.to().0 == "x"
                        && cell.port() == 80
                        && cell.tcp();
                    let into = cell.to() == ("y", "a") && cell.from() == ("y", "b");
                    !out && !into
                },
            )],
        ),
        Scene {
            undo: Vec::new(),
            ..scene(
                "a group as peer and as target",
                vec![
                    step(
                        vec![
                            Do::Apply(
                                "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterGroup\nmetadata: \
                                 {name: those}\nspec:\n  namespaceSelector: {matchLabels: {ns: \"y\"}}\n"
                                    .into(),
                            ),
                            acnp(
                                "groups",
                                "application",
                                "5",
                                "appliedTo: [{podSelector: {matchLabels: {pod: a}}, \
                                 namespaceSelector: {matchLabels: {ns: x}}}]\ningress:\n\
                                 - action: Drop\n  from: [{group: those}]\n",
                            ),
                        ],
                        move |cell| !from(cell, "y"),
                    ),
                    step(
                        vec![acnp(
                            "groups",
                            "application",
                            "5",
                            "appliedTo: [{group: those}]\ningress:\n- action: Drop\n  \
                             from: [{namespaceSelector: {matchLabels: {ns: z}}}]\n",
                        )],
                        |cell| cell.to().0 != "y" || cell.from().0 != "z",
                    ),
                ],
            )
        },
    ]
}

/// A rejected sender is told at once: over TCP by a reset, over UDP by ICMP.
fn rejects(store: &Store, world: &World) -> Result<Duration> {
    carry_out(store, &acnp("reject", "application", "5", &into_a("Reject", "y")))?;
    let mut longest = Duration::ZERO;
    let target = world.place("x", "a");
    for from in ["a", "b", "c"].map(|pod| world.place("y", pod)) {
        for address in &target.addresses {
            let target = std::net::SocketAddr::new(*address, 80);
            let what = format!("{} is refused at {target} over TCP", from.pod);
            let refused = wait_for(Duration::from_secs(10), &what, || {
                let began = Instant::now();
                let refused = probe::tcp_connect(&from.netns, target, SOON).is_err();
                (refused && began.elapsed() < SOON).then(|| began.elapsed())
            })?;
            longest = longest.max(refused);
            let what = format!("{} is refused at {target} over UDP", from.pod);
            wait_for(Duration::from_secs(10), &what, || {
                let socket = probe::udp_socket(&from.netns, target).ok()?;
                socket.set_read_timeout(Some(SOON)).ok()?;
                socket.send(b"who").ok()?;
                let error = socket.recv(&mut [0; 64]).err()?;
                // What the kernel makes of "administratively prohibited".
                let told = [libc_errno::EHOSTUNREACH, libc_errno::ECONNREFUSED, libc_errno::EACCES];
                error.raw_os_error().filter(|code| told.contains(code)).map(drop)
            })?;
        }
    }
    Ok(longest)
}

/// kubectl asks which rule decides, as one asks by hand.
fn evaluation(store: &Store) -> Result<()> {
    let path = store.layout().dir().join("evaluation.yaml");
    let text = "apiVersion: controlplane.antrea.io/v1beta2\nkind: NetworkPolicyEvaluation\nrequest:\n  \
                source: {pod: {namespace: \"y\", name: a}}\n  \
                destination: {pod: {namespace: x, name: a}}\n";
    std::fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
    let answer = "jsonpath={.response.networkPolicy.name} {.response.rule.action}";
    let file = path.display().to_string();
    let (works, said) = kubectl(store, &["create", "-f", &file, "-o", answer])?;
    if !works || said != "reject Reject" {
        return Err(LabError::new(format!("kubectl create of an evaluation: {said}")));
    }
    Ok(())
}

/// What a rule meets is counted to the packet, whichever node and process has it in hand.
fn statistics(store: &Store, world: &World) -> Result<Duration> {
    let shown = || {
        let stats = ["get", "antreaclusternetworkpolicystats", "reject", "-o", "json"];
        let (_, text) = kubectl(store, &stats).ok()?;
        let stats: serde_json::Value = serde_json::from_str(&text).ok()?;
        let (all, rule) = (&stats["trafficStats"], &stats["ruleTrafficStats"][0]["trafficStats"]);
        let packets = all["packets"].as_u64()?;
        (all == rule && all["sessions"] == packets).then_some(packets)
    };
    let before = wait_for(COUNTED, "rejected packets are counted", || shown().filter(|n| *n > 0))?;
    // All that was sent so far is in it only when nothing more comes with the next report.
    let began = Instant::now();
    let mut last = (before, began);
    let before = wait_for(2 * COUNTED, "the count rests", || {
        let now = shown()?;
        if now != last.0 {
            last = (now, Instant::now());
        }
        (last.1.elapsed() > REPORTED).then_some(now)
    })?;
    let target = world.place("x", "a");
    let nodes: Vec<String> = store.get().nodes.into_iter().map(|node| node.name).collect();
    for node in &nodes {
        component::kill(store, node, NodeComponent::Agent)?;
    }
    let from = world.place("y", "a");
    for n in 0..N_COUNTED {
        let address = target.addresses[usize::from(n) % target.addresses.len()];
        let socket = probe::udp_socket(&from.netns, std::net::SocketAddr::new(address, 80))?;
        socket.send(b"who").doing(|| "send to a Pod that rejects it".into())?;
    }
    for node in &nodes {
        component::start(store, node, NodeComponent::Agent)?;
    }
    component::kill_cluster(store, ClusterComponent::Controller)?;
    component::start_cluster(store, ClusterComponent::Controller)?;
    let began = Instant::now();
    let want = before + u64::from(N_COUNTED);
    wait_for(2 * COUNTED, &format!("{want} packets are counted"), || {
        shown().filter(|now| *now >= want)
    })?;
    match shown() {
        Some(now) if now == want => Ok(began.elapsed()),
        now => Err(LabError::new(format!("{now:?} packets are counted, {want} were sent"))),
    }
}

/// Numbers of `errno(3)`.
mod libc_errno {
    use nix::errno::Errno;

    pub(super) const EHOSTUNREACH: i32 = Errno::EHOSTUNREACH as i32;
    pub(super) const ECONNREFUSED: i32 = Errno::ECONNREFUSED as i32;
    pub(super) const EACCES: i32 = Errno::EACCES as i32;
}

/// kubectl shows that both nodes have realized the policy.
fn status(store: &Store) -> Result<()> {
    let path = "jsonpath={.status.phase} {.status.currentNodesRealized} \
                {.status.desiredNodesRealized} {.status.observedGeneration}";
    let shown = wait_for(Duration::from_secs(15), "the policy is shown as realized", || {
        let (_, text) = kubectl(store, &["get", "acnp", "reject", "-o", path]).ok()?;
        text.starts_with("Realized ").then_some(text)
    })?;
    if shown != "Realized 1 1 1" {
        return Err(LabError::new(format!("status of the policy: {shown}")));
    }
    Ok(())
}

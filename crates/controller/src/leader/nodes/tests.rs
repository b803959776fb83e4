//! Plays histories of a watch to the rules.

use super::*;

fn mk_node(name: &str, version: u32, cidrs: &[&str]) -> NodeView {
    NodeView {
        name: name.into(),
        uid: format!("uid-{name}"),
        resource_version: version.to_string(),
        pod_cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
        ..NodeView::default()
    }
}

fn mk_nodes(cluster: &[(&str, u8)]) -> Nodes {
    let cluster: Vec<(IpNet, u8)> =
        cluster.iter().map(|(cidr, part)| (cidr.parse().unwrap(), *part)).collect();
    Nodes::new(Some(NodeIpam::new(&cluster, &[]).unwrap()))
}

fn applied(node: NodeView) -> Event {
    Event::Watch(WatchEvent::Applied(node))
}

fn list(nodes: &mut Nodes, all: &[NodeView]) -> Vec<Job> {
    assert!(nodes.step(Event::Watch(WatchEvent::Init)).is_empty());
    for node in all {
        assert!(nodes.step(applied(node.clone())).is_empty(), "nothing before the list's end");
    }
    nodes.step(Event::Watch(WatchEvent::InitDone))
}

/// `NODE=CIDR,CIDR` of each write among the jobs.
fn writes(jobs: &[Job]) -> Vec<String> {
    jobs.iter()
        .filter_map(|job| match job {
            Job::WriteCidrs { node, cidrs } => {
                let cidrs: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
                Some(format!("{}={}", node.name, cidrs.join(",")))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn nothing_is_given_before_all_nodes_are_known() {
    let mut nodes = mk_nodes(&[("10.0.0.0/16", 24)]);
    let jobs = list(
        &mut nodes,
        &[mk_node("a", 1, &[]), mk_node("b", 2, &["10.0.0.0/24"]), mk_node("c", 3, &[])],
    );
    let given = writes(&jobs);
    assert_eq!(given.len(), 2, "{given:?}");
    assert!(given.iter().all(|write| !write.ends_with("10.0.0.0/24")), "{given:?}");
    assert!(nodes.is_synced());
}

#[test]
fn both_families() {
    let mut nodes = mk_nodes(&[("10.0.0.0/16", 24), ("fd00::/56", 64)]);
    let jobs = list(&mut nodes, &[mk_node("a", 1, &[])]);
    assert_eq!(writes(&jobs), ["a=10.0.0.0/24,fd00::/64"]);
}

#[test]
fn a_write_carries_the_version_that_was_seen() {
    let mut nodes = mk_nodes(&[("10.0.0.0/16", 24)]);
    list(&mut nodes, &[]);
    let jobs = nodes.step(applied(mk_node("a", 7, &[])));
    let [Job::WriteCidrs { node, .. }] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert_eq!(node.resource_version, "7");
}

#[test]
fn a_write_that_failed_leads_to_a_look_and_the_same_prefix_again() {
    let mut nodes = mk_nodes(&[("10.0.0.0/16", 24)]);
    let first = writes(&list(&mut nodes, &[mk_node("a", 1, &[])]));
    let jobs = nodes.step(Event::WriteFailed("a".into()));
    assert!(matches!(&jobs[..], [Job::Wait(_, Timer::Read(name))] if name == "a"), "{jobs:?}");
    let jobs = nodes.step(Event::Due(Timer::Read("a".into())));
    assert_eq!(jobs, [Job::Read("a".into())]);
    let jobs = nodes.step(Event::ReadFailed("a".into()));
    assert!(matches!(&jobs[..], [Job::Wait(..)]), "{jobs:?}");
    assert_eq!(writes(&nodes.step(Event::Seen(mk_node("a", 2, &[])))), first);
}

#[test]
fn an_answer_older_than_the_watch_does_not_count() {
    let mut nodes = mk_nodes(&[("10.0.0.0/16", 24)]);
    list(&mut nodes, &[mk_node("a", 1, &[])]);
    nodes.step(applied(mk_node("a", 5, &["10.0.0.0/24"])));
    let jobs = nodes.step(Event::Seen(mk_node("a", 4, &[])));
    assert_eq!(writes(&jobs), [""; 0]);
}

#[test]
fn an_answer_brings_no_node_back() {
    let mut nodes = mk_nodes(&[("10.0.0.0/24", 24)]);
    list(&mut nodes, &[]);
    let given = nodes.step(applied(mk_node("a", 1, &[])));
    assert_eq!(writes(&given), ["a=10.0.0.0/24"]);
    // The Node goes while its prefix is being written: the answer comes after.
    nodes.step(Event::Watch(WatchEvent::Deleted("a".into())));
    assert!(nodes.step(Event::Seen(mk_node("a", 2, &["10.0.0.0/24"]))).is_empty());
    assert_eq!(nodes.n_known(), 0);
    // Nor in the place of one that has its name by now.
    let given = nodes.step(applied(NodeView { uid: "second".into(), ..mk_node("a", 3, &[]) }));
    assert_eq!(writes(&given), ["a=10.0.0.0/24"]);
    assert!(nodes.step(Event::Seen(mk_node("a", 2, &["10.0.0.0/24"]))).is_empty());
    let answer = NodeView { uid: "second".into(), ..mk_node("a", 4, &["10.0.0.0/24"]) };
    assert!(nodes.step(Event::Seen(answer)).is_empty());
    let jobs = nodes.step(applied(mk_node("b", 5, &[])));
    assert!(matches!(&jobs[..], [Job::Tell { problem: Problem::Exhausted(_), .. }]), "{jobs:?}");
}

#[test]
fn a_gone_node_gives_its_prefix_back_and_its_report_goes() {
    let mut nodes = mk_nodes(&[("10.0.0.0/24", 24)]);
    list(&mut nodes, &[mk_node("a", 1, &["10.0.0.0/24"])]);
    let jobs = nodes.step(applied(mk_node("b", 2, &[])));
    assert!(matches!(&jobs[..], [Job::Tell { problem: Problem::Exhausted(_), .. }]), "{jobs:?}");
    let jobs = nodes.step(Event::Watch(WatchEvent::Deleted("a".into())));
    assert_eq!(writes(&jobs), ["b=10.0.0.0/24"]);
    assert!(jobs.contains(&Job::DeleteAgentInfo("a".into())));
    assert!(nodes.step(Event::Gone("a".into())).is_empty(), "told twice");
}

#[test]
fn what_a_new_list_does_not_hold_is_gone() {
    let mut nodes = mk_nodes(&[("10.0.0.0/24", 24)]);
    list(&mut nodes, &[mk_node("a", 1, &["10.0.0.0/24"])]);
    nodes.step(applied(mk_node("b", 2, &[])));
    let jobs = list(&mut nodes, &[mk_node("b", 2, &[])]);
    assert_eq!(writes(&jobs), ["b=10.0.0.0/24"]);
    assert!(jobs.contains(&Job::SweepAgentInfos(vec!["b".into()])));
}

#[test]
fn a_list_that_breaks_off_changes_nothing() {
    let mut nodes = mk_nodes(&[("10.0.0.0/24", 24)]);
    list(&mut nodes, &[mk_node("a", 1, &["10.0.0.0/24"])]);
    nodes.step(Event::Watch(WatchEvent::Init));
    nodes.step(Event::Watch(WatchEvent::Failed("connection refused".into())));
    let jobs = list(&mut nodes, &[mk_node("a", 1, &["10.0.0.0/24"]), mk_node("b", 2, &[])]);
    assert_eq!(writes(&jobs), [""; 0], "the prefix of a is still taken");
}

#[test]
fn sweeps_that_fail_wait_once() {
    let mut nodes = Nodes::new(None);
    assert_eq!(list(&mut nodes, &[]), [Job::SweepAgentInfos(Vec::new())]);
    assert_eq!(nodes.step(Event::SweepFailed).len(), 1);
    assert!(nodes.step(Event::SweepFailed).is_empty());
    let jobs = nodes.step(Event::Due(Timer::Sweep));
    assert_eq!(jobs, [Job::SweepAgentInfos(Vec::new())]);
    assert_eq!(nodes.step(Event::SweepFailed).len(), 1);
}

#[test]
fn without_node_ipam_no_prefix_is_given() {
    let mut nodes = Nodes::new(None);
    let jobs = list(&mut nodes, &[mk_node("a", 1, &[])]);
    assert_eq!(jobs, [Job::SweepAgentInfos(vec!["a".into()])]);
}

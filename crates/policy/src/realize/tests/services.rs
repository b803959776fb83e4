//! Rules about Services: by their groups, as long as a connection may go by one.

use apis::controlplane::{NetworkPolicyRule, RuleAction};
use openflow::{ConjId, GroupId};
use pipeline::policy::Direction;

use super::switch::{By, Fate, L4, Packet};
use super::world::*;
use crate::realize::{Config, Event, Op, Serves, recover};

const APPLICATION: (i32, f64) = (250, 5.0);

fn config(serves: Serves) -> Config {
    Config { serves, ..mk_config() }
}

fn groups(service: &str, ids: &[u32]) -> Event {
    Event::ServiceGroups(key(service), ids.iter().copied().map(GroupId).collect())
}

/// Pod 1 is at hand, and is a target; nothing is known of Services.
fn mk_world(serves: Serves, rules: Vec<NetworkPolicyRule>) -> World {
    let mut world = World::cold_with(config(serves));
    world.feed([
        Event::PodUp(mk_pod(1)),
        Event::ReplacePolicies(vec![antrea("u", APPLICATION, &["t"], rules)]),
        Event::ReplaceAppliedToGroups(vec![targets("t", &[1])]),
        Event::ReplaceAddressGroups(vec![]),
    ]);
    world
}

/// A connection of Pod 1 (or whoever has this address) to Pod 2, by a group.
fn through(world: &World, src: &str, group: u32, by: By) -> Fate {
    let v6 = src.contains(':');
    let packet = Packet {
        src: src.parse().unwrap(),
        dst: ips(2)[usize::from(v6)],
        l4: L4::Tcp { src: 40_000, dst: 8080 },
    };
    world.switch.fate_by_service(packet, GroupId(group), by)
}

fn passes(world: &World, group: u32) -> bool {
    through(world, "10.0.0.1", group, By::Address).passed()
}

#[test]
fn a_rule_is_about_connections_by_every_group_of_its_services() {
    let rules = vec![egress().services(&["web", "db"]).says(RuleAction::Drop, 0)];
    let mut world = mk_world(Serves::Pods, rules);
    world.feed([Event::ReplaceServices(vec![(key("web"), vec![GroupId(7), GroupId(8)])])]);
    assert!(!passes(&world, 7) && !passes(&world, 8), "of two ports, or two policies of traffic");
    assert!(!through(&world, "fd00::1", 8, By::Address).passed());
    assert!(!through(&world, "10.0.0.1", 8, By::NodePort).passed(), "by whatever address");
    assert!(passes(&world, 9), "another Service's");
    assert!(through(&world, "10.0.0.3", 7, By::Address).passed(), "another Pod's");
    assert!(world.tcp(1, 2, 8080), "the endpoint itself");
    // A Service that is made later has its rules in the step in which its group is known.
    world.feed([groups("db", &[9])]);
    assert!(!passes(&world, 9));
    let statuses: Vec<_> = world.realizer.statuses().map(|status| status.failure).collect();
    assert_eq!(statuses, [None]);
}

#[test]
fn the_first_rule_decides_and_says_how() {
    let rules = vec![
        egress().services(&["a"]).says(RuleAction::Allow, 0),
        egress().services(&["b"]).says(RuleAction::Reject, 1),
        egress().services(&["c"]).says(RuleAction::Pass, 2),
        egress().any().says(RuleAction::Drop, 3),
    ];
    let mut world = mk_world(Serves::Pods, rules);
    let groups = [("a", 1), ("b", 2), ("c", 3)];
    let all = groups.map(|(name, id)| (key(name), vec![GroupId(id)]));
    world.feed([Event::ReplaceServices(all.into())]);
    let fate = |group| through(&world, "10.0.0.1", group, By::Address);
    assert!(matches!(fate(1), Fate::Passed(_)));
    assert!(matches!(fate(2), Fate::Rejected(_)));
    assert!(matches!(fate(3), Fate::Passed(_)));
    assert!(matches!(fate(4), Fate::Dropped(_)));
}

#[test]
fn a_service_that_is_not_there_is_matched_by_nothing() {
    for action in [RuleAction::Allow, RuleAction::Drop] {
        let rules = vec![egress().services(&["web"]).says(action, 0)];
        let mut world = mk_world(Serves::Pods, rules);
        world.feed([Event::ReplaceServices(vec![])]);
        assert_eq!(world.switch.flows(), [], "no flow without a group");
        assert!(world.tcp(1, 2, 80) && passes(&world, 7));
    }
}

/// What the switch remembers of a connection that was not let through, it remembers with the group.
#[test]
fn a_service_that_is_gone_is_known_while_connections_may_be() {
    let rules = vec![egress().services(&["web"]).says(RuleAction::Drop, 0)];
    let mut world = mk_world(Serves::Pods, rules);
    world.feed([Event::ReplaceServices(vec![(key("web"), vec![GroupId(7)])])]);
    world.feed([groups("web", &[])]);
    assert!(!passes(&world, 7));
    // Made anew: it has its number again, and the end of the first does not count.
    world.feed([groups("web", &[7])]);
    world.now = world.realizer.deadline().expect("the first end is noted");
    world.feed([Event::Tick]);
    assert!(!passes(&world, 7));
    world.feed([groups("web", &[])]);
    world.now = world.realizer.deadline().expect("so is the second");
    world.feed([Event::Tick]);
    assert!(passes(&world, 7) && world.switch.flows().is_empty());
    // A number that another Service gets is that one's.
    world.feed([groups("web", &[7])]);
    world.feed([groups("web", &[]), groups("db", &[7])]);
    assert!(passes(&world, 7));
}

fn mk_node_ports(serves: Serves, rules: Vec<NetworkPolicyRule>) -> World {
    let mut world = World::cold_with(config(serves));
    let policy = antrea("u", APPLICATION, &["s"], rules);
    world.feed([
        Event::PodUp(mk_pod(1)),
        Event::ReplacePolicies(vec![policy]),
        Event::ReplaceAppliedToGroups(vec![service_targets("s", &["web"])]),
        Event::ReplaceAddressGroups(vec![]),
        Event::ReplaceServices(vec![(key("web"), vec![GroupId(7)])]),
    ]);
    world
}

#[test]
fn rules_of_a_service_are_about_its_node_ports() {
    let rules = vec![
        ingress().block("198.51.100.0/24", &[]).says(RuleAction::Allow, 0),
        ingress().block("192.0.2.0/24", &[]).port("TCP", "9090").says(RuleAction::Drop, 1),
        ingress().block("203.0.113.0/24", &["203.0.113.7/32"]).says(RuleAction::Reject, 2),
        ingress().block("2001:db8::/32", &[]).says(RuleAction::Drop, 3),
    ];
    let mut world = mk_node_ports(Serves::Everybody, rules.clone());
    let fate = |world: &World, src| through(world, src, 7, By::NodePort);
    assert!(matches!(fate(&world, "198.51.100.1"), Fate::Passed(1..)));
    assert!(fate(&world, "192.0.2.1").passed(), "the endpoint's port is another one");
    assert!(matches!(fate(&world, "203.0.113.1"), Fate::Rejected(_)));
    assert!(fate(&world, "203.0.113.7").passed());
    assert!(matches!(fate(&world, "2001:db8::1"), Fate::Dropped(_)));
    assert!(through(&world, "203.0.113.1", 7, By::Address).passed(), "not by its NodePort");
    assert!(through(&world, "203.0.113.1", 8, By::NodePort).passed(), "another Service's");
    assert!(world.from("203.0.113.1", 1, 8080), "a Pod itself");
    assert_eq!(world.statuses()[0].failure, None);
    // What is kept for the next start has Services as targets too.
    let mut again = World::cold_with(config(Serves::Everybody));
    again.feed(world.realizer.snapshot().into_events());
    again.feed([Event::ReplaceServices(vec![(key("web"), vec![GroupId(7)])])]);
    assert_eq!(again.switch.flows(), world.switch.flows());
    // Out of the group.
    world.feed([Event::AppliedToGroupSet(service_targets("s", &[]))]);
    assert_eq!(world.switch.flows(), []);
}

/// Rules of every tier are in one table there, in the order of their tiers.
#[test]
fn tiers_at_a_node_port() {
    let rule = |action| vec![ingress().any().says(action, 0)];
    let mut world = mk_node_ports(Serves::Everybody, rule(RuleAction::Allow));
    world.feed([Event::PolicySet(antrea("base", (253, 1.0), &["s"], rule(RuleAction::Drop)))]);
    let fate = |world: &World| through(world, "192.0.2.1", 7, By::NodePort);
    assert!(fate(&world).passed());
    world.feed([Event::PolicySet(antrea("first", (50, 9.0), &["s"], rule(RuleAction::Reject)))]);
    assert!(matches!(fate(&world), Fate::Rejected(_)));
    world.feed([Event::PolicyDeleted("first".into()), Event::PolicyDeleted("u".into())]);
    assert!(matches!(fate(&world), Fate::Dropped(_)));
}

#[test]
fn what_the_node_does_not_serve_is_said_of_each_rule() {
    let to = || vec![egress().services(&["web"]).says(RuleAction::Drop, 0)];
    let at = || vec![ingress().any().says(RuleAction::Drop, 0)];
    for (serves, of_services, at_node_ports) in [
        (Serves::Nothing, Some("toServices needs antreaProxy.enable"), true),
        (Serves::Pods, None, true),
        (Serves::Everybody, None, false),
    ] {
        let mut world = mk_world(serves, to());
        if serves != Serves::Nothing {
            world.feed([Event::ReplaceServices(vec![(key("web"), vec![GroupId(7)])])]);
        }
        let failure = world.statuses()[0].failure.clone();
        match of_services {
            Some(want) => assert!(failure.unwrap().contains(want)),
            None => assert_eq!(failure, None),
        }
        let world = mk_node_ports(serves, at());
        let failure = world.statuses()[0].failure.clone();
        let said = failure.is_some_and(|text| text.contains("needs antreaProxy.proxyAll"));
        assert_eq!(said, at_node_ports, "{serves:?}");
        assert_eq!(world.switch.flows().is_empty(), at_node_ports);
    }
}

/// At a start the rules of before stay on the switch until Services are known again, with the same
/// numbers; but not for ever.
#[test]
fn a_start_waits_for_services_that_rules_name() {
    let rules = || vec![egress().services(&["web"]).says(RuleAction::Drop, 0)];
    let all = || Event::ReplaceServices(vec![(key("web"), vec![GroupId(7)])]);
    let mut before = mk_world(Serves::Pods, rules());
    before.feed([all()]);
    let flows = before.switch.flows();
    let ids = |flows: &[openflow::Flow]| -> Vec<ConjId> {
        recover(flows).into_iter().map(|(_, id)| id).collect()
    };
    let start = || {
        let mut world = World::cold_with(config(Serves::Pods));
        world.feed([Event::Recovered(recover(&flows))]);
        world.feed([
            Event::PodUp(mk_pod(1)),
            Event::ReplacePolicies(vec![antrea("u", APPLICATION, &["t"], rules())]),
            Event::ReplaceAppliedToGroups(vec![targets("t", &[1])]),
            Event::ReplaceAddressGroups(vec![]),
        ]);
        assert_eq!(world.last, [], "nothing is claimed and nothing taken away");
        world
    };
    let mut world = start();
    world.feed([all()]);
    assert!(world.last.contains(&Op::Synced));
    assert_eq!((world.switch.flows(), ids(&flows).len()), (flows.clone(), 1));
    // Nobody tells.
    let mut world = start();
    world.now = world.realizer.deadline().expect("the wait ends");
    world.feed([Event::Tick]);
    assert!(world.last.contains(&Op::Synced));
    // Who has no such rules waits for nothing.
    let world = mk_world(Serves::Pods, vec![egress().any().says(RuleAction::Drop, 0)]);
    assert!(world.last.contains(&Op::Synced));
    assert!(matches!(
        world.switch.fate(
            Direction::Egress,
            None,
            Packet { src: ips(1)[0], dst: ips(2)[0], l4: L4::Tcp { src: 1, dst: 1 } }
        ),
        Fate::Dropped(_)
    ));
}

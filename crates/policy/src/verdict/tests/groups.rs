//! ClusterGroups and Groups.

use super::World;

fn mk_world() -> World {
    let mut world = World::default();
    world.pod("x/a pod=a 10.0.0.1");
    world.pod("x/b pod=b 10.0.0.2");
    world.pod("y/a pod=a 10.0.1.1");
    world
}

const FROM_PARENT: &str =
    "{priority: 5, appliedTo: [{podSelector: {matchLabels: {pod: b}}}], ingress: [
    {action: Allow, from: [{group: parent}]}, {action: Drop}]}";

#[test]
fn b11_nested_groups_in_every_order() {
    type Step = fn(&mut World);
    let steps: [Step; 4] = [
        |w| w.cluster_group("parent", "{childGroups: [c1, c2]}"),
        |w| {
            w.cluster_group(
                "c1",
                "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: y}}}",
            )
        },
        |w| w.cluster_group("c2", "{ipBlocks: [{cidr: 192.0.2.0/24}]}"),
        |w| w.acnp("p", FROM_PARENT),
    ];
    let mut orders = vec![vec![0_usize]];
    for n in 1..4 {
        orders = orders
            .into_iter()
            .flat_map(|order| {
                (0..=n).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, n);
                    order
                })
            })
            .collect();
    }
    assert_eq!(orders.len(), 24);
    for order in orders {
        let mut world = mk_world();
        for step in order {
            steps[step](&mut world);
        }
        world.check(
            "y/a -> x/b TCP:80: Allow
             x/a -> x/b TCP:80: Drop
             192.0.2.7 -> x/b TCP:80: Allow
             192.0.3.7 -> x/b TCP:80: Drop",
        );
        assert!(world.faults().is_empty());
    }
}

#[test]
fn b11_a_missing_child_selects_nothing_and_is_reported() {
    let mut world = mk_world();
    world.cluster_group("parent", "{childGroups: [c1, gone]}");
    world.cluster_group("c1", "{podSelector: {matchLabels: {pod: a}}}");
    world.acnp("p", FROM_PARENT);
    world.check("x/a -> x/b TCP:80: Allow\n 192.0.2.7 -> x/b TCP:80: Drop");
    assert_eq!(world.faults(), ["ClusterGroup parent childGroups: there is no group \"gone\""]);
}

#[test]
fn b11_circles_and_depth_select_nothing() {
    for (children, of_child) in
        [("[parent]", "{}"), ("[c1]", "{childGroups: [parent]}"), ("[c1]", "{childGroups: [c2]}")]
    {
        let mut world = mk_world();
        world.cluster_group("parent", &format!("{{childGroups: {children}}}"));
        world.cluster_group("c1", of_child);
        world.cluster_group("c2", "{podSelector: {}}");
        world.acnp("p", FROM_PARENT);
        world.check("x/a -> x/b TCP:80: Drop\n y/a -> x/b TCP:80: Drop");
        assert!(!world.faults().is_empty(), "{children} {of_child}");
    }
}

#[test]
fn a_group_belongs_to_its_namespace() {
    let mut world = mk_world();
    world.group("x/g", "{podSelector: {matchLabels: {pod: a}}}");
    world.group("x/far", "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: y}}}");
    world.annp("x/p", "{priority: 5, appliedTo: [{podSelector: {matchLabels: {pod: b}}}], ingress: [{action: Drop, from: [{group: g}]}]}");
    world.check("x/a -> x/b TCP:80: Drop\n y/a -> x/b TCP:80: Allow");
    world.annp(
        "x/q",
        "{priority: 5, appliedTo: [{group: g}], ingress: [{action: Drop, from: [{group: far}]}]}",
    );
    world.check("y/a -> x/a TCP:80: Drop\n x/b -> x/a TCP:80: Allow");
    assert!(world.faults().is_empty());
    // A namespaced policy has no hold on Pods elsewhere.
    world.annp("x/r", "{priority: 5, appliedTo: [{group: far}], ingress: [{action: Drop}]}");
    world.check("x/b -> y/a TCP:80: Allow");
    assert_eq!(world.faults().len(), 1);
}

#[test]
fn a_group_of_a_service_has_the_pods_behind_it() {
    let mut world = mk_world();
    world.service("x/s", "{selector: {pod: a}}");
    world.service("x/headless", "{}");
    world.cluster_group("s", "{serviceReference: {name: s, namespace: x}}");
    world.cluster_group("none", "{serviceReference: {name: headless, namespace: x}}");
    world.acnp(
        "p",
        "{priority: 5, appliedTo: [{podSelector: {}}], egress: [
        {action: Drop, to: [{group: s}]}, {action: Reject, to: [{group: none}]}]}",
    );
    world.check("x/b -> x/a TCP:80: Drop\n x/b -> y/a TCP:80: Allow");
}

#[test]
fn a_group_with_two_ways_to_tell_its_members_has_none() {
    let mut world = mk_world();
    world.cluster_group("parent", "{podSelector: {}, ipBlocks: [{cidr: 0.0.0.0/0}]}");
    world.acnp("p", FROM_PARENT);
    world.check("x/a -> x/b TCP:80: Drop");
    assert!(!world.faults().is_empty());
    let mut world = mk_world();
    world.cluster_group("parent", "{}");
    world.acnp("p", FROM_PARENT);
    world.check("x/a -> x/b TCP:80: Drop");
}

//! Tiers, priorities, ties and `Pass`.

use super::World;

fn mk_world() -> World {
    let mut world = World::default();
    world.pod("x/a 10.0.0.1");
    world.pod("x/b 10.0.0.2");
    world
}

/// An ACNP on all Pods with these ingress actions for TCP 80.
fn mk_spec(tier: &str, priority: f64, actions: &str) -> String {
    let rules: Vec<_> = actions
        .split(' ')
        .map(|action| format!("{{action: {action}, ports: [{{port: 80}}]}}"))
        .collect();
    let tier = if tier.is_empty() { String::new() } else { format!("tier: {tier}, ") };
    format!(
        "{{{tier}priority: {priority}, appliedTo: [{{podSelector: {{}}}}], ingress: [{}]}}",
        rules.join(", ")
    )
}

#[test]
fn tiers_before_priorities_before_places() {
    for (policies, want) in [
        (&[("a", "securityops", 9.0, "Drop"), ("b", "application", 1.0, "Allow")][..], "Drop"),
        (&[("a", "SecurityOps", 9.0, "Drop"), ("b", "", 1.0, "Allow")], "Drop"),
        (&[("a", "emergency", 2.0, "Drop"), ("b", "emergency", 1.5, "Allow")], "Allow"),
        (&[("a", "platform", 1.0, "Allow Drop")], "Allow"),
        (&[("a", "custom", 1.0, "Drop"), ("b", "platform", 1.0, "Allow")], "Drop"),
        (&[("a", "unknown-tier", 1.0, "Drop")], "Allow"),
    ] {
        for flip in [false, true] {
            let mut world = mk_world();
            world.tier("custom", 120);
            let mut policies = policies.to_vec();
            if flip {
                policies.reverse();
            }
            for (name, tier, priority, actions) in &policies {
                world.acnp(name, &mk_spec(tier, *priority, actions));
            }
            world.check(&format!("x/b -> x/a TCP:80: {want}\n x/b -> x/a TCP:81: Allow"));
        }
    }
}

/// Equal tiers and priorities: place, then action, whatever the names.
#[test]
fn b3_ties_are_settled_by_place_and_then_by_the_stricter_action() {
    for (one, other, want) in [
        ("Allow", "Drop", "Drop"),
        ("Allow", "Reject", "Reject"),
        ("Reject", "Drop", "Drop"),
        ("Allow", "Pass", "Allow"),
        ("Allow Drop", "Pass Allow", "Allow"),
        ("Allow Allow", "Permit Drop", "Allow"),
    ] {
        for (first, second) in [("a", "b"), ("b", "a")] {
            let mut world = mk_world();
            world.acnp(first, &mk_spec("", 5.0, one));
            world.acnp(second, &mk_spec("", 5.0, other));
            world.check(&format!("x/b -> x/a TCP:80: {want}"));
        }
    }
    // A cluster-wide policy is credited before a namespaced one with the same right.
    let mut world = mk_world();
    world.annp("x/a", &mk_spec("", 5.0, "Drop"));
    world.acnp("z", &mk_spec("", 5.0, "Drop"));
    assert_eq!(world.explain("x/b", "x/a", "TCP:80"), "Drop In AntreaClusterNetworkPolicy /z 0");
}

#[test]
fn pass_leaves_the_decision_to_kubernetes_policies() {
    let mut world = mk_world();
    world.acnp("pass", &mk_spec("emergency", 1.0, "Pass"));
    world.acnp("drop", &mk_spec("application", 1.0, "Drop"));
    world.check("x/b -> x/a TCP:80: Allow");
    world.acnp("base", &mk_spec("baseline", 1.0, "Reject"));
    world.check("x/b -> x/a TCP:80: Reject");
    world.netpol("x/allow", "{podSelector: {}, ingress: [{ports: [{port: 80}]}]}");
    assert_eq!(world.explain("x/b", "x/a", "TCP:80"), "Allow In K8sNetworkPolicy x/allow 0");
    let mut world = mk_world();
    world.acnp("pass", &mk_spec("emergency", 1.0, "Pass"));
    world.netpol("x/deny", "{podSelector: {}}");
    assert_eq!(world.explain("x/b", "x/a", "TCP:80"), "Drop In K8sNetworkPolicy x/deny isolation");
}

#[test]
fn the_baseline_is_for_pods_that_no_policy_isolates() {
    let mut world = mk_world();
    world.acnp("base", &mk_spec("Baseline", 1.0, "Drop"));
    world.check("x/b -> x/a TCP:80: Drop\n x/b -> x/a TCP:81: Allow");
    world.netpol("x/allow", "{podSelector: {}, ingress: [{}]}");
    world.check("x/b -> x/a TCP:80: Allow");
    // Isolated in one direction, a Pod is still under the baseline of the other.
    let mut world = mk_world();
    world.acnp("base", &mk_spec("baseline", 1.0, "Drop"));
    world.netpol("x/out", "{podSelector: {}, policyTypes: [Egress], egress: [{}]}");
    world.check("x/b -> x/a TCP:80: Drop");
    let mut world = mk_world();
    world.acnp("base", &mk_spec("baseline", 1.0, "Pass Drop"));
    world.check("x/b -> x/a TCP:80: Drop");
    assert_eq!(world.faults().len(), 1, "Pass in the baseline tier");
}

#[test]
fn an_antrea_policy_overrules_kubernetes_ones() {
    let mut world = mk_world();
    world.netpol("x/deny", "{podSelector: {}}");
    world.acnp("allow", &mk_spec("", 5.0, "Allow"));
    world.check("x/b -> x/a TCP:80: Allow\n x/b -> x/a TCP:81: Drop");
}

#[test]
fn a_rule_takes_only_what_rules_before_it_left() {
    let mut world = mk_world();
    world.acnp(
        "p",
        "{priority: 5, appliedTo: [{podSelector: {}}], ingress: [
        {action: Allow, ports: [{port: 100, endPort: 200}]},
        {action: Drop, ports: [{port: 150, endPort: 300}]},
        {action: Pass, ports: [{port: 250, endPort: 400}]}]}",
    );
    world.netpol("x/p", "{podSelector: {}, ingress: [{ports: [{port: 350, endPort: 360}]}]}");
    assert_eq!(world.conns("x/b", "x/a"), "TCP 100-200,350-360");
}

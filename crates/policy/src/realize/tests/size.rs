//! Many rules, many addresses.

use apis::controlplane::{NetworkPolicy, RuleAction};

use super::world::*;
use crate::realize::{Event, MAX_RULES_PER_FLOW, Op};

/// More rules with the same alternatives than one flow can hold.
#[test]
fn rules_that_do_not_fit_into_a_flow_are_spread() {
    for tiered in [false, true] {
        let mut world = World::new();
        world.feed([Event::AppliedToGroupSet(targets("t", &[1]))]);
        let n_policies = MAX_RULES_PER_FLOW + 200;
        let policy = |n: usize| -> NetworkPolicy {
            let rule = ingress().any().port("TCP", &(1000 + n % 60000).to_string());
            let uid = format!("u{n}");
            if tiered {
                antrea(&uid, (250, 5.0), &["t"], vec![rule.says(RuleAction::Allow, 0)])
            } else {
                k8s(&uid, "t", vec![rule])
            }
        };
        let everything = ingress().any().says(RuleAction::Drop, 9);
        world.feed([Event::PolicySet(antrea("z", (250, 9.0), &["t"], vec![everything]))]);
        world.feed((0..n_policies).map(|n| Event::PolicySet(policy(n))));
        if !tiered {
            world.feed([Event::PolicyDeleted("z".into())]);
        }
        let most = world.switch.flows().iter().map(|flow| flow.actions.len()).max().unwrap();
        assert!(most > 3000 && most <= MAX_RULES_PER_FLOW, "{most}");
        for n in [0, 1, n_policies / 2, n_policies - 1] {
            let port = u16::try_from(1000 + n).unwrap();
            assert!(world.tcp(2, 1, port), "{tiered} {n}");
        }
        assert!(!world.tcp(2, 1, 999));
        // One that goes makes room for another.
        world.feed([Event::PolicyDeleted("u0".into())]);
        assert!(!world.tcp(2, 1, 1000));
        world.feed([Event::PolicySet(policy(0))]);
        assert!(world.tcp(2, 1, 1000));
        world.feed((0..n_policies).map(|n| Event::PolicyDeleted(format!("u{n}"))));
        world.feed([Event::PolicyDeleted("z".into())]);
        assert_eq!(world.switch.flows(), []);
    }
}

/// One policy with 15,000 addresses: each is one flow, and one more is one more.
#[test]
fn one_policy_with_many_addresses() {
    let mut world = World::new();
    let mut rule = ingress();
    for n in 0..15_000u32 {
        rule = rule.block(&format!("{}/32", std::net::Ipv4Addr::from(0x0a80_0000 + n * 3)), &[]);
    }
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::PolicySet(k8s("u", "t", vec![rule.clone()])),
    ]);
    assert_eq!(world.realizer.n_clause_flows(), 15_001);
    world.feed([Event::PolicySet(k8s("u", "t", vec![rule.block("10.200.0.1/32", &[])]))]);
    assert_eq!(world.realizer.n_clause_flows(), 15_002);
    // Another rule, so another number: every flow changes.
    assert!(world.last.iter().filter(|op| matches!(op, Op::Set { .. })).count() > 1000);
}

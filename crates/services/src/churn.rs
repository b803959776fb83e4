//! Random churn: after any sequence of events the state is that of a computation from the objects that
//! are left, and what was told on the way adds up to it. `switch` does the same on a real switch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pipeline::service::{Endpoint, Target};
use proptest::test_runner::{Config as RunnerConfig, TestRunner};

use crate::random::{self, Coverage, Left, Told};
use crate::{Config, Event, PortKey, PortPlan, Proxy};

fn mk_fresh(config: &Config, left: &Left) -> Proxy {
    let mut fresh = Proxy::new(config.clone());
    fresh.step(left.all());
    fresh
}

/// Numbers of groups do not matter as long as no two groups have the same.
fn without_numbers(ports: &BTreeMap<Arc<PortKey>, PortPlan>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let shown = ports.iter().map(|(key, plan)| {
        let mut plan = plan.clone();
        for (n, group) in plan.groups.iter_mut().enumerate() {
            assert!(seen.insert(group.id), "group {:?} is there twice", group.id);
            let id = group.id;
            group.id.0 = u32::try_from(n).unwrap();
            for front in &mut plan.frontends {
                let (local, direct) = (front.local_clients.as_mut(), front.dsr.as_mut());
                let targets = [Some(&mut front.target), local, direct];
                for target in targets.into_iter().flatten() {
                    if *target == Target::Group(id) {
                        *target = Target::Group(group.id);
                    }
                }
            }
        }
        format!("{key} {plan:?}")
    });
    shown.collect()
}

fn run(seeds: &[u64], coverage: &mut Coverage) {
    let config = random::config();
    let mut left = Left::default();
    let (mut proxy, mut told) = (Proxy::new(config.clone()), Told::default());
    told.take(&proxy.step(left.all()));
    for seed in seeds {
        let events = left.happen(*seed);
        let is_slice = matches!(events[..], [Event::Slice(_) | Event::SliceGone(_)]);
        let had_host = proxy.host();
        let changes = proxy.step(events);
        if is_slice {
            // At most two: a slice may pass from one Service to another.
            assert!(changes.n_computed <= 2, "{} Services computed", changes.n_computed);
        }
        if had_host != proxy.host() {
            assert!(changes.host, "the host's share changed unsaid");
        }
        coverage.note(&changes);
        told.take(&changes);
        coverage.look(&left, &told);
    }
    let fresh = mk_fresh(&config, &left);
    let ports = |proxy: &Proxy| -> BTreeMap<_, _> {
        proxy.ports().map(|(key, plan)| (key.clone(), plan.clone())).collect()
    };
    assert_eq!(told.ports, ports(&proxy), "what was told");
    assert_eq!(without_numbers(&told.ports), without_numbers(&ports(&fresh)));
    let endpoints = |proxy: &Proxy| -> BTreeSet<Endpoint> { proxy.endpoints().copied().collect() };
    assert_eq!(told.endpoints, endpoints(&proxy), "what was told of servers");
    assert_eq!(told.endpoints, endpoints(&fresh));
    let health = |proxy: &Proxy| -> BTreeMap<_, _> {
        proxy.health_checks().map(|(name, check)| (name.clone(), check)).collect()
    };
    assert_eq!(told.health, health(&fresh));
    assert_eq!(proxy.host(), fresh.host());
}

#[test]
fn any_churn_ends_where_a_fresh_start_does() {
    let settings =
        RunnerConfig { cases: 300, failure_persistence: None, ..RunnerConfig::default() };
    let coverage = std::cell::RefCell::new(Coverage::default());
    let seeds = proptest::collection::vec(proptest::num::u64::ANY, 1..60);
    let outcome = TestRunner::new(settings).run(&seeds, |seeds| {
        run(&seeds, &mut coverage.borrow_mut());
        Ok(())
    });
    outcome.unwrap();
    let hit = coverage.into_inner().0;
    assert_eq!(hit, BTreeSet::from(Coverage::ALL), "the generator hits each kind");
}

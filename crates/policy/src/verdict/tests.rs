//! Who may connect to whom, on small clusters written by hand.

use super::*;

mod antrea;
mod groups;
mod kubernetes;
mod ordering;
mod upstream;
mod world;

use world::World;

#[test]
fn numbers_are_in_the_same_order_as_sort_keys() {
    let numbers = [-5.0, -0.5, 0.0, 1.0, 1.5, 5.0, 10_000.0];
    let keys: Vec<_> = numbers.iter().map(|n| rule::Order::new(1, *n, 0)).collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert!(rule::Order::new(1, 9.0, 9) < rule::Order::new(2, 1.0, 0));
}

/// Objects in any order give the same answers, with the same rules to name.
#[test]
fn order_of_objects_never_matters() {
    let mk = |flip: bool| {
        let mut world = World::default();
        let mut steps: Vec<fn(&mut World)> = vec![
            |w| w.pod("x/a app=a 10.0.0.1"),
            |w| w.pod("x/b app=b 10.0.0.2 web:80/TCP"),
            |w| w.netpol("x/one", "{podSelector: {}, ingress: [{ports: [{port: 80}]}]}"),
            |w| w.netpol("x/two", "{podSelector: {}, ingress: [{ports: [{port: web}]}]}"),
            |w| {
                w.acnp("deny", "{priority: 5, appliedTo: [{podSelector: {}}], ingress: [{action: Drop, ports: [{port: 81}]}]}")
            },
            |w| {
                w.acnp("also", "{priority: 5, appliedTo: [{podSelector: {}}], ingress: [{action: Drop, ports: [{port: 81}]}]}")
            },
        ];
        if flip {
            steps.reverse();
        }
        for step in steps {
            step(&mut world);
        }
        world
    };
    let (one, other) = (mk(false), mk(true));
    for traffic in ["TCP:80", "TCP:81", "TCP:82"] {
        let explain = one.explain("x/a", "x/b", traffic);
        assert_eq!(explain, other.explain("x/a", "x/b", traffic));
    }
    assert_eq!(one.explain("x/a", "x/b", "TCP:81"), "Drop In AntreaClusterNetworkPolicy /also 0");
    assert_eq!(one.explain("x/a", "x/b", "TCP:80"), "Allow In K8sNetworkPolicy x/one 0");
    assert_eq!(one.explain("x/a", "x/b", "TCP:82"), "Drop In K8sNetworkPolicy x/one isolation");
}

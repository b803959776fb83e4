//! The list, which asks about classes of Pods and remembers answers, against one question at a time.

use super::*;
use crate::random::{Coverage, objects};

fn shown(cluster: &Cluster, set: &ConnectionSet) -> ConnectionSet {
    if cluster.speaks_of_icmp() { set.clone() } else { set.with_ports_only() }
}

#[test]
fn the_list_says_what_each_question_would() {
    for seed in 0..12 {
        let cluster = Cluster::new(&objects(seed, &mut Coverage::default()));
        let workloads: Vec<_> = cluster
            .pods()
            .map(|pod| {
                let (namespace, name) = cluster.pod_name(pod);
                Workload { name: format!("{namespace}/{name}"), pods: vec![pod] }
            })
            .collect();
        let map = Connectivity::new(&cluster, &workloads, &cluster.networks());
        for from in &workloads {
            for to in workloads.iter().filter(|to| to.name != from.name) {
                let one = cluster.connections(End::Pod(from.pods[0]), End::Pod(to.pods[0]));
                let key = (from.name.clone(), to.name.clone());
                assert_eq!(map.workloads[&key], shown(&cluster, &one), "seed {seed} {key:?}");
            }
            for (n, range) in map.ranges.iter().enumerate() {
                // The last address stands for the range as well as the first, unless it is a Node's.
                let (pod, outside) = (End::Pod(from.pods[0]), End::Addr(range.last));
                if range.first == range.last {
                    continue;
                }
                let (into, out) =
                    (cluster.connections(outside, pod), cluster.connections(pod, outside));
                let name = &from.name;
                let listed = [&map.from_outside[name][n], &map.to_outside[name][n]];
                let asked = [&shown(&cluster, &into), &shown(&cluster, &out)];
                assert_eq!(listed, asked, "seed {seed} {name} {range}");
            }
        }
    }
}

#[test]
fn neighbours_alike_are_one_range() {
    let networks: Vec<IpNet> =
        ["10.0.0.0/8", "10.1.0.0/16", "255.255.255.255/32"].map(|net| net.parse().unwrap()).into();
    let ranges = cut(&networks, &[Family::V4]);
    let words: Vec<_> = ranges.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "0.0.0.0-9.255.255.255",
            "10.0.0.0-10.0.255.255",
            "10.1.0.0-10.1.255.255",
            "10.2.0.0-10.255.255.255",
            "11.0.0.0-255.255.255.254",
            "255.255.255.255-255.255.255.255",
        ]
    );
    let joined = join(&ranges, &['a', 'b', 'b', 'b', 'a', 'a']);
    let words: Vec<_> = joined.iter().map(|(range, value)| format!("{range} {value}")).collect();
    assert_eq!(
        words,
        ["0.0.0.0-9.255.255.255 a", "10.0.0.0-10.255.255.255 b", "11.0.0.0-255.255.255.255 a"]
    );
}

use std::collections::BTreeSet;
use std::time::Instant;

use super::node::{Node, ip_of, mk_pod};

fn n_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
#[ignore = "needs root: make test"]
fn two_hundred_pods_at_once_leave_nothing() {
    let node = Node::start();
    let pods: Vec<_> = (0..200).map(|_| mk_pod()).collect();
    let mut descriptors = Vec::new();
    for round in 0..2 {
        let started = Instant::now();
        let adds: Vec<_> = pods
            .iter()
            .enumerate()
            .map(|(number, pod)| {
                let args = node.args(&format!("c{number}"), &pod.path().display().to_string());
                node.spawn(Node::call(node.socket(), "ADD", args))
            })
            .collect();
        let results: Vec<_> =
            adds.into_iter().map(|add| node.block_on(add).unwrap().unwrap()).collect();
        let ips: BTreeSet<_> = results.iter().map(ip_of).collect();
        assert_eq!(ips.len(), 200);
        println!("round {round}: 200 ADD at once in {:?}", started.elapsed());
        pods[7].sh(&format!("ping -c 1 -W 5 {}", ip_of(&results[150])));

        let started = Instant::now();
        let dels: Vec<_> = (0..200)
            .map(|number| {
                let args = node.args(&format!("c{number}"), "");
                node.spawn(Node::call(node.socket(), "DEL", args))
            })
            .collect();
        for del in dels {
            node.block_on(del).unwrap().unwrap();
        }
        println!("round {round}: 200 DEL at once in {:?}", started.elapsed());
        node.wait_empty();
        descriptors.push(n_descriptors());
    }
    assert!(descriptors[1] <= descriptors[0] + 5, "descriptors leak: {descriptors:?}");
}

#[test]
#[ignore = "needs root: make test"]
fn one_hundred_and_ten_pods_one_by_one() {
    let node = Node::start();
    let pods: Vec<_> = (0..110).map(|_| mk_pod()).collect();
    let mut times = Vec::new();
    for (number, pod) in pods.iter().enumerate() {
        let started = Instant::now();
        node.add(&format!("c{number}"), pod).unwrap();
        times.push(started.elapsed());
    }
    times.sort();
    println!("110 ADD one by one: median {:?}, max {:?}", times[55], times[109]);
    let mut times = Vec::new();
    for number in 0..110 {
        let started = Instant::now();
        node.del(&format!("c{number}"), "").unwrap();
        times.push(started.elapsed());
    }
    times.sort();
    println!("110 DEL one by one: median {:?}, max {:?}", times[55], times[109]);
    node.wait_empty();
}

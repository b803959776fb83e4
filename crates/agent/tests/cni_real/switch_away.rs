//! Pods on a switch that stops, stands still, or numbers its ports anew.

use std::time::{Duration, Instant};

use super::node::{DEADLINE, Node, Refused, host_name_of, ip_of, mk_pod};
use testkit::netns::{NamedNetns, sh};
use testkit::wait_until;

/// A runtime has its answer within this time, whatever the switch does.
const ANSWER: Duration = Duration::from_secs(5);

fn answers(pod: &NamedNetns) -> bool {
    let ping = pod.command("ping").args(["-c1", "-W1", "10.77.1.1"]).output().unwrap();
    ping.status.success()
}

/// Numbers that flows about an address come in by, and the number its port has.
fn numbers(node: &Node, ip: &str, port: &str) -> (Vec<String>, String) {
    let of_ip =
        |flow: &&str| flow.contains(&format!("={ip},")) || flow.contains(&format!("={ip} "));
    // While the switch starts, it has none.
    let mgmt = node.ovs.mgmt("br-int").display().to_string();
    let flows = node.ovs.ofctl_result(&["dump-flows", &mgmt]).unwrap_or_default();
    let mut ports: Vec<String> = flows
        .lines()
        .filter(|flow| of_ip(flow))
        .filter_map(|flow| flow.split_once("in_port="))
        .map(|(_, rest)| rest.split([',', ' ']).next().unwrap().to_owned())
        .collect();
    ports.sort();
    ports.dedup();
    let number = node.ovs.vsctl(&["--if-exists", "get", "Interface", port, "ofport"]);
    (ports, number.trim().to_owned())
}

#[test]
#[ignore = "needs root: make test"]
fn flows_follow_the_number_of_their_port() {
    let mut node = Node::start();
    let pod = mk_pod();
    let result = node.add("one", &pod).unwrap();
    let (ip, port) = (ip_of(&result), host_name_of(&result));
    assert!(answers(&pod));

    node.ovs.vsctl(&["set", "Interface", &port, "ofport_request=300"]);
    let moved = || numbers(&node, &ip, &port) == (vec!["300".into()], "300".into());
    wait_until(DEADLINE, "flows of the new number alone", moved);
    wait_until(DEADLINE, "the Pod answers", || answers(&pod));
    node.check("one", &pod, &result).unwrap();

    // Numbered anew while nobody was there to see it.
    node.ovs.kill_vswitchd();
    node.ovs.vsctl(&["--no-wait", "set", "Interface", &port, "ofport_request=301"]);
    node.ovs.restart_vswitchd();
    let moved = || numbers(&node, &ip, &port) == (vec!["301".into()], "301".into());
    wait_until(DEADLINE, "flows of the new number alone", moved);
    wait_until(DEADLINE, "the Pod answers", || answers(&pod));

    // A port that somebody deletes is made again, with a number of its own.
    node.ovs.vsctl(&["del-port", "br-int", &port]);
    let moved = || {
        let (flows, number) = numbers(&node, &ip, &port);
        number != "301" && flows == [number]
    };
    wait_until(DEADLINE, "another port with flows of its number alone", moved);
    wait_until(DEADLINE, "the Pod answers", || answers(&pod));
    node.check("one", &pod, &result).unwrap();
    assert_eq!(node.add("one", &pod).unwrap(), result);
    // But not after its DEL.
    node.del("one", "").unwrap();
    node.wait_empty();
}

#[test]
#[ignore = "needs root: make test"]
fn pods_outlive_the_loss_of_their_bridge() {
    let mut node = Node::start();
    let (one, two, gone) = (mk_pod(), mk_pod(), mk_pod());
    let result = node.add("one", &one).unwrap();
    node.add("two", &two).unwrap();
    node.add("gone", &gone).unwrap();
    let port = host_name_of(&result);
    assert!(answers(&one) && answers(&two));
    // The agent starts again when its bridge is deleted; a Pod ends meanwhile.
    node.ovs.vsctl(&["del-br", "br-int"]);
    node.stop_agent();
    drop(gone);
    node.start_agent();
    for pod in [&one, &two] {
        wait_until(DEADLINE, "the Pod answers", || answers(pod));
    }
    node.check("one", &one, &result).unwrap();
    assert_eq!(node.leases().len(), 2);
    let ids = node.ovs.vsctl(&["get", "Port", &port, "external_ids"]);
    assert!(ids.contains("pod-name=one") && ids.contains("antrea-network=antrea"), "{ids}");
    node.del("one", "").unwrap();
    node.del("two", "").unwrap();
    node.wait_empty();
}

#[track_caller]
fn refused_in_time(what: &str, request: impl FnOnce() -> Result<serde_json::Value, Refused>) {
    let started = Instant::now();
    let refused = request().expect_err(what);
    assert!(started.elapsed() < ANSWER, "{what}: {:?}, {refused:?}", started.elapsed());
    assert_eq!(refused.code, 11, "{what}: {refused:?}");
}

#[test]
#[ignore = "needs root: make test"]
fn a_runtime_is_told_soon_that_the_switch_is_away() {
    let mut node = Node::start();
    let (one, two) = (mk_pod(), mk_pod());
    let result = node.add("one", &one).unwrap();
    let status = |node: &Node| {
        let mut args = node.args("", "");
        let mut conf = node.conf();
        conf["cniVersion"] = "1.1.0".into();
        args.network_configuration = conf.to_string().into_bytes();
        node.block_on(Node::call(node.socket(), "STATUS", args))
    };
    status(&node).unwrap();

    // It stands still: known to nobody at the moment of the request.
    let pid = node.ovs.vswitchd_pid().unwrap();
    sh(&format!("kill -STOP {pid}"));
    refused_in_time("ADD meanwhile", || node.add("two", &two));
    refused_in_time("ADD afterwards", || node.add("two", &two));
    refused_in_time("CHECK", || node.check("one", &one, &result));
    assert_eq!(status(&node).unwrap_err().code, 50);
    sh(&format!("kill -CONT {pid}"));
    wait_until(DEADLINE, "ready again", || status(&node).is_ok());
    node.add("two", &two).unwrap();
    node.del("two", "").unwrap();

    node.ovs.kill_vswitchd();
    wait_until(ANSWER, "not ready", || status(&node).is_err());
    refused_in_time("ADD to a dead switch", || node.add("two", &two));
    assert_eq!(node.leases().len(), 1, "nothing was begun");
    node.ovs.restart_vswitchd();
    wait_until(DEADLINE, "ready again", || status(&node).is_ok());
    node.add("two", &two).unwrap();
    for container in ["one", "two"] {
        node.del(container, "").unwrap();
    }
    node.wait_empty();
}

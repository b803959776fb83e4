use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::netns::NamedNetns;

use super::node::{Node, host_name_of, ip_of, mk_pod};

/// Runs a real plugin of the list behind ours in the node's namespace.
fn run_plugin(
    node: &Node,
    plugin: &str,
    command: &str,
    pod: &NamedNetns,
    conf: &Value,
) -> (bool, String) {
    let mut child = node
        .netns
        .command(&format!("/usr/lib/cni/{plugin}"))
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", "one")
        .env("CNI_NETNS", pod.path())
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", "/usr/lib/cni")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
#[ignore = "needs root: make test"]
fn portmap_and_bandwidth_take_our_result() {
    let node = Node::start();
    let pod = mk_pod();
    let mut result = node.add("one", &pod).unwrap();
    let ip = ip_of(&result);
    let portmap = |previous: &Value| {
        json!({
            "cniVersion": "1.0.0", "name": "antrea", "type": "portmap", "snat": true,
            "runtimeConfig": {"portMappings": [
                {"hostPort": 18080, "containerPort": 8080, "protocol": "tcp"}]},
            "prevResult": previous,
        })
    };
    let (passed, out) = run_plugin(&node, "portmap", "ADD", &pod, &portmap(&result));
    assert!(passed, "{out}");
    let handed_on: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(handed_on["ips"], result["ips"]);
    assert_eq!(handed_on["interfaces"], result["interfaces"]);
    let rules = node.netns.sh("iptables-save -t nat 2>/dev/null || nft list ruleset");
    assert!(rules.contains(&format!("{ip}:8080")), "{rules}");
    result = handed_on;

    let bandwidth = json!({
        "cniVersion": "1.0.0", "name": "antrea", "type": "bandwidth",
        "ingressRate": 10_000_000, "ingressBurst": 1_000_000,
        "prevResult": result,
    });
    let (passed, out) = run_plugin(&node, "bandwidth", "ADD", &pod, &bandwidth);
    let host_name = host_name_of(&result);
    if passed {
        let shaped = node.netns.sh(&format!("tc qdisc show dev {host_name}"));
        assert!(shaped.contains("tbf"), "{shaped}");
        let handed_on: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(handed_on["ips"], result["ips"]);
        result = handed_on;
    } else {
        // It understood our result: it found the host's end, and the kernel lacks the qdisc.
        assert!(out.contains("qdisc"), "{out}");
        eprintln!("this kernel has no tbf: {out}");
    }

    node.check("one", &pod, &result).unwrap();
    let (passed, out) = run_plugin(&node, "portmap", "DEL", &pod, &portmap(&result));
    assert!(passed, "{out}");
    node.del("one", "").unwrap();
    node.wait_empty();
}

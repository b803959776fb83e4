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

/// The list that is shipped, as a runtime hands it to each plugin.
fn shipped() -> Value {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/config.yaml");
    let config: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(manifest).unwrap()).unwrap();
    let text = config["data"]["antrea-cni.conflist"].as_str().unwrap();
    serde_json::from_str(text).unwrap()
}

#[test]
#[ignore = "needs root: make test"]
fn the_shipped_list_connects_checks_and_disconnects() {
    let node = Node::start();
    let pod = mk_pod();
    let list = shipped();
    let conf_of = |plugin: &Value, previous: &Value| {
        let mut conf = plugin.clone();
        conf["cniVersion"] = list["cniVersion"].clone();
        conf["name"] = list["name"].clone();
        if conf["type"] == "antrea" {
            conf["ipam"]["dataDir"] = node.conf()["ipam"]["dataDir"].clone();
        }
        if conf["capabilities"]["portMappings"] == true {
            conf["runtimeConfig"] = json!({"portMappings": [
                {"hostPort": 18081, "containerPort": 8080, "protocol": "tcp"}]});
        }
        if !previous.is_null() {
            conf["prevResult"] = previous.clone();
        }
        conf
    };
    let plugins = list["plugins"].as_array().unwrap();
    let ask = |verb: &str, previous: &Value| {
        let mut args = node.args("one", &pod.path().display().to_string());
        args.network_configuration = conf_of(&plugins[0], previous).to_string().into_bytes();
        node.block_on(Node::call(node.socket(), verb, args))
    };
    let mut result = ask("ADD", &Value::Null).unwrap();
    for plugin in &plugins[1..] {
        let name = plugin["type"].as_str().unwrap();
        let (passed, out) = run_plugin(&node, name, "ADD", &pod, &conf_of(plugin, &result));
        assert!(passed, "{name}: {out}");
        result = serde_json::from_str(&out).unwrap();
    }
    assert_eq!(ip_of(&result), node.leases()[0]);
    // What version 0.3.0 does not have.
    ask("CHECK", &result).unwrap();
    pod.sh("ip route del default");
    assert_eq!(ask("CHECK", &result).unwrap_err().code, 103);
    for plugin in plugins[1..].iter().rev() {
        let name = plugin["type"].as_str().unwrap();
        let (passed, out) = run_plugin(&node, name, "DEL", &pod, &conf_of(plugin, &result));
        assert!(passed, "{name}: {out}");
    }
    ask("DEL", &Value::Null).unwrap();
    node.wait_empty();
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

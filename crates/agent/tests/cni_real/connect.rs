use super::node::{DEADLINE, Node, host_name_of, ip_of, mk_pod};
use testkit::wait_until;

#[test]
#[ignore = "needs root: make test"]
fn pods_are_connected_as_the_result_says_and_removed_without_a_trace() {
    let node = Node::start();
    let (one, two) = (mk_pod(), mk_pod());
    let first = node.add("one", &one).unwrap();
    let second = node.add("two", &two).unwrap();

    let seen = one.sh("ip -o addr show eth0; ip -o link show eth0; ip route");
    let (ip, mac) = (ip_of(&first), first["interfaces"][1]["mac"].as_str().unwrap());
    assert!(seen.contains(&format!("inet {ip}/24")), "{seen}");
    assert!(seen.contains(&format!("link/ether {mac}")), "{seen}");
    assert!(seen.contains("mtu 1450"), "{seen}");
    assert!(seen.contains("default via 10.77.1.1 dev eth0"), "{seen}");
    let offload = one.sh("ethtool -k eth0");
    assert!(offload.contains("tx-checksumming: off"), "{offload}");

    let host_name = host_name_of(&first);
    let host = node.netns.sh(&format!("ip -d -o link show {host_name}"));
    assert!(host.contains("master antrea-null") && host.contains("state UP"), "{host}");
    assert!(host.contains("alias antrea-pod:one/eth0"), "{host}");
    let ids = node.ovs.vsctl(&["get", "Port", &host_name, "external_ids"]);
    for note in [
        "antrea-type=container".to_owned(),
        format!("attached-mac=\"{mac}\""),
        "container-id=one".to_owned(),
        "if-dev=eth0".to_owned(),
        format!("ip-address=\"{ip}\""),
        format!("net-ns=\"{}\"", one.path().display()),
        "pod-name=one".to_owned(),
        "pod-namespace=shop".to_owned(),
    ] {
        assert!(ids.contains(&note), "{ids} lacks {note}");
    }

    one.sh(&format!("ping -c 3 -i 0.2 -W 2 {}", ip_of(&second)));
    one.sh("ping -c 1 -W 2 10.77.1.1");
    node.netns.sh(&format!("ping -c 1 -W 2 {ip}"));
    node.check("one", &one, &first).unwrap();

    node.del("one", &one.path().display().to_string()).unwrap();
    wait_until(DEADLINE, "the link is gone", || !one.sh("ip -o link").contains("eth0"));
    node.check("two", &two, &second).unwrap();
    node.del("two", "").unwrap();
    node.wait_empty();
}

#[test]
#[ignore = "needs root: make test"]
fn an_address_that_is_used_again_inherits_no_connection() {
    let node = Node::start();
    let (one, two) = (mk_pod(), mk_pod());
    let ip = ip_of(&node.add("one", &one).unwrap());
    let peer = ip_of(&node.add("two", &two).unwrap());
    one.sh(&format!("ping -c 1 -W 2 {peer}"));
    two.sh(&format!("ping -c 1 -W 2 {ip}"));
    node.netns.sh(&format!("ping -c 1 -W 2 {ip}"));
    let entries = node.ovs.appctl(&["dpctl/dump-conntrack"]);
    assert!(entries.contains(&ip), "{entries}");
    node.del("one", "").unwrap();
    let entries = node.ovs.appctl(&["dpctl/dump-conntrack"]);
    assert!(!entries.contains(&format!("{ip},")), "{entries}");
    node.del("two", "").unwrap();
    node.wait_empty();
}

#[test]
#[ignore = "needs root: make test"]
fn a_pod_cannot_reach_the_node_past_open_vswitch() {
    let mut node = Node::start();
    let pod = mk_pod();
    let result = node.add("one", &pod).unwrap();
    let (host_name, host_mac) = (host_name_of(&result), &result["interfaces"][0]["mac"]);
    let host_mac = host_mac.as_str().unwrap();
    // The Pod takes its host end for the gateway, and Open vSwitch is out of the way: whatever the
    // node's kernel hears now, it hears past Open vSwitch.
    pod.sh(&format!("ip neigh replace 10.77.1.1 lladdr {host_mac} dev eth0 nud permanent"));
    node.ovs.kill_vswitchd();
    let n_heard_of = |node: &Node| {
        let before = n_received(node);
        pod.sh("ping -c 3 -i 0.2 -W 1 10.77.1.1 || true");
        n_received(node) - before
    };
    assert_eq!(n_heard_of(&node), 0, "with both guards");
    node.netns.sh("nft flush ruleset");
    assert_eq!(n_heard_of(&node), 0, "with the bridge that is never up alone");
    node.netns.sh(&format!("ip link set {host_name} nomaster"));
    assert!(n_heard_of(&node) >= 3, "without a guard: or else this test shows nothing");

    node.ovs.restart_vswitchd();
    let refused = node.check("one", &pod, &result).unwrap_err();
    assert_eq!(refused.code, 103);
    assert!(refused.message.contains(&format!("{host_name} has no drop chain")), "{refused:?}");
    node.del("one", "").unwrap();
    node.wait_empty();
}

/// IPv4 packets that the node's kernel has heard.
fn n_received(node: &Node) -> u64 {
    let snmp = node.netns.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut lines = snmp.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "InReceives").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs root: make test"]
fn a_restarted_agent_goes_on_with_what_is_there() {
    let mut node = Node::start();
    let (one, two) = (mk_pod(), mk_pod());
    let first = node.add("one", &one).unwrap();
    node.add("two", &two).unwrap();
    node.stop_agent();
    // Meanwhile a Pod's namespace goes, and a lease is left that nobody has.
    drop(two);
    let stray = node.dir.path().join("leases/antrea/10.77.1.200");
    std::fs::write(stray, "gone\r\neth0").unwrap();
    node.start_agent();
    one.sh("ping -c 1 -W 2 10.77.1.1");
    node.check("one", &one, &first).unwrap();
    assert_eq!(node.add("one", &one).unwrap(), first);
    wait_until(DEADLINE, "what nobody owns is gone", || {
        node.leases() == [ip_of(&first)]
            && node.ovs.vsctl(&["list-ports", "br-int"]).lines().count() == 2
    });
    node.del("two", "").unwrap();
    node.stop_agent();
    node.start_agent();
    node.del("one", "").unwrap();
    node.wait_empty();
}

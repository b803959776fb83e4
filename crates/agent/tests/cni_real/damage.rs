use super::node::{DEADLINE, Node, host_name_of, ip_of, mk_pod};
use testkit::wait_until;

#[test]
#[ignore = "needs root: make test"]
fn check_notices_what_was_taken_away_by_hand() {
    let node = Node::start();
    let pod = mk_pod();
    for round in 0..6 {
        let result = node.add("one", &pod).unwrap();
        node.check("one", &pod, &result).unwrap();
        let (ip, host_name) = (ip_of(&result), host_name_of(&result));
        let words = match round {
            0 => {
                pod.sh(&format!("ip addr del {ip}/24 dev eth0"));
                "address"
            }
            1 => {
                pod.sh("ip route del default");
                "route"
            }
            2 => {
                pod.sh("ip link set eth0 address 02:00:00:00:00:09");
                "MAC"
            }
            3 => {
                node.ovs.vsctl(&["remove", "Port", &host_name, "external_ids", "ip-address"]);
                "external_ids"
            }
            4 => {
                node.netns.sh(&format!("ip link set {host_name} down"));
                "is down"
            }
            _ => {
                pod.sh("ethtool -K eth0 tx on");
                "checksum offload"
            }
        };
        let refused = node.check("one", &pod, &result).expect_err(words);
        assert_eq!(refused.code, 103, "{refused:?}");
        assert!(refused.message.contains(words), "{refused:?}");
        // And a repeated ADD makes it whole again.
        let again = node.add("one", &pod).unwrap();
        node.check("one", &pod, &again).unwrap();
        pod.sh("ping -c 1 -W 2 10.77.1.1");
        node.del("one", "").unwrap();
        wait_until(DEADLINE, "the link is gone", || !pod.sh("ip -o link").contains("eth0"));
    }
    node.wait_empty();
}

#[test]
#[ignore = "needs root: make test"]
fn a_refused_add_leaves_nothing() {
    let node = Node::start();
    let pod = mk_pod();
    // The name is taken inside the Pod.
    pod.sh("ip link add eth0 type veth peer name other");
    let refused = node.add("one", &pod).unwrap_err();
    assert_eq!(refused.code, 102, "{refused:?}");
    assert!(refused.message.contains("interface eth0 exists"), "{refused:?}");
    node.wait_empty();
    pod.sh("ip link del eth0");
    node.add("one", &pod).unwrap();
    node.del("one", "").unwrap();

    let gone =
        node.block_on(Node::call(node.socket(), "ADD", node.args("two", "/run/netns/never-was")));
    assert_eq!(gone.unwrap_err().code, 8);
    node.del("never-seen", "/run/netns/never-was").unwrap();
    node.wait_empty();
}

#[test]
#[ignore = "needs root: make test"]
fn while_open_vswitch_is_away_requests_fail_and_succeed_afterwards() {
    let mut node = Node::start();
    let (one, two) = (mk_pod(), mk_pod());
    node.add("one", &one).unwrap();
    node.ovs.kill_vswitchd();
    let refused = node.add("two", &two).unwrap_err();
    assert!([11, 102].contains(&refused.code), "{refused:?}");
    node.ovs.restart_vswitchd();
    node.add("two", &two).unwrap();
    wait_until(DEADLINE, "both Pods answer", || {
        [&one, &two].iter().all(|pod| {
            let ping = pod.command("ping").args(["-c1", "-W1", "10.77.1.1"]).output().unwrap();
            ping.status.success()
        })
    });
    node.ovs.kill_ovsdb();
    node.del("one", "").unwrap();
    assert_eq!(node.leases().len(), 2, "the address stays leased");
    node.ovs.restart_ovsdb();
    wait_until(DEADLINE, "the lease is given back without a request", || node.leases().len() == 1);
    node.del("two", "").unwrap();
    node.wait_empty();
}

#[test]
#[ignore = "needs root: make test"]
fn a_port_whose_notes_were_cleared_gets_them_back() {
    let mut node = Node::start();
    let pod = mk_pod();
    let result = node.add("one", &pod).unwrap();
    let name = host_name_of(&result);
    let number = |node: &Node| node.ovs.vsctl(&["get", "Interface", &name, "ofport"]);
    let before = number(&node);
    let clear = |node: &Node| node.ovs.vsctl(&["clear", "Port", &name, "external_ids"]);
    clear(&node);
    let is_whole = |node: &Node| node.check("one", &pod, &result).is_ok();
    wait_until(DEADLINE, "CHECK finds nothing wrong", || is_whole(&node));
    assert_eq!(number(&node), before);
    pod.sh("ping -c 1 -W 2 10.77.1.1");
    // While there is no agent.
    node.stop_agent();
    clear(&node);
    node.start_agent();
    wait_until(DEADLINE, "CHECK finds nothing wrong after a start", || is_whole(&node));
    pod.sh("ping -c 1 -W 2 10.77.1.1");
    node.del("one", "").unwrap();
    node.wait_empty();
}

//! Real packets between real stacks: what a trace cannot show, such as ARP and neighbour discovery
//! that both sides have to agree on.

use std::net::UdpSocket;
use std::time::Duration;

use etherparse::PacketBuilder;
use testkit::netns::{NamedNetns, in_netns, sh, try_sh};
use testkit::wait_until;

use super::fixture::{mk_node, mk_pod};
use super::switch::Switch;
use crate::Families;
use crate::fields::VIRTUAL_MAC;

/// Pod `n`: its port moved into a namespace of its own.
pub(super) fn mk_pod_netns(n: u32) -> NamedNetns {
    let netns = NamedNetns::new("ppod").expect("namespace");
    sh(&format!("ip link set pod{n} netns {}", netns.name()));
    netns.sh(&format!(
        "ip addr add 10.77.1.{n}/24 dev pod{n} && ip addr add fd00:77:1::{n}/64 dev pod{n} nodad && \
         ip link set pod{n} up && ip route add default via 10.77.1.1 && \
         ip -6 route add default via fd00:77:1::1"
    ));
    netns
}

fn ping(address: &str) -> String {
    format!("ping -n -c 3 -i 0.2 -W 2 {address}")
}

#[test]
#[ignore = "needs root: make test"]
fn pods_host_and_outside_answer() {
    in_netns(|| {
        let _switch = Switch::start(Families::Dual);
        let gateway = mk_node(Families::Dual).gateway.mac;
        sh("ip addr add 10.77.1.1/24 dev gw0 && ip addr add fd00:77:1::1/64 dev gw0 nodad && \
            ip link set gw0 up");
        sh("ip addr add 198.51.100.1/32 dev lo && ip -6 addr add 2001:db8::1/128 dev lo nodad");
        let (pod2, pod3) = (mk_pod_netns(2), mk_pod_netns(3));
        for address in [
            "10.77.1.3",
            "10.77.1.1",
            "198.51.100.1",
            "fd00:77:1::3",
            "fd00:77:1::1",
            "2001:db8::1",
        ] {
            pod2.sh(&ping(address));
        }
        for address in ["10.77.1.2", "10.77.1.3", "fd00:77:1::2", "fd00:77:1::3"] {
            sh(&ping(address));
        }
        assert!(pod2.sh("ip neigh show 10.77.1.1").contains(&gateway.to_string()));
        // The switch answers for the gateways of other nodes.
        sh("ip route add 10.77.2.0/24 via 10.77.2.1 dev gw0 onlink");
        let _ = try_sh("ping -n -c 1 -W 1 10.77.2.2").expect("ping runs");
        let known = sh("ip neigh show 10.77.2.1 dev gw0");
        assert!(known.contains(&VIRTUAL_MAC.to_string()), "{known}");
        // Duplicate address detection finds a Pod's own address free.
        pod3.sh("ip addr del fd00:77:1::3/64 dev pod3 && ip addr add fd00:77:1::3/64 dev pod3");
        wait_until(Duration::from_secs(10), "the address is no longer tentative", || {
            let address = pod3.sh("ip -6 addr show dev pod3 to fd00:77:1::3");
            assert!(!address.contains("dadfailed"), "{address}");
            !address.contains("tentative")
        });
        pod2.sh(&ping("fd00:77:1::3"));

        // A Pod that takes another's address is not heard.
        pod3.sh("ip addr add 10.77.1.9/24 dev pod3 && ip addr add fd00:77:1::9/64 dev pod3 nodad");
        for line in [
            "ping -n -c 1 -W 1 -I 10.77.1.9 10.77.1.2",
            "ping -n -c 1 -W 1 -I fd00:77:1::9 fd00:77:1::2",
        ] {
            let heard = pod3.run(|| try_sh(line).expect("ping runs"));
            assert!(!heard.0.success(), "{line}");
        }
    });
}

/// A Geneve packet whose inner frame says "a remote Pod sends this to Pod 3".
fn mk_encapsulated(port: u16) -> Vec<u8> {
    let pod3 = mk_pod(Families::V4, 3).mac.0;
    let inner = PacketBuilder::ethernet2(VIRTUAL_MAC.0, pod3)
        .ipv4([10, 77, 2, 9], [10, 77, 1, 3], 63)
        .udp(4242, port);
    let mut packet = vec![0, 0, 0x65, 0x58, 0, 0, 0, 0];
    inner.write(&mut packet, b"injected").unwrap();
    packet
}

/// Two guards close this, one at the sender and one at the receiver; with both gone the packet
/// arrives, so the test sees what it is to see.
#[test]
#[ignore = "needs root: make test"]
fn a_pod_cannot_inject_into_the_tunnel() {
    in_netns(|| {
        let switch = Switch::start(Families::V4);
        sh("ip addr add 10.77.1.1/24 dev gw0 && ip link set gw0 up");
        let (pod2, pod3) = (mk_pod_netns(2), mk_pod_netns(3));
        pod2.sh(&ping("10.77.1.1"));
        let (port, socket) = pod3.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            (socket.local_addr().unwrap().port(), socket)
        });
        let inject = || {
            pod2.run(|| {
                let sender = UdpSocket::bind("10.77.1.2:0").unwrap();
                sender.send_to(&mk_encapsulated(port), "10.77.1.1:6081").unwrap();
            });
            socket.recv(&mut [0; 64]).is_ok()
        };
        assert!(!inject(), "both guards are there");
        let mgmt = switch.ovs.mgmt("br-int").display().to_string();
        let change = |args: &[&str]| {
            switch.ovs.ofctl(&[&[args[0], &mgmt], &args[1..]].concat());
        };
        change(&["del-flows", "table=24,udp,tp_dst=6081"]);
        assert!(!inject(), "the sender is no peer");
        let any_sender = "table=20,priority=200,in_port=32768 \
                          actions=load:1->NXM_NX_REG0[0..3],load:1->NXM_NX_REG0[9],goto_table:40";
        change(&["add-flow", any_sender]);
        // The datapath may know for a moment longer what the flows were.
        wait_until(Duration::from_secs(10), "without guards it arrives", inject);
    });
}

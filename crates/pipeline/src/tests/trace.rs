//! Verdicts of a real switch, packet by packet.

use testkit::netns::in_netns;

use super::switch::Switch;
use crate::Families;

const NEW: &str = "trk,new";

/// Each line: what it is, the packet, where it has to go.
#[track_caller]
fn check(switch: &Switch, cases: &[(&str, &str, &str)]) {
    for (what, packet, want) in cases {
        let trace = switch.trace(packet, NEW);
        assert_eq!(trace.verdict(), *want, "{what}: {packet}\n{}", trace.text);
    }
}

const POD2: &str = "in_port=2,dl_src=0a:00:00:00:02:02";
const GATEWAY: &str = "in_port=32769,dl_src=0a:00:00:00:01:01";
const PEER2: &str = "in_port=32768,tun_src=172.30.0.2,tun_dst=172.30.0.1,\
                     dl_src=0a:00:00:00:01:02,dl_dst=aa:bb:cc:dd:ee:ff";

/// Puts the names of the constants above into their values.
fn packet(text: &str) -> String {
    text.replace("POD2", POD2).replace("GATEWAY", GATEWAY).replace("PEER2", PEER2)
}

#[track_caller]
fn check_all(families: Families, cases: &[(&str, &str, &str)]) {
    let cases: Vec<_> = cases.iter().map(|(a, b, c)| (*a, packet(b), *c)).collect();
    let cases: Vec<_> = cases.iter().map(|(a, b, c)| (*a, b.as_str(), *c)).collect();
    in_netns(|| check(&Switch::start(families), &cases));
}

const V4: &[(&str, &str, &str)] = &[
    (
        "Pod to Pod",
        "POD2,dl_dst=0a:00:00:00:02:03,icmp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64",
        "pod3",
    ),
    (
        "Pod to Pod, last hop",
        "POD2,dl_dst=0a:00:00:00:02:03,icmp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=1",
        "pod3",
    ),
    (
        "Pod to Pod, stale neighbour",
        "POD2,dl_dst=0a:00:00:00:09:09,icmp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64",
        "pod3",
    ),
    (
        "Pod to gateway",
        "POD2,dl_dst=0a:00:00:00:01:01,icmp,nw_src=10.77.1.2,nw_dst=10.77.1.1,nw_ttl=64",
        "gw0",
    ),
    (
        "Pod to its node",
        "POD2,dl_dst=0a:00:00:00:01:01,icmp,nw_src=10.77.1.2,nw_dst=172.30.0.1,nw_ttl=64",
        "gw0",
    ),
    (
        "Pod to outside",
        "POD2,dl_dst=0a:00:00:00:01:01,tcp,nw_src=10.77.1.2,nw_dst=198.51.100.1,nw_ttl=64,tcp_dst=80",
        "gw0",
    ),
    (
        "Pod to outside by another Pod's MAC",
        "POD2,dl_dst=0a:00:00:00:02:03,tcp,nw_src=10.77.1.2,nw_dst=198.51.100.1,nw_ttl=64,tcp_dst=80",
        "gw0",
    ),
    (
        "Pod to Pod of node 2",
        "POD2,dl_dst=0a:00:00:00:01:01,icmp,nw_src=10.77.1.2,nw_dst=10.77.2.2,nw_ttl=64",
        "tunnel to 172.30.0.2",
    ),
    (
        "Pod to Pod of node 3",
        "POD2,dl_dst=0a:00:00:00:01:01,icmp,nw_src=10.77.1.2,nw_dst=10.77.3.2,nw_ttl=64",
        "tunnel to 172.30.0.3",
    ),
    (
        "TTL runs out",
        "POD2,dl_dst=0a:00:00:00:01:01,icmp,nw_src=10.77.1.2,nw_dst=10.77.2.2,nw_ttl=1",
        "drop",
    ),
    (
        "Pod to nobody on its node",
        "POD2,dl_dst=0a:00:00:00:01:01,icmp,nw_src=10.77.1.2,nw_dst=10.77.1.99,nw_ttl=64",
        "drop",
    ),
    (
        "host to Pod",
        "GATEWAY,dl_dst=0a:00:00:00:02:02,icmp,nw_src=10.77.1.1,nw_dst=10.77.1.2,nw_ttl=64",
        "pod2",
    ),
    (
        "outside through host to Pod",
        "GATEWAY,dl_dst=0a:00:00:00:02:02,icmp,nw_src=198.51.100.1,nw_dst=10.77.1.2,nw_ttl=1",
        "pod2",
    ),
    (
        "host to remote Pod",
        "GATEWAY,dl_dst=aa:bb:cc:dd:ee:ff,icmp,nw_src=10.77.1.1,nw_dst=10.77.2.2,nw_ttl=64",
        "tunnel to 172.30.0.2",
    ),
    (
        "host to nowhere",
        "GATEWAY,dl_dst=aa:bb:cc:dd:ee:ff,icmp,nw_src=10.77.1.1,nw_dst=198.51.100.1,nw_ttl=64",
        "drop",
    ),
    ("remote Pod to Pod", "PEER2,icmp,nw_src=10.77.2.2,nw_dst=10.77.1.3,nw_ttl=63", "pod3"),
    ("remote Pod to gateway", "PEER2,icmp,nw_src=10.77.2.2,nw_dst=10.77.1.1,nw_ttl=63", "gw0"),
    ("remote Pod to outside", "PEER2,icmp,nw_src=10.77.2.2,nw_dst=198.51.100.1,nw_ttl=63", "drop"),
    (
        "remote Pod to another node",
        "PEER2,icmp,nw_src=10.77.2.2,nw_dst=10.77.3.1,nw_ttl=63",
        "drop",
    ),
    ("remote Pod to nobody", "PEER2,icmp,nw_src=10.77.2.2,nw_dst=10.77.1.99,nw_ttl=63", "drop"),
    (
        "from no peer",
        "in_port=32768,tun_src=172.30.0.9,tun_dst=172.30.0.1,dl_dst=aa:bb:cc:dd:ee:ff,icmp,nw_src=10.77.2.2,nw_dst=10.77.1.3,nw_ttl=63",
        "drop",
    ),
    (
        "ARP out of the tunnel",
        "PEER2,arp,arp_op=1,arp_spa=10.77.2.1,arp_tpa=10.77.1.2,arp_sha=0a:00:00:00:01:02",
        "drop",
    ),
    (
        "forged IP",
        "POD2,dl_dst=0a:00:00:00:02:03,icmp,nw_src=10.77.1.3,nw_dst=10.77.1.3,nw_ttl=64",
        "drop",
    ),
    (
        "forged MAC",
        "in_port=2,dl_src=0a:00:00:00:02:03,dl_dst=0a:00:00:00:02:03,icmp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64",
        "drop",
    ),
    (
        "tagged",
        "POD2,vlan_tci=0x1005,dl_dst=0a:00:00:00:02:03,icmp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64",
        "drop",
    ),
    (
        "priority tag",
        "POD2,vlan_tci=0x1000,dl_dst=0a:00:00:00:02:03,icmp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64",
        "drop",
    ),
    (
        "unknown port",
        "in_port=77,dl_src=0a:00:00:00:02:02,dl_dst=0a:00:00:00:02:03,icmp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64",
        "drop",
    ),
    (
        "the bridge's own port",
        "in_port=LOCAL,dl_src=0a:00:00:00:02:02,icmp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64",
        "drop",
    ),
    ("not IP", "POD2,dl_dst=0a:00:00:00:02:03,dl_type=0x88cc", "drop"),
    (
        "DHCP server",
        "POD2,dl_dst=0a:00:00:00:02:03,udp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64,udp_src=67,udp_dst=68",
        "drop",
    ),
    (
        "multicast",
        "POD2,dl_dst=01:00:5e:00:00:fb,udp,nw_src=10.77.1.2,nw_dst=224.0.0.251,nw_ttl=64,udp_dst=5353",
        "drop",
    ),
    (
        "broadcast",
        "POD2,dl_dst=ff:ff:ff:ff:ff:ff,udp,nw_src=10.77.1.2,nw_dst=255.255.255.255,nw_ttl=64,udp_dst=9",
        "drop",
    ),
    (
        "injection at the gateway",
        "POD2,dl_dst=0a:00:00:00:01:01,udp,nw_src=10.77.1.2,nw_dst=10.77.1.1,nw_ttl=64,udp_dst=6081",
        "drop",
    ),
    (
        "injection at the node",
        "POD2,dl_dst=0a:00:00:00:01:01,udp,nw_src=10.77.1.2,nw_dst=172.30.0.1,nw_ttl=64,udp_dst=6081",
        "drop",
    ),
    (
        "injection at a peer",
        "POD2,dl_dst=0a:00:00:00:01:01,udp,nw_src=10.77.1.2,nw_dst=172.30.0.2,nw_ttl=64,udp_dst=6081",
        "drop",
    ),
    (
        "injection at a peer's gateway",
        "POD2,dl_dst=0a:00:00:00:01:01,udp,nw_src=10.77.1.2,nw_dst=10.77.2.1,nw_ttl=64,udp_dst=6081",
        "drop",
    ),
    (
        "the same port of a Pod",
        "POD2,dl_dst=0a:00:00:00:02:03,udp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64,udp_dst=6081",
        "pod3",
    ),
    (
        "ARP for the gateway",
        "POD2,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_sha=0a:00:00:00:02:02,arp_spa=10.77.1.2,arp_tpa=10.77.1.1",
        "gw0",
    ),
    (
        "ARP for a Pod",
        "POD2,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_sha=0a:00:00:00:02:02,arp_spa=10.77.1.2,arp_tpa=10.77.1.3",
        "pod3",
    ),
    (
        "ARP answer",
        "POD2,dl_dst=0a:00:00:00:01:01,arp,arp_op=2,arp_sha=0a:00:00:00:02:02,arp_spa=10.77.1.2,arp_tpa=10.77.1.1",
        "gw0",
    ),
    (
        "gratuitous ARP",
        "POD2,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_sha=0a:00:00:00:02:02,arp_spa=10.77.1.2,arp_tpa=10.77.1.2",
        "drop",
    ),
    (
        "forged ARP sender",
        "POD2,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_sha=0a:00:00:00:02:02,arp_spa=10.77.1.1,arp_tpa=10.77.1.3",
        "drop",
    ),
    (
        "forged ARP hardware",
        "POD2,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=2,arp_sha=0a:00:00:00:01:01,arp_spa=10.77.1.2,arp_tpa=10.77.1.3",
        "drop",
    ),
    (
        "host asks for a Pod",
        "GATEWAY,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_sha=0a:00:00:00:01:01,arp_spa=10.77.1.1,arp_tpa=10.77.1.2",
        "pod2",
    ),
    (
        "host asks for a peer's gateway",
        "GATEWAY,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_sha=0a:00:00:00:01:01,arp_spa=10.77.1.1,arp_tpa=10.77.2.1",
        "gw0",
    ),
    (
        "host asks for nobody",
        "GATEWAY,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_sha=0a:00:00:00:01:01,arp_spa=10.77.1.1,arp_tpa=10.77.1.99",
        "drop",
    ),
];

const V6: &[(&str, &str, &str)] = &[
    (
        "Pod to Pod",
        "POD2,dl_dst=0a:00:00:00:02:03,tcp6,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:1::3,nw_ttl=64",
        "pod3",
    ),
    (
        "Pod to gateway",
        "POD2,dl_dst=0a:00:00:00:01:01,tcp6,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:1::1,nw_ttl=64",
        "gw0",
    ),
    (
        "Pod to outside",
        "POD2,dl_dst=0a:00:00:00:01:01,tcp6,ipv6_src=fd00:77:1::2,ipv6_dst=2001:db8::1,nw_ttl=64",
        "gw0",
    ),
    (
        "Pod to remote Pod",
        "POD2,dl_dst=0a:00:00:00:01:01,tcp6,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:2::2,nw_ttl=64",
        "tunnel to 172.30.0.2",
    ),
    (
        "hop limit runs out",
        "POD2,dl_dst=0a:00:00:00:01:01,tcp6,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:2::2,nw_ttl=1",
        "drop",
    ),
    (
        "host to Pod",
        "GATEWAY,dl_dst=0a:00:00:00:02:02,tcp6,ipv6_src=fd00:77:1::1,ipv6_dst=fd00:77:1::2,nw_ttl=64",
        "pod2",
    ),
    (
        "remote Pod to Pod",
        "PEER2,tcp6,ipv6_src=fd00:77:2::2,ipv6_dst=fd00:77:1::3,nw_ttl=63",
        "pod3",
    ),
    (
        "remote solicitation",
        "PEER2,icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=fd00:77:2::2,ipv6_dst=ff02::1:ff00:3,nd_target=fd00:77:1::3,nw_ttl=255",
        "drop",
    ),
    (
        "forged IP",
        "POD2,dl_dst=0a:00:00:00:02:03,tcp6,ipv6_src=fd00:77:1::3,ipv6_dst=fd00:77:1::3,nw_ttl=64",
        "drop",
    ),
    (
        "link-local",
        "POD2,dl_dst=0a:00:00:00:02:03,tcp6,ipv6_src=fe80::800:ff:fe00:202,ipv6_dst=fe80::800:ff:fe00:203,nw_ttl=64",
        "drop",
    ),
    (
        "to link-local",
        "POD2,dl_dst=0a:00:00:00:02:03,tcp6,ipv6_src=fd00:77:1::2,ipv6_dst=fe80::800:ff:fe00:203,nw_ttl=64",
        "drop",
    ),
    (
        "multicast",
        "POD2,dl_dst=33:33:00:00:00:fb,udp6,ipv6_src=fd00:77:1::2,ipv6_dst=ff02::fb,nw_ttl=255,udp_dst=5353",
        "drop",
    ),
    (
        "router advertisement",
        "POD2,dl_dst=33:33:00:00:00:01,icmp6,icmpv6_type=134,icmpv6_code=0,ipv6_src=fe80::800:ff:fe00:202,ipv6_dst=ff02::1,nw_ttl=255",
        "drop",
    ),
    (
        "router advertisement to one Pod",
        "POD2,dl_dst=0a:00:00:00:02:03,icmp6,icmpv6_type=134,icmpv6_code=0,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:1::3,nw_ttl=255",
        "drop",
    ),
    (
        "redirect",
        "POD2,dl_dst=0a:00:00:00:02:03,icmp6,icmpv6_type=137,icmpv6_code=0,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:1::3,nw_ttl=255",
        "drop",
    ),
    (
        "DHCPv6 server",
        "POD2,dl_dst=0a:00:00:00:02:03,udp6,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:1::3,nw_ttl=64,udp_src=547,udp_dst=546",
        "drop",
    ),
    (
        "solicitation for a Pod",
        "POD2,dl_dst=33:33:ff:00:00:03,icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=fd00:77:1::2,ipv6_dst=ff02::1:ff00:3,nd_target=fd00:77:1::3,nd_sll=0a:00:00:00:02:02,nw_ttl=255",
        "pod3",
    ),
    (
        "solicitation for the gateway",
        "POD2,dl_dst=33:33:ff:00:00:01,icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=fe80::800:ff:fe00:202,ipv6_dst=ff02::1:ff00:1,nd_target=fd00:77:1::1,nd_sll=0a:00:00:00:02:02,nw_ttl=255",
        "gw0",
    ),
    (
        "solicitation with a foreign link layer address",
        "POD2,dl_dst=33:33:ff:00:00:03,icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=fd00:77:1::2,ipv6_dst=ff02::1:ff00:3,nd_target=fd00:77:1::3,nd_sll=0a:00:00:00:01:01,nw_ttl=255",
        "drop",
    ),
    (
        "solicitation in the gateway's name",
        "POD2,dl_dst=33:33:ff:00:00:03,icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=fd00:77:1::1,ipv6_dst=ff02::1:ff00:3,nd_target=fd00:77:1::3,nd_sll=0a:00:00:00:02:02,nw_ttl=255",
        "drop",
    ),
    (
        "probe for the own address",
        "POD2,dl_dst=33:33:ff:00:00:02,icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=::,ipv6_dst=ff02::1:ff00:2,nd_target=fd00:77:1::2,nw_ttl=255",
        "drop",
    ),
    (
        "probe for another's address",
        "POD2,dl_dst=33:33:ff:00:00:03,icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=::,ipv6_dst=ff02::1:ff00:3,nd_target=fd00:77:1::3,nw_ttl=255",
        "drop",
    ),
    (
        "answer",
        "POD2,dl_dst=0a:00:00:00:01:01,icmp6,icmpv6_type=136,icmpv6_code=0,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:1::1,nd_target=fd00:77:1::2,nd_tll=0a:00:00:00:02:02,nw_ttl=255",
        "gw0",
    ),
    (
        "answer without option",
        "POD2,dl_dst=0a:00:00:00:02:03,icmp6,icmpv6_type=136,icmpv6_code=0,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:1::3,nd_target=fd00:77:1::2,nw_ttl=255",
        "pod3",
    ),
    (
        "answer for another",
        "POD2,dl_dst=0a:00:00:00:02:03,icmp6,icmpv6_type=136,icmpv6_code=0,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:1::3,nd_target=fd00:77:1::1,nd_tll=0a:00:00:00:02:02,nw_ttl=255",
        "drop",
    ),
    (
        "answer with a foreign link layer address",
        "POD2,dl_dst=0a:00:00:00:02:03,icmp6,icmpv6_type=136,icmpv6_code=0,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:1::3,nd_target=fd00:77:1::2,nd_tll=0a:00:00:00:01:01,nw_ttl=255",
        "drop",
    ),
    (
        "host solicits a Pod",
        "GATEWAY,dl_dst=33:33:ff:00:00:02,icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=fe80::800:ff:fe00:101,ipv6_dst=ff02::1:ff00:2,nd_target=fd00:77:1::2,nd_sll=0a:00:00:00:01:01,nw_ttl=255",
        "pod2",
    ),
    (
        "host solicits nobody",
        "GATEWAY,dl_dst=33:33:ff:00:00:63,icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=fe80::800:ff:fe00:101,ipv6_dst=ff02::1:ff00:63,nd_target=fd00:77:1::63,nd_sll=0a:00:00:00:01:01,nw_ttl=255",
        "drop",
    ),
    (
        "host answers",
        "GATEWAY,dl_dst=0a:00:00:00:02:02,icmp6,icmpv6_type=136,icmpv6_code=0,ipv6_src=fd00:77:1::1,ipv6_dst=fd00:77:1::2,nd_target=fd00:77:1::1,nd_tll=0a:00:00:00:01:01,nw_ttl=255",
        "pod2",
    ),
    (
        "injection at the gateway",
        "POD2,dl_dst=0a:00:00:00:01:01,udp6,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:77:1::1,nw_ttl=64,udp_dst=6081",
        "drop",
    ),
    (
        "injection at a peer",
        "POD2,dl_dst=0a:00:00:00:01:01,udp6,ipv6_src=fd00:77:1::2,ipv6_dst=fd00:30::2,nw_ttl=64,udp_dst=6081",
        "drop",
    ),
];

#[test]
#[ignore = "needs root: make test"]
fn ipv4_packets() {
    check_all(Families::V4, V4);
}

#[test]
#[ignore = "needs root: make test"]
fn ipv6_packets() {
    check_all(Families::V6, V6);
}

#[test]
#[ignore = "needs root: make test"]
fn dual_stack_packets() {
    check_all(Families::Dual, &[V4, V6].concat());
}

/// The other family has no way at all.
#[test]
#[ignore = "needs root: make test"]
fn a_family_that_is_not_in_use_is_dropped() {
    check_all(Families::V6, &[("IPv4", V4[0].1, "drop"), ("ARP", "POD2,arp", "drop")]);
    check_all(Families::V4, &[("IPv6", V6[0].1, "drop")]);
}

#[test]
#[ignore = "needs root: make test"]
fn connections_and_hops() {
    in_netns(|| {
        let switch = Switch::start(Families::V4);
        let trace = |text: &str, ct: &str| switch.trace(&packet(text), ct);

        let local = trace(V4[0].1, NEW);
        let commit = "ct(commit,zone=65520,mark=0x3/0xf,label=0/0xffffffffffffffff)";
        assert!(local.actions.contains(commit), "{}", local.actions);
        assert!(!local.actions.contains("(ttl="), "no hop on the node: {}", local.actions);
        let passed = V4[0].1.replace("POD2", "POD2,ct_mark=3");
        let known = trace(&passed, "trk,est");
        assert_eq!(known.actions, "pod3", "committed once");
        assert_eq!(trace(V4[0].1, "trk,inv").verdict(), "drop");

        let remote =
            "POD2,dl_dst=0a:00:00:00:01:01,icmp,nw_src=10.77.1.2,nw_dst=10.77.2.2,nw_ttl=64";
        let remote = trace(remote, NEW);
        assert!(remote.actions.contains("ttl=63"), "{}", remote.actions);
        let host = "GATEWAY,icmp,nw_src=10.77.1.1,nw_dst=10.77.2.2,nw_ttl=64";
        let host = trace(host, NEW);
        assert!(!host.actions.contains("(ttl="), "the host counted: {}", host.actions);
        assert!(host.actions.contains("mark=0x2/0xf"), "{}", host.actions);

        // kube-proxy translated the destination: the host has to see the reply.
        let reply = "POD2,ct_mark=2,tcp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64";
        assert_eq!(trace(reply, "trk,est,rpl").verdict(), "gw0");
        assert_eq!(trace(reply, "trk,est").verdict(), "pod3");
        let reply = "PEER2,ct_mark=2,tcp,nw_src=10.77.2.2,nw_dst=10.77.1.3,nw_ttl=63";
        assert_eq!(trace(reply, "trk,est,rpl").verdict(), "gw0");
        let reply = "POD2,ct_mark=3,tcp,nw_src=10.77.1.2,nw_dst=10.77.1.3,nw_ttl=64";
        assert_eq!(trace(reply, "trk,est,rpl").verdict(), "pod3");
    });
}

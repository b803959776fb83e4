//! Real packets and real conntrack: connections that policies stop, and those they find open.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use testkit::netns::{in_netns, sh};

use super::fixture::mk_policy_config;
use super::live::mk_pod_netns;
use super::policy_flows::{mk_rule, tcp};
use super::switch::Switch;
use crate::Families;
use crate::policy::{Direction, Place, ServiceSpec, Transport, Verdict};

/// A connection of which no packet arrives is never an established one, however many are sent.
#[test]
#[ignore = "needs root: make test"]
fn no_packet_of_a_denied_connection_arrives() {
    in_netns(|| {
        let families = Families::Dual;
        let config = mk_policy_config(families);
        let switch = Switch::start(families);
        sh("ip addr add 10.77.1.1/24 dev gw0 && ip link set gw0 up");
        let (pod2, pod3) = (mk_pod_netns(2), mk_pod_netns(3));
        let udp = ServiceSpec::Transport { protocol: Transport::Udp, dst: None, src: None };
        let allow = mk_rule(1, Direction::Egress, Place::Tiered, Verdict::Allow)
            .from(&["10.77.1.2/32"])
            .to(&["10.77.1.3/32"])
            .services(families, &[udp]);
        let drop = mk_rule(2, Direction::Ingress, Place::Tiered, Verdict::Drop)
            .from(&["10.77.1.2/32"])
            .pods(&[3])
            .services(families, &[udp]);
        let drop_flows = drop.flows(&config);
        switch.add(&[allow.flows(&config), drop_flows.clone()].concat());
        let receiver = pod3.run(|| UdpSocket::bind("10.77.1.3:4242").unwrap());
        receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let sender = pod2.run(|| UdpSocket::bind("10.77.1.2:4243").unwrap());
        for n in 0..8u8 {
            sender.send_to(&[n], "10.77.1.3:4242").unwrap();
            assert!(receiver.recv(&mut [0; 8]).is_err(), "packet {n} arrived");
        }
        // Without the rule the same connection passes.
        let mgmt = switch.ovs.mgmt("br-int").display().to_string();
        switch.ovs.ofctl(&["del-flows", &mgmt, "table=132,reg1=3"]);
        testkit::wait_until(Duration::from_secs(10), "the rule is forgotten", || {
            sender.send_to(&[99], "10.77.1.3:4242").unwrap();
            receiver.recv(&mut [0; 8]).is_ok()
        });
        // Once there was an answer it is established, and stays, whatever comes: the docs say so.
        sender.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        receiver.send_to(&[1], "10.77.1.2:4243").unwrap();
        sender.recv(&mut [0; 8]).unwrap();
        switch.add(&drop_flows);
        sender.send_to(&[100], "10.77.1.3:4242").unwrap();
        assert_eq!(receiver.recv(&mut [0; 8]).unwrap(), 1);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn an_open_connection_outlives_a_rule_and_is_counted_by_its_label() {
    in_netns(|| {
        let families = Families::Dual;
        let config = mk_policy_config(families);
        let switch = Switch::start(families);
        sh("ip addr add 10.77.1.1/24 dev gw0 && ip link set gw0 up");
        let (pod2, pod3) = (mk_pod_netns(2), mk_pod_netns(3));
        let allow = mk_rule(5, Direction::Ingress, Place::Tiered, Verdict::Allow)
            .from(&["10.77.1.2/32"])
            .pods(&[3])
            .services(families, &[tcp(80, 80)]);
        switch.add(&allow.flows(&config));
        let listener = pod3.run(|| TcpListener::bind("10.77.1.3:80").unwrap());
        let connect = || {
            let address = "10.77.1.3:80".parse().unwrap();
            pod2.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(1)))
        };
        let mut client = connect().unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut exchange = || {
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
        };
        exchange();
        let drop = mk_rule(6, Direction::Ingress, Place::Tiered, Verdict::Drop)
            .priority(20000)
            .from(&["10.77.1.2/32"])
            .pods(&[3])
            .services(families, &[tcp(0, 65535)]);
        switch.add(&drop.flows(&config));
        exchange();
        assert!(connect().is_err(), "new connections are dropped");
        exchange();
        testkit::wait_until(Duration::from_secs(5), "packets are counted", || {
            let mgmt = switch.ovs.mgmt("br-int").display().to_string();
            let counted = switch.ovs.ofctl(&["dump-flows", &mgmt, "table=144"]);
            let n_packets = |what: &str| {
                let line = counted.lines().find(|line| line.contains(what)).expect("counted");
                let (_, rest) = line.split_once("n_packets=").expect("packets");
                rest.split(',').next().and_then(|n| n.parse::<u64>().ok()).expect("a number")
            };
            n_packets("+new") == 1 && n_packets("-new") >= 3 && n_packets("reg3=0x6") >= 1
        });
    });
}

//! Session affinity on a real switch: what it learns, for whom, and for how long.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use openflow::{Flow, Intent};
use testkit::netns::in_netns;

use super::fixture::{ip, mk_service_node};
use super::service_flows::{mk_endpoint, mk_frontend, mk_group};
use super::service_live::{WAIT, World, ask, dial, end, endpoint_of, serve_tcp};
use super::switch::{Switch, Trace};
use crate::Families;
use crate::service::{
    Endpoint, Frontend, Group, Place, Protocol, endpoint_flows, frontend_flows, group,
};

/// Connections spread over endpoints; with affinity a client stays at one, until that goes.
#[test]
#[ignore = "needs root: make test"]
fn affinity_keeps_a_client_at_an_endpoint_that_serves() {
    in_netns(|| {
        let world = World::start();
        let node = mk_service_node(Families::Dual);
        let ports: Vec<u16> = (8080..8088).collect();
        for port in &ports {
            serve_tcp(&world.pod3, "pod3", &format!("[::]:{port}"));
        }
        for (n, pod_ip, address) in
            [(1, "10.77.1.3", "10.96.0.10"), (3, "fd00:77:1::3", "fd00:96::10")]
        {
            let endpoints: Vec<_> =
                ports.iter().map(|port| mk_endpoint(pod_ip, *port, Place::LocalPod)).collect();
            world.serve(&mk_frontend(address, 80, n), &mk_group(n, &endpoints));
            let affine = Frontend { affinity: Some(600), ..mk_frontend(address, 90, n + 1) };
            let mut members = Group { affinity: true, ..mk_group(n + 1, &endpoints) };
            world.serve(&affine, &members);

            let serving = |port: u16| {
                let to = SocketAddr::new(ip(address), port).to_string();
                let mut stream = world.pod2.run(|| dial(&to));
                ask(&mut stream);
                let port = endpoint_of(&world, &stream);
                end(stream);
                port
            };
            let mut seen = BTreeMap::new();
            for _ in 0..60 {
                *seen.entry(serving(80)).or_insert(0) += 1;
            }
            assert!(seen.len() >= 4, "connections are spread: {seen:?}");
            let first = serving(90);
            for _ in 0..20 {
                assert_eq!(serving(90), first, "a client stays");
            }
            // It goes from this Service, while another one has it still.
            members.endpoints.retain(|endpoint| endpoint.port != first);
            let mgmt = world.switch.ovs.mgmt("br-int").display().to_string();
            world.switch.ovs.ofctl(&["del-flows", &mgmt, &format!("table=58,reg7={:#x}", n + 1)]);
            let flows = super::fixture::flows(
                group(&members)
                    .into_iter()
                    .filter(|intent| matches!(intent, openflow::Intent::Flow(_)))
                    .collect(),
            );
            world.switch.add(&flows);
            for intent in group(&members) {
                if let openflow::Intent::Group(group) = intent {
                    world.switch.ovs.ofctl(&["mod-group", &mgmt, &group.normalize().to_string()]);
                }
            }
            // The datapath may know for a moment longer what the flows were.
            testkit::wait_until(WAIT, "a client goes on elsewhere", || serving(90) != first);
            let second = serving(90);
            for _ in 0..20 {
                assert_eq!(serving(90), second);
            }
            // What was learned goes with the frontend.
            let learned = || {
                let dump = world.switch.ovs.ofctl(&["dump-flows", &mgmt, "table=56"]);
                dump.lines().filter(|line| line.contains("hard_timeout")).count()
            };
            assert_eq!(learned(), 1);
            delete(&world.switch, super::fixture::flows(frontend_flows(&node, &affine)));
            assert_eq!(learned(), 0);
        }
    });
}

fn delete(switch: &Switch, flows: Vec<Flow>) {
    let mgmt = switch.ovs.mgmt("br-int").display().to_string();
    for flow in flows {
        let text = flow.normalize().to_string();
        let (matching, _) = text.split_once(" actions=").unwrap();
        let (_, matching) = matching.split_once("table=").unwrap();
        switch.ovs.ofctl(&["--strict", "del-flows", &mgmt, &format!("table={matching}")]);
    }
}

/// Seconds for which what was learned is kept.
fn timeouts(switch: &Switch) -> Vec<String> {
    let mgmt = switch.ovs.mgmt("br-int").display().to_string();
    let dump = switch.ovs.ofctl(&["dump-flows", &mgmt, "table=56"]);
    let timeout = |line: &str| {
        let (_, rest) = line.split_once("hard_timeout=")?;
        rest.split(',').next().map(str::to_owned)
    };
    dump.lines().filter_map(timeout).collect()
}

/// What was learned for another time than a client is given now goes at once, and so does all where
/// clients are given none.
#[test]
#[ignore = "needs root: make test"]
fn another_time_begins_anew() {
    in_netns(|| {
        let world = World::start();
        let node = mk_service_node(Families::Dual);
        serve_tcp(&world.pod3, "pod3", "[::]:8080");
        for (n, pod_ip, address, to) in [
            (1, "10.77.1.3", "10.96.0.10", "10.96.0.10:90"),
            (2, "fd00:77:1::3", "fd00:96::10", "[fd00:96::10]:90"),
        ] {
            let endpoint = mk_endpoint(pod_ip, 8080, Place::LocalPod);
            let members = Group { affinity: true, ..mk_group(n, &[endpoint]) };
            let sticky = |seconds| Frontend { affinity: seconds, ..mk_frontend(address, 90, n) };
            let asked = || {
                let mut stream = world.pod2.run(|| dial(to));
                ask(&mut stream);
                end(stream);
            };
            world.serve(&sticky(Some(1)), &members);
            asked();
            for seconds in [600, 10_800, 600] {
                let flows = super::fixture::flows(frontend_flows(&node, &sticky(Some(seconds))));
                world.switch.add(&flows);
                assert_eq!(timeouts(&world.switch), [""; 0], "{to}, before {seconds} s count");
                asked();
                let learned = || timeouts(&world.switch) == [seconds.to_string()];
                testkit::wait_until(WAIT, "it is learned anew", learned);
            }
            // The agent sends what differs: the flow that learns is wanted no more.
            let [with, without] =
                [Some(600), None].map(|s| super::fixture::flows(frontend_flows(&node, &sticky(s))));
            let gone = with.into_iter().filter(|flow| !without.contains(flow)).collect();
            delete(&world.switch, gone);
            assert_eq!(timeouts(&world.switch), [""; 0], "{to} without affinity");
        }
    });
}

/// What is learned is of the packet's own protocol and family.
#[test]
#[ignore = "needs root: make test"]
fn every_protocol_and_family_is_learned_as_what_it_is() {
    in_netns(|| {
        let node = mk_service_node(Families::Dual);
        let switch = Switch::start_as(&node);
        let mut n = 0;
        for protocol in Protocol::ALL {
            for (address, server) in [("10.96.0.10", "10.77.1.3"), ("fd00:96::10", "fd00:77:1::3")]
            {
                n += 1;
                let endpoint = Endpoint { protocol, ..mk_endpoint(server, 8080, Place::LocalPod) };
                let members = Group { affinity: true, ..mk_group(n, &[endpoint]) };
                let frontend =
                    Frontend { protocol, affinity: Some(600), ..mk_frontend(address, 90, n) };
                let mut intents: Vec<Intent> = group(&members);
                intents.extend(frontend_flows(&node, &frontend));
                intents.extend(endpoint_flows(&node, &endpoint));
                switch.add_all(intents);
            }
        }
        let mac = "dl_src=0a:00:00:00:02:02,dl_dst=0a:00:00:00:01:01";
        for (name, number) in [("tcp", 6), ("udp", 17), ("sctp", 132)] {
            for (family, client, server, learned) in [
                ("", "nw_src=10.77.1.2", "nw_dst=10.96.0.10", ["eth_type=0x800", "_IP_SRC[]"]),
                (
                    "6",
                    "ipv6_src=fd00:77:1::2",
                    "ipv6_dst=fd00:96::10",
                    ["eth_type=0x86dd", "_IPV6_SRC[]"],
                ),
            ] {
                let kind = format!("{name}{family}");
                let packet = format!(
                    "in_port=2,{mac},{kind},{client},{server},nw_ttl=64,{name}_src=5,{name}_dst=90"
                );
                let Trace { text, .. } = switch.trace(&packet, "trk,new");
                let learns: Vec<_> = text.lines().filter(|line| line.contains("learn(")).collect();
                assert_eq!(learns.len(), 1, "{kind}\n{text}");
                let port = format!("_{}_DST[]", name.to_uppercase());
                for word in [learned[0], learned[1], &port, &format!("nw_proto={number},")] {
                    assert!(learns[0].contains(word), "{kind}: {word}\n{text}");
                }
            }
        }
    });
}

//! The flows and groups of Services.

use std::collections::{BTreeMap, BTreeSet};

use openflow::{Flow, Group as OfGroup, GroupId, Intent};

use super::fixture::{MODES, flows, flows_of, ip, mk_service_node};
use super::golden::check;
use crate::Families;
use crate::fields;
use crate::service::{
    Endpoint, Frontend, FrontendAddress, Group, Place, Protocol, Target, endpoint_flows,
    frontend_flows, group, node_flows,
};

pub(super) fn mk_endpoint(address: &str, port: u16, place: Place) -> Endpoint {
    Endpoint { ip: ip(address), port, protocol: Protocol::Tcp, place }
}

pub(super) fn mk_frontend(address: &str, port: u16, group: u32) -> Frontend {
    Frontend {
        address: FrontendAddress::Ip(ip(address)),
        protocol: Protocol::Tcp,
        port,
        external: false,
        target: Target::Group(GroupId(group)),
        local_clients: None,
        affinity: None,
        source_ranges: Vec::new(),
        dsr: None,
    }
}

pub(super) fn mk_group(id: u32, endpoints: &[Endpoint]) -> Group {
    Group { id: GroupId(id), endpoints: endpoints.to_vec(), affinity: false }
}

fn split(intents: Vec<Intent>) -> (Vec<OfGroup>, Vec<Flow>) {
    let mut groups = Vec::new();
    let mut flows = Vec::new();
    for intent in intents {
        match intent {
            Intent::Group(group) => groups.push(group.normalize()),
            Intent::Flow(flow) => flows.push(flow),
            Intent::Meter(meter) => panic!("no Service has a meter of its own: {meter:?}"),
        }
    }
    (groups, flows)
}

#[test]
fn a_node_that_serves() {
    for (mode, families) in MODES {
        let mut all = flows(node_flows(&mk_service_node(families)));
        all.sort_by_key(|flow| (flow.table, std::cmp::Reverse(flow.priority)));
        check(&format!("service-node-{mode}.flows"), &all);
    }
    let plain = super::fixture::mk_node(Families::Dual);
    assert_eq!(node_flows(&plain), [], "a node that serves none");
}

/// Before a node has Pods its own programs reach endpoints on hosts all the same.
#[test]
fn a_node_without_pod_addresses_translates_for_the_host_alone() {
    let mut node = mk_service_node(Families::Dual);
    let usual = flows(node_flows(&node));
    node.gateway.ips.clear();
    node.pod_cidrs.clear();
    let translates = |flows: &[Flow]| -> Vec<String> {
        let of_table = flows.iter().filter(|flow| flow.table == fields::SNAT);
        of_table.map(|flow| flow.clone().normalize().to_string()).collect()
    };
    let (usual, early) = (translates(&usual), translates(&flows(node_flows(&node))));
    assert_eq!(early.len(), 4, "two for each family: {early:#?}");
    for flow in &early {
        assert!(usual.contains(flow), "{flow} stays when there are Pods");
        assert!(flow.contains("169.254.0.253") || flow.contains("fc01::aabb:ccdd:eeff"), "{flow}");
    }
}

#[test]
fn endpoints() {
    let mut all = Vec::new();
    let node = mk_service_node(Families::Dual);
    for (address, place) in [
        ("10.77.1.2", Place::LocalPod),
        ("10.77.2.9", Place::RemotePod),
        ("172.30.0.1", Place::HostNetwork),
        ("fd00:77:1::2", Place::LocalPod),
    ] {
        all.extend(flows(endpoint_flows(&node, &mk_endpoint(address, 8080, place))));
    }
    check("service-endpoints.flows", &all);
    let v4 = mk_service_node(Families::V4);
    let other = mk_endpoint("fd00:77:1::2", 8080, Place::LocalPod);
    assert_eq!(endpoint_flows(&v4, &other), [], "of a family that is not in use");
}

#[test]
fn frontends() {
    let node = mk_service_node(Families::Dual);
    let plain = mk_frontend("10.96.0.10", 80, 1);
    let ranges = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    let balanced = Frontend {
        external: true,
        local_clients: Some(Target::Group(GroupId(1))),
        source_ranges: ranges,
        ..mk_frontend("203.0.113.1", 80, 2)
    };
    let node_port = Frontend {
        address: FrontendAddress::NodePort { ipv6: true },
        external: true,
        target: Target::Drop,
        ..mk_frontend("fd00:96::10", 30080, 0)
    };
    let mut all = Vec::new();
    for frontend in [
        plain.clone(),
        Frontend { target: Target::Reject, port: 81, ..plain.clone() },
        Frontend { affinity: Some(10800), port: 82, ..plain },
        balanced,
        node_port,
    ] {
        all.extend(flows(frontend_flows(&node, &frontend)));
    }
    check("service-frontends.flows", &all);
}

/// A load balancer's address with direct server return, and the way to a peer.
#[test]
fn direct_server_return() {
    let mut node = mk_service_node(Families::V4);
    node.services.as_mut().unwrap().dsr = true;
    let frontend = Frontend {
        external: true,
        dsr: Some(Target::Group(GroupId(2))),
        affinity: Some(60),
        ..mk_frontend("203.0.113.1", 80, 1)
    };
    let peer = super::fixture::mk_peer(Families::V4, 2);
    let usual = flows(node_flows(&mk_service_node(Families::V4)));
    let mut all = flows(node_flows(&node));
    all.retain(|flow| !usual.contains(flow));
    all.extend(flows(frontend_flows(&node, &frontend)));
    all.extend(flows(crate::connectivity::peer_flows(&node, &peer)));
    check("service-dsr.flows", &all);
    let mut whole = flows_of(&node);
    whole.extend(flows(frontend_flows(&node, &frontend)));
    super::properties::check_flows("dsr", &node, &whole);
    // A node that has it nowhere has none of it.
    let plain = flows(frontend_flows(&mk_service_node(Families::V4), &frontend));
    assert!(plain.iter().all(|flow| flow.table != crate::fields::DSR_SERVICE_MARK));
}

#[test]
fn two_frontends_learn_with_cookies_of_their_own() {
    let node = mk_service_node(Families::V4);
    let mut cookies = BTreeSet::new();
    for port in 1..2000 {
        let frontend = Frontend { affinity: Some(10), ..mk_frontend("10.96.0.10", port, 1) };
        for flow in flows(frontend_flows(&node, &frontend)) {
            for action in &flow.actions {
                if let openflow::Action::Learn(learn) = action {
                    assert!(cookies.insert(learn.cookie), "port {port}");
                }
            }
        }
    }
    assert_eq!(cookies.len(), 1999);
    // And for each time that clients keep their endpoint.
    for seconds in 11..1000 {
        let frontend = Frontend { affinity: Some(seconds), ..mk_frontend("10.96.0.10", 1, 1) };
        for flow in flows(frontend_flows(&node, &frontend)) {
            for action in &flow.actions {
                if let openflow::Action::Learn(learn) = action {
                    assert!(cookies.insert(learn.cookie), "{seconds} s");
                }
            }
        }
    }
    assert_eq!(cookies.len(), 1999 + 989);
}

fn mk_many(n: usize) -> Vec<Endpoint> {
    let address = |n: usize| format!("10.77.{}.{}", 2 + n / 250, 1 + n % 250);
    (0..n).map(|n| mk_endpoint(&address(n), 8080, Place::RemotePod)).collect()
}

/// Every endpoint has one bucket, no group is longer than the switch can choose in without asking,
/// and every group is short enough to be told.
#[test]
fn groups_of_any_size() {
    for n in [1, 2, 16, 255, 256, 257, 511, 512, 700, 701, 800, 1000, 2000, 5000, 10000] {
        let (groups, flows) = split(group(&mk_group(7, &mk_many(n))));
        let n_buckets: usize = groups.iter().map(|group| group.buckets.len()).sum();
        let ids: BTreeSet<_> = groups.iter().map(|group| group.id).collect();
        assert_eq!(ids.len(), groups.len(), "{n}");
        assert!(ids.contains(&GroupId(7)), "{n}");
        for group in &groups {
            assert!(!group.buckets.is_empty() && group.buckets.len() <= 256, "{n}: {group}");
            group.check_len().unwrap();
        }
        if n <= 256 {
            assert_eq!((n_buckets, flows.len()), (n, 0));
            continue;
        }
        assert_eq!(n_buckets, n + 1, "{n}: one for all, and one each");
        assert!(flows.len().is_power_of_two(), "{n}: {} parts", flows.len());
        for flow in flows {
            let to = flow.actions.iter().find_map(|action| match action {
                openflow::Action::Group(id) => Some(*id),
                _ => None,
            });
            assert!(to.is_some_and(|id| ids.contains(&id) && id != GroupId(7)), "{flow}");
        }
    }
}

/// A change of one endpoint changes one part.
#[test]
fn a_change_of_an_endpoint_touches_one_part() {
    let by_id = |endpoints: &[Endpoint]| -> BTreeMap<GroupId, OfGroup> {
        let (groups, _) = split(group(&mk_group(7, endpoints)));
        groups.into_iter().map(|group| (group.id, group)).collect()
    };
    let mut endpoints = mk_many(5000);
    let before = by_id(&endpoints);
    let gone = endpoints.remove(1234);
    let without = by_id(&endpoints);
    endpoints.push(mk_endpoint("10.99.0.1", 80, Place::LocalPod));
    let with = by_id(&endpoints);
    for (a, b, what) in [(&before, &without, "removed"), (&without, &with, "added")] {
        assert_eq!(a.len(), b.len());
        let differing: Vec<_> = a.iter().filter(|(id, group)| b[id] != **group).collect();
        assert_eq!(differing.len(), 1, "{what}");
        let len = |group: &OfGroup| group.buckets.len();
        assert_eq!(len(differing[0].1).abs_diff(len(&b[differing[0].0])), 1, "{what} {gone:?}");
    }
}

#[test]
fn the_order_of_endpoints_means_nothing() {
    let endpoints = mk_many(300);
    let mut reversed = endpoints.clone();
    reversed.reverse();
    reversed.push(endpoints[0]);
    assert_eq!(group(&mk_group(1, &endpoints)), group(&mk_group(1, &reversed)));
}

#[test]
fn groups_as_text() {
    let endpoints = [
        mk_endpoint("10.77.1.2", 8080, Place::LocalPod),
        mk_endpoint("10.77.2.9", 8080, Place::RemotePod),
        mk_endpoint("172.30.0.1", 8080, Place::HostNetwork),
    ];
    let affine = Group { affinity: true, ..mk_group(1, &endpoints) };
    let (groups, flows) = split(group(&affine));
    let text: Vec<_> = groups.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        ["group_id=1,type=select,selection_method=hash,fields=ip_src,\
          bucket=bucket_id:0,weight:100,actions=set_field:0xa4d0102->reg3,\
          set_field:0x1f90/0x2400ffff->reg4,resubmit(,64),\
          bucket=bucket_id:1,weight:100,actions=set_field:0xa4d0209->reg3,\
          set_field:0x4001f90/0x2400ffff->reg4,resubmit(,64),\
          bucket=bucket_id:2,weight:100,actions=set_field:0xac1e0001->reg3,\
          set_field:0x20001f90/0x2400ffff->reg4,resubmit(,64)"]
    );
    check("service-members.flows", &flows);
    let (groups, flows) = split(group(&mk_group(9, &mk_many(300))));
    assert_eq!(
        groups[0].to_string(),
        "group_id=9,type=select,selection_method=dp_hash,bucket=bucket_id:0,weight:100,\
         actions=move:NXM_NX_DP_HASH[8]->NXM_NX_REG2[0],resubmit(,62)"
    );
    check("service-parts.flows", &flows);
}

#[test]
fn a_node_that_serves_keeps_the_rules_of_the_pipeline() {
    for (mode, families) in MODES {
        super::properties::check_flows(mode, &mk_service_node(families), &services(families));
    }
}

/// Something of everything.
fn services(families: Families) -> Vec<Flow> {
    let node = mk_service_node(families);
    let mut all = flows_of(&node);
    let addresses = [("10.77.1.2", "10.96.0.10"), ("fd00:77:1::2", "fd00:96::10")];
    for (endpoint, address) in addresses.into_iter().filter(|(e, _)| families.has(ip(e))) {
        let endpoint = mk_endpoint(endpoint, 8080, Place::LocalPod);
        all.extend(flows(endpoint_flows(&node, &endpoint)));
        let frontend = Frontend { affinity: Some(9), ..mk_frontend(address, 80, 1) };
        all.extend(flows(frontend_flows(&node, &frontend)));
    }
    let many = Group { affinity: true, ..mk_group(1, &mk_many(300)) };
    all.extend(split(group(&many)).1);
    all
}

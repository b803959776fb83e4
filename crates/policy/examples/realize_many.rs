//! How long it takes to realize one policy with 15,000 distinct addresses, from the object to the
//! flows: `cargo run --release -p policy --example realize_many`.
#![allow(clippy::print_stdout, reason = "it is run for what it prints")]

use std::time::{Duration, Instant};

use apis::controlplane::{
    AppliedToGroup, Direction, GroupMember, IpBlock, NetworkPolicy, NetworkPolicyRule, ObjectName,
};
use ipnet::Ipv4Net;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use openflow::OfPort;
use pipeline::Families;
use pipeline::policy::{HostMark, PolicyConfig};
use policy::realize::{Config, Event, LocalPod, Op, Realizer};

const N_PEERS: u32 = 15_000;

fn main() {
    let pod = ObjectName { namespace: "x".into(), name: "pod".into() };
    let named = |name: &str| ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    let mut rule = NetworkPolicyRule::new(Direction::In);
    rule.from.ip_blocks = (0..N_PEERS)
        .map(|n| IpBlock {
            cidr: Ipv4Net::from(std::net::Ipv4Addr::from(0x0a80_0000 + n * 3)).into(),
            except: Vec::new(),
        })
        .collect();
    let policy = NetworkPolicy {
        metadata: named("uid"),
        rules: vec![rule],
        applied_to_groups: vec!["t".into()],
        ..NetworkPolicy::default()
    };
    let member = GroupMember { pod: Some(pod.clone()), ..GroupMember::default() };
    let targets = AppliedToGroup { metadata: named("t"), group_members: vec![member] };
    let mut realizer = Realizer::new(Config::new(PolicyConfig {
        families: Families::V4,
        controller_id: 1,
        packet_in_rate: None,
        host_mark: HostMark::GatewayAddress,
    }));
    let ips = vec![std::net::Ipv4Addr::new(10, 0, 0, 2).into()];
    realizer.step_all(
        Duration::ZERO,
        [
            Event::PodUp(LocalPod { key: pod, ofport: OfPort(2), ips }),
            Event::ReplacePolicies(Vec::new()),
            Event::ReplaceAppliedToGroups(vec![targets]),
            Event::ReplaceAddressGroups(Vec::new()),
        ],
    );
    let start = Instant::now();
    let ops = realizer.step(Duration::ZERO, Event::PolicySet(policy));
    let took = start.elapsed();
    let n_flows: usize =
        ops.iter().map(|op| if let Op::Set { flows, .. } = op { flows.len() } else { 0 }).sum();
    println!("{N_PEERS} addresses, {n_flows} flows: {:.1} ms", took.as_secs_f64() * 1e3);
}

//! Builders, and a realizer with its switch.

use std::net::IpAddr;
use std::time::Duration;

use apis::controlplane::{
    AddressGroup, AddressGroupPatch, AppliedToGroup, Direction as Way, GroupMember, IpBlock,
    NamedPort, NetworkPolicy, NetworkPolicyReference, NetworkPolicyRule, ObjectName, PolicyType,
    Protocol, RuleAction, Service,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use openflow::OfPort;
use pipeline::Families;
use pipeline::policy::{Direction, HostMark, PolicyConfig};

use super::switch::{Fate, L4, Packet, Switch};
use crate::realize::{Config, Event, LocalPod, Op, PolicyStatus, Realizer};

pub(super) const S: fn(u64) -> Duration = Duration::from_secs;

pub(super) fn mk_config() -> Config {
    Config::new(PolicyConfig {
        families: Families::Dual,
        controller_id: 1,
        packet_in_rate: None,
        host_mark: HostMark::GatewayAddress,
    })
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}

pub(super) fn key(name: &str) -> ObjectName {
    ObjectName { namespace: "x".into(), name: name.into() }
}

/// Pod `n` is at port `n` with addresses that end in `n`.
pub(super) fn ips(n: u32) -> Vec<IpAddr> {
    vec![format!("10.0.0.{n}").parse().unwrap(), format!("fd00::{n}").parse().unwrap()]
}

pub(super) fn mk_pod(n: u32) -> LocalPod {
    LocalPod { key: key(&format!("pod{n}")), ofport: OfPort(n), ips: ips(n) }
}

/// A member with named ports, as in `web/TCP/80`.
pub(super) fn mk_member(n: u32, ports: &str) -> GroupMember {
    let port = |text: &str| {
        let parts: Vec<&str> = text.split('/').collect();
        let [name, protocol, port] = parts[..] else { panic!("{text}") };
        let port = port.parse().unwrap();
        NamedPort { port, name: name.into(), protocol: Protocol::from(protocol) }
    };
    GroupMember {
        pod: Some(key(&format!("pod{n}"))),
        ips: ips(n),
        ports: ports.split_whitespace().map(port).collect(),
        ..GroupMember::default()
    }
}

fn members(pods: &[u32]) -> Vec<GroupMember> {
    pods.iter().map(|n| mk_member(*n, "")).collect()
}

pub(super) fn targets(name: &str, pods: &[u32]) -> AppliedToGroup {
    AppliedToGroup { metadata: named(name), group_members: members(pods) }
}

/// Services as targets.
pub(super) fn service_targets(name: &str, services: &[&str]) -> AppliedToGroup {
    let member = |service: &&str| GroupMember { service: Some(key(service)), ..<_>::default() };
    AppliedToGroup { metadata: named(name), group_members: services.iter().map(member).collect() }
}

pub(super) fn peers(name: &str, pods: &[u32]) -> AddressGroup {
    AddressGroup { metadata: named(name), group_members: members(pods) }
}

pub(super) fn patch_peers(name: &str, added: &[u32], removed: &[u32]) -> Event {
    Event::AddressGroupPatched(AddressGroupPatch {
        metadata: named(name),
        added_group_members: members(added),
        removed_group_members: members(removed),
    })
}

pub(super) fn ingress() -> NetworkPolicyRule {
    NetworkPolicyRule::new(Way::In)
}

pub(super) fn egress() -> NetworkPolicyRule {
    NetworkPolicyRule::new(Way::Out)
}

/// Words of a rule in the making.
pub(super) trait RuleWords: Sized {
    fn peers(self, groups: &[&str]) -> Self;
    fn block(self, cidr: &str, except: &[&str]) -> Self;
    fn any(self) -> Self;
    fn fqdn(self, name: &str) -> Self;
    fn services(self, names: &[&str]) -> Self;
    fn port(self, protocol: &str, port: &str) -> Self;
    fn targets(self, groups: &[&str]) -> Self;
    fn says(self, action: RuleAction, priority: i32) -> Self;
}

impl RuleWords for NetworkPolicyRule {
    fn peers(mut self, groups: &[&str]) -> Self {
        let peer = if self.direction == Way::In { &mut self.from } else { &mut self.to };
        peer.address_groups.extend(groups.iter().map(|name| (*name).to_owned()));
        self
    }

    fn block(mut self, cidr: &str, except: &[&str]) -> Self {
        let peer = if self.direction == Way::In { &mut self.from } else { &mut self.to };
        let except = except.iter().map(|net| net.parse().unwrap()).collect();
        peer.ip_blocks.push(IpBlock { cidr: cidr.parse().unwrap(), except });
        self
    }

    fn any(self) -> Self {
        self.block("0.0.0.0/0", &[]).block("::/0", &[])
    }

    fn fqdn(mut self, name: &str) -> Self {
        self.to.fqdns.push(name.into());
        self
    }

    fn services(mut self, names: &[&str]) -> Self {
        self.to.to_services.extend(names.iter().map(|name| key(name)));
        self
    }

    /// A number, a range (`80-90`), a name or nothing.
    fn port(mut self, protocol: &str, port: &str) -> Self {
        let mut service = Service { protocol: Some(protocol.into()), ..Service::default() };
        match port.split_once('-') {
            _ if port.is_empty() => {}
            Some((first, last)) if last.parse::<i32>().is_ok() => {
                service.port = Some(IntOrString::Int(first.parse().unwrap()));
                service.end_port = Some(last.parse().unwrap());
            }
            _ => {
                service.port = Some(match port.parse() {
                    Ok(number) => IntOrString::Int(number),
                    Err(_) => IntOrString::String(port.into()),
                });
            }
        }
        self.services.push(service);
        self
    }

    fn targets(mut self, groups: &[&str]) -> Self {
        self.applied_to_groups.extend(groups.iter().map(|name| (*name).to_owned()));
        self
    }

    fn says(mut self, action: RuleAction, priority: i32) -> Self {
        self.action = Some(action);
        self.priority = priority;
        self
    }
}

fn mk_policy(type_: PolicyType, uid: &str, targets: &[&str]) -> NetworkPolicy {
    let source = NetworkPolicyReference {
        type_,
        namespace: "x".into(),
        name: format!("name-of-{uid}"),
        uid: uid.into(),
    };
    NetworkPolicy {
        metadata: ObjectMeta { generation: Some(1), ..named(uid) },
        applied_to_groups: targets.iter().map(|name| (*name).to_owned()).collect(),
        source_ref: Some(source),
        ..NetworkPolicy::default()
    }
}

/// A Kubernetes policy.
pub(super) fn k8s(uid: &str, targets: &str, rules: Vec<NetworkPolicyRule>) -> NetworkPolicy {
    let mut policy = mk_policy(PolicyType::K8sNetworkPolicy, uid, &[targets]);
    policy.rules = rules;
    policy
}

/// An Antrea policy.
pub(super) fn antrea(
    uid: &str,
    (tier, priority): (i32, f64),
    targets: &[&str],
    rules: Vec<NetworkPolicyRule>,
) -> NetworkPolicy {
    let mut policy = mk_policy(PolicyType::AntreaNetworkPolicy, uid, targets);
    policy.tier_priority = Some(tier);
    policy.priority = Some(priority);
    policy.rules = rules;
    policy
}

pub(super) struct World {
    pub(super) realizer: Realizer,
    pub(super) switch: Switch,
    pub(super) now: Duration,
    pub(super) last: Vec<Op>,
}

impl World {
    /// Pods 1 to 4, and nothing else.
    pub(super) fn new() -> Self {
        let mut world = Self::cold();
        world.feed((1..=4).map(|n| Event::PodUp(mk_pod(n))));
        world.feed([
            Event::ReplacePolicies(vec![]),
            Event::ReplaceAppliedToGroups(vec![]),
            Event::ReplaceAddressGroups(vec![]),
        ]);
        world
    }

    /// Before the first lists.
    pub(super) fn cold() -> Self {
        Self::cold_with(mk_config())
    }

    pub(super) fn cold_with(config: Config) -> Self {
        let realizer = Realizer::new(config);
        Self { realizer, switch: Switch::default(), now: S(0), last: Vec::new() }
    }

    #[track_caller]
    pub(super) fn feed(&mut self, events: impl IntoIterator<Item = Event>) {
        self.last = self.realizer.step_all(self.now, events);
        self.switch.take(&self.last);
    }

    pub(super) fn statuses(&self) -> Vec<&PolicyStatus> {
        self.last
            .iter()
            .filter_map(|op| if let Op::Status(status) = op { Some(status) } else { None })
            .collect()
    }

    /// A TCP connection; both families agree.
    #[track_caller]
    pub(super) fn tcp(&self, src: u32, dst: u32, port: u16) -> bool {
        self.connects(src, dst, L4::Tcp { src: 40_000, dst: port })
    }

    #[track_caller]
    pub(super) fn connects(&self, src: u32, dst: u32, l4: L4) -> bool {
        let fates = [0, 1].map(|family| {
            let packet = Packet { src: ips(src)[family], dst: ips(dst)[family], l4 };
            self.fates(packet, dst)
        });
        assert_eq!(fates[0], fates[1], "{src} to {dst}, {l4:?}");
        fates[0].0.passed() && fates[0].1.passed()
    }

    pub(super) fn fates(&self, packet: Packet, dst: u32) -> (Fate, Fate) {
        let out = self.switch.fate(Direction::Egress, None, packet);
        let into = self.switch.fate(Direction::Ingress, Some(OfPort(dst)), packet);
        (out, into)
    }

    /// A TCP connection from an address outside.
    pub(super) fn from(&self, src: &str, dst: u32, port: u16) -> bool {
        let src: IpAddr = src.parse().unwrap();
        let dst_ip = ips(dst)[usize::from(src.is_ipv6())];
        let l4 = L4::Tcp { src: 40_000, dst: port };
        self.fates(Packet { src, dst: dst_ip, l4 }, dst).1.passed()
    }

    /// A TCP connection to an address outside.
    pub(super) fn to(&self, src: u32, dst: &str, port: u16) -> bool {
        let dst: IpAddr = dst.parse().unwrap();
        let src = ips(src)[usize::from(dst.is_ipv6())];
        let l4 = L4::Tcp { src: 40_000, dst: port };
        self.switch.fate(Direction::Egress, None, Packet { src, dst, l4 }).passed()
    }
}

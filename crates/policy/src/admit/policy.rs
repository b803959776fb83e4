//! Antrea's ClusterNetworkPolicy and NetworkPolicy.

use std::collections::BTreeSet;
use std::net::IpAddr;

use apis::common::Protocol;
use apis::policy::{
    AppliedTo, IpBlock, NamespaceMatch, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
    Rule, RuleAction, SYSTEM_TIERS, Scope,
};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Cluster, Refusal, Refusals};
use crate::index::Selector;

const NOT_YET: &str = "it is not supported yet";
/// Longest label for a log line of a policy that is applied to Nodes.
const NODE_LOG_LABEL: usize = 12;

/// For whom a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyScope {
    /// All namespaces: a ClusterNetworkPolicy.
    Cluster,
    /// Its own: a NetworkPolicy.
    Namespace,
}

/// Judges a policy.
pub fn policy(
    cluster: &impl Cluster,
    scope: PolicyScope,
    spec: &NetworkPolicySpec,
) -> Vec<Refusal> {
    let mut judge = Judge { refusals: Refusals::default(), scope };
    judge.tier(cluster, spec);
    if !(1.0..=10000.0).contains(&spec.priority) {
        judge.refuse("spec.priority", "it is not from 1 to 10000");
    }
    judge.names(spec);
    judge.places(spec);
    judge.services(spec);
    for (n, target) in spec.applied_to.iter().enumerate() {
        judge.target(&format!("spec.appliedTo[{n}]"), target);
    }
    for (n, rule) in spec.ingress.iter().enumerate() {
        judge.rule(&format!("spec.ingress[{n}]"), "from", rule, &rule.from);
        if !rule.to.is_empty() {
            judge.refuse(format!("spec.ingress[{n}].to"), "it is for egress rules");
        }
    }
    for (n, rule) in spec.egress.iter().enumerate() {
        judge.rule(&format!("spec.egress[{n}]"), "to", rule, &rule.to);
        if !rule.from.is_empty() {
            judge.refuse(format!("spec.egress[{n}].from"), "it is for ingress rules");
        }
    }
    judge.refusals.0
}

/// What the user should know about a policy that is not refused; the namespace is empty for a
/// cluster-wide one.
pub fn warnings(cluster: &impl Cluster, namespace: &str, spec: &NetworkPolicySpec) -> Vec<String> {
    let rules = || spec.ingress.iter().chain(&spec.egress);
    let long = |rule: &&Rule| {
        let on_nodes = spec.applied_to.iter().chain(&rule.applied_to);
        let label = rule.log_label.as_deref().unwrap_or_default();
        label.len() > NODE_LOG_LABEL
            && on_nodes.into_iter().any(|target| target.node_selector.is_some())
    };
    let warn = |rule: &Rule| {
        let name = rule.name.as_deref().unwrap_or_default();
        format!("logLabel of rule {name:?} will be cut to {NODE_LOG_LABEL} characters on Nodes")
    };
    let targets = spec.applied_to.iter().chain(rules().flat_map(|rule| &rule.applied_to));
    let peers = rules().flat_map(|rule| rule.from.iter().chain(&rule.to));
    let groups = targets.map(|target| &target.group).chain(peers.map(|peer| &peer.group));
    let missing: BTreeSet<&str> = groups
        .filter_map(|group| group.as_deref())
        .filter(|group| cluster.group(namespace, group).is_none())
        .collect();
    let missing = missing.into_iter();
    let missing = missing.map(|group| format!("there is no group {group:?} yet"));
    rules().filter(long).map(warn).chain(missing).collect()
}

struct Judge {
    refusals: Refusals,
    scope: PolicyScope,
}

impl Judge {
    fn refuse(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.refusals.add(field, reason);
    }

    fn tier(&mut self, cluster: &impl Cluster, spec: &NetworkPolicySpec) {
        let tier = spec.tier.as_deref().unwrap_or_default();
        let system = SYSTEM_TIERS.iter().any(|(own, _)| own.eq_ignore_ascii_case(tier));
        let known = || cluster.tiers().iter().any(|(own, _)| own == tier);
        if !tier.is_empty() && !system && !known() {
            self.refuse("spec.tier", format!("there is no tier {tier:?}"));
        }
        if tier.eq_ignore_ascii_case("baseline") {
            for (word, rules) in [("ingress", &spec.ingress), ("egress", &spec.egress)] {
                for (n, rule) in rules.iter().enumerate() {
                    if rule.action == RuleAction::Pass {
                        let field = format!("spec.{word}[{n}].action");
                        self.refuse(field, "Pass has no meaning in the baseline tier");
                    }
                }
            }
        }
    }

    fn names(&mut self, spec: &NetworkPolicySpec) {
        let mut names = BTreeSet::new();
        for (word, rules) in [("ingress", &spec.ingress), ("egress", &spec.egress)] {
            for (n, rule) in rules.iter().enumerate() {
                if let Some(name) = rule.name.as_deref().filter(|name| !name.is_empty())
                    && !names.insert(name)
                {
                    let reason = format!("another rule is called {name:?}");
                    self.refuse(format!("spec.{word}[{n}].name"), reason);
                }
            }
        }
    }

    /// Targets are named by the policy, or by every one of its rules.
    fn places(&mut self, spec: &NetworkPolicySpec) {
        let in_spec = !spec.applied_to.is_empty();
        let rules = || spec.ingress.iter().chain(&spec.egress);
        let in_rules = rules().filter(|rule| !rule.applied_to.is_empty()).count();
        match (in_spec, in_rules) {
            (true, 0) => {}
            (true, _) => self.refuse("spec.appliedTo", "it is in the policy and in rules"),
            (false, 0) => self.refuse("spec.appliedTo", "it is needed, here or in every rule"),
            (false, n) if n < rules().count() => {
                self.refuse("spec.appliedTo", "it is in some rules and not in all");
            }
            _ => {}
        }
    }

    /// What is applied to Services is about their NodePorts: who comes in from where, and nothing else.
    fn services(&mut self, spec: &NetworkPolicySpec) {
        self.unmixed("spec.appliedTo", &spec.applied_to);
        let shared = first_service(&spec.applied_to);
        if let Some(n) = shared.filter(|_| !spec.egress.is_empty()) {
            self.refuse(format!("spec.appliedTo[{n}].service"), "it goes with no egress rules");
        }
        for (n, rule) in spec.egress.iter().enumerate() {
            if let Some(at) = first_service(&rule.applied_to) {
                let field = format!("spec.egress[{n}].appliedTo[{at}].service");
                self.refuse(field, "it is for ingress rules");
            }
        }
        for (n, rule) in spec.ingress.iter().enumerate() {
            let field = format!("spec.ingress[{n}]");
            self.unmixed(&format!("{field}.appliedTo"), &rule.applied_to);
            if shared.or(first_service(&rule.applied_to)).is_none() {
                continue;
            }
            for (n, _) in rule.from.iter().enumerate().filter(|(_, peer)| peer.ip_block.is_none()) {
                let reason = "a rule that is applied to Services knows ipBlocks only";
                self.refuse(format!("{field}.from[{n}]"), reason);
            }
        }
    }

    fn unmixed(&mut self, field: &str, targets: &[AppliedTo]) {
        let others = targets.iter().any(|target| target.service.is_none());
        if let Some(n) = first_service(targets).filter(|_| others) {
            self.refuse(format!("{field}[{n}].service"), "it goes with no targets but Services");
        }
    }

    fn peer_services(&mut self, field: &str, side: &str, rule: &Rule) {
        if rule.to_services.is_empty() {
            return;
        }
        let list = format!("{field}.toServices");
        if side == "from" {
            self.refuse(list, "it is for egress rules");
            return;
        }
        if !rule.to.is_empty() || !rule.ports.is_empty() || !rule.protocols.is_empty() {
            self.refuse(list, "it goes with no to, ports or protocols");
            return;
        }
        for (n, service) in rule.to_services.iter().enumerate() {
            let field = format!("{list}[{n}]");
            if service.name.is_empty() {
                self.refuse(format!("{field}.name"), "it is needed");
            }
            let namespace = service.namespace.as_deref().unwrap_or_default();
            if namespace.is_empty() && self.scope == PolicyScope::Cluster {
                self.refuse(format!("{field}.namespace"), "it is needed");
            }
            self.reach(&field, service.scope.as_ref());
        }
    }

    fn reach(&mut self, field: &str, scope: Option<&Scope>) {
        match scope {
            None | Some(Scope::Cluster) => {}
            Some(Scope::ClusterSet) => self.refuse(format!("{field}.scope"), NOT_YET),
            Some(Scope::Unknown(word)) => {
                self.refuse(format!("{field}.scope"), format!("unknown scope {word:?}"));
            }
        }
    }

    fn selector(&mut self, field: &str, name: &str, selector: Option<&LabelSelector>) {
        if let Some(Err(error)) = selector.map(Selector::compile) {
            self.refuse(format!("{field}.{name}"), error.to_string());
        }
        for (key, value) in selector.and_then(|own| own.match_labels.as_ref()).into_iter().flatten()
        {
            if !is_label_key(key) {
                self.refuse(format!("{field}.{name}"), format!("{key:?} is no label key"));
            }
            if !is_label_value(value) {
                self.refuse(format!("{field}.{name}"), format!("{value:?} is no label value"));
            }
        }
    }

    fn target(&mut self, field: &str, target: &AppliedTo) {
        for (name, selector) in [
            ("podSelector", &target.pod_selector),
            ("namespaceSelector", &target.namespace_selector),
            ("nodeSelector", &target.node_selector),
        ] {
            self.selector(field, name, selector.as_ref());
        }
        let pods = target.pod_selector.is_some() || target.namespace_selector.is_some();
        let alone = [
            ("group", target.group.is_some()),
            ("serviceAccount", target.service_account.is_some()),
            ("service", target.service.is_some()),
            ("nodeSelector", target.node_selector.is_some()),
        ];
        let n_alone = alone.iter().filter(|(_, set)| *set).count();
        if n_alone > 1 || (n_alone == 1 && pods) {
            let name = alone.iter().find(|(_, set)| *set).map_or("", |(name, _)| *name);
            self.refuse(format!("{field}.{name}"), "it goes with no other field");
        }
        for (name, set) in [
            ("nodeSelector", target.node_selector.is_some()),
            ("externalEntitySelector", target.external_entity_selector.is_some()),
        ] {
            if set {
                self.refuse(format!("{field}.{name}"), NOT_YET);
            }
        }
        if self.scope == PolicyScope::Namespace {
            for (name, set) in [
                ("namespaceSelector", target.namespace_selector.is_some()),
                ("serviceAccount", target.service_account.is_some()),
                ("service", target.service.is_some()),
            ] {
                if set {
                    self.refuse(format!("{field}.{name}"), "it is for cluster-wide policies");
                }
            }
        }
    }

    fn rule(&mut self, field: &str, side: &str, rule: &Rule, peers: &[NetworkPolicyPeer]) {
        for (n, target) in rule.applied_to.iter().enumerate() {
            self.target(&format!("{field}.appliedTo[{n}]"), target);
        }
        if let RuleAction::Unknown(word) = &rule.action {
            self.refuse(format!("{field}.action"), format!("unknown action {word:?}"));
        }
        self.peer_services(field, side, rule);
        if !rule.l7_protocols.is_empty() {
            self.refuse(format!("{field}.l7Protocols"), NOT_YET);
        }
        for (n, port) in rule.ports.iter().enumerate() {
            self.port(&format!("{field}.ports[{n}]"), port);
        }
        for (n, protocol) in rule.protocols.iter().enumerate() {
            let field = format!("{field}.protocols[{n}]");
            match (&protocol.icmp, &protocol.igmp) {
                (Some(icmp), None) => {
                    let fits = |value: Option<i32>| value.is_none_or(|v| (0..=255).contains(&v));
                    if !fits(icmp.icmp_type) || !fits(icmp.icmp_code) {
                        self.refuse(format!("{field}.icmp"), "type and code are from 0 to 255");
                    } else if icmp.icmp_type.is_none() && icmp.icmp_code.is_some() {
                        self.refuse(format!("{field}.icmp.icmpCode"), "it needs an icmpType");
                    }
                }
                (None, Some(_)) => self.refuse(format!("{field}.igmp"), NOT_YET),
                _ => self.refuse(field, "one of icmp and igmp is needed"),
            }
        }
        let mut multicast = false;
        for (n, peer) in peers.iter().enumerate() {
            let field = format!("{field}.{side}[{n}]");
            self.peer(&field, side, rule, peer);
            multicast |= peer.ip_block.as_ref().is_some_and(|block| is_multicast(&block.cidr));
        }
        if multicast {
            self.multicast(field, side, rule, peers);
        }
    }

    fn multicast(&mut self, field: &str, side: &str, rule: &Rule, peers: &[NetworkPolicyPeer]) {
        let only = |peer: &NetworkPolicyPeer| {
            peer.ip_block.as_ref().is_some_and(|block| is_multicast(&block.cidr))
        };
        if !peers.iter().all(only) {
            self.refuse(format!("{field}.{side}"), "multicast goes with no other peers");
        }
        if matches!(rule.action, RuleAction::Pass | RuleAction::Reject) {
            self.refuse(format!("{field}.action"), "multicast is allowed or dropped");
        }
    }

    fn port(&mut self, field: &str, port: &NetworkPolicyPort) {
        if let Some(protocol) = &port.protocol
            && !matches!(protocol, Protocol::Tcp | Protocol::Udp | Protocol::Sctp)
        {
            self.refuse(format!("{field}.protocol"), format!("{protocol} has no ports"));
        }
        let number = match &port.port {
            Some(IntOrString::Int(number)) => Some(*number),
            _ => None,
        };
        for (name, start, end) in [
            ("endPort", number, port.end_port),
            ("sourceEndPort", port.source_port, port.source_end_port),
        ] {
            match (start, end) {
                (_, None) => {}
                (None, Some(_)) => {
                    self.refuse(format!("{field}.{name}"), "it needs the number that it ends");
                }
                (Some(start), Some(end)) if end < start || end > 65535 => {
                    self.refuse(format!("{field}.{name}"), format!("no range begins at {start}"));
                }
                _ => {}
            }
        }
        let valid = |port: Option<i32>| port.is_none_or(|port| (1..=65535).contains(&port));
        if !valid(number) || !valid(port.source_port) {
            self.refuse(field, "ports are from 1 to 65535");
        }
    }

    fn peer(&mut self, field: &str, side: &str, rule: &Rule, peer: &NetworkPolicyPeer) {
        for (name, selector) in [
            ("podSelector", &peer.pod_selector),
            ("namespaceSelector", &peer.namespace_selector),
            ("nodeSelector", &peer.node_selector),
        ] {
            self.selector(field, name, selector.as_ref());
        }
        let pods = peer.pod_selector.is_some() || peer.namespace_selector.is_some();
        let alone = [
            ("group", peer.group.is_some()),
            ("serviceAccount", peer.service_account.is_some()),
            ("nodeSelector", peer.node_selector.is_some()),
            ("ipBlock", peer.ip_block.is_some()),
            ("fqdn", peer.fqdn.is_some()),
        ];
        let n_alone = alone.iter().filter(|(_, set)| *set).count();
        let relative = peer.namespaces.is_some();
        if n_alone > 1 || (n_alone == 1 && (pods || relative)) {
            let name = alone.iter().find(|(_, set)| *set).map_or("", |(name, _)| *name);
            self.refuse(format!("{field}.{name}"), "it goes with no other field");
        }
        if n_alone == 0 && !pods && !relative && peer.external_entity_selector.is_none() {
            self.refuse(field, "the peer is empty");
        }
        if peer.external_entity_selector.is_some() {
            self.refuse(format!("{field}.externalEntitySelector"), NOT_YET);
        }
        self.relative(field, peer);
        if let Some(block) = &peer.ip_block {
            check_block(&mut self.refusals, &format!("{field}.ipBlock"), block);
        }
        if let Some(fqdn) = &peer.fqdn {
            let fits = |letter: char| letter.is_ascii_alphanumeric() || "-.*".contains(letter);
            if side == "from" {
                self.refuse(format!("{field}.fqdn"), "it is for egress rules");
            } else if fqdn.is_empty() || !fqdn.chars().all(fits) {
                let reason = "letters, digits, '-', '.' and '*' make a name";
                self.refuse(format!("{field}.fqdn"), reason);
            } else if rule.action == RuleAction::Pass {
                self.refuse(format!("{field}.fqdn"), "it goes with no Pass");
            }
        }
        self.reach(field, peer.scope.as_ref());
        if self.scope == PolicyScope::Namespace {
            for (name, set) in
                [("namespaces", relative), ("serviceAccount", peer.service_account.is_some())]
            {
                if set {
                    self.refuse(format!("{field}.{name}"), "it is for cluster-wide policies");
                }
            }
        }
    }

    fn relative(&mut self, field: &str, peer: &NetworkPolicyPeer) {
        let Some(namespaces) = &peer.namespaces else { return };
        let field = format!("{field}.namespaces");
        if peer.namespace_selector.is_some() {
            self.refuse(field.as_str(), "it goes with no namespaceSelector");
        }
        match (&namespaces.match_, namespaces.same_labels.is_empty()) {
            (Some(NamespaceMatch::SelfNamespace), true) | (None, false) => {}
            (Some(NamespaceMatch::Unknown(word)), true) => {
                self.refuse(field.as_str(), format!("unknown match {word:?}"));
            }
            _ => self.refuse(field.as_str(), "one of match and sameLabels is needed"),
        }
        for key in &namespaces.same_labels {
            if !is_label_key(key) {
                self.refuse(field.as_str(), format!("{key:?} is no label key"));
            }
        }
    }
}

/// The first of these targets that is a Service.
fn first_service(targets: &[AppliedTo]) -> Option<usize> {
    targets.iter().position(|target| target.service.is_some())
}

/// Judges a network with its exceptions.
pub(super) fn check_block(refusals: &mut Refusals, field: &str, block: &IpBlock) {
    let Ok(cidr) = block.cidr.parse::<IpNet>() else {
        refusals.add(format!("{field}.cidr"), format!("{:?} is no network", block.cidr));
        return;
    };
    for (n, except) in block.except.iter().enumerate() {
        let strictly = except
            .parse::<IpNet>()
            .is_ok_and(|net| cidr.contains(&net) && net.prefix_len() > cidr.prefix_len());
        if !strictly {
            refusals
                .add(format!("{field}.except[{n}]"), format!("{except:?} is no part of {cidr}"));
        }
    }
}

/// Whether a network is one of groups of hosts.
pub(super) fn is_multicast(cidr: &str) -> bool {
    cidr.parse::<IpNet>().is_ok_and(|net| match net.addr() {
        IpAddr::V4(addr) => addr.is_multicast(),
        IpAddr::V6(addr) => addr.is_multicast(),
    })
}

fn is_label_value(text: &str) -> bool {
    let ends = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    let inner = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    text.is_empty()
        || (text.len() <= 63
            && text.chars().all(inner)
            && ends(text.chars().next())
            && ends(text.chars().last()))
}

fn is_label_key(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let domain = |part: &str| {
        let inner = |letter: char| {
            letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter)
        };
        !part.is_empty() && part.len() <= 253 && part.chars().all(inner)
    };
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(domain)
}

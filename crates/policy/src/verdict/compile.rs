//! Collects the rules of all objects, and what is wrong with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::common::Protocol;
use apis::controlplane::{Direction, NetworkPolicyReference};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::cluster::Objects;
use super::rule::{Destination, Peer, Pods, Rule, TrafficMatch};
use super::{ConnectionSet, PortSet, Problem, Severity, selector};

/// Reads objects into rules.
pub(super) struct Compiler<'a> {
    pub(super) objects: &'a Objects,
    /// Priorities of tiers by name.
    pub(super) tiers: BTreeMap<&'a str, i32>,
    pub(super) rules: Vec<Rule>,
    pub(super) isolations: Vec<(Direction, Pods, Arc<NetworkPolicyReference>)>,
    pub(super) problems: Vec<Problem>,
}

/// The object that is being read, for problems.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) kind: &'static str,
    pub(super) group: &'static str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// Something that cannot be meant; it has been noted.
pub(super) struct Meaningless;

/// What is left after a part was noted as meaningless.
pub(super) type Meant<T> = Result<T, Meaningless>;

impl<'a> Compiler<'a> {
    pub(super) fn new(objects: &'a Objects) -> Self {
        let own = objects
            .tiers
            .iter()
            .filter_map(|tier| Some((tier.metadata.name.as_deref()?, tier.spec.priority)));
        let tiers = apis::policy::SYSTEM_TIERS.iter().copied().chain(own).collect();
        Self { objects, tiers, rules: Vec::new(), isolations: Vec::new(), problems: Vec::new() }
    }

    pub(super) fn compile_all(&mut self) {
        for policy in &self.objects.network_policies {
            self.kubernetes(policy);
        }
        for policy in &self.objects.antrea_cluster_policies {
            self.antrea_cluster(policy);
        }
        for policy in &self.objects.antrea_policies {
            self.antrea_namespaced(policy);
        }
        for policy in &self.objects.cluster_policies {
            self.upstream(policy);
        }
        self.all_groups();
    }

    /// Notes something that matches nothing.
    pub(super) fn fault<T>(
        &mut self,
        at: Place<'_>,
        field: &str,
        reason: impl Into<String>,
    ) -> Meant<T> {
        self.note(at, field, reason.into(), Severity::Fault);
        Err(Meaningless)
    }

    pub(super) fn note(&mut self, at: Place<'_>, field: &str, reason: String, severity: Severity) {
        self.problems.push(Problem {
            kind: at.kind,
            group: at.group,
            namespace: at.namespace.to_owned(),
            name: at.name.to_owned(),
            field: field.to_owned(),
            reason,
            severity,
        });
    }

    /// A selector whose operators are all known.
    pub(super) fn selector(
        &mut self,
        at: Place<'_>,
        field: &str,
        wanted: &LabelSelector,
    ) -> Meant<LabelSelector> {
        match selector::unknown_operator(wanted) {
            None => Ok(wanted.clone()),
            Some(operator) => {
                let reason = format!("unknown operator {operator:?}");
                self.fault(at, field, reason)
            }
        }
    }

    /// A selector that may be missing.
    pub(super) fn optional_selector(
        &mut self,
        at: Place<'_>,
        field: &str,
        wanted: Option<&LabelSelector>,
    ) -> Meant<Option<LabelSelector>> {
        wanted.map(|wanted| self.selector(at, field, wanted)).transpose()
    }

    /// A network without some parts of it.
    pub(super) fn block<'b>(
        &mut self,
        at: Place<'_>,
        field: &str,
        cidr: &str,
        except: impl IntoIterator<Item = &'b String>,
    ) -> Meant<Peer> {
        let cidr = self.network(at, field, cidr)?;
        let mut parts = Vec::new();
        for part in except {
            let part = self.network(at, field, part)?;
            if part.contains(&cidr) {
                return self.fault(at, field, format!("{part} leaves nothing of {cidr}"));
            }
            if cidr.contains(&part) {
                parts.push(part);
            } else {
                // A part of somewhere else takes nothing away.
                let _ = self.fault::<()>(at, field, format!("{part} is no part of {cidr}"));
            }
        }
        Ok(Peer::Block { cidr, except: parts })
    }

    fn network(&mut self, at: Place<'_>, field: &str, text: &str) -> Meant<IpNet> {
        match text.parse::<IpNet>() {
            Ok(net) => Ok(net.trunc()),
            Err(_) => self.fault(at, field, format!("{text:?} is no network")),
        }
    }

    /// One entry of a list of ports, as Kubernetes' and Antrea's policies have them.
    pub(super) fn port(
        &mut self,
        at: Place<'_>,
        field: &str,
        port: &PortWords<'_>,
    ) -> Meant<TrafficMatch> {
        let protocol = port.protocol.cloned().unwrap_or(Protocol::Tcp);
        if !matches!(protocol, Protocol::Tcp | Protocol::Udp | Protocol::Sctp) {
            return self.fault(at, field, format!("{protocol} is no protocol with ports"));
        }
        let source = match (port.source_port, port.source_end_port) {
            (None, None) => None,
            (None, Some(_)) => {
                return self.fault(at, field, "a range of source ports without its first");
            }
            (Some(first), last) => Some(self.ports(at, field, first, last.unwrap_or(first))?),
        };
        let to = match (port.port, port.end_port) {
            (None, None) => Destination::Fixed(ConnectionSet::of(&protocol, PortSet::full())),
            (Some(IntOrString::Int(first)), last) => {
                let (first, last) = self.ports(at, field, *first, last.unwrap_or(*first))?;
                Destination::Fixed(ConnectionSet::of(&protocol, PortSet::range(first, last)))
            }
            (Some(IntOrString::String(name)), None) => {
                Destination::Named { name: name.clone(), protocol: Some(protocol) }
            }
            (_, Some(_)) => return self.fault(at, field, "endPort without a port number"),
        };
        Ok(TrafficMatch { to, source })
    }

    /// A range of port numbers.
    pub(super) fn ports(
        &mut self,
        at: Place<'_>,
        field: &str,
        first: i32,
        last: i32,
    ) -> Meant<(u16, u16)> {
        match (u16::try_from(first), u16::try_from(last)) {
            (Ok(first @ 1..), Ok(last)) if first <= last => Ok((first, last)),
            _ => self.fault(at, field, format!("{first}-{last} is no range of ports")),
        }
    }
}

/// A port as it is written.
#[derive(Default)]
pub(super) struct PortWords<'a> {
    pub(super) protocol: Option<&'a Protocol>,
    pub(super) port: Option<&'a IntOrString>,
    pub(super) end_port: Option<i32>,
    pub(super) source_port: Option<i32>,
    pub(super) source_end_port: Option<i32>,
}

impl Rule {
    /// Whether the rule tells ICMP from other traffic.
    pub(super) fn speaks_of_icmp(&self) -> bool {
        self.traffic.iter().flatten().any(|wanted| match &wanted.to {
            Destination::Fixed(set) => !set.icmp.is_empty(),
            Destination::Named { .. } => false,
        })
    }
}

/// What is left of a list after the parts that mean nothing.
pub(super) fn meant<T>(parts: impl Iterator<Item = Meant<T>>) -> Vec<T> {
    parts.filter_map(Result::ok).collect()
}

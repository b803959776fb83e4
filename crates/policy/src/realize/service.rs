//! What a rule says about protocols and ports, as flows can match it.

use apis::controlplane::{GroupMember, NetworkPolicyRule, Protocol, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pipeline::policy::{PortRange, ServiceSpec, Transport};

/// The services of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Services {
    /// Every packet.
    Any,
    /// These; none if the list is empty.
    Of(Vec<Item>),
}

/// One service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// The same for every Pod.
    Fixed(ServiceSpec),
    /// What the Pod at the receiving end calls so.
    Named { name: String, protocol: Option<Transport>, src: Option<PortRange> },
}

impl Services {
    /// Reads a rule's services. What cannot be matched matches nothing and is added to `problems`.
    pub(super) fn of(rule: &NetworkPolicyRule, problems: &mut Vec<String>) -> Self {
        if rule.services.is_empty() {
            return Self::Any;
        }
        let mut items = Vec::new();
        for service in &rule.services {
            match read(service) {
                Ok(item) => items.push(item),
                Err(problem) => problems.push(problem),
            }
        }
        Self::Of(items)
    }

    /// Whether it depends on the Pod.
    pub(super) fn has_names(&self) -> bool {
        match self {
            Self::Any => false,
            Self::Of(items) => items.iter().any(|item| matches!(item, Item::Named { .. })),
        }
    }

    /// What is meant where nobody gives a name a meaning; none stands for every packet.
    pub(super) fn fixed(&self) -> Option<Vec<ServiceSpec>> {
        self.resolve(|_, _, _| Vec::new())
    }

    /// What is meant at this Pod; none stands for every packet.
    pub(super) fn at(&self, member: &GroupMember) -> Option<Vec<ServiceSpec>> {
        self.resolve(|name, protocol, src| {
            let specs =
                member.ports.iter().filter(|port| port.name == name).filter_map(|port| {
                    let own = transport(&port.protocol)?;
                    let number = u16::try_from(port.port).ok()?;
                    let dst = Some(PortRange::one(number));
                    (protocol.is_none() || protocol == Some(own))
                        .then_some(ServiceSpec::Transport { protocol: own, dst, src })
                });
            specs.collect()
        })
    }

    fn resolve(
        &self,
        named: impl Fn(&str, Option<Transport>, Option<PortRange>) -> Vec<ServiceSpec>,
    ) -> Option<Vec<ServiceSpec>> {
        let Self::Of(items) = self else { return None };
        let mut specs = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Item::Fixed(spec) => specs.push(*spec),
                Item::Named { name, protocol, src } => specs.extend(named(name, *protocol, *src)),
            }
        }
        specs.sort_unstable();
        specs.dedup();
        Some(specs)
    }
}

fn transport(protocol: &Protocol) -> Option<Transport> {
    match protocol {
        Protocol::Tcp => Some(Transport::Tcp),
        Protocol::Udp => Some(Transport::Udp),
        Protocol::Sctp => Some(Transport::Sctp),
        Protocol::Icmp | Protocol::Igmp | Protocol::Unknown(_) => None,
    }
}

fn read(service: &Service) -> Result<Item, String> {
    let protocol = match &service.protocol {
        None => None,
        Some(Protocol::Icmp) => return icmp(service),
        Some(protocol) => match transport(protocol) {
            Some(transport) => Some(transport),
            None => return Err(format!("protocol {protocol} is not supported")),
        },
    };
    let src = range("source port", service.src_port, service.src_end_port)?;
    let dst = match &service.port {
        None => range("port", None, service.end_port)?,
        Some(IntOrString::Int(port)) => range("port", Some(*port), service.end_port)?,
        Some(IntOrString::String(name)) => {
            if service.end_port.is_some() {
                return Err(format!("port {name:?} is a name and cannot begin a range"));
            }
            return Ok(Item::Named { name: name.clone(), protocol, src });
        }
    };
    let protocol = protocol.unwrap_or(Transport::Tcp);
    Ok(Item::Fixed(ServiceSpec::Transport { protocol, dst, src }))
}

fn range(what: &str, first: Option<i32>, last: Option<i32>) -> Result<Option<PortRange>, String> {
    let number = |port: i32| u16::try_from(port).map_err(|_| format!("{what} {port} is none"));
    match (first, last) {
        (None, None) => Ok(None),
        (None, Some(last)) => Err(format!("range of {what}s up to {last} has no beginning")),
        (Some(first), None) => Ok(Some(PortRange::one(number(first)?))),
        (Some(first), Some(last)) if last < first => {
            Err(format!("range of {what}s {first}-{last} ends before it begins"))
        }
        (Some(first), Some(last)) => {
            Ok(Some(PortRange { first: number(first)?, last: number(last)? }))
        }
    }
}

fn icmp(service: &Service) -> Result<Item, String> {
    let byte = |what: &str, value: Option<i32>| {
        value.map(|n| u8::try_from(n).map_err(|_| format!("ICMP {what} {n} is none"))).transpose()
    };
    let kind = byte("type", service.icmp_type)?;
    let code = byte("code", service.icmp_code)?;
    if kind.is_none() && code.is_some() {
        return Err("an ICMP code needs a type".into());
    }
    Ok(Item::Fixed(ServiceSpec::Icmp { kind, code }))
}

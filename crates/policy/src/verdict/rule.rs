//! One form for the rules of every kind of policy.

use std::net::IpAddr;
use std::sync::Arc;

use apis::common::Protocol;
use apis::controlplane::{Direction, NetworkPolicyReference, PolicyType};
use apis::policy::NamespacedName;
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{ConnectionSet, RuleRef};

/// A rule, with all that is needed to apply it.
#[derive(Debug)]
pub(super) struct Rule {
    /// Who it is.
    pub(super) source: Arc<RuleRef>,
    /// When it is asked.
    pub(super) stage: Stage,
    /// Its place within the stage.
    pub(super) order: Order,
    /// What happens to traffic that matches.
    pub(super) effect: Effect,
    /// Pods it is about: any of these.
    pub(super) targets: Vec<Pods>,
    /// The other side: any of these, or whoever it is.
    pub(super) peers: Option<Vec<Peer>>,
    /// Traffic: any of these, or whatever it is.
    pub(super) traffic: Option<Vec<TrafficMatch>>,
}

impl Rule {
    pub(super) fn direction(&self) -> Direction {
        self.source.direction
    }

    /// What rules are sorted by.
    pub(super) fn key(&self) -> impl Ord + '_ {
        let policy = &self.source.policy;
        let kind = match policy.type_ {
            PolicyType::AntreaClusterNetworkPolicy => 0,
            PolicyType::AntreaNetworkPolicy => 1,
            _ => 2,
        };
        let rank = (self.stage, self.order.tier, self.order.priority, self.order.index);
        (rank, self.effect, kind, &policy.namespace, &policy.name, self.source.index)
    }
}

/// When a rule is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Before Kubernetes' NetworkPolicies.
    Before,
    /// With them.
    Kubernetes,
    /// After them, for Pods that none selects.
    Baseline,
}

/// The place of a rule within its stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    /// Priority of the tier.
    pub(super) tier: i32,
    /// Priority of the policy, in a form that sorts.
    pub(super) priority: i64,
    /// Place in the policy.
    pub(super) index: usize,
}

impl Order {
    pub(super) fn new(tier: i32, priority: f64, index: usize) -> Self {
        // The order of `f64::total_cmp`, as a whole number.
        let bits = priority.to_bits().cast_signed();
        let priority = bits ^ (bits >> 63).cast_unsigned().wrapping_shr(1).cast_signed();
        Self { tier, priority, index }
    }
}

/// What a rule does, the stricter first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// Discards.
    Drop,
    /// Discards and says so.
    Reject,
    /// Hands on.
    Pass,
    /// Lets through.
    Allow,
}

/// Pods by where they are and what they are.
#[derive(Clone, Debug)]
pub(super) struct Pods {
    /// Their Namespaces.
    pub(super) namespaces: Namespaces,
    /// Their labels; without it, any.
    pub(super) labels: Option<LabelSelector>,
    /// Their ServiceAccount; without it, any.
    pub(super) service_account: Option<NamespacedName>,
}

impl Pods {
    pub(super) fn new(namespaces: Namespaces, labels: Option<LabelSelector>) -> Self {
        Self { namespaces, labels, service_account: None }
    }

    pub(super) fn of_account(account: &NamespacedName) -> Self {
        Self {
            namespaces: Namespaces::Named(account.namespace.clone()),
            labels: None,
            service_account: Some(account.clone()),
        }
    }
}

/// Namespaces of Pods.
#[derive(Clone, Debug)]
pub(super) enum Namespaces {
    /// All.
    All,
    /// One.
    Named(String),
    /// Those with labels.
    Labelled(LabelSelector),
    /// That of the target.
    Own,
    /// Those that have these labels, with the values that the target's has.
    SameLabels(Vec<String>),
}

/// The other side of a connection.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    /// Pods.
    Pods(Pods),
    /// Addresses of a network, without some.
    Block {
        /// The network.
        cidr: IpNet,
        /// What does not belong to it.
        except: Vec<IpNet>,
    },
    /// Single addresses.
    Addrs(Vec<IpAddr>),
}

/// Traffic by ports.
#[derive(Clone, Debug)]
pub(super) struct TrafficMatch {
    /// What it goes to.
    pub(super) to: Destination,
    /// Source ports; without it, any.
    pub(super) source: Option<(u16, u16)>,
}

/// What traffic goes to.
#[derive(Clone, Debug)]
pub(super) enum Destination {
    /// These ports.
    Fixed(ConnectionSet),
    /// The port that the destination Pod calls so.
    Named {
        /// Its name.
        name: String,
        /// Its protocol; without it, any.
        protocol: Option<Protocol>,
    },
}

/// A reference to a policy without a UID: names are enough to tell policies of a moment apart.
pub(super) fn reference(type_: PolicyType, namespace: &str, name: &str) -> NetworkPolicyReference {
    NetworkPolicyReference {
        type_,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: String::new(),
    }
}

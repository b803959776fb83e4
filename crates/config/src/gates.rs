//! The registry of feature gates, and the gates of one configuration.
//!
//! A gate that is not built can be left alone or switched off; switching it on is refused by name.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::ConfigError;
use crate::key::Component;
use crate::kind::Kind;
use crate::nearest::nearest;
use crate::yaml::{Entry, Node};

/// How far a feature has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Off by default.
    Alpha,
    /// On by default.
    Beta,
    /// Settled.
    Ga,
    /// On its way out.
    Deprecated,
}

/// What a gate may be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Both ways.
    Free,
    /// Only the default; the text says what to use instead.
    Locked(&'static str),
}

/// One feature gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateInfo {
    /// The gate.
    pub gate: Gate,
    /// Its name in files.
    pub name: &'static str,
    /// The programs that look at it.
    pub components: &'static [Component],
    /// How far it has come.
    pub stage: Stage,
    /// Whether it is on when nobody says anything.
    pub default: bool,
    /// Whether this version has the feature.
    pub built: bool,
    setting: Setting,
}

macro_rules! gates {
    ($($name:ident, $components:ident, $stage:ident, $default:ident, $built:ident, $setting:expr;)*) => {
        /// The name of a feature that can be switched.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Gate {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                $name,
            )*
        }

        /// Every gate, in the order of the documentation.
        const GATES: &[GateInfo] = &[
            $(GateInfo {
                gate: Gate::$name,
                name: stringify!($name),
                components: $components,
                stage: Stage::$stage,
                default: values::$default,
                built: values::$built,
                setting: $setting,
            },)*
        ];
    };
}

/// Words for the table below.
mod values {
    #![expect(non_upper_case_globals, reason = "the table reads better in words")]
    pub(super) const on: bool = true;
    pub(super) const off: bool = false;
    pub(super) const built: bool = true;
    pub(super) const later: bool = false;
}

const AGENT: &[Component] = &[Component::Agent];
const CONTROLLER: &[Component] = &[Component::Controller];
const BOTH: &[Component] = &[Component::Agent, Component::Controller];
const LOCKED: Setting = Setting::Locked("it is settled");
const USE_OPTION: Setting = Setting::Locked("use antreaProxy.enable");
const FREE: Setting = Setting::Free;

gates! {
    AntreaPolicy, BOTH, Beta, on, built, FREE;
    AntreaProxy, AGENT, Ga, on, built, USE_OPTION;
    EndpointSlice, AGENT, Ga, on, built, LOCKED;
    TopologyAwareHints, AGENT, Ga, on, built, LOCKED;
    ServiceTrafficDistribution, AGENT, Ga, on, built, LOCKED;
    PreferSameTrafficDistribution, AGENT, Alpha, off, built, FREE;
    LoadBalancerModeDSR, AGENT, Alpha, off, built, FREE;
    CleanupStaleUDPSvcConntrack, AGENT, Beta, on, built, FREE;
    Traceflow, BOTH, Beta, on, later, FREE;
    PacketCapture, AGENT, Alpha, off, later, FREE;
    FlowExporter, AGENT, Alpha, off, later, FREE;
    NetworkPolicyStats, BOTH, Beta, on, built, FREE;
    NodePortLocal, AGENT, Ga, on, later, FREE;
    Egress, BOTH, Beta, on, later, FREE;
    EgressTrafficShaping, AGENT, Alpha, off, later, FREE;
    EgressSeparateSubnet, AGENT, Beta, on, later, FREE;
    NodeIPAM, CONTROLLER, Beta, on, built, FREE;
    AntreaIPAM, BOTH, Alpha, off, later, FREE;
    Multicast, BOTH, Beta, on, later, FREE;
    SecondaryNetwork, AGENT, Alpha, off, later, FREE;
    AntreaNodeConfig, BOTH, Beta, on, later, FREE;
    ServiceExternalIP, BOTH, Beta, on, later, FREE;
    TrafficControl, AGENT, Alpha, off, later, FREE;
    Multicluster, BOTH, Alpha, off, later, FREE;
    IPsecCertAuth, BOTH, Alpha, off, later, FREE;
    ExternalNode, BOTH, Alpha, off, later, FREE;
    SupportBundleCollection, BOTH, Alpha, off, later, FREE;
    L7NetworkPolicy, BOTH, Alpha, off, later, FREE;
    AdminNetworkPolicy, CONTROLLER, Deprecated, off, later, FREE;
    ClusterNetworkPolicy, CONTROLLER, Alpha, off, later, FREE;
    NodeNetworkPolicy, AGENT, Alpha, off, later, FREE;
    BGPPolicy, AGENT, Alpha, off, later, FREE;
    NodeLatencyMonitor, AGENT, Alpha, off, later, FREE;
    NFTablesHostNetworkMode, AGENT, Alpha, off, built, FREE;
}

const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

impl Gate {
    /// Every gate's entry in the registry.
    pub fn all() -> &'static [GateInfo] {
        GATES
    }

    /// This gate's entry.
    pub fn info(self) -> &'static GateInfo {
        &GATES[self as usize]
    }

    /// The gate of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        GATES.iter().find(|info| info.name == name).map(|info| info.gate)
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "GA",
            Self::Deprecated => "DEPRECATED",
        })
    }
}

fn unknown(entry: &Entry) -> ConfigError {
    let names = GATES.iter().map(|info| info.name).chain([ALL_ALPHA, ALL_BETA]);
    ConfigError::UnknownGate {
        line: entry.line,
        gate: entry.key.clone(),
        nearest: nearest(&entry.key, names).map(Into::into),
    }
}

/// The gates as one file sets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    set: BTreeMap<Gate, bool>,
}

impl FeatureGates {
    /// Whether the feature works: switched on, and there.
    pub fn enabled(&self, gate: Gate) -> bool {
        gate.info().built && self.configured(gate)
    }

    /// Whether the configuration asks for it, built or not.
    pub fn configured(&self, gate: Gate) -> bool {
        self.set.get(&gate).copied().unwrap_or(gate.info().default)
    }

    /// Reads the mapping of a file; mistakes go to `errors`.
    pub(crate) fn read(node: &Node, errors: &mut Vec<ConfigError>) -> Self {
        let Node::Map(entries) = node else { return Self::default() };
        let mut gates = Self::default();
        let not_built = |line, name: &str, reason| ConfigError::NotBuilt {
            line,
            key: format!("featureGates.{name}"),
            reason,
        };
        for entry in entries {
            let Node::Bool(on) = entry.node else { continue };
            let stage = match entry.key.as_str() {
                ALL_ALPHA => Stage::Alpha,
                ALL_BETA => Stage::Beta,
                _ => continue,
            };
            for info in GATES.iter().filter(|info| info.stage == stage) {
                gates.set.insert(info.gate, on);
            }
        }
        for (n, entry) in entries.iter().enumerate() {
            let name = entry.key.as_str();
            if let Some(earlier) = entries[..n].iter().find(|earlier| earlier.key == name) {
                errors.push(ConfigError::Twice {
                    line: entry.line,
                    key: format!("featureGates.{name}"),
                    first: earlier.line,
                });
                continue;
            }
            let of_a_stage = name == ALL_ALPHA || name == ALL_BETA;
            let known = Gate::by_name(name);
            let Node::Bool(on) = &entry.node else {
                if known.is_some() || of_a_stage {
                    errors.push(ConfigError::BadValue {
                        line: entry.line,
                        key: format!("featureGates.{name}"),
                        value: entry.node.to_string(),
                        allowed: Kind::Bool.allowed(),
                    });
                    continue;
                }
                errors.push(unknown(entry));
                continue;
            };
            if of_a_stage {
                continue;
            }
            let Some(gate) = known else {
                errors.push(unknown(entry));
                continue;
            };
            let info = gate.info();
            match info.setting {
                Setting::Locked(instead) if *on != info.default => {
                    errors.push(not_built(
                        entry.line,
                        name,
                        format!("only {} is accepted, {instead}", info.default),
                    ));
                }
                _ if *on && !info.built && !info.default => errors.push(not_built(
                    entry.line,
                    name,
                    "not built in this version, only the default false is accepted".into(),
                )),
                _ => {
                    gates.set.insert(gate, *on);
                }
            }
        }
        // A stage switched on as a whole must not promise what is not there.
        for entry in entries.iter().filter(|e| e.key == ALL_ALPHA && e.node == Node::Bool(true)) {
            let missing: Vec<_> = GATES
                .iter()
                .filter(|i| i.stage == Stage::Alpha && !i.built && gates.configured(i.gate))
                .map(|i| i.name)
                .collect();
            if !missing.is_empty() {
                errors.push(not_built(
                    entry.line,
                    ALL_ALPHA,
                    format!(
                        "switches on what is not built in this version: {}",
                        missing.join(", ")
                    ),
                ));
            }
        }
        gates
    }
}

#[cfg(test)]
mod tests;

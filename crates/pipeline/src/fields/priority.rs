//! Flow priorities.

/// Exceptions to what [`NORMAL`] flows do.
pub const HIGH: u16 = 210;
/// Most flows.
pub const NORMAL: u16 = 200;
/// What is done when no [`NORMAL`] flow took the packet.
pub const LOW: u16 = 190;
/// The table miss.
pub const MISS: u16 = 0;
/// Rules of Antrea policies take priorities below this one.
pub const ESTABLISHED_BYPASS: u16 = 64990;
/// Interception of DNS answers.
pub const DNS_INTERCEPT: u16 = 64991;

/// The lowest priority of a rule of an Antrea policy or an upstream cluster policy.
pub const RULE_MIN: u16 = 100;
/// The highest one.
pub const RULE_MAX: u16 = 64989;
/// The lowest priority of a rule of a baseline tier; below [`NORMAL`], where Pods are isolated.
pub const BASELINE_RULE_MIN: u16 = 10;
/// The highest one.
pub const BASELINE_RULE_MAX: u16 = 180;
/// The lowest priority of clauses of Kubernetes policies' rules. More rules than one flow can
/// hold are spread upwards from here.
pub const K8S_RULE_MIN: u16 = NORMAL;
/// The highest one.
pub const K8S_RULE_MAX: u16 = RULE_MAX;
/// What is done when all clauses of a Kubernetes policy's rule are met.
pub const K8S_RULE_ACTION: u16 = LOW;

//! Network policy on this node: what the controller computed for it becomes flows.
//!
//! One loop (`run`) feeds `policy::realize` with what the watches (`feed`), the Pods' interfaces and
//! the switch say, and carries out what it decides. What was known last is kept on disk (`known`),
//! for a start while no controller answers. A new Pod's port is closed until its policies are known,
//! and that of a Pod which gets another one until they have followed (`gate`, `closings`). How far policies are realized is told to the controller (`report`). What rules reject is
//! answered (`packets`), and what is to be logged is (`audit`). DNS answers to Pods whose rules name
//! peers wait for the flows (`dns`), and names are asked for again (`resolver`). Groups of Services
//! that rules name come from the proxy, before the flows that lead to them (`services`). What rules meet
//! is counted and told (`traffic`).
//!
//! Not here: decisions (`policy::realize`), flows (`pipeline::policy`), answers to what is rejected
//! (`pipeline::reject`), lines of the log (`policy::audit`).

mod after;
mod audit;
mod closings;
mod dns;
mod feed;
mod gate;
mod known;
mod names_page;
mod packets;
mod pods;
mod report;
mod resolver;
mod run;
mod services;
mod traffic;

use pipeline::Category;
use switch::bridge::Owner;
use tokio::sync::watch;

pub(crate) use audit::AuditConfig;
pub use dns::DnsCounts;
pub use gate::Gate;
pub(crate) use names_page::names_page;
pub(crate) use resolver::DnsServer;
pub(crate) use run::{AntreaPolicies, PolicyLoop};
pub(crate) use services::{ServiceEvent, TellPolicies, channel};
pub(crate) use traffic::CountTraffic;

/// Owner of policies' flows on the bridge.
pub const OWNER: Owner = Owner(Category::NetworkPolicy.number());

/// How much of policy this node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Policies.
    pub policies: usize,
    /// Groups of peers.
    pub address_groups: usize,
    /// Groups of targets.
    pub applied_to_groups: usize,
    /// Rules for what Pods get.
    pub ingress_rules: usize,
    /// Rules for what Pods send.
    pub egress_rules: usize,
    /// Whether all watches stand.
    pub connected: bool,
}

/// Follows the counts.
pub type CountsRx = watch::Receiver<Counts>;

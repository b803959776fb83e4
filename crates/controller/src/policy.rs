//! Network policy: reads the cluster, computes what agents are told, and keeps it to be served.
//!
//! Every replica does all of this alike; only the leader writes statuses. Not here: the computation
//! (`policy`), HTTP (`apiserver`).

mod feed;
mod groups;
mod peers;
mod questions;
mod report;
mod source;
mod state;
pub(crate) mod tiers;
mod traffic;
mod webhooks;

pub(crate) use feed::run as feed;
pub(crate) use groups::write as write_group_statuses;
pub(crate) use peers::tell as tell_peers;
pub(crate) use questions::resources as questions;
pub(crate) use report::{Reports, StatusEndpoint, follow_facts, write as write_statuses};
pub(crate) use source::{Agents, NODE_NAME, PolicySource};
pub(crate) use state::State;
pub(crate) use traffic::{Statistics, forget as forget_traffic, resources as statistics};
pub(crate) use webhooks::pages as webhook_pages;

//! What the webhooks say: which of a user's objects can be meant, and what is filled in.
//!
//! Pure: an object and what the cluster has, in; refusals, each with field and reason, or a patch,
//! out. An object that got past (as one made while no webhook answered) is no danger: translation
//! takes what cannot be meant for something that matches nothing.
//!
//! Not here: HTTP (`controller`), what the schema of a kind refuses (`apis`).

mod group;
mod mutate;
mod policy;
#[cfg(test)]
mod tests;
mod tier;

use std::fmt;

use apis::policy::GroupSpec;

pub use group::group;
pub use mutate::mutate_policy;
pub use policy::{PolicyScope, policy, warnings};
pub use tier::{create_tier, create_upstream, delete_tier, update_tier};

use crate::translate::Engine;

/// Why an object is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where in the object.
    pub field: String,
    /// What is wrong there.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

/// What an object is judged against.
pub trait Cluster {
    /// Names and priorities of all tiers.
    fn tiers(&self) -> Vec<(String, i32)>;
    /// Whether a policy is of a tier.
    fn tier_is_used(&self, name: &str) -> bool;
    /// A Group, or a ClusterGroup where the namespace is empty.
    fn group(&self, namespace: &str, name: &str) -> Option<GroupSpec>;
    /// A group that has this one as a child.
    fn parent_of(&self, namespace: &str, name: &str) -> Option<String>;
}

impl Cluster for Engine {
    fn tiers(&self) -> Vec<(String, i32)> {
        self.all_tiers().map(|(name, priority)| (name.to_owned(), priority)).collect()
    }

    fn tier_is_used(&self, name: &str) -> bool {
        self.uses_tier(name)
    }

    fn group(&self, namespace: &str, name: &str) -> Option<GroupSpec> {
        self.group_spec(namespace, name).cloned()
    }

    fn parent_of(&self, namespace: &str, name: &str) -> Option<String> {
        self.parent_group(namespace, name).map(str::to_owned)
    }
}

/// Collects refusals.
#[derive(Debug, Default)]
struct Refusals(Vec<Refusal>);

impl Refusals {
    fn add(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.0.push(Refusal { field: field.into(), reason: reason.into() });
    }
}

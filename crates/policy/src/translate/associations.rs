//! Who belongs to the groups that users named, and to which of them a Pod or an address belongs.
//!
//! Asked of the groups themselves, whether policies use them or not.

use std::collections::BTreeSet;
use std::net::IpAddr;

use apis::controlplane::GroupMember;
use ipnet::IpNet;

use super::Engine;
use super::draft::{GroupKind, GroupSource, Needs, PodsSpec, ScopeSpec};
use super::members::{fits, node_member, pod_member};
use super::natives::Resolved;
use crate::index::CohortId;

/// Members of a named group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedMembers {
    /// Pods and Nodes, in order.
    pub members: Vec<GroupMember>,
    /// Networks.
    pub networks: Vec<IpNet>,
}

/// Namespace (empty for a ClusterGroup) and name of a group.
pub type NamedGroup = (String, String);

impl Engine {
    /// All groups that users named.
    pub fn named_groups(&self) -> Vec<NamedGroup> {
        let names = self.natives.group_names();
        names.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect()
    }

    fn resolved(&self, namespace: &str, name: &str) -> Option<Resolved> {
        self.group_spec(namespace, name)?;
        Some(self.natives.resolve(namespace, name, &mut Needs::default()))
    }

    /// The members of a named group; `None` if there is no such group.
    pub fn named_members(&self, namespace: &str, name: &str) -> Option<NamedMembers> {
        let resolved = self.resolved(namespace, name)?;
        let mut members = BTreeSet::new();
        if !resolved.source.pods.is_empty() {
            for (pod, record) in self.index.pods().filter(|(_, own)| fits(GroupKind::Address, own))
            {
                let cohort = self.index.pod(pod).map(|(cohort, _)| cohort);
                if cohort.is_some_and(|cohort| self.source_has(&resolved.source, cohort)) {
                    members.insert(pod_member(GroupKind::Address, record));
                }
            }
        }
        for selector in &resolved.source.nodes {
            let nodes = self.index.seen_nodes();
            let nodes = nodes.filter(|node| self.index.selects_node(selector, *node));
            members
                .extend(nodes.filter_map(|id| self.index.node(id)).map(|node| node_member(node)));
        }
        let networks = resolved.ip_blocks.iter().map(|block| block.cidr).collect();
        Some(NamedMembers { members: members.into_iter().collect(), networks })
    }

    /// What is wrong with a named group; empty if nothing is.
    pub fn named_problems(&self, namespace: &str, name: &str) -> Vec<String> {
        self.resolved(namespace, name).map(|resolved| resolved.problems).unwrap_or_default()
    }

    /// Whether a child of a named group has children itself.
    pub fn nests_too_deep(&self, namespace: &str, name: &str) -> bool {
        let children = self.group_spec(namespace, name).map(|spec| spec.child_groups.as_slice());
        children.unwrap_or_default().iter().any(|child| {
            let child = self.group_spec(namespace, child);
            child.is_some_and(|spec| !spec.child_groups.is_empty())
        })
    }

    /// The groups that a Pod belongs to; `None` if there is no such Pod.
    pub fn groups_of_pod(&self, namespace: &str, pod: &str) -> Option<Vec<NamedGroup>> {
        let placed = self.index.find_pod(namespace, pod)?;
        let (cohort, record) = self.index.pod(placed.pod)?;
        if !fits(GroupKind::Address, record) {
            return Some(Vec::new());
        }
        Some(self.groups_with(|resolved| self.source_has(&resolved.source, cohort)))
    }

    /// The groups that an address belongs to: as a Pod's, a Node's, or that of a network.
    pub fn groups_of_ip(&self, ip: IpAddr) -> Vec<NamedGroup> {
        let pods = self.index.pods().filter(|(_, record)| fits(GroupKind::Address, record));
        let pods = pods.filter(|(_, record)| record.ips().any(|own| own == ip));
        let cohorts: Vec<CohortId> =
            pods.filter_map(|(pod, _)| self.index.pod(pod).map(|(cohort, _)| cohort)).collect();
        let nodes = self.index.seen_nodes();
        let nodes: Vec<_> = nodes
            .filter(|id| self.index.node(*id).is_some_and(|node| node.ips().contains(&ip)))
            .collect();
        self.groups_with(|resolved| {
            let source = &resolved.source;
            let in_network = resolved.ip_blocks.iter().any(|block| {
                block.cidr.contains(&ip) && !block.except.iter().any(|own| own.contains(&ip))
            });
            let is_node = || {
                let mut selectors = source.nodes.iter();
                selectors.any(|own| nodes.iter().any(|node| self.index.selects_node(own, *node)))
            };
            in_network || cohorts.iter().any(|cohort| self.source_has(source, *cohort)) || is_node()
        })
    }

    fn groups_with(&self, has: impl Fn(&Resolved) -> bool) -> Vec<NamedGroup> {
        let mut groups = self.named_groups();
        groups.retain(|(namespace, name)| {
            self.resolved(namespace, name).is_some_and(|own| has(&own))
        });
        groups
    }

    fn source_has(&self, source: &GroupSource, cohort: CohortId) -> bool {
        let namespace = self.index.namespace_of(cohort);
        source.pods.iter().any(|PodsSpec { scope, pods }| {
            let in_scope = match scope {
                ScopeSpec::Namespace(name) => self.index.namespace_name(namespace) == &**name,
                ScopeSpec::Namespaces(selector) => {
                    let labels = self.index.namespace_labels(namespace);
                    labels.is_some_and(|labels| selector.matches(labels))
                }
            };
            in_scope && pods.matches(self.index.labels_of(cohort))
        })
    }
}

//! ClusterGroups and Groups.

use apis::policy::GroupSpec;

use super::policy::{check_block, is_multicast};
use super::{Cluster, Refusal, Refusals};
use crate::index::Selector;

/// Judges a group; the namespace is empty for a ClusterGroup.
pub fn group(
    cluster: &impl Cluster,
    namespace: &str,
    name: &str,
    spec: &GroupSpec,
) -> Vec<Refusal> {
    let mut refusals = Refusals::default();
    kinds(&mut refusals, namespace, spec);
    let selectors = [
        ("podSelector", &spec.pod_selector),
        ("namespaceSelector", &spec.namespace_selector),
        ("nodeSelector", &spec.node_selector),
    ];
    for (field, selector) in selectors {
        if let Some(Err(error)) = selector.as_ref().map(Selector::compile) {
            refusals.add(format!("spec.{field}"), error.to_string());
        }
    }
    let mut multicast = [false, false];
    for (n, block) in spec.ip_blocks.iter().enumerate() {
        check_block(&mut refusals, &format!("spec.ipBlocks[{n}]"), block);
        multicast[usize::from(is_multicast(&block.cidr))] = true;
    }
    if multicast == [true, true] {
        refusals.add("spec.ipBlocks", "multicast goes with no unicast");
    }
    children(cluster, &mut refusals, namespace, name, spec);
    refusals.0
}

fn kinds(refusals: &mut Refusals, namespace: &str, spec: &GroupSpec) {
    let kinds = [
        spec.pod_selector.is_some(),
        spec.node_selector.is_some(),
        spec.external_entity_selector.is_some(),
        spec.service_reference.is_some(),
        !spec.ip_blocks.is_empty(),
        !spec.child_groups.is_empty(),
    ];
    let n_kinds = kinds.iter().filter(|set| **set).count();
    if n_kinds > 1 {
        refusals.add(
            "spec",
            "selectors, ipBlocks, serviceReference and childGroups exclude each other",
        );
    } else if spec.namespace_selector.is_some()
        && n_kinds == 1
        && spec.pod_selector.is_none()
        && spec.external_entity_selector.is_none()
    {
        refusals.add("spec.namespaceSelector", "it goes with podSelector alone");
    }
    if !namespace.is_empty() && spec.node_selector.is_some() {
        refusals.add("spec.nodeSelector", "it is for ClusterGroups");
    }
    for (set, field) in [
        (spec.external_entity_selector.is_some(), "externalEntitySelector"),
        (spec.service_reference.is_some(), "serviceReference"),
    ] {
        if set {
            refusals.add(format!("spec.{field}"), "it is not supported yet");
        }
    }
}

fn children(
    cluster: &impl Cluster,
    refusals: &mut Refusals,
    namespace: &str,
    name: &str,
    spec: &GroupSpec,
) {
    if spec.child_groups.is_empty() {
        return;
    }
    if let Some(parent) = cluster.parent_of(namespace, name).filter(|parent| parent != name) {
        let reason = format!("group {name:?} is a child of {parent:?} and cannot have children");
        refusals.add("spec.childGroups", reason);
    }
    for (n, child) in spec.child_groups.iter().enumerate() {
        let field = format!("spec.childGroups[{n}]");
        if child == name {
            refusals.add(field, "a group cannot be its own child");
        } else if cluster.group(namespace, child).is_some_and(|spec| !spec.child_groups.is_empty())
        {
            refusals.add(field, format!("group {child:?} has children itself"));
        }
    }
}

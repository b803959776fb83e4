//! ClusterGroups and Groups, and other ways to name peers indirectly.

use std::net::IpAddr;

use apis::policy::{GroupSpec, IpBlock};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::cluster::node_addrs;
use super::compile::{Compiler, Meant, Place, meant};
use super::rule::{Namespaces, Peer, Pods};
use super::selector;

impl<'a> Compiler<'a> {
    /// Members of a group that a policy names; one of the policy's Namespace, if it has one.
    pub(super) fn group(&mut self, at: Place<'_>, field: &str, name: &str) -> Meant<Vec<Peer>> {
        let Some(spec) = self.group_spec(at.namespace, name) else {
            return self.fault(at, field, format!("there is no group {name:?}"));
        };
        if spec.child_groups.is_empty() {
            return self.group_itself(at, field, spec);
        }
        let mut members = Vec::new();
        for child in &spec.child_groups {
            // One level only: a child with children has no members of its own to give.
            if let Some(spec) = self.group_spec(at.namespace, child)
                && spec.child_groups.is_empty()
            {
                members.extend(self.group_itself(at, field, spec).unwrap_or_default());
            }
        }
        Ok(members)
    }

    /// Looks for mistakes in groups, whether a policy names them or not.
    pub(super) fn all_groups(&mut self) {
        let cluster = self.objects.cluster_groups.iter().map(|group| {
            ("ClusterGroup", "", group.metadata.name.as_deref().unwrap_or_default(), &group.spec)
        });
        let namespaced = self.objects.groups.iter().map(|group| {
            let namespace = group.metadata.namespace.as_deref().unwrap_or("default");
            ("Group", namespace, group.metadata.name.as_deref().unwrap_or_default(), &group.spec)
        });
        for (kind, namespace, name, spec) in cluster.chain(namespaced) {
            let at = Place { kind, group: "crd.antrea.io", namespace, name };
            if spec.child_groups.is_empty() {
                let _ = self.group_itself(at, "", spec);
            }
            for child in &spec.child_groups {
                let reason = match self.group_spec(namespace, child) {
                    _ if child == name => format!("{child:?} is the group itself"),
                    None => format!("there is no group {child:?}"),
                    Some(spec) if !spec.child_groups.is_empty() => {
                        format!("{child:?} has children of its own")
                    }
                    Some(_) => continue,
                };
                let _ = self.fault::<()>(at, "childGroups", reason);
            }
        }
    }

    fn group_spec(&self, namespace: &str, name: &str) -> Option<&'a GroupSpec> {
        let objects = self.objects;
        if namespace.is_empty() {
            let mut groups = objects.cluster_groups.iter();
            return groups.find(|g| g.metadata.name.as_deref() == Some(name)).map(|g| &g.spec);
        }
        let is_it = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            metadata.name.as_deref() == Some(name)
                && metadata.namespace.as_deref().unwrap_or("default") == namespace
        };
        objects.groups.iter().find(|group| is_it(&group.metadata)).map(|group| &group.spec)
    }

    /// Members of a group without children.
    fn group_itself(&mut self, at: Place<'_>, field: &str, spec: &GroupSpec) -> Meant<Vec<Peer>> {
        let criteria = [
            spec.pod_selector.is_some(),
            spec.node_selector.is_some(),
            spec.external_entity_selector.is_some(),
            !spec.ip_blocks.is_empty(),
            spec.service_reference.is_some(),
        ];
        let n_criteria = criteria.iter().filter(|is_set| **is_set).count();
        let with_namespaces = spec.namespace_selector.is_some();
        let may_have_namespaces = n_criteria == 0 || spec.pod_selector.is_some();
        if n_criteria > 1 || with_namespaces && !may_have_namespaces {
            return self.fault(at, field, "a group has one way to tell its members");
        }
        if spec.external_entity_selector.is_some() {
            return self.fault(at, field, "externalEntitySelector is not supported yet");
        }
        if let Some(nodes) = &spec.node_selector {
            let nodes = self.selector(at, field, nodes)?;
            return Ok(vec![Peer::Addrs(self.node_addrs(&nodes))]);
        }
        if let Some(service) = &spec.service_reference {
            return Ok(self.service_pods(&service.namespace, &service.name));
        }
        if !spec.ip_blocks.is_empty() {
            return Ok(meant(spec.ip_blocks.iter().map(|block| self.ip_block(at, field, block))));
        }
        if n_criteria == 0 && !with_namespaces {
            return Ok(Vec::new());
        }
        let pods = self.optional_selector(at, field, spec.pod_selector.as_ref())?;
        let namespaces =
            match self.optional_selector(at, field, spec.namespace_selector.as_ref())? {
                Some(selector) => Namespaces::Labelled(selector),
                None if at.namespace.is_empty() => Namespaces::All,
                None => Namespaces::Named(at.namespace.to_owned()),
            };
        Ok(vec![Peer::Pods(Pods::new(namespaces, pods))])
    }

    pub(super) fn ip_block(&mut self, at: Place<'_>, field: &str, block: &IpBlock) -> Meant<Peer> {
        self.block(at, field, &block.cidr, &block.except)
    }

    /// Pods behind a Service; none if it does not select any.
    fn service_pods(&self, namespace: &str, name: &str) -> Vec<Peer> {
        let mut services = self.objects.services.iter();
        let service = services.find(|service| {
            service.metadata.name.as_deref() == Some(name)
                && service.metadata.namespace.as_deref().unwrap_or("default") == namespace
        });
        let labels = service
            .and_then(|service| service.spec.as_ref())
            .and_then(|spec| spec.selector.clone())
            .filter(|labels| !labels.is_empty());
        let pods = labels.map(|labels| {
            let selector = LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
            Peer::Pods(Pods::new(Namespaces::Named(namespace.to_owned()), Some(selector)))
        });
        pods.into_iter().collect()
    }

    /// Addresses of Nodes with these labels.
    pub(super) fn node_addrs(&self, wanted: &LabelSelector) -> Vec<IpAddr> {
        let no_labels = selector::Labels::new();
        let nodes = self.objects.nodes.iter().filter(|node| {
            selector::matches(wanted, node.metadata.labels.as_ref().unwrap_or(&no_labels))
        });
        let mut addrs: Vec<_> = nodes.flat_map(node_addrs).collect();
        addrs.sort_unstable();
        addrs.dedup();
        addrs
    }

    /// Addresses that names are known to have; `*` stands for any run of characters.
    pub(super) fn name_addrs(&self, wanted: &str) -> Vec<IpAddr> {
        let wanted = wanted.trim_end_matches('.').to_ascii_lowercase();
        let names = self.objects.names.iter().filter(|(name, _)| name_matches(&wanted, name));
        names.map(|(_, addr)| *addr).collect()
    }
}

/// Whether a name is one that a pattern with `*` stands for.
fn name_matches(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut pieces: Vec<_> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::name_matches;

    #[test]
    fn patterns_of_names() {
        for (pattern, name, want) in [
            ("a.io", "a.io", true),
            ("a.io", "b.a.io", false),
            ("*.a.io", "b.a.io", true),
            ("*.a.io", "c.b.a.io", true),
            ("*.a.io", "a.io", false),
            ("*a*", "xay", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
            ("*", "anything", true),
        ] {
            assert_eq!(name_matches(pattern, name), want, "{pattern} {name}");
        }
    }
}

//! Peers of a rule: what they say, and what cannot be meant.

use apis::controlplane::{Direction, NetworkPolicyPeer, ObjectName, RuleAction, Service};
use apis::policy::{NamespaceMatch, NetworkPolicyPeer as Peer, Rule, Scope};

use super::{NOT_YET, Policy, Sides, account_pods};
use crate::index::Selector;
use crate::translate::draft::{GroupKind, GroupSource, PodsSpec, ScopeSpec};
use crate::translate::k8s::all_pods;
use crate::translate::name::GroupName;
use crate::translate::natives::{compile, pods_spec};
use crate::translate::traffic::{Services, anywhere, has_named_port, ip_block};

impl Policy<'_> {
    pub(super) fn sides<'r>(
        &mut self,
        direction: Direction,
        field: &str,
        rule: &'r Rule,
        services: &[Service],
    ) -> Sides<'r> {
        let (peers, word) = match direction {
            Direction::In => (&rule.from, "from"),
            Direction::Out => (&rule.to, "to"),
        };
        let mut sides = Sides { fixed: NetworkPolicyPeer::default(), relative: Vec::new() };
        if !rule.to_services.is_empty() {
            self.peer_services(direction, field, rule, &mut sides.fixed);
            return sides;
        }
        if peers.is_empty() {
            sides.fixed.ip_blocks = anywhere();
            if direction == Direction::Out && has_named_port(&Services::Of(services.to_vec())) {
                sides.fixed.address_groups.push(all_pods(&mut self.draft));
            }
            return sides;
        }
        for (n, peer) in peers.iter().enumerate() {
            let added = match &peer.namespaces {
                Some(_) => check_relative(self.namespace, peer).map(|()| sides.relative.push(peer)),
                None => self.peer(direction, rule, peer, &mut sides.fixed),
            };
            if let Err(error) = added {
                self.draft.report(format!("{field}.{word}[{n}]"), error);
            }
        }
        sides
    }

    fn peer_services(
        &mut self,
        direction: Direction,
        field: &str,
        rule: &Rule,
        all: &mut NetworkPolicyPeer,
    ) {
        let field = format!("{field}.toServices");
        if direction == Direction::In {
            self.draft.report(field, "toServices is for egress rules");
            return;
        }
        if !rule.to.is_empty() || !rule.ports.is_empty() || !rule.protocols.is_empty() {
            self.draft.report(field, "toServices goes with no to, ports or protocols");
            return;
        }
        for (n, service) in rule.to_services.iter().enumerate() {
            let own = (!self.namespace.is_empty()).then_some(self.namespace);
            let named = service.namespace.as_deref().filter(|namespace| !namespace.is_empty());
            let found = match (check_scope(service.scope.as_ref()), named.or(own)) {
                (Err(error), _) => Err(error),
                (Ok(()), None) => Err("a Service needs a namespace".to_owned()),
                (Ok(()), Some(namespace)) => {
                    Ok(ObjectName { namespace: namespace.into(), name: service.name.clone() })
                }
            };
            match found {
                Ok(service) if all.to_services.contains(&service) => {}
                Ok(service) => all.to_services.push(service),
                Err(error) => self.draft.report(format!("{field}[{n}]"), error),
            }
        }
    }

    fn peer(
        &mut self,
        direction: Direction,
        rule: &Rule,
        peer: &Peer,
        all: &mut NetworkPolicyPeer,
    ) -> Result<(), String> {
        let selects = peer.pod_selector.is_some() || peer.namespace_selector.is_some();
        let kinds = [
            selects,
            peer.ip_block.is_some(),
            peer.group.is_some(),
            peer.fqdn.is_some(),
            peer.service_account.is_some(),
            peer.node_selector.is_some(),
            peer.external_entity_selector.is_some(),
        ];
        match kinds.iter().filter(|set| **set).count() {
            1 => {}
            0 => return Err("the peer is empty".into()),
            _ => return Err("fields that exclude each other".into()),
        }
        check_scope(peer.scope.as_ref())?;
        if peer.external_entity_selector.is_some() {
            return Err(format!("externalEntitySelector {NOT_YET}"));
        }
        if let Some(block) = &peer.ip_block {
            all.ip_blocks.push(ip_block(&block.cidr, block.except.iter().map(String::as_str))?);
        } else if let Some(fqdn) = &peer.fqdn {
            if direction == Direction::In {
                return Err("fqdn is for egress rules".into());
            }
            if rule.action == RuleAction::Pass {
                return Err("fqdn goes with no Pass".into());
            }
            check_fqdn(fqdn)?;
            all.fqdns.push(fqdn.to_ascii_lowercase());
        } else if let Some(name) = &peer.group {
            self.named_peer(name, all)?;
        } else if let Some(account) = &peer.service_account {
            if !self.namespace.is_empty() {
                return Err("serviceAccount is for cluster-wide policies".into());
            }
            let pods = account_pods(&account.namespace, &account.name);
            add_group(all, self.draft.refer_pods(GroupKind::Address, pods));
        } else if let Some(selector) = &peer.node_selector {
            let nodes = compile(selector)?;
            let name = GroupName::of_nodes(&nodes);
            let source = GroupSource { nodes: vec![nodes], ..GroupSource::default() };
            add_group(all, self.draft.refer(GroupKind::Address, name, source));
        } else {
            let (pods, namespaces) = (peer.pod_selector.as_ref(), peer.namespace_selector.as_ref());
            let pods = pods_spec(self.namespace, pods, namespaces)?;
            add_group(all, self.draft.refer_pods(GroupKind::Address, pods));
        }
        Ok(())
    }

    fn named_peer(&mut self, name: &str, all: &mut NetworkPolicyPeer) -> Result<(), String> {
        let mut needs = std::mem::take(&mut self.draft.needs);
        let resolved = self.context.natives.resolve(self.namespace, name, &mut needs);
        self.draft.needs = needs;
        all.ip_blocks.extend(resolved.ip_blocks);
        if !resolved.source.pods.is_empty() || !resolved.source.nodes.is_empty() {
            let group = GroupName::of_named(self.namespace, name);
            add_group(all, self.draft.refer(GroupKind::Address, group, resolved.source));
        }
        for problem in resolved.problems {
            self.draft.report(format!("group {name}"), problem);
        }
        Ok(())
    }
}

pub(super) fn add_group(peer: &mut NetworkPolicyPeer, name: String) {
    if !peer.address_groups.contains(&name) {
        peer.address_groups.push(name);
    }
}

fn check_scope(scope: Option<&Scope>) -> Result<(), String> {
    match scope {
        None | Some(Scope::Cluster) => Ok(()),
        Some(Scope::ClusterSet) => Err(format!("scope ClusterSet {NOT_YET}")),
        Some(Scope::Unknown(word)) => Err(format!("unknown scope {word:?}")),
    }
}

/// Names that a rule may have: letters, digits, `-`, `.` and `*`.
fn check_fqdn(fqdn: &str) -> Result<(), String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-.*".contains(letter);
    match fqdn.is_empty() || !fqdn.chars().all(fits) {
        true => Err(format!("{fqdn:?} is no domain name")),
        false => Ok(()),
    }
}

fn check_relative(namespace: &str, peer: &Peer) -> Result<(), String> {
    check_scope(peer.scope.as_ref())?;
    if !namespace.is_empty() {
        return Err("namespaces is for cluster-wide policies".into());
    }
    let others = peer.namespace_selector.is_some()
        || peer.ip_block.is_some()
        || peer.group.is_some()
        || peer.fqdn.is_some()
        || peer.service_account.is_some()
        || peer.node_selector.is_some()
        || peer.external_entity_selector.is_some();
    if others {
        return Err("namespaces goes with podSelector alone".into());
    }
    let Some(namespaces) = &peer.namespaces else { return Ok(()) };
    match (&namespaces.match_, namespaces.same_labels.is_empty()) {
        (Some(NamespaceMatch::SelfNamespace), true) | (None, false) => Ok(()),
        (Some(NamespaceMatch::Unknown(word)), _) => Err(format!("unknown match {word:?}")),
        _ => Err("one of match and sameLabels is needed".into()),
    }
}

/// The Pods that a peer stands for in the eyes of a namespace's Pods; `None` if there are none.
pub(super) fn relative_pods(
    peer: &Peer,
    namespace: &str,
    labels: &crate::index::Labels,
) -> Result<Option<PodsSpec>, String> {
    let pods = peer.pod_selector.as_ref().map_or_else(|| Ok(Selector::everything()), compile)?;
    let Some(namespaces) = &peer.namespaces else { return Ok(None) };
    if namespaces.same_labels.is_empty() {
        return Ok(Some(PodsSpec { scope: ScopeSpec::Namespace(namespace.into()), pods }));
    }
    let mut selector = Selector::everything();
    for key in &namespaces.same_labels {
        let value = labels.get(key).and_then(|value| std::str::from_utf8(value).ok());
        let Some(value) = value else { return Ok(None) };
        selector = selector.and(&Selector::equal(key, value));
    }
    Ok(Some(PodsSpec { scope: ScopeSpec::Namespaces(selector), pods }))
}

//! A cluster beside an engine, and a listener that believes nothing but changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::controlplane::{GroupMember, NetworkPolicy, NetworkPolicyRule};
use serde_json::{Value, json};

use super::super::*;
use crate::index::{NamespaceInput, NodeId, PodInput};

/// What a listener knows of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    pub(super) nodes: BTreeSet<Arc<str>>,
    pub(super) policy: Option<NetworkPolicy>,
    pub(super) members: BTreeSet<(Option<Arc<str>>, GroupMember)>,
}

#[derive(Default)]
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) told: BTreeMap<(ObjectKind, Arc<str>), Told>,
}

pub(super) fn mk_labels(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter(|part| !part.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap();
            (key.into(), value.into())
        })
        .collect()
}

pub(super) fn mk_pod(namespace: &str, name: &str, labels: &str, node: &str, ip: &str) -> PodInput {
    PodInput {
        namespace: namespace.into(),
        name: name.into(),
        labels: mk_labels(labels),
        service_account: "default".into(),
        node: node.into(),
        ips: vec![ip.parse().unwrap()],
        ..PodInput::default()
    }
}

pub(super) fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(super) fn mk_k8s(namespace: &str, name: &str, uid: u32, spec: Value) -> Event {
    let policy = json!({
        "metadata": {"namespace": namespace, "name": name, "generation": 1,
            "uid": format!("{namespace}/{name}/{uid}")},
        "spec": spec,
    });
    Event::K8sPolicy(Box::new(serde_json::from_value(policy).unwrap()))
}

impl World {
    pub(super) fn step(&mut self, event: Event) -> Changes {
        let changes = self.engine.step(event);
        self.listen(&changes);
        changes
    }

    pub(super) fn pod(&mut self, pod: PodInput) -> Changes {
        self.step(Event::Pod(pod))
    }

    pub(super) fn pod_gone(&mut self, namespace: &str, name: &str) -> Changes {
        self.step(Event::PodGone { namespace: namespace.into(), name: name.into() })
    }

    pub(super) fn namespace(&mut self, name: &str, labels: &str) -> Changes {
        self.step(Event::Namespace(NamespaceInput {
            name: name.into(),
            labels: mk_labels(labels),
            log_policies: false,
        }))
    }

    pub(super) fn k8s(&mut self, namespace: &str, name: &str, uid: u32, spec: Value) -> Changes {
        self.step(mk_k8s(namespace, name, uid, spec))
    }

    pub(super) fn policy_gone(&mut self, uid: &str) -> Changes {
        self.step(Event::PolicyGone { kind: PolicyKind::K8s, uid: uid.into() })
    }

    pub(super) fn policy(&self, uid: &str) -> NetworkPolicy {
        let Some(ObjectId::Policy(id)) = self.engine.find(ObjectKind::NetworkPolicy, uid) else {
            panic!("no policy {uid}")
        };
        self.engine.policy(id).unwrap()
    }

    pub(super) fn members(&self, kind: ObjectKind, name: &str) -> BTreeSet<String> {
        let Some(ObjectId::Group(id)) = self.engine.find(kind, name) else {
            panic!("no group {name}")
        };
        let members = match kind {
            ObjectKind::AddressGroup => self.engine.address_group(id).unwrap().group_members,
            _ => self.engine.applied_to_group(id, None).unwrap().group_members,
        };
        members.iter().map(text).collect()
    }

    pub(super) fn targets(&self, policy: &NetworkPolicy) -> BTreeSet<String> {
        let groups = policy.applied_to_groups.iter();
        groups.flat_map(|name| self.members(ObjectKind::AppliedToGroup, name)).collect()
    }

    pub(super) fn peers(&self, rule: &NetworkPolicyRule) -> BTreeSet<String> {
        let groups = rule.peer().address_groups.iter();
        groups.flat_map(|name| self.members(ObjectKind::AddressGroup, name)).collect()
    }

    fn names_of(&self, nodes: &[NodeId]) -> BTreeSet<Arc<str>> {
        nodes.iter().map(|node| Arc::clone(self.engine.index().node_name(*node))).collect()
    }

    /// Takes changes as a listener does that was told all before.
    fn listen(&mut self, changes: &Changes) {
        for change in &changes.objects {
            let key = (change.kind, Arc::clone(&change.name));
            let known = self.told.get(&key).map(|told| told.nodes.clone());
            let before = change.before.as_ref().map(|span| self.names_of(span.nodes()));
            assert_eq!(known, before, "the span before {change:?}");
            let Some(after) = &change.after else {
                self.told.remove(&key);
                continue;
            };
            let nodes = self.names_of(after.nodes());
            match &change.content {
                Content::Whole => {
                    let told = self.now(change.id);
                    self.told.insert(key, told);
                }
                Content::Same => self.told.get_mut(&key).unwrap().nodes = nodes,
                Content::Members { added, removed } => {
                    let name = |member: &NodeMember| {
                        let node =
                            member.node.filter(|_| change.kind == ObjectKind::AppliedToGroup);
                        let node = node.map(|node| Arc::clone(self.engine.index().node_name(node)));
                        (node, member.member.clone())
                    };
                    let removed: Vec<_> = removed.iter().map(name).collect();
                    let added: Vec<_> = added.iter().map(name).collect();
                    let told = self.told.get_mut(&key).unwrap();
                    told.nodes = nodes;
                    for member in removed {
                        assert!(told.members.remove(&member), "was no member: {member:?}");
                    }
                    for member in added {
                        assert!(told.members.insert(member.clone()), "was one: {member:?}");
                    }
                }
            }
        }
    }

    /// The object as the engine shows it now.
    fn now(&self, id: ObjectId) -> Told {
        match id {
            ObjectId::Policy(id) => Told {
                nodes: self.names_of(self.engine.policies[id].told.as_ref().unwrap().nodes()),
                policy: Some(self.engine.policy(id).unwrap()),
                members: BTreeSet::new(),
            },
            ObjectId::Group(id) => {
                let group = &self.engine.groups[id];
                let nodes = self.names_of(group.told.as_ref().unwrap().nodes());
                let mut members = BTreeSet::new();
                match group.kind {
                    GroupKind::Address => {
                        let group = self.engine.address_group(id).unwrap();
                        members
                            .extend(group.group_members.into_iter().map(|member| (None, member)));
                    }
                    GroupKind::AppliedTo => {
                        for node in group.told.as_ref().unwrap().nodes() {
                            let name = self.engine.index().node_name(*node);
                            let group = self.engine.applied_to_group(id, Some(*node)).unwrap();
                            assert!(!group.group_members.is_empty());
                            members.extend(
                                group
                                    .group_members
                                    .into_iter()
                                    .map(|member| (Some(Arc::clone(name)), member)),
                            );
                        }
                    }
                }
                Told { nodes, policy: None, members }
            }
        }
    }

    /// All objects as the engine shows them now.
    pub(super) fn all_now(&self) -> BTreeMap<(ObjectKind, Arc<str>), Told> {
        let kinds =
            [ObjectKind::NetworkPolicy, ObjectKind::AppliedToGroup, ObjectKind::AddressGroup];
        let ids = kinds
            .into_iter()
            .flat_map(|kind| self.engine.list(kind, None).into_iter().map(move |id| (kind, id)));
        ids.map(|(kind, id)| {
            let name: Arc<str> = self.engine.name(id).unwrap().into();
            ((kind, name), self.now(id))
        })
        .collect()
    }

    /// Whoever listened to changes knows what whoever looks now sees, and each Node's list is what
    /// spans say.
    pub(super) fn check(&self) {
        let now = self.all_now();
        assert_eq!(self.told, now);
        let kinds =
            [ObjectKind::NetworkPolicy, ObjectKind::AppliedToGroup, ObjectKind::AddressGroup];
        for node in self.engine.index().all_nodes() {
            let node_name = self.engine.index().node_name(node);
            for kind in kinds {
                let listed: BTreeSet<String> = self
                    .engine
                    .list(kind, Some(node))
                    .into_iter()
                    .map(|id| self.engine.name(id).unwrap())
                    .collect();
                let spanned: BTreeSet<String> = now
                    .iter()
                    .filter(|((own, _), told)| *own == kind && told.nodes.contains(node_name))
                    .map(|((_, name), _)| (**name).to_owned())
                    .collect();
                assert_eq!(listed, spanned, "{kind:?} on {node_name}");
            }
        }
    }
}

/// A member in short.
pub(super) fn text(member: &GroupMember) -> String {
    let mut text = match (&member.pod, &member.node) {
        (Some(pod), _) => format!("{}/{}", pod.namespace, pod.name),
        (None, Some(node)) => node.name.clone(),
        _ => "?".to_owned(),
    };
    for ip in &member.ips {
        text += &format!(" {ip}");
    }
    for port in &member.ports {
        text += &format!(" {}={}/{}", port.name, port.port, port.protocol);
    }
    text
}

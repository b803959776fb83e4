use std::collections::BTreeMap;

use apis::controlplane::{
    AddressGroup, AddressGroupPatch, AppliedToGroup, AppliedToGroupPatch, GroupMember,
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::index::{NamespaceInput, PodInput};
use crate::translate::PolicyKind;

/// A reader that keeps what it is told, as an agent does.
#[derive(Debug, Default, PartialEq)]
struct Copy {
    policies: BTreeMap<String, bytes::Bytes>,
    groups: BTreeMap<(ObjectKind, String), Vec<GroupMember>>,
}

const KINDS: [ObjectKind; 3] =
    [ObjectKind::NetworkPolicy, ObjectKind::AppliedToGroup, ObjectKind::AddressGroup];

impl Copy {
    fn whole(&mut self, kind: ObjectKind, item: &Item) {
        let key = (kind, item.name().to_owned());
        match kind {
            ObjectKind::NetworkPolicy => {
                self.policies.insert(item.name().to_owned(), item.protobuf(1));
            }
            ObjectKind::AppliedToGroup => {
                self.groups.insert(key, item.decode::<AppliedToGroup>().group_members);
            }
            ObjectKind::AddressGroup => {
                self.groups.insert(key, item.decode::<AddressGroup>().group_members);
            }
        }
    }

    fn take(&mut self, kind: ObjectKind, delta: &Delta) {
        let key = (kind, delta.item.name().to_owned());
        let known = match kind {
            ObjectKind::NetworkPolicy => self.policies.contains_key(&key.1),
            _ => self.groups.contains_key(&key),
        };
        assert_eq!(known, delta.kind != DeltaKind::Added, "{delta:?}");
        match (delta.kind, kind) {
            (DeltaKind::Deleted, ObjectKind::NetworkPolicy) => {
                self.policies.remove(&key.1);
            }
            (DeltaKind::Deleted, _) => {
                self.groups.remove(&key);
            }
            (DeltaKind::Modified, ObjectKind::AddressGroup) => {
                let patch = delta.item.decode::<AddressGroupPatch>();
                self.patch(key, patch.added_group_members, &patch.removed_group_members);
            }
            (DeltaKind::Modified, ObjectKind::AppliedToGroup) => {
                let patch = delta.item.decode::<AppliedToGroupPatch>();
                self.patch(key, patch.added_group_members, &patch.removed_group_members);
            }
            _ => self.whole(kind, &delta.item),
        }
    }

    fn patch(
        &mut self,
        key: (ObjectKind, String),
        added: Vec<GroupMember>,
        removed: &[GroupMember],
    ) {
        assert!(!added.is_empty() || !removed.is_empty(), "an empty patch");
        let members = self.groups.get_mut(&key).unwrap();
        for member in removed {
            let at = members.iter().position(|own| own == member).expect("removed a member");
            members.remove(at);
        }
        members.extend(added);
        members.sort();
    }

    fn read(store: &mut Store, reader: Reader) -> Self {
        let mut copy = Self::default();
        for kind in KINDS {
            for item in store.list(kind, reader) {
                copy.whole(kind, &item);
            }
        }
        copy
    }
}

fn mk_pod(namespace: u8, name: u8, label: u8, node: u8) -> PodInput {
    PodInput {
        namespace: format!("n{namespace}"),
        name: format!("p{name}"),
        labels: vec![("app".into(), format!("a{label}"))],
        node: if node == 0 { String::new() } else { format!("node{node}") },
        ips: vec![std::net::IpAddr::from([10, namespace, name, node])],
        ..PodInput::default()
    }
}

fn mk_policy(namespace: u8, name: u8, target: u8, peer: u8) -> Event {
    let policy = json!({
        "metadata": {"namespace": format!("n{namespace}"), "name": format!("k{name}"),
            "uid": format!("{namespace}/{name}")},
        "spec": {
            "podSelector": {"matchLabels": {"app": format!("a{target}")}},
            "ingress": [{"from": [{"namespaceSelector": {},
                "podSelector": {"matchLabels": {"app": format!("a{peer}")}}}]}]},
    });
    Event::K8sPolicy(Box::new(serde_json::from_value(policy).unwrap()))
}

fn event_strategy() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0u8..3, 0u8..5, 0u8..3, 0u8..4).prop_map(|(n, p, l, h)| Event::Pod(mk_pod(n, p, l, h))),
        2 => (0u8..3, 0u8..5).prop_map(|(n, p)| Event::PodGone {
            namespace: format!("n{n}"),
            name: format!("p{p}"),
        }),
        1 => (0u8..3).prop_map(|n| Event::Namespace(NamespaceInput {
            name: format!("n{n}"),
            ..NamespaceInput::default()
        })),
        1 => (0u8..3).prop_map(|n| Event::NamespaceGone { name: format!("n{n}") }),
        3 => (0u8..3, 0u8..3, 0u8..3, 0u8..3).prop_map(|(n, k, t, p)| mk_policy(n, k, t, p)),
        1 => (0u8..3, 0u8..3).prop_map(|(n, k)| Event::PolicyGone {
            kind: PolicyKind::K8s,
            uid: format!("{n}/{k}"),
        }),
    ]
}

proptest! {
    #[test]
    fn whoever_follows_knows_what_whoever_lists_sees(
        first in prop::collection::vec(event_strategy(), 0..20),
        batches in prop::collection::vec(prop::collection::vec(event_strategy(), 1..4), 1..25),
        limit in 1usize..5,
    ) {
        let mut store = Store::new(10_000);
        first.into_iter().for_each(|event| store.apply(event));
        store.commit_first(AsOf::default());
        let names = ["node1", "node2", "node3"];
        let mut copies: BTreeMap<Option<&str>, (u32, Copy)> = BTreeMap::new();
        for name in names {
            let reader = reader(&store, Some(name));
            copies.insert(Some(name), (store.count(), Copy::read(&mut store, reader)));
        }
        copies.insert(None, (store.count(), Copy::read(&mut store, Reader::All)));
        for batch in batches {
            batch.into_iter().for_each(|event| store.apply(event));
            store.commit(AsOf::default());
            for (name, (count, copy)) in &mut copies {
                let reader = reader(&store, *name);
                for kind in KINDS {
                    let mut at = *count;
                    loop {
                        let read = store.changes_after(kind, reader, at, limit).unwrap();
                        read.deltas.iter().for_each(|delta| copy.take(kind, delta));
                        at = read.up_to;
                        if !read.more {
                            break;
                        }
                    }
                }
                *count = store.count();
                let want = Copy::read(&mut store, reader);
                prop_assert_eq!(&*copy, &want, "{:?}", name);
            }
        }
    }
}

fn reader(store: &Store, name: Option<&str>) -> Reader {
    let Some(name) = name else { return Reader::All };
    store.engine().index().find_node(name).map_or(Reader::Stranger, Reader::Node)
}

#[test]
fn old_counts_are_refused_and_encodings_are_shared() {
    let mut store = Store::new(2);
    store.apply(Event::Pod(mk_pod(0, 0, 0, 1)));
    store.apply(mk_policy(0, 0, 0, 0));
    store.commit_first(AsOf::default());
    let first = store.count();
    let node = reader(&store, Some("node1"));
    for kind in [ObjectKind::NetworkPolicy, ObjectKind::AddressGroup] {
        let (a, b) = (store.list(kind, node), store.list(kind, Reader::All));
        let shared = Arc::ptr_eq(&a[0], &b[0]) || a[0].shares_body_with(&b[0]);
        assert!(shared, "{kind:?}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&store.list(ObjectKind::NetworkPolicy, node)[0].json(77)).unwrap();
    assert_eq!(json["kind"], "NetworkPolicy");
    assert_eq!(json["apiVersion"], "controlplane.antrea.io/v1beta2");
    assert_eq!(json["metadata"]["name"], "0/0");
    assert_eq!(json["metadata"]["resourceVersion"], "77");
    for peer in 1..4 {
        store.apply(mk_policy(0, 0, 0, peer % 2));
        store.commit(AsOf::default());
    }
    let kind = ObjectKind::NetworkPolicy;
    assert!(matches!(store.changes_after(kind, node, first, 10), Err(CountError::TooOld { .. })));
    let ahead = store.count() + 1;
    assert!(matches!(store.changes_after(kind, node, ahead, 10), Err(CountError::Ahead { .. })));
    assert!(store.changes_after(kind, node, first - 1, 10).is_err());
}

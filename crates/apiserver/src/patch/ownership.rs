//! Which fields of an object who has applied: sets of fields, as `metadata.managedFields` has them.
//!
//! A set is a tree as Kubernetes writes it (FieldsV1): `f:NAME` is a field, `k:{...}` the member of
//! a list that is found by these keys, `v:...` the member of a list of plain values, `.` the thing
//! itself; a branch without branches of its own is owned whole.

use serde_json::{Map, Value, json};

use crate::schema::{Merge, Struct, Type};

/// A set of fields.
pub(super) type Tree = Map<String, Value>;

/// Fields that are owned and replaced whole, though they are objects.
const ATOMIC: [&str; 6] = [
    "selector",
    "nodeSelector",
    "podSelector",
    "namespaceSelector",
    "labelSelector",
    "matchLabels",
];

/// Metadata that nobody owns.
const UNOWNED: [&str; 11] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
    "selfLink",
    "managedFields",
];

/// The type of a field.
pub(super) fn field<'a>(kind: Option<&'a Type>, name: &str) -> Option<&'a Type> {
    match kind? {
        Type::Struct(shape) => shape.fields.get(name),
        Type::Map(inner) => Some(inner),
        _ => None,
    }
}

/// Whether a field is owned and replaced whole.
pub(super) fn is_atomic(name: &str) -> bool {
    ATOMIC.contains(&name)
}

/// What tells a member of a list from the others.
pub(super) fn member_keys(inner: &Type, key: &str, member: &Value) -> Value {
    let mut keys = json!({ key: member[key] });
    // Ports are told apart by their protocol too.
    if let Type::Struct(shape) = inner
        && shape.fields.contains_key("protocol")
    {
        let protocol = member["protocol"].as_str().unwrap_or("TCP");
        keys["protocol"] = json!(protocol);
    }
    keys
}

/// Whether a member of a list is the one with these keys.
pub(super) fn has_keys(member: &Value, keys: &Value) -> bool {
    keys.as_object().is_some_and(|keys| {
        keys.iter().all(|(name, want)| match member.get(name) {
            Some(value) => value == want,
            None => name == "protocol" && want == "TCP",
        })
    })
}

/// All fields of an object that somebody may own, of the parts that `takes` takes.
pub(super) fn fields_of(shape: &Struct, object: &Value, takes: impl Fn(&str) -> bool) -> Tree {
    let mut tree = Tree::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        if !takes(name) {
            continue;
        }
        let mut value = value.clone();
        if name == "metadata"
            && let Some(map) = value.as_object_mut()
        {
            map.retain(|name, _| !UNOWNED.contains(&name.as_str()));
            if map.is_empty() {
                continue;
            }
        }
        tree.insert(
            format!("f:{name}"),
            Value::Object(fields(shape.fields.get(name), name, &value)),
        );
    }
    tree
}

fn fields(kind: Option<&Type>, name: &str, value: &Value) -> Tree {
    let mut tree = Tree::new();
    match (kind, value) {
        (_, Value::Object(map)) if !is_atomic(name) => {
            for (name, value) in map {
                let below = fields(field(kind, name), name, value);
                tree.insert(format!("f:{name}"), Value::Object(below));
            }
        }
        (Some(Type::List(inner, Merge::Key(key))), Value::Array(members)) => {
            for member in members {
                let mut below = fields(Some(inner), "", member);
                below.insert(".".to_owned(), json!({}));
                tree.insert(format!("k:{}", member_keys(inner, key, member)), Value::Object(below));
            }
        }
        (Some(Type::List(_, Merge::Set)), Value::Array(members)) => {
            tree.extend(members.iter().map(|member| (format!("v:{member}"), json!({}))));
        }
        _ => {}
    }
    tree
}

/// What of `tree` is not in `other`.
pub(super) fn minus(tree: &Tree, other: &Tree) -> Tree {
    let mut left = Tree::new();
    for (name, below) in tree {
        let Some(theirs) = other.get(name).and_then(Value::as_object) else {
            left.insert(name.clone(), below.clone());
            continue;
        };
        let below = below.as_object().map(|below| minus(below, theirs)).unwrap_or_default();
        if !below.is_empty() {
            left.insert(name.clone(), Value::Object(below));
        }
    }
    left
}

/// Adds what is in `other` to `tree`.
pub(super) fn add(tree: &mut Tree, other: &Tree) {
    for (name, theirs) in other {
        let below = tree.entry(name).or_insert_with(|| json!({}));
        if let (Value::Object(below), Value::Object(theirs)) = (below, theirs) {
            add(below, theirs);
        }
    }
}

/// The value of one branch.
pub(super) fn child<'a>(value: &'a Value, branch: &str) -> Option<&'a Value> {
    let (what, name) = branch.split_at_checked(2)?;
    match what {
        "f:" => value.get(name),
        "k:" => {
            let keys: Value = serde_json::from_str(name).ok()?;
            value.as_array()?.iter().find(|member| has_keys(member, &keys))
        }
        "v:" => {
            let plain: Value = serde_json::from_str(name).ok()?;
            value.as_array()?.iter().find(|member| **member == plain)
        }
        _ => None,
    }
}

/// Ends of branches that are in both trees and have other values in `new` than in `old`, by path.
pub(super) fn differing(tree: &Tree, other: &Tree, old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(tree, other, (Some(old), Some(new)), "", &mut found);
    found
}

fn collect(
    tree: &Tree,
    other: &Tree,
    (old, new): (Option<&Value>, Option<&Value>),
    path: &str,
    found: &mut Vec<String>,
) {
    for (branch, below) in tree.iter().filter(|(branch, _)| *branch != ".") {
        let Some(theirs) = other.get(branch).and_then(Value::as_object) else { continue };
        let values = (old.and_then(|v| child(v, branch)), new.and_then(|v| child(v, branch)));
        let path = format!("{path}{}", step(branch));
        match below.as_object() {
            Some(below) if !below.is_empty() && !theirs.is_empty() => {
                collect(below, theirs, values, &path, found);
            }
            _ if values.0 != values.1 => found.push(path),
            _ => {}
        }
    }
}

/// One branch as a step of a path.
fn step(branch: &str) -> String {
    let (what, name) = branch.split_at_checked(2).unwrap_or(("f:", branch));
    match what {
        "k:" => {
            let keys: Value = serde_json::from_str(name).unwrap_or_default();
            let keys: Vec<String> = keys
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            format!("[{}]", keys.join(","))
        }
        "v:" => format!("[={name}]"),
        _ => format!(".{name}"),
    }
}

/// The branches of `tree` whose values differ between `old` and `new`.
pub(super) fn changed(tree: &Tree, old: Option<&Value>, new: Option<&Value>) -> Tree {
    let mut found = Tree::new();
    for (branch, below) in tree {
        if branch == "." {
            if old.is_none() {
                found.insert(branch.clone(), json!({}));
            }
            continue;
        }
        let values = (old.and_then(|v| child(v, branch)), new.and_then(|v| child(v, branch)));
        match below.as_object() {
            Some(below) if !below.is_empty() => {
                let below = changed(below, values.0, values.1);
                if !below.is_empty() {
                    found.insert(branch.clone(), Value::Object(below));
                }
            }
            _ if values.0 != values.1 => {
                found.insert(branch.clone(), json!({}));
            }
            _ => {}
        }
    }
    found
}

/// Takes the fields of a set out of an object; maps and lists that become empty go with them.
pub(super) fn take_out(target: &mut Value, tree: &Tree) {
    for (branch, below) in tree {
        let Some((what, name)) = branch.split_at_checked(2) else { continue };
        let below = below.as_object().filter(|below| !below.is_empty());
        match (what, &mut *target) {
            ("f:", Value::Object(map)) => match (below, map.get_mut(name)) {
                (Some(below), Some(value)) => {
                    take_out(value, below);
                    let empty = value.as_object().is_some_and(Map::is_empty)
                        || value.as_array().is_some_and(Vec::is_empty);
                    if empty {
                        map.remove(name);
                    }
                }
                _ => {
                    map.remove(name);
                }
            },
            ("k:", Value::Array(members)) => {
                let keys: Value = serde_json::from_str(name).unwrap_or_default();
                // Who owns the member itself takes all of it along.
                if below.is_some_and(|below| below.contains_key(".")) {
                    members.retain(|member| !has_keys(member, &keys));
                } else if let (Some(below), Some(member)) =
                    (below, members.iter_mut().find(|member| has_keys(member, &keys)))
                {
                    take_out(member, below);
                }
            }
            ("v:", Value::Array(members)) => {
                let plain: Value = serde_json::from_str(name).unwrap_or_default();
                members.retain(|member| *member != plain);
            }
            _ => {}
        }
    }
}

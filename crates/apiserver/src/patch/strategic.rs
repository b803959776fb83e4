//! Strategic merge: lists of known kinds are merged member by member.
//!
//! Directives: `$patch` (replace, delete, merge), `$retainKeys`, `$setElementOrder/FIELD`,
//! `$deleteFromPrimitiveList/FIELD`. Members that the patch brings come before those it does not
//! name, as Kubernetes orders them.

use serde_json::{Map, Value};

use crate::schema::{Merge, Struct, Type};
use crate::status::ApiError;

type Object = Map<String, Value>;

/// Merges `patch` into `target`, whose shape is `shape`.
pub(super) fn merge(target: &mut Value, patch: &Value, shape: &Struct) -> Result<(), ApiError> {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge_object(target, patch, Some(shape)),
        _ => Err(ApiError::patch_failed()),
    }
}

fn directive_error(what: &str) -> ApiError {
    ApiError::bad_request(format!("error decoding patch: invalid directive {what}"))
}

fn merge_object(
    target: &mut Object,
    patch: &Object,
    shape: Option<&Struct>,
) -> Result<(), ApiError> {
    match patch.get("$patch").map(|directive| directive.as_str()) {
        None | Some(Some("merge")) => {}
        Some(Some("replace")) => {
            *target = patch.clone();
            strip(target);
            return Ok(());
        }
        Some(Some("delete")) => {
            target.clear();
            return Ok(());
        }
        Some(_) => return Err(directive_error("$patch")),
    }
    if let Some(keys) = patch.get("$retainKeys") {
        let keys = keys.as_array().ok_or_else(|| directive_error("$retainKeys"))?;
        target.retain(|name, _| keys.iter().any(|key| key == name));
    }
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().ok_or_else(|| directive_error(name))?;
            if let Some(Value::Array(items)) = target.get_mut(field) {
                items.retain(|item| !gone.contains(item));
            }
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let kind = shape.and_then(|shape| shape.fields.get(name));
        if value.is_null() {
            target.remove(name);
            continue;
        }
        let before = match target.get(name) {
            Some(Value::Array(items)) => items.clone(),
            _ => Vec::new(),
        };
        merge_field(target, name, value, kind)?;
        let order = patch.get(&format!("$setElementOrder/{name}"));
        reorder(target, name, order, &before, kind)?;
    }
    for (name, order) in patch {
        let Some(field) = name.strip_prefix("$setElementOrder/") else { continue };
        if !patch.contains_key(field) {
            let kind = shape.and_then(|shape| shape.fields.get(field));
            let before = match target.get(field) {
                Some(Value::Array(items)) => items.clone(),
                _ => Vec::new(),
            };
            reorder(target, field, Some(order), &before, kind)?;
        }
    }
    Ok(())
}

fn merge_field(
    target: &mut Object,
    name: &str,
    value: &Value,
    kind: Option<&Type>,
) -> Result<(), ApiError> {
    match (kind, value) {
        (Some(Type::List(inner, Merge::Key(key))), Value::Array(patch)) => {
            let slot = target.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            if !slot.is_array() {
                *slot = Value::Array(Vec::new());
            }
            if let Value::Array(items) = slot {
                let shape =
                    if let Type::Struct(shape) = inner.as_ref() { Some(shape) } else { None };
                *items = merge_list(items, patch, key, shape.map(|shape| shape.as_ref()))?;
            }
        }
        (Some(Type::List(_, Merge::Set)), Value::Array(patch)) => {
            let server: Vec<Value> = match target.remove(name) {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
            let only = server.iter().filter(|item| !patch.contains(item)).cloned().collect();
            let same = |a: &Value, b: &Value| a == b;
            let merged = interleave(only, patch.clone(), &server, same);
            target.insert(name.to_owned(), Value::Array(merged));
        }
        (_, Value::Object(patch)) => {
            let slot = target.entry(name).or_insert_with(|| Value::Object(Object::new()));
            if !slot.is_object() {
                *slot = Value::Object(Object::new());
            }
            if let Value::Object(inner) = slot {
                let shape = if let Some(Type::Struct(shape)) = kind { Some(shape) } else { None };
                merge_object(inner, patch, shape.map(|shape| shape.as_ref()))?;
            }
        }
        (_, other) => {
            target.insert(name.to_owned(), other.clone());
        }
    }
    Ok(())
}

fn merge_list(
    server: &[Value],
    patch: &[Value],
    key: &str,
    shape: Option<&Struct>,
) -> Result<Vec<Value>, ApiError> {
    let replaces = |item: &Value| item["$patch"] == "replace" && item.get(key).is_none();
    if patch.iter().any(replaces) {
        let mut kept: Vec<Value> = patch.iter().filter(|item| !replaces(item)).cloned().collect();
        for item in &mut kept {
            if let Value::Object(map) = item {
                strip(map);
            }
        }
        return Ok(kept);
    }
    let mut merged: Vec<Value> = server.to_vec();
    let mut named: Vec<Value> = Vec::new();
    for item in patch {
        let Value::Object(fields) = item else { return Err(ApiError::patch_failed()) };
        let Some(id) = fields.get(key) else {
            return Err(ApiError::bad_request(format!(
                "map: map[] does not contain declared merge key: {key}"
            )));
        };
        if item["$patch"] == "delete" {
            merged.retain(|member| member.get(key) != Some(id));
            continue;
        }
        named.push(item.clone());
        match merged.iter_mut().find(|member| member.get(key) == Some(id)) {
            Some(Value::Object(member)) => merge_object(member, fields, shape)?,
            _ => {
                let mut fresh = Object::new();
                merge_object(&mut fresh, fields, shape)?;
                merged.push(Value::Object(fresh));
            }
        }
    }
    Ok(order_by(merged, &named, server, |a, b| a.get(key) == b.get(key)))
}

/// Orders a merged list: members in `wanted` follow its order, others stay near where they were.
fn order_by(
    merged: Vec<Value>,
    wanted: &[Value],
    server: &[Value],
    same: impl Fn(&Value, &Value) -> bool + Copy,
) -> Vec<Value> {
    let (mut named, only): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|item| wanted.iter().any(|want| same(want, item)));
    named.sort_by_key(|item| wanted.iter().position(|want| same(want, item)));
    interleave(only, named, server, same)
}

/// Inserts `left` into `right`, both in order; where the live list knows both, its order decides.
fn interleave(
    left: Vec<Value>,
    right: Vec<Value>,
    server: &[Value],
    same: impl Fn(&Value, &Value) -> bool,
) -> Vec<Value> {
    let place = |item: &Value| server.iter().position(|known| same(known, item));
    let mut result = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (None, None) => return result,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(a), Some(b)) => matches!((place(a), place(b)), (Some(a), Some(b)) if a < b),
        };
        result.extend(if take_left { left.next() } else { right.next() });
    }
}

fn reorder(
    target: &mut Object,
    name: &str,
    order: Option<&Value>,
    before: &[Value],
    kind: Option<&Type>,
) -> Result<(), ApiError> {
    let Some(order) = order else { return Ok(()) };
    let order = order.as_array().ok_or_else(|| directive_error("$setElementOrder"))?;
    let Some(Value::Array(items)) = target.get_mut(name) else { return Ok(()) };
    let taken = std::mem::take(items);
    *items = match kind {
        Some(Type::List(_, Merge::Key(key))) => {
            order_by(taken, order, before, |a, b| a.get(key) == b.get(key))
        }
        _ => order_by(taken, order, before, |a, b| a == b),
    };
    Ok(())
}

/// Removes directives from what a patch brings whole.
fn strip(map: &mut Object) {
    map.retain(|name, _| !name.starts_with('$'));
    for value in map.values_mut() {
        match value {
            Value::Object(inner) => strip(inner),
            Value::Array(items) => {
                for item in items {
                    if let Value::Object(inner) = item {
                        strip(inner);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(target: Value, patch: Value, want: Value) {
        let text = "P list:[C]@name set:[string]@ free:{string} one:S atomic:[string]\n\
                    C name:string image:string env:[E]@name\nE name:string value:string\n\
                    S type:string extra:string";
        let types = crate::schema::parse(text).unwrap();
        let mut target = target;
        merge(&mut target, &patch, &types["P"]).unwrap();
        assert_eq!(target, want);
    }

    #[test]
    fn lists_merge_by_key_and_new_members_come_first() {
        check(
            json!({"list": [{"name": "a", "image": "1", "env": [{"name": "E1"}, {"name": "E2"}]}]}),
            json!({"list": [{"name": "a", "env": [{"name": "E2", "$patch": "delete"}, {"name": "E3"}]}]}),
            json!({"list": [{"name": "a", "image": "1", "env": [{"name": "E3"}, {"name": "E1"}]}]}),
        );
        check(
            json!({"list": [{"name": "a"}, {"name": "b"}]}),
            json!({"list": [{"name": "b", "image": "2"}]}),
            json!({"list": [{"name": "a"}, {"name": "b", "image": "2"}]}),
        );
        check(
            json!({"list": [{"name": "a"}, {"name": "b"}]}),
            json!({"list": [{"$patch": "replace"}, {"name": "n"}]}),
            json!({"list": [{"name": "n"}]}),
        );
    }

    #[test]
    fn directives_order_delete_and_retain() {
        check(
            json!({"list": [{"name": "a"}, {"name": "b"}]}),
            json!({"$setElementOrder/list": [{"name": "b"}, {"name": "a"}],
                   "list": [{"name": "b", "image": "2"}]}),
            json!({"list": [{"name": "b", "image": "2"}, {"name": "a"}]}),
        );
        check(
            json!({"set": ["x", "y"]}),
            json!({"$deleteFromPrimitiveList/set": ["x"], "$setElementOrder/set": ["y"]}),
            json!({"set": ["y"]}),
        );
        check(
            json!({"one": {"type": "A", "extra": "e"}}),
            json!({"one": {"$retainKeys": ["type"], "type": "B"}}),
            json!({"one": {"type": "B"}}),
        );
        check(
            json!({"one": {"type": "A"}}),
            json!({"one": {"$patch": "delete"}}),
            json!({"one": {}}),
        );
        check(
            json!({"free": {"a": "1"}}),
            json!({"free": {"a": null, "b": "2"}}),
            json!({"free": {"b": "2"}}),
        );
        check(json!({"atomic": ["a"]}), json!({"atomic": ["b"]}), json!({"atomic": ["b"]}));
    }
}

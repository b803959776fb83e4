//! Server-side apply: an applied object is merged over the live one, and who applied what is kept.
//!
//! Fields that a manager applied before and does not apply any more go, unless another one owns
//! them. A field that another manager owns with another value is a conflict, unless forced.
//! Lists merge by the keys that strategic merge patches know. Not kept: who wrote what before an
//! object was first applied, and who reports its status by updates.

use serde_json::{Value, json};

use super::ownership::{
    Tree, add, changed, differing, field, fields_of, has_keys, is_atomic, member_keys, minus,
    take_out,
};
use crate::resource::Part;
use crate::schema::{Merge, Struct, Type};
use crate::status::ApiError;

/// Who applies or updates, to what.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// Its name.
    pub name: &'a str,
    /// Group and version it writes in.
    pub api_version: &'a str,
    /// What it writes.
    pub part: Part,
    /// The present time, as Kubernetes writes it.
    pub now: &'a str,
}

/// What becomes of fields that another manager owns with another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    /// The apply is refused.
    Refuse,
    /// They change their owner.
    Force,
}

/// An object after an apply, with its managers.
#[derive(Debug)]
pub struct Applied {
    /// The object.
    pub object: Value,
    /// Its `managedFields`.
    pub managed: Value,
}

/// Applies `applied` over `live`; over nothing where there is no such object.
pub fn apply(
    shape: &Struct,
    live: Option<&Value>,
    applied: &Value,
    manager: Manager<'_>,
    conflicts: Conflicts,
) -> Result<Applied, ApiError> {
    let wanted = fields_of(shape, applied, |name| writes(manager.part, name));
    let Some(live) = live else {
        let managed = json!([entry(manager, "Apply", wanted)]);
        return Ok(Applied { object: applied.clone(), managed });
    };
    let mut entries = entries(live);
    let is_own = |entry: &Value| is_of(entry, manager, "Apply");
    let mut refused: Vec<(String, String)> = Vec::new();
    let mut others = Tree::new();
    for other in entries.iter_mut().filter(|entry| !is_own(entry)) {
        let theirs = tree(other);
        let differing = differing(&wanted, &theirs, live, applied);
        let who = match other["operation"].as_str() {
            Some("Update") => format!(
                "{} using {}",
                other["manager"],
                other["apiVersion"].as_str().unwrap_or_default()
            ),
            _ => other["manager"].to_string(),
        };
        refused.extend(differing.iter().map(|path| (who.clone(), path.clone())));
        if conflicts == Conflicts::Force {
            let taken = changed(&wanted, Some(live), Some(applied));
            other["fieldsV1"] = Value::Object(minus(&theirs, &taken));
        }
        add(&mut others, &tree(other));
    }
    if !refused.is_empty() && conflicts == Conflicts::Refuse {
        return Err(conflict(refused));
    }
    let mut object = live.clone();
    let before = entries.iter().find(|entry| is_own(entry)).map(tree).unwrap_or_default();
    take_out(&mut object, &minus(&minus(&before, &wanted), &others));
    for (name, value) in applied.as_object().into_iter().flatten() {
        if writes(manager.part, name) {
            let kind = shape.fields.get(name).unwrap_or(&Type::Any);
            merge(&mut object[name], value, kind, name);
        }
    }
    if before != wanted {
        let fresh = entry(manager, "Apply", wanted);
        match entries.iter_mut().find(|entry| is_own(entry)) {
            Some(own) => *own = fresh,
            None => entries.push(fresh),
        }
    }
    entries.retain(|entry| is_own(entry) || !tree(entry).is_empty());
    Ok(Applied { object, managed: Value::Array(entries) })
}

/// The managers of an object after `manager` updated it from `old` to `new`; objects that were
/// never applied have none.
pub fn after_update(shape: &Struct, old: &Value, new: &Value, manager: Manager<'_>) -> Value {
    let mut entries = entries(old);
    if entries.is_empty() {
        return Value::Null;
    }
    let of = |object| fields_of(shape, object, |name| writes(manager.part, name));
    let (before, after) = (of(old), of(new));
    let written = changed(&after, Some(old), Some(new));
    let mut lost = minus(&before, &after);
    add(&mut lost, &written);
    if lost.is_empty() {
        return Value::Array(entries);
    }
    for entry in &mut entries {
        let kept = minus(&tree(entry), &lost);
        entry["fieldsV1"] = Value::Object(kept);
    }
    if !written.is_empty() {
        let mut own = written;
        if let Some(at) = entries.iter().position(|entry| is_of(entry, manager, "Update")) {
            add(&mut own, &tree(&entries.remove(at)));
        }
        entries.push(entry(manager, "Update", own));
    }
    entries.retain(|entry| !tree(entry).is_empty());
    if entries.is_empty() { Value::Null } else { Value::Array(entries) }
}

/// Whether a write of this part may change this top-level field.
fn writes(part: Part, name: &str) -> bool {
    match part {
        Part::Status => name == "status",
        Part::Main => !["apiVersion", "kind", "status"].contains(&name),
    }
}

fn entries(object: &Value) -> Vec<Value> {
    object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default()
}

fn tree(entry: &Value) -> Tree {
    entry["fieldsV1"].as_object().cloned().unwrap_or_default()
}

fn is_of(entry: &Value, manager: Manager<'_>, operation: &str) -> bool {
    let status = entry["subresource"] == "status";
    entry["manager"] == manager.name
        && entry["operation"] == operation
        && status == (manager.part == Part::Status)
}

fn entry(manager: Manager<'_>, operation: &str, fields: Tree) -> Value {
    let mut entry = json!({
        "manager": manager.name,
        "operation": operation,
        "apiVersion": manager.api_version,
        "time": manager.now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    });
    if manager.part == Part::Status {
        entry["subresource"] = json!("status");
    }
    entry
}

fn conflict(refused: Vec<(String, String)>) -> ApiError {
    let texts: Vec<String> =
        refused.iter().map(|(who, path)| format!("conflict with {who}: {path}")).collect();
    let message = match texts.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {one}"),
        many => {
            let lines: Vec<String> = many.iter().map(|text| format!("- {text}")).collect();
            format!("Apply failed with {} conflicts:\n{}", many.len(), lines.join("\n"))
        }
    };
    refused.iter().fold(ApiError::apply_conflict(message), |error, (who, path)| {
        error.with_cause("FieldManagerConflict", &format!("conflict with {who}"), path)
    })
}

fn merge(target: &mut Value, applied: &Value, kind: &Type, name: &str) {
    match (kind, applied) {
        (_, Value::Object(fields)) if !is_atomic(name) => {
            if !target.is_object() {
                *target = json!({});
            }
            for (name, value) in fields {
                merge(
                    &mut target[name],
                    value,
                    field(Some(kind), name).unwrap_or(&Type::Any),
                    name,
                );
            }
        }
        (Type::List(inner, Merge::Key(key)), Value::Array(members)) => {
            if !target.is_array() {
                *target = json!([]);
            }
            let Some(list) = target.as_array_mut() else { return };
            for member in members {
                let keys = member_keys(inner, key, member);
                match list.iter_mut().find(|own| has_keys(own, &keys)) {
                    Some(own) => merge(own, member, inner, ""),
                    None => list.push(member.clone()),
                }
            }
        }
        (Type::List(_, Merge::Set), Value::Array(members)) if target.is_array() => {
            let Some(list) = target.as_array_mut() else { return };
            for member in members {
                if !list.contains(member) {
                    list.push(member.clone());
                }
            }
        }
        _ => *target = applied.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> std::sync::Arc<Struct> {
        let text = "P metadata:M spec:S\nM name:string labels:{string} finalizers:[string]@\n\
                    S list:[C]@name atomic:[string] selector:{string} one:string\n\
                    C name:string image:string ports:[Q]@port extra:string\n\
                    Q port:int32 protocol:string name:string";
        std::sync::Arc::clone(&crate::schema::parse(text).unwrap()["P"])
    }

    fn manager(name: &str) -> Manager<'_> {
        Manager { name, api_version: "v1", part: Part::Main, now: "2030-01-01T00:00:00Z" }
    }

    fn by(
        name: &str,
        live: Option<&Value>,
        spec: Value,
        conflicts: Conflicts,
    ) -> Result<Value, String> {
        let applied = json!({ "metadata": { "name": "p" }, "spec": spec });
        let done = apply(&shape(), live, &applied, manager(name), conflicts);
        done.map_err(|error| error.message).map(|done| {
            let mut object = done.object;
            object["metadata"]["managedFields"] = done.managed;
            object
        })
    }

    #[test]
    fn the_same_again_changes_nothing_that_others_added() {
        let spec = json!({"list": [{"name": "a", "image": "1", "ports": [{"port": 1}]}]});
        let mut live = by("one", None, spec.clone(), Conflicts::Refuse).unwrap();
        live["spec"]["list"][0]["extra"] = json!("of the server");
        live["spec"]["list"][0]["ports"][0]["protocol"] = json!("TCP");
        assert_eq!(by("one", Some(&live), spec, Conflicts::Refuse).unwrap(), live);
        let fields = &live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:list"];
        let port = &fields[r#"k:{"name":"a"}"#]["f:ports"][r#"k:{"port":1,"protocol":"TCP"}"#];
        assert_eq!(*port, json!({".": {}, "f:port": {}}));
    }

    #[test]
    fn what_is_not_applied_any_more_goes_unless_another_owns_it() {
        let both =
            json!({"one": "x", "selector": {"a": "b"}, "list": [{"name": "a"}, {"name": "b"}]});
        let live = by("one", None, both, Conflicts::Refuse).unwrap();
        let shared = json!({"list": [{"name": "b"}]});
        let live = by("two", Some(&live), shared.clone(), Conflicts::Refuse).unwrap();
        let live = by("one", Some(&live), json!({"one": "x"}), Conflicts::Refuse).unwrap();
        assert_eq!(live["spec"], json!({"one": "x", "list": [{"name": "b"}]}));
        let live = by("two", Some(&live), json!({"atomic": ["q"]}), Conflicts::Refuse).unwrap();
        assert_eq!(live["spec"], json!({"one": "x", "atomic": ["q"]}));
    }

    #[test]
    fn another_value_is_a_conflict_that_force_overrides() {
        let live = by("one", None, json!({"one": "x"}), Conflicts::Refuse).unwrap();
        let error = by("two", Some(&live), json!({"one": "y"}), Conflicts::Refuse).unwrap_err();
        assert_eq!(error, "Apply failed with 1 conflict: conflict with \"one\": .spec.one");
        let live = by("two", Some(&live), json!({"one": "y"}), Conflicts::Force).unwrap();
        assert_eq!(live["spec"]["one"], "y");
        let managers = live["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(managers.len(), 1, "{managers:?}");
        assert_eq!(managers[0]["manager"], "two");
    }

    #[test]
    fn an_update_takes_what_it_changes() {
        let mut old =
            by("one", None, json!({"one": "x", "atomic": ["q"]}), Conflicts::Refuse).unwrap();
        let mut new = old.clone();
        new["spec"]["one"] = json!("y");
        let managed = after_update(&shape(), &old, &new, manager("upd"));
        assert_eq!(managed[0]["fieldsV1"], json!({"f:spec": {"f:atomic": {}}}));
        assert_eq!(managed[1]["manager"], "upd");
        assert_eq!(managed[1]["fieldsV1"], json!({"f:spec": {"f:one": {}}}));
        new["metadata"]["managedFields"] = managed;
        let error = by("one", Some(&new), json!({"one": "z"}), Conflicts::Refuse).unwrap_err();
        assert!(error.contains("conflict with \"upd\" using v1: .spec.one"), "{error}");
        assert_eq!(
            after_update(&shape(), &new, &new, manager("upd")),
            new["metadata"]["managedFields"]
        );
        old["metadata"]["managedFields"] = Value::Null;
        assert_eq!(after_update(&shape(), &old, &new, manager("upd")), Value::Null);
    }
}

//! Deleting: preconditions, finalizers, grace.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::meta;
use crate::names::GroupResource;
use crate::query::{DeleteOptions, Propagation};
use crate::resource::{DeleteAnswer, Deletion, Gone, Resource};
use crate::status::{self, ApiError};
use crate::store::{Stored, Tx, key};

/// What a delete came to.
pub struct Deleted {
    /// The object as it is now, or was last.
    pub object: Stored,
    /// Whether it is gone.
    pub gone: bool,
}

impl Deleted {
    /// What the delete answers.
    pub fn answer(&self, resource: &Resource) -> Value {
        if !self.gone || resource.delete_answer == DeleteAnswer::Object {
            return self.object.value().clone();
        }
        let object = self.object.value();
        let mut details = json!({
            "name": meta::name(object),
            "kind": resource.plural,
            "uid": meta::uid(object),
        });
        if !resource.group.is_empty() {
            details["group"] = json!(resource.group);
        }
        status::success(None, Some(details))
    }
}

/// Deletes an object, or marks it for deletion.
pub fn delete(
    tx: &mut Tx<'_>,
    resource: &Resource,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    let (collection, key) = (resource.collection(), key(namespace, name));
    let Some(old) = tx.get(&collection, &key) else {
        return Err(ApiError::not_found(&resource.group_resource(), name));
    };
    check_preconditions(resource, &old, options)?;

    let mut object = old.value().clone();
    let deletion = resource.strategy.delete(&mut object, options.grace)?;
    let was_deleting = meta::is_deleting(old.value());
    if !was_deleting {
        add_finalizer(&mut object, options.propagation);
    }
    let held = !meta::finalizers(&object).is_empty();
    let now = Timestamp::now();
    let mark = |object: &mut Value, seconds: i64| {
        let end = now + jiff::SignedDuration::from_secs(seconds);
        meta::set(object, "deletionTimestamp", json!(meta::time(end)));
        meta::set(object, "deletionGracePeriodSeconds", json!(seconds));
        if resource.counts_generation && !was_deleting {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            meta::set(object, "generation", json!(generation));
        }
    };
    let unchanged = Deleted { object: old.clone(), gone: false };
    let goes = match deletion {
        Deletion::Hold => {
            if was_deleting {
                return Ok(unchanged);
            }
            meta::set(&mut object, "deletionTimestamp", json!(meta::time(now)));
            false
        }
        Deletion::Grace(seconds) => {
            let before = old.value()["metadata"]["deletionGracePeriodSeconds"].as_i64();
            if was_deleting && before.is_some_and(|before| before <= seconds) && seconds > 0 {
                return Ok(unchanged);
            }
            mark(&mut object, seconds);
            seconds == 0 && !held
        }
        Deletion::Remove if held => {
            if was_deleting {
                return Ok(unchanged);
            }
            mark(&mut object, 0);
            false
        }
        Deletion::Remove => true,
    };
    if options.dry_run {
        return Ok(Deleted { object: Stored::new(object), gone: goes });
    }
    let mut stored = old;
    if !goes || matches!(deletion, Deletion::Grace(_)) {
        stored = tx.put(&collection, &key, object);
        resource.strategy.written(tx, stored.value(), Gone::No);
    }
    if goes {
        stored = tx.remove(&collection, &key).unwrap_or(stored);
        resource.strategy.written(tx, stored.value(), Gone::Yes);
    }
    Ok(Deleted { object: stored, gone: goes })
}

fn add_finalizer(object: &mut Value, propagation: Propagation) {
    let name = match propagation {
        Propagation::Background => return,
        Propagation::Foreground => "foregroundDeletion",
        Propagation::Orphan => "orphan",
    };
    let mut finalizers: Vec<String> =
        meta::finalizers(object).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|own| own == name) {
        finalizers.push(name.to_owned());
    }
    meta::set(object, "finalizers", json!(finalizers));
}

fn check_preconditions(
    resource: &Resource,
    old: &Stored,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let subject = GroupResource::new(&resource.group, &resource.kind);
    let name = meta::name(old.value());
    let own_uid = meta::uid(old.value());
    if let Some(uid) = &options.uid
        && uid != own_uid
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({own_uid}). \
             The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(&subject, name, &why));
    }
    let own_version = old.version().to_string();
    if let Some(version) = &options.resource_version
        && *version != own_version
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the \
             ResourceVersion in record ({own_version}). The object might have been modified"
        );
        return Err(ApiError::conflict(&subject, name, &why));
    }
    Ok(())
}

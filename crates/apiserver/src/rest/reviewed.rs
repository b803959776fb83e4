//! Writes that others are asked about first.
//!
//! Each goes through a trial run, the reviews of its outcome, and the write itself. A change that
//! raced with another is tried again from the start, if its sender named no version.

use serde_json::Value;

use super::{header_warnings, namespace, writer};
use crate::admission::{Review, Webhooks};
use crate::objects::{self, Existed, Written};
use crate::patch::apply::Conflicts;
use crate::query::{DeleteOptions, WriteOptions};
use crate::resource::{Call, Part};
use crate::status::ApiError;
use crate::store::{Stored, key};
use crate::webhook::Operation;

/// Attempts at a change that others race with.
const ATTEMPTS: usize = 5;

/// Who is to be asked about a write; nobody in the usual case.
pub(super) fn concerned(call: &Call, operation: Operation) -> Option<&dyn Webhooks> {
    let webhooks = call.api.webhooks.as_deref()?;
    let concerned = webhooks.concerns(&call.resource, &call.path.subresource, operation);
    concerned.then_some(webhooks)
}

fn review<'a>(
    call: &'a Call,
    operation: Operation,
    dry_run: bool,
    (object, old): (Value, Value),
) -> Review<'a> {
    Review {
        resource: &call.resource,
        subresource: &call.path.subresource,
        namespace: namespace(call),
        name: &call.path.name,
        operation,
        user: &call.user,
        object,
        old,
        dry_run,
    }
}

fn trial(options: WriteOptions) -> WriteOptions {
    WriteOptions { dry_run: true, ..options }
}

/// Creates an object.
pub(super) async fn create(
    call: &Call,
    webhooks: &dyn Webhooks,
    options: WriteOptions,
    object: Value,
) -> Result<Written, ApiError> {
    let namespace = namespace(call);
    let (object, mut warnings) =
        writer(call, options).checked(&call.resource, namespace, object)?;
    let asked = review(call, Operation::Create, options.dry_run, (object, Value::Null));
    let object = webhooks.mutate(&asked).await?;
    let tried = writer(call, trial(options)).create(&call.resource, namespace, object)?;
    let tried = tried.object.value().clone();
    let asked = review(call, Operation::Create, options.dry_run, (tried.clone(), Value::Null));
    warnings.extend(webhooks.validate(&asked).await?);
    let mut done = writer(call, options).create_reviewed(&call.resource, tried)?;
    done.warnings = warnings;
    Ok(done)
}

/// How a change makes the new object.
pub(super) enum Change<'a> {
    /// From the stored one.
    Make(&'a (dyn Fn(&Value) -> Result<Value, ApiError> + Sync)),
    /// By an apply.
    Apply(&'a Value, Conflicts),
}

/// Whether a racing write makes us start again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Race {
    /// It does.
    Retry,
    /// It does not: the sender named the version that it changes.
    Fail,
}

/// Changes an object; for an apply, may create it.
pub(super) async fn change(
    call: &Call,
    webhooks: &dyn Webhooks,
    options: WriteOptions,
    part: Part,
    change: Change<'_>,
    race: Race,
) -> Result<(Written, Existed), ApiError> {
    let mut attempt = 1;
    loop {
        match change_once(call, webhooks, options, part, &change).await {
            Err(error) if error.code == 409 && race == Race::Retry && attempt < ATTEMPTS => {
                attempt += 1;
            }
            result => return result,
        }
    }
}

async fn change_once(
    call: &Call,
    webhooks: &dyn Webhooks,
    options: WriteOptions,
    part: Part,
    change: &Change<'_>,
) -> Result<(Written, Existed), ApiError> {
    let (resource, namespace, name) = (&call.resource, namespace(call), &call.path.name);
    let old = call.api.store.get(&resource.collection(), &key(namespace, name));
    let dry = writer(call, trial(options));
    let tried = match change {
        Change::Make(make) => dry.update(resource, namespace, name, part, make)?,
        Change::Apply(applied, conflicts) => {
            let applied = (*applied).clone();
            dry.apply(resource, namespace, name, part, applied, *conflicts)?.0
        }
    };
    let Some(old) = old else {
        let asked =
            |object| review(call, Operation::Create, options.dry_run, (object, Value::Null));
        let mutated = webhooks.mutate(&asked(tried.object.value().clone())).await?;
        let mut warnings = tried.warnings;
        warnings.extend(webhooks.validate(&asked(mutated.clone())).await?);
        let mut done = writer(call, options).create_reviewed(resource, mutated)?;
        done.warnings = warnings;
        return Ok((done, Existed::No));
    };
    let asked = |object: Value| {
        review(call, Operation::Update, options.dry_run, (object, old.value().clone()))
    };
    let mut next = tried.object;
    let mutated = webhooks.mutate(&asked(next.value().clone())).await?;
    if mutated != *next.value() {
        next = dry.update_reviewed(resource, namespace, name, part, (&old, mutated))?.object;
    }
    let mut warnings = tried.warnings;
    warnings.extend(webhooks.validate(&asked(next.value().clone())).await?);
    let reviewed = (&old, next.value().clone());
    let mut done =
        writer(call, options).update_reviewed(resource, namespace, name, part, reviewed)?;
    done.warnings = warnings;
    Ok((done, Existed::Yes))
}

/// Asks about the deletion of an object.
pub(super) async fn delete(
    call: &Call,
    webhooks: &dyn Webhooks,
    object: &Stored,
    options: &DeleteOptions,
) -> Result<Vec<String>, ApiError> {
    let pair = (Value::Null, object.value().clone());
    let asked = review(call, Operation::Delete, options.dry_run, pair);
    webhooks.mutate(&asked).await?;
    webhooks.validate(&asked).await
}

/// Deletes an object after asking about it.
pub(super) async fn delete_one(
    call: &Call,
    webhooks: &dyn Webhooks,
    options: &DeleteOptions,
    form: crate::negotiate::Form,
) -> Result<crate::body::Response, ApiError> {
    let (resource, namespace, name) = (&call.resource, namespace(call), &call.path.name);
    let mut warnings = Vec::new();
    if let Some(object) = call.api.store.get(&resource.collection(), &key(namespace, name)) {
        warnings = delete(call, webhooks, &object, options).await?;
    }
    let deleted =
        call.api.store.write(|tx| objects::delete(tx, resource, namespace, name, options))?;
    let mut response = super::answer(form, 200, &deleted.answer(resource));
    header_warnings(&mut response, &warnings);
    Ok(response)
}

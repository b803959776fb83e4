//! Creating, changing and deleting objects under their kind's rules.
//!
//! Plain functions over a store transaction: the HTTP verbs (`rest`) and in-process callers share
//! them. Not here: who may do it (`authz`), how requests are read.

mod delete;
mod metadata;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use delete::{Deleted, delete};
pub use metadata::label_problem;

use crate::meta;
use crate::names::split_api_version;
use crate::patch::apply::{Conflicts, Manager, after_update, apply};
use crate::query::{FieldValidation, WriteOptions};
use crate::resource::{Gone, Part, Registry, Resource, Scope, WriteContext};
use crate::schema::decode;
use crate::status::{ApiError, FieldError};
use crate::store::{Store, Stored, Tx, key};
use crate::user::User;

/// Admission that holds for all kinds, as the life cycle of namespaces.
pub trait Admission: Send + Sync {
    /// Judges a new object before its kind's rules see it.
    fn admit_create(
        &self,
        tx: &Tx<'_>,
        resource: &Resource,
        object: &Value,
    ) -> Result<(), ApiError>;
}

/// Admission that admits all.
pub struct AdmitAll;

impl Admission for AdmitAll {
    fn admit_create(&self, _: &Tx<'_>, _: &Resource, _: &Value) -> Result<(), ApiError> {
        Ok(())
    }
}

/// A written object and what the writer should be told.
pub struct Written {
    /// The object.
    pub object: Stored,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Whether an applied object existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existed {
    /// It was changed.
    Yes,
    /// It was created.
    No,
}

/// What writes need besides the object.
pub struct Writer<'a> {
    /// Where objects are.
    pub store: &'a Store,
    /// What kinds there are.
    pub registry: &'a Registry,
    /// Admission for all kinds.
    pub admission: &'a dyn Admission,
    /// Who writes.
    pub user: &'a User,
    /// How.
    pub options: WriteOptions,
    /// What the writer calls itself, kept with the fields of objects that were applied.
    pub manager: &'a str,
}

/// What becomes of the record of who wrote which field.
enum Managed {
    /// It stays.
    Keep,
    /// The writer owns what it changes.
    Track,
    /// An apply made it.
    Set(Value),
}

/// Checks that a body is of the resource's kind, and fills kind and apiVersion in.
pub fn check_kind(
    registry: &Registry,
    resource: &Resource,
    object: &mut Value,
) -> Result<(), ApiError> {
    let Some(map) = object.as_object_mut() else {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {})",
            resource.kind
        )));
    };
    let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let (seen_version, seen_kind) = (text("apiVersion"), text("kind"));
    let want_version = resource.api_version();
    let incomplete = seen_version.is_empty() || seen_kind.is_empty();
    if incomplete && resource.custom {
        let message = "Object 'Kind' is missing in the request body";
        return Err(ApiError::bad_request(message));
    }
    let version = if seen_version.is_empty() { want_version.clone() } else { seen_version };
    let kind = if seen_kind.is_empty() { resource.kind.clone() } else { seen_kind };
    if version != want_version || kind != resource.kind {
        let (group, short) = split_api_version(&version);
        let cannot =
            format!("{kind} in version {version:?} cannot be handled as a {}:", resource.kind);
        return Err(ApiError::bad_request(if registry.by_kind(group, short, &kind).is_some() {
            let internal = if resource.group.is_empty() { "core" } else { &resource.group };
            format!(
                "{cannot} converting ({short}.{kind}) to ({internal}.{}): unknown conversion",
                resource.kind
            )
        } else {
            format!(
                "{cannot} no kind {kind:?} is registered for version {version:?} in scheme \
                 \"pkg/runtime/scheme.go:111\""
            )
        }));
    }
    map.insert("apiVersion".to_owned(), json!(version));
    map.insert("kind".to_owned(), json!(kind));
    if !map.get("metadata").is_some_and(Value::is_object) {
        map.insert("metadata".to_owned(), json!({}));
    }
    Ok(())
}

/// Checks an object's shape; gives the warnings about unknown fields.
pub fn check_shape(
    resource: &Resource,
    object: &mut Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let cannot = format!(
        "{} in version {:?} cannot be handled as a {}:",
        resource.kind, resource.version, resource.kind
    );
    let decoded = match decode(&resource.kind, &resource.shape, object, resource.unknown) {
        Ok(decoded) => decoded,
        // A CRD's schema judges the values itself, and tells of all that are wrong.
        Err(_) if resource.custom => return Ok(Vec::new()),
        Err(why) => return Err(ApiError::bad_request(format!("{cannot} {why}"))),
    };
    let unknown: Vec<String> =
        decoded.unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
    match validation {
        FieldValidation::Strict if !unknown.is_empty() => Err(ApiError::bad_request(format!(
            "{cannot} strict decoding error: {}",
            unknown.join(", ")
        ))),
        FieldValidation::Warn => Ok(unknown),
        _ => Ok(Vec::new()),
    }
}

/// Objects larger than this are refused.
const MAX_OBJECT: usize = 1_572_864;

fn check_size(object: &Value) -> Result<(), ApiError> {
    let size = serde_json::to_vec(object).map_or(0, |bytes| bytes.len());
    if size > MAX_OBJECT {
        return Err(ApiError::too_large(MAX_OBJECT));
    }
    Ok(())
}

fn invalid(resource: &Resource, object: &Value, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(&resource.group_kind(), meta::name(object), errors))
}

fn check_name(object: &Value, name: &str) -> Result<(), ApiError> {
    if meta::name(object) == name {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "the name of the object ({}) does not match the name on the URL ({name})",
        meta::name(object)
    )))
}

/// Puts an object into the namespace of the URL, or refuses when it names another.
pub fn check_namespace(
    resource: &Resource,
    namespace: &str,
    object: &mut Value,
) -> Result<(), ApiError> {
    let own = meta::namespace(object).to_owned();
    match resource.scope {
        Scope::Cluster if own.is_empty() => Ok(()),
        Scope::Cluster => {
            meta::set(object, "namespace", Value::Null);
            Ok(())
        }
        Scope::Namespaced if own.is_empty() || own == namespace => {
            meta::set(object, "namespace", json!(namespace));
            Ok(())
        }
        Scope::Namespaced => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// Gives a new object what the server gives to each.
fn fresh(resource: &Resource, object: &mut Value) {
    for field in ["selfLink", "deletionTimestamp"] {
        meta::set(object, field, Value::Null);
    }
    meta::set(object, "resourceVersion", Value::Null);
    meta::set(object, "deletionGracePeriodSeconds", Value::Null);
    if meta::name(object).is_empty() && !meta::text(object, "generateName").is_empty() {
        let name = format!("{}{}", meta::text(object, "generateName"), random_suffix());
        meta::set(object, "name", json!(name));
    }
    meta::set(object, "uid", json!(uuid::Uuid::new_v4().to_string()));
    meta::set(object, "creationTimestamp", json!(meta::time(Timestamp::now())));
    let generation = resource.counts_generation.then_some(1);
    meta::set(object, "generation", json!(generation));
    if resource.custom && resource.has_status() {
        meta::set_part(object, "status", Value::Null);
    }
}

impl Writer<'_> {
    /// Creates an object in a namespace (empty for cluster scope).
    pub fn create(
        &self,
        resource: &Resource,
        namespace: &str,
        object: Value,
    ) -> Result<Written, ApiError> {
        let (mut object, warnings) = self.checked(resource, namespace, object)?;
        fresh(resource, &mut object);
        let object = self.store.write(|tx| self.create_in(tx, resource, object))?;
        Ok(Written { object, warnings })
    }

    /// A new object whose kind, shape and namespace are right, and warnings about its fields.
    pub fn checked(
        &self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
    ) -> Result<(Value, Vec<String>), ApiError> {
        check_kind(self.registry, resource, &mut object)?;
        let warnings = check_shape(resource, &mut object, self.options.field_validation)?;
        check_namespace(resource, namespace, &mut object)?;
        if meta::version(&object) != 0 {
            return Err(ApiError::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        meta::set(&mut object, "managedFields", Value::Null);
        Ok((object, warnings))
    }

    /// Creates an object that a trial run of [`Writer::create`] gave, under the same UID.
    pub fn create_reviewed(&self, resource: &Resource, object: Value) -> Result<Written, ApiError> {
        let object = self.store.write(|tx| self.create_in(tx, resource, object))?;
        Ok(Written { object, warnings: Vec::new() })
    }

    /// Puts an object that a trial run gave in place of the one that it was made from; 409 when
    /// that has changed since.
    pub fn update_reviewed(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        part: Part,
        (old, object): (&Stored, Value),
    ) -> Result<Written, ApiError> {
        let managed = Managed::Set(object["metadata"]["managedFields"].clone());
        let change = |now: &Value| {
            if meta::version(now) != old.version() {
                return Err(ApiError::modified(&resource.group_resource(), name));
            }
            Ok(object)
        };
        self.change(resource, namespace, name, part, change, Some(managed))
    }

    fn create_in(
        &self,
        tx: &mut Tx<'_>,
        resource: &Resource,
        mut object: Value,
    ) -> Result<Stored, ApiError> {
        resource.strategy.default(&mut object);
        self.admission.admit_create(tx, resource, &object)?;
        let mut context =
            WriteContext { tx, user: self.user, resource, dry_run: self.options.dry_run };
        resource.strategy.prepare_create(&mut context, &mut object)?;
        let mut errors = metadata::validate(resource, &object);
        errors.extend(resource.strategy.validate(&object));
        invalid(resource, &object, errors)?;
        check_size(&object)?;
        let (collection, key) =
            (resource.collection(), key(meta::namespace(&object), meta::name(&object)));
        if tx.get(&collection, &key).is_some() {
            let name = meta::name(&object);
            return Err(ApiError::already_exists(&resource.group_resource(), name));
        }
        if self.options.dry_run {
            return Ok(Stored::new(object));
        }
        let stored = tx.put(&collection, &key, object);
        resource.strategy.written(tx, stored.value(), Gone::No);
        Ok(stored)
    }

    /// Changes an object: `change` makes the new one from the stored one.
    pub fn update(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        part: Part,
        change: impl FnOnce(&Value) -> Result<Value, ApiError>,
    ) -> Result<Written, ApiError> {
        self.change(resource, namespace, name, part, change, None)
    }

    fn change(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        part: Part,
        change: impl FnOnce(&Value) -> Result<Value, ApiError>,
        managed: Option<Managed>,
    ) -> Result<Written, ApiError> {
        self.store.write(|tx| {
            let key = key(namespace, name);
            let Some(old) = tx.get(&resource.collection(), &key) else {
                return Err(ApiError::not_found(&resource.group_resource(), name));
            };
            let mut object = change(old.value())?;
            check_kind(self.registry, resource, &mut object)?;
            let warnings = check_shape(resource, &mut object, self.options.field_validation)?;
            if meta::name(&object).is_empty() && !resource.custom {
                meta::set(&mut object, "name", json!(name));
            }
            check_name(&object, name)?;
            check_namespace(resource, namespace, &mut object)?;
            check_version(resource, &object, &old)?;
            let managed = match (managed, part) {
                (Some(managed), _) => managed,
                (None, Part::Main) => Managed::Track,
                (None, Part::Status) => Managed::Keep,
            };
            let object = self.merge_parts(tx, resource, object, old.value(), part, managed)?;
            check_size(&object)?;
            let object = self.store_update(tx, resource, &key, object, old);
            Ok(Written { object, warnings })
        })
    }

    /// Applies an object over the stored one, or creates it; tells whether it was created.
    pub fn apply(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        part: Part,
        mut applied: Value,
        conflicts: Conflicts,
    ) -> Result<(Written, Existed), ApiError> {
        check_kind(self.registry, resource, &mut applied)?;
        if !applied["metadata"]["managedFields"].is_null() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let warnings = check_shape(resource, &mut applied, self.options.field_validation)?;
        if meta::name(&applied).is_empty() {
            meta::set(&mut applied, "name", json!(name));
        }
        check_name(&applied, name)?;
        check_namespace(resource, namespace, &mut applied)?;
        let (api_version, now) = (resource.api_version(), meta::now());
        let manager = Manager { name: self.manager, api_version: &api_version, part, now: &now };
        self.store.write(|tx| {
            let key = key(namespace, name);
            let Some(old) = tx.get(&resource.collection(), &key) else {
                let uid = meta::uid(&applied);
                if !uid.is_empty() {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing \
                         object was found"
                    );
                    return Err(ApiError::conflict(&resource.group_resource(), name, &why));
                }
                if part == Part::Status {
                    return Err(ApiError::not_found(&resource.group_resource(), name));
                }
                let made = apply(&resource.shape, None, &applied, manager, conflicts)?;
                let mut object = made.object;
                fresh(resource, &mut object);
                meta::set(&mut object, "managedFields", made.managed);
                let object = self.create_in(tx, resource, object)?;
                return Ok((Written { object, warnings }, Existed::No));
            };
            let mut versioned = applied.clone();
            if meta::version(&applied) == 0 {
                let version = old.value()["metadata"]["resourceVersion"].clone();
                meta::set(&mut versioned, "resourceVersion", version);
            }
            check_version(resource, &versioned, &old)?;
            let live = Some(old.value());
            let made = apply(&resource.shape, live, &applied, manager, conflicts)?;
            let managed = Managed::Set(made.managed);
            let object = self.merge_parts(tx, resource, made.object, old.value(), part, managed)?;
            check_size(&object)?;
            let object = self.store_update(tx, resource, &key, object, old);
            Ok((Written { object, warnings }, Existed::Yes))
        })
    }

    /// Brings together what a write may change with what it may not, and applies the rules.
    fn merge_parts(
        &self,
        tx: &mut Tx<'_>,
        resource: &Resource,
        mut object: Value,
        old: &Value,
        part: Part,
        managed: Managed,
    ) -> Result<Value, ApiError> {
        if part == Part::Status {
            let status = object["status"].take();
            let metadata = object["metadata"].take();
            object = old.clone();
            meta::set_part(&mut object, "status", status);
            if !resource.custom {
                object["metadata"] = metadata;
            }
        } else if resource.has_status() {
            meta::set_part(&mut object, "status", old["status"].clone());
        }
        for field in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "resourceVersion",
            "managedFields",
            "selfLink",
        ] {
            meta::set(&mut object, field, old["metadata"][field].clone());
        }
        resource.strategy.default(&mut object);
        let mut context =
            WriteContext { tx, user: self.user, resource, dry_run: self.options.dry_run };
        resource.strategy.prepare_update(&mut context, &mut object, old, part)?;
        let mut errors = metadata::validate_update(resource, &object, old);
        errors.extend(resource.strategy.validate(&object));
        errors.extend(resource.strategy.validate_update(&object, old, part));
        invalid(resource, &object, errors)?;
        let managed = match managed {
            Managed::Keep => old["metadata"]["managedFields"].clone(),
            Managed::Set(managed) => managed,
            Managed::Track => {
                let (api_version, now) = (resource.api_version(), meta::now());
                let manager =
                    Manager { name: self.manager, api_version: &api_version, part, now: &now };
                after_update(&resource.shape, old, &object, manager)
            }
        };
        meta::set(&mut object, "managedFields", managed);
        if resource.counts_generation && part == Part::Main && changed(resource, &object, old) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            meta::set(&mut object, "generation", json!(generation));
        }
        Ok(object)
    }

    fn store_update(
        &self,
        tx: &mut Tx<'_>,
        resource: &Resource,
        key: &str,
        object: Value,
        old: Stored,
    ) -> Stored {
        if object == *old.value() {
            return old;
        }
        if self.options.dry_run {
            return Stored::new(object);
        }
        let collection = resource.collection();
        let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        let held = resource.strategy.delete(&mut object.clone(), Some(0));
        let released = meta::is_deleting(&object)
            && meta::finalizers(&object).is_empty()
            && grace == 0
            && !matches!(held, Ok(crate::resource::Deletion::Hold));
        if released {
            tx.remove(&collection, key);
            resource.strategy.written(tx, &object, Gone::Yes);
            return Stored::new(object);
        }
        let stored = tx.put(&collection, key, object);
        resource.strategy.written(tx, stored.value(), Gone::No);
        stored
    }
}

fn check_version(resource: &Resource, object: &Value, old: &Stored) -> Result<(), ApiError> {
    let name = meta::name(old.value());
    let (uid, old_uid) = (meta::uid(object), meta::uid(old.value()));
    if !uid.is_empty() && uid != old_uid {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object \
             meta: {old_uid}",
            resource.plural,
            key(meta::namespace(old.value()), name),
        );
        return Err(ApiError::conflict(&resource.group_resource(), name, &why));
    }
    let version = meta::text(object, "resourceVersion");
    if version.is_empty() {
        if resource.unconditional_update {
            return Ok(());
        }
        let error =
            FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        let subject = crate::names::GroupKind::new(&resource.group, &resource.plural);
        return Err(ApiError::invalid(&subject, name, vec![error]));
    }
    if version.parse() != Ok(old.version()) {
        return Err(ApiError::modified(&resource.group_resource(), name));
    }
    Ok(())
}

/// Whether anything besides metadata (and status, where it is apart) differs.
fn changed(resource: &Resource, object: &Value, old: &Value) -> bool {
    let counted = |name: &String| {
        name != "metadata" && !(name == "status" && (resource.has_status() || !resource.custom))
    };
    let (Some(object), Some(old)) = (object.as_object(), old.as_object()) else { return true };
    object.keys().chain(old.keys()).filter(|n| counted(n)).any(|n| object.get(n) != old.get(n))
}

/// Five characters that are hard to confuse.
pub fn random_suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5)
        .map(|_| {
            let at = usize::from(rand::random::<u8>()) % LETTERS.len();
            char::from(LETTERS[at])
        })
        .collect()
}

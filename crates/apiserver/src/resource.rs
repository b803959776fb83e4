//! What a served resource is: its names, its shape, its rules.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::api::Api;
use crate::body::Response;
use crate::meta;
use crate::names::{GroupKind, GroupResource, api_version};
use crate::negotiate::Offer;
use crate::patch::Strategic;
use crate::request_info::{RequestInfo, ResourcePath};
use crate::schema::{Struct, Unknown};
use crate::server::Request;
use crate::source::Source;
use crate::status::{ApiError, FieldError};
use crate::store::Tx;
use crate::table::Column;
use crate::user::User;

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// They do.
    Namespaced,
    /// They do not.
    Cluster,
}

/// What a completed delete answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// A `Status`.
    Status,
    /// The object.
    Object,
}

/// Which part of an object a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but the status.
    Main,
    /// The status.
    Status,
}

/// A served resource.
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind of the objects.
    pub kind: String,
    /// Plural name, as in URLs.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories, as `all`.
    pub categories: Vec<String>,
    /// Scope.
    pub scope: Scope,
    /// Verbs that are served.
    pub verbs: Vec<&'static str>,
    /// Shape of the objects.
    pub shape: Arc<Struct>,
    /// What becomes of fields outside of the shape.
    pub unknown: Unknown,
    /// Whether strategic merge patches are taken.
    pub strategic: Strategic,
    /// Columns of the table form.
    pub columns: Vec<Column>,
    /// Fields that field selectors may name, besides name and namespace.
    pub fields: Vec<String>,
    /// Whether `metadata.generation` counts changes.
    pub counts_generation: bool,
    /// Whether an update may leave out the resourceVersion.
    pub unconditional_update: bool,
    /// Whether the objects are of a CRD.
    pub custom: bool,
    /// What a completed delete answers.
    pub delete_answer: DeleteAnswer,
    /// Rules.
    pub strategy: Arc<dyn Strategy>,
    /// Encodings of the objects.
    pub offer: Offer,
    /// Where the objects are read; the store where this is `None`.
    pub source: Option<Arc<dyn Source>>,
    /// Answers all requests instead of the store.
    pub connect: Option<Arc<dyn Connect>>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
}

/// A subresource.
pub struct Subresource {
    /// Name, as `status`.
    pub name: &'static str,
    /// Group and version of its kind, where they differ from the parent's.
    pub group_version: Option<(&'static str, &'static str)>,
    /// Its kind.
    pub kind: String,
    /// Verbs that are served.
    pub verbs: Vec<&'static str>,
    /// What answers; `None` for `status`, which the store serves.
    pub connect: Option<Arc<dyn Connect>>,
}

impl Resource {
    /// A resource of version `v1` style whose objects a source keeps: it can be read, not written.
    /// What else there is to it (columns, fields, subresources) is set on the result.
    pub fn read_only(
        (group, version): (&str, &str),
        kind: &str,
        plural: &str,
        scope: Scope,
        source: Arc<dyn Source>,
    ) -> Self {
        let mut resource = Self::virtual_kind((group, version), kind, plural, scope);
        resource.verbs = vec!["get", "list", "watch"];
        resource.source = Some(source);
        resource
    }

    /// A resource that `connect` answers, under the given verbs.
    pub fn connected(
        (group, version): (&str, &str),
        kind: &str,
        plural: &str,
        scope: Scope,
        verbs: &[&'static str],
        connect: Arc<dyn Connect>,
    ) -> Self {
        let mut resource = Self::virtual_kind((group, version), kind, plural, scope);
        resource.verbs = verbs.to_vec();
        resource.connect = Some(connect);
        resource
    }

    fn virtual_kind(
        (group, version): (&str, &str),
        kind: &str,
        plural: &str,
        scope: Scope,
    ) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            scope,
            verbs: Vec::new(),
            shape: Arc::default(),
            unknown: Unknown::Keep,
            strategic: Strategic::Refused,
            columns: Column::parse("Name, Age"),
            fields: Vec::new(),
            counts_generation: false,
            unconditional_update: false,
            custom: false,
            delete_answer: DeleteAnswer::Status,
            strategy: Arc::new(NoRules),
            offer: Offer::Text,
            source: None,
            connect: None,
            subresources: Vec::new(),
        }
    }

    /// Name for errors about resources.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.plural)
    }

    /// Name for errors about kinds.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(&self.group, &self.kind)
    }

    /// The `apiVersion` of the objects.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Name of the store's collection.
    pub fn collection(&self) -> String {
        collection(&self.group, &self.plural)
    }

    /// Whether the resource has a `status` subresource.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// A subresource.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }
}

/// Name of the store's collection of a resource.
pub fn collection(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{group}/{plural}") }
}

/// What a rule may look at while an object is written.
pub struct WriteContext<'a, 'b> {
    /// The store, with nobody in between.
    pub tx: &'a mut Tx<'b>,
    /// Who writes.
    pub user: &'a User,
    /// The resource.
    pub resource: &'a Resource,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

/// Form of object names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS subdomain.
    Subdomain,
    /// DNS label.
    Label,
    /// DNS label that starts with a letter.
    Label1035,
    /// Anything that can stand in a path.
    PathSegment,
}

/// What a delete comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The object goes.
    Remove,
    /// The object stays until someone else removes what holds it.
    Hold,
    /// The object gets some seconds; 0 is none.
    Grace(i64),
}

/// The rules of a kind: defaults, admission, validation. All have a neutral default.
pub trait Strategy: Send + Sync {
    /// Form of names.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Fills in what may be left out; also runs after a patch.
    fn default(&self, _object: &mut Value) {}

    /// Admission of a new object; may change it.
    fn prepare_create(
        &self,
        _context: &mut WriteContext<'_, '_>,
        _object: &mut Value,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    /// Admission of a changed object; may change it.
    fn prepare_update(
        &self,
        _context: &mut WriteContext<'_, '_>,
        _object: &mut Value,
        _old: &Value,
        _part: Part,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    /// Rules that every object must keep.
    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Rules about changes.
    fn validate_update(&self, _object: &Value, _old: &Value, _part: Part) -> Vec<FieldError> {
        Vec::new()
    }

    /// What a delete comes to; may change the object when it stays.
    fn delete(&self, _object: &mut Value, _asked: Option<i64>) -> Result<Deletion, ApiError> {
        Ok(Deletion::Remove)
    }

    /// Sees what was stored, or went, while nobody is in between.
    fn written(&self, _tx: &mut Tx<'_>, _object: &Value, _gone: Gone) {}

    /// Cells of the table form, one per column.
    fn cells(&self, object: &Value) -> Vec<Value> {
        vec![json!(meta::name(object)), crate::table::age(object)]
    }
}

/// Whether an object is there after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It is not.
    Yes,
    /// It is.
    No,
}

/// A kind without rules.
pub struct NoRules;

impl Strategy for NoRules {}

/// A request for something that the store does not answer.
pub struct Call {
    /// The API.
    pub api: Arc<Api>,
    /// Who asks.
    pub user: User,
    /// The request, taken apart.
    pub info: RequestInfo,
    /// The resource in the path.
    pub path: ResourcePath,
    /// The resource.
    pub resource: Arc<Resource>,
}

/// Answers requests for a subresource, or for a resource that is not in the store.
pub trait Connect: Send + Sync {
    /// Answers one request; it is authorized already.
    fn connect(
        &self,
        call: Call,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>>;
}

type Id = (String, String, String);

/// The resources that are served now.
#[derive(Default)]
pub struct Registry {
    resources: RwLock<BTreeMap<Id, Arc<Resource>>>,
}

impl Registry {
    /// Serves a resource from now on, in place of one of the same name.
    pub fn insert(&self, resource: Resource) {
        let id = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        let mut resources =
            self.resources.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        resources.insert(id, Arc::new(resource));
    }

    /// Serves no version of a resource any more.
    pub fn remove(&self, group: &str, plural: &str) {
        let mut resources =
            self.resources.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        resources.retain(|(own_group, _, own), _| !(own_group == group && own == plural));
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<Id, Arc<Resource>>> {
        self.resources.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A resource by its URL parts.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.read().get(&(group.to_owned(), version.to_owned(), plural.to_owned())).cloned()
    }

    /// A resource by its kind.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        let resources = self.read();
        let mut all = resources.values();
        all.find(|r| r.group == group && r.version == version && r.kind == kind).cloned()
    }

    /// All resources, ordered by group, version and name.
    pub fn all(&self) -> Vec<Arc<Resource>> {
        self.read().values().cloned().collect()
    }

    /// Whether a group and version has any resource.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.read().values().any(|r| r.group == group && r.version == version)
    }
}

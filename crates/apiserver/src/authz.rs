//! Who may do what.

use futures::future::BoxFuture;

use crate::names::GroupResource;
use crate::request_info::RequestInfo;
use crate::status::ApiError;
use crate::user::User;

/// An act to be judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// Who acts.
    pub user: User,
    /// Verb.
    pub verb: String,
    /// On what.
    pub object: Target,
}

/// On what an act is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A resource.
    Resource {
        /// API group.
        group: String,
        /// Plural name.
        resource: String,
        /// Subresource; empty for none.
        subresource: String,
        /// Namespace; empty for cluster scope or all namespaces.
        namespace: String,
        /// Object; empty for a collection.
        name: String,
    },
    /// A path that is no resource.
    Path(String),
}

impl Default for Target {
    fn default() -> Self {
        Self::Path(String::new())
    }
}

impl Attributes {
    /// The act that a request is.
    pub fn of(user: &User, info: &RequestInfo) -> Self {
        let object = match &info.resource {
            None => Target::Path(info.path.clone()),
            Some(path) => Target::Resource {
                group: path.group.clone(),
                resource: path.resource.clone(),
                subresource: path.subresource.clone(),
                namespace: path.namespace.clone(),
                name: path.name.clone(),
            },
        };
        Self { user: user.clone(), verb: info.verb.clone(), object }
    }

    /// The refusal of this act.
    pub fn refusal(&self) -> ApiError {
        let (user, verb) = (&self.user.username, &self.verb);
        match &self.object {
            Target::Path(path) => {
                ApiError::forbidden_path(&format!("User {user:?} cannot {verb} path {path:?}"))
            }
            Target::Resource { group, resource, subresource, namespace, name } => {
                let full = match subresource.as_str() {
                    "" => resource.clone(),
                    subresource => format!("{resource}/{subresource}"),
                };
                let place = match namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let why = format!(
                    "User {user:?} cannot {verb} resource {full:?} in API group {group:?} {place}"
                );
                ApiError::forbidden(&GroupResource::new(group, resource), name, &why)
            }
        }
    }
}

/// A judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the act may be done.
    pub allowed: bool,
    /// Why; may be empty.
    pub reason: String,
}

/// Judges acts.
pub trait Authorizer: Send + Sync {
    /// Judges one act; an error when no judgement can be had.
    fn authorize<'a>(&'a self, act: &'a Attributes) -> BoxFuture<'a, Result<Decision, ApiError>>;
}

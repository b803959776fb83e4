//! Puts YAML manifests on the server, by server-side apply under a name of our own.
//!
//! What an earlier manifest named and this one does not is removed, unless others wrote it too;
//! what only others wrote stays. Whole objects are never removed.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};

/// Under which name we apply.
const MANAGER: &str = "antrea-manifests";

/// What was done for one object of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Kind.
    pub kind: String,
    /// Namespace; empty for kinds that have none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// What was done.
    pub outcome: Outcome,
}

/// What was done for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Created,
    /// It was changed.
    Configured,
    /// It was as wanted already.
    Unchanged,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Created => "created",
            Outcome::Configured => "configured",
            Outcome::Unchanged => "unchanged",
        };
        write!(f, "{}/{} {outcome}", self.kind.to_lowercase(), self.name)
    }
}

/// Why manifests were not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The text is no YAML.
    #[error("read manifest: {0}")]
    Yaml(String),
    /// A document is no object of the API.
    #[error("document {document} has no {missing}")]
    Incomplete {
        /// Which one, from 1.
        document: usize,
        /// What it lacks.
        missing: &'static str,
    },
    /// The server does not know the kind.
    #[error("the server has no kind {kind} in {api_version}")]
    UnknownKind {
        /// Group and version.
        api_version: String,
        /// Kind.
        kind: String,
    },
    /// The server refused.
    #[error("apply {kind} {name}")]
    Refused {
        /// Kind.
        kind: String,
        /// Name.
        name: String,
        /// Why.
        source: Box<ApiError>,
    },
}

/// An object of a manifest.
#[derive(Debug)]
struct Object {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    name: String,
    body: Value,
}

impl Object {
    fn read(document: usize, body: Value) -> Result<Self, ApplyError> {
        let text = |path: &str, missing| {
            let found = body.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
            found.map(str::to_owned).ok_or(ApplyError::Incomplete { document, missing })
        };
        Ok(Self {
            api_version: text("/apiVersion", "apiVersion")?,
            kind: text("/kind", "kind")?,
            namespace: text("/metadata/namespace", "").ok(),
            name: text("/metadata/name", "metadata.name")?,
            body,
        })
    }

    fn group_version(&self) -> (&str, &str) {
        self.api_version.split_once('/').unwrap_or(("", &self.api_version))
    }
}

/// Applies all objects of a YAML text in their order; documents are separated by `---`.
///
/// # Errors
/// At the first object that cannot be applied; those before it stay applied.
pub async fn manifests(client: &Client, yaml: &str) -> Result<Vec<Applied>, ApplyError> {
    let mut kinds = Kinds::default();
    let mut applied = Vec::new();
    for object in read(yaml)? {
        applied.push(apply(client, &mut kinds, &object).await?);
    }
    Ok(applied)
}

fn read(yaml: &str) -> Result<Vec<Object>, ApplyError> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(yaml).map_err(|error| ApplyError::Yaml(error.to_string()))?;
    documents
        .into_iter()
        .enumerate()
        .filter(|(_, body)| !body.is_null())
        .map(|(n, body)| Object::read(n + 1, body))
        .collect()
}

async fn apply(client: &Client, kinds: &mut Kinds, object: &Object) -> Result<Applied, ApplyError> {
    let refused = |source| ApplyError::Refused {
        kind: object.kind.clone(),
        name: object.name.clone(),
        source: Box::new(source),
    };
    let resource = kinds.find(client, object).await?;
    let (group, version) = object.group_version();
    let namespace = resource.namespaced.then(|| object.namespace.as_deref().unwrap_or("default"));
    let call = |verb| {
        let call = Call::to(verb, group, version, resource.name.as_str());
        match namespace {
            Some(namespace) => call.namespace(namespace),
            None => call,
        }
    };
    let there = match call(Verb::Get).name(&object.name).send::<Value>(client).await {
        Ok(there) => Some(there),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(refused(error)),
    };
    let applied = call(Verb::Patch).name(&object.name).apply(MANAGER, &object.body);
    let now: Value = applied.send(client).await.map_err(refused)?;
    let version = "/metadata/resourceVersion";
    let outcome = match there {
        None => Outcome::Created,
        Some(there) if there.pointer(version) == now.pointer(version) => Outcome::Unchanged,
        Some(_) => Outcome::Configured,
    };
    Ok(Applied {
        kind: object.kind.clone(),
        namespace: namespace.unwrap_or_default().to_owned(),
        name: object.name.clone(),
        outcome,
    })
}

/// What the server calls its kinds, as far as we asked.
#[derive(Default)]
struct Kinds {
    by_group_version: BTreeMap<String, Vec<Resource>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Resource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<Resource>,
}

impl Kinds {
    async fn find(&mut self, client: &Client, object: &Object) -> Result<Resource, ApplyError> {
        if let Some(found) = self.known(object) {
            return Ok(found);
        }
        let (group, version) = object.group_version();
        let unknown = || ApplyError::UnknownKind {
            api_version: object.api_version.clone(),
            kind: object.kind.clone(),
        };
        let list = Call::discovery(group, version).send::<ResourceList>(client).await;
        let list = match list {
            Ok(list) => list,
            Err(error) if error.is_not_found() => return Err(unknown()),
            Err(source) => {
                let source = Box::new(source);
                let (kind, name) = (object.kind.clone(), object.name.clone());
                return Err(ApplyError::Refused { kind, name, source });
            }
        };
        // A CustomResourceDefinition earlier in the manifest may have added to it since.
        self.by_group_version.insert(object.api_version.clone(), list.resources);
        self.known(object).ok_or_else(unknown)
    }

    fn known(&self, object: &Object) -> Option<Resource> {
        let all = self.by_group_version.get(&object.api_version)?;
        all.iter().find(|one| one.kind == object.kind && !one.name.contains('/')).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_in_order_and_empty_ones_skipped() {
        let objects = read(
            "# a comment\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: a\n  \
             namespace: kube-system\n---\n---\napiVersion: rbac.authorization.k8s.io/v1\n\
             kind: ClusterRole\nmetadata: {name: b}\n",
        )
        .unwrap();
        let seen: Vec<_> =
            objects.iter().map(|object| (object.group_version(), object.name.as_str())).collect();
        assert_eq!(seen, [(("", "v1"), "a"), (("rbac.authorization.k8s.io", "v1"), "b")]);
        assert_eq!(objects[0].namespace.as_deref(), Some("kube-system"));
        assert_eq!(objects[1].namespace, None);
    }

    #[test]
    fn what_is_no_object_is_named() {
        let error = read("apiVersion: v1\nkind: Pod\n---\nkind: Pod\n").unwrap_err();
        assert_eq!(error.to_string(), "document 1 has no metadata.name");
        let error = read("apiVersion: v1\nmetadata: {name: a}\n").unwrap_err();
        assert_eq!(error.to_string(), "document 1 has no kind");
        assert!(matches!(read("a: [1"), Err(ApplyError::Yaml(_))));
    }
}

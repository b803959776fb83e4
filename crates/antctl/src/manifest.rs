//! Turns files of manifests into the objects of a cluster, and remembers where each of them stands.
//!
//! YAML with any number of documents, JSON, and lists of either. A kind that has nothing to do with
//! who may connect to whom is skipped; anything else that cannot be read is a [`Complaint`] with its
//! file and line, and the rest is read all the same.
//!
//! Not here: what the objects mean (`::policy::verdict`).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::policy::connectivity::Workload;
use ::policy::verdict::{Cluster, Severity};

mod document;
mod kinds;
mod walk;
mod workloads;

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file.
    pub file: Arc<Path>,
    /// The line, from 1.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Something about the input that a person should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub text: String,
    /// Whether the answer may be wrong because of it.
    pub is_error: bool,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_error { "error" } else { "note" };
        write!(f, "{}: {word}: {}", self.place, self.text)
    }
}

/// Kind (with its group), Namespace and name of an object.
pub(crate) type ObjectKey = (String, String, String);

/// What was read.
#[derive(Debug)]
pub struct Manifests {
    /// The cluster.
    pub cluster: Cluster,
    /// Names for its Pods.
    pub workloads: Vec<Workload>,
    /// What is wrong with the input.
    pub complaints: Vec<Complaint>,
    places: BTreeMap<ObjectKey, Place>,
}

impl Manifests {
    /// Reads files, and all files with manifests below folders.
    ///
    /// Fails only if a path is not there at all.
    pub fn read(paths: &[PathBuf]) -> std::io::Result<Self> {
        let mut reader = kinds::Reader::default();
        for file in walk::files(paths)? {
            document::read(&file, &mut reader);
        }
        let kinds::Reader { mut objects, controllers, places, mut complaints } = reader;
        let named = workloads::arrange(&mut objects, controllers);
        let cluster = Cluster::new(&objects);
        complaints.extend(cluster.problems().iter().filter_map(|problem| {
            let kind = format!("{}/{}", problem.group, problem.kind);
            let key = (kind, problem.namespace.clone(), problem.name.clone());
            let mut text = match problem.namespace.as_str() {
                "" => format!("{} {}", problem.kind, problem.name),
                namespace => format!("{} {namespace}/{}", problem.kind, problem.name),
            };
            if !problem.field.is_empty() {
                text = format!("{text}: {}", problem.field);
            }
            Some(Complaint {
                place: places.get(&key)?.clone(),
                text: format!("{text}: {}", problem.reason),
                is_error: problem.severity == Severity::Fault,
            })
        }));
        complaints.sort();
        let workloads = named
            .into_iter()
            .filter_map(|(name, pods)| {
                let pods: Vec<_> = pods
                    .iter()
                    .filter_map(|(namespace, name)| cluster.pod(namespace, name))
                    .collect();
                (!pods.is_empty()).then_some(Workload { name, pods })
            })
            .collect();
        Ok(Self { cluster, workloads, complaints, places })
    }

    /// Where an object stands, by kind with its group, Namespace and name.
    pub fn place(&self, kind: &str, namespace: &str, name: &str) -> Option<&Place> {
        self.places.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    /// Whether something could not be read as it was meant.
    pub fn has_errors(&self) -> bool {
        self.complaints.iter().any(|complaint| complaint.is_error)
    }
}

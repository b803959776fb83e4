//! Types of the `crd.antrea.io` API group and the CustomResourceDefinitions made from them.
//!
//! Pure: types in, YAML out. The schema of each kind is derived from its Rust type, so the two
//! cannot disagree; the YAML in `deploy/crds` is generated and checked against this crate.
//! Not here: reading and writing objects (`kube_io`).

pub mod agent_info;
pub mod common;
pub mod controller_info;
pub mod crd;
mod schema;

pub use agent_info::AntreaAgentInfo;
pub use controller_info::AntreaControllerInfo;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// All CustomResourceDefinitions, by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![crd::definition::<AntreaAgentInfo>(), crd::definition::<AntreaControllerInfo>()]
}

/// The files of `deploy/crds`: name and content of each.
pub fn crd_yaml() -> Vec<(String, String)> {
    crds().iter().map(crd::file).collect()
}

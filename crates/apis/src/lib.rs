//! Types of the API groups that we serve or read: `crd.antrea.io` with the
//! CustomResourceDefinitions made from its types, `controlplane.antrea.io` with its protobuf form,
//! and Kubernetes' `policy.networking.k8s.io`; and what is used of its Services.
//!
//! Pure: types in, YAML or bytes out. The schema of each kind is derived from its Rust type, so the two
//! cannot disagree; the YAML in `deploy/crds` is generated and checked against this crate.
//! Not here: reading and writing objects (`kube_io`).

pub mod agent_info;
pub mod common;
pub mod controller_info;
pub mod controlplane;
mod crd;
pub mod policy;
mod schema;
pub mod service;
pub mod upstream;
mod words;

pub use agent_info::AntreaAgentInfo;
pub use controller_info::AntreaControllerInfo;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// All CustomResourceDefinitions, by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        crd::definition::<AntreaAgentInfo>(),
        crd::definition::<AntreaControllerInfo>(),
        crd::definition::<policy::ClusterGroup>(),
        crd::definition::<policy::ClusterNetworkPolicy>(),
        crd::definition::<policy::Group>(),
        crd::definition::<policy::NetworkPolicy>(),
        crd::definition::<policy::Tier>(),
    ]
}

/// The files of `deploy/crds`: name and content of each.
pub fn crd_yaml() -> Vec<(String, String)> {
    crds().iter().map(crd::file).collect()
}

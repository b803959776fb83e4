//! The kinds that are served, with their names, shapes and rules.

mod config;
mod crd;
mod custom;
mod extensions;
mod namespace;
mod network;
mod network_policy;
mod node;
mod pod;
mod pod_admission;
mod pod_table;
mod rbac;
mod service;
mod util;
mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use apiserver::negotiate::Offer;
use apiserver::patch::Strategic;
use apiserver::protobuf::Protobuf;
use apiserver::resource::{
    Connect, DeleteAnswer, NoRules, Registry, Resource, Scope, Strategy, Subresource,
};
use apiserver::schema::{self, SchemaError, Struct, Unknown};
use apiserver::table::Column;
use ipnet::IpNet;

pub(crate) use namespace::{CONTENT_FINALIZER, ensure_defaults};
pub(crate) use node::{NOT_READY, UNREACHABLE};
pub(crate) use pod::POD;
pub(crate) use util::{each, text};
pub(crate) use workload::{Round, share};

/// The collection of ServiceAccounts.
pub(crate) const SERVICE_ACCOUNTS: &str = "serviceaccounts";
/// The collection of Nodes.
pub(crate) const NODES: &str = "nodes";
/// The collection of Namespaces.
pub(crate) const NAMESPACES: &str = "namespaces";

/// Verbs of a stored resource.
const ALL: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS: [&str; 3] = ["get", "patch", "update"];

/// Handlers of the subresources and virtual resources.
pub(crate) struct Connectors {
    pub(crate) binding: Arc<dyn Connect>,
    pub(crate) eviction: Arc<dyn Connect>,
    pub(crate) finalize: Arc<dyn Connect>,
    pub(crate) kubelet: Arc<dyn Connect>,
    pub(crate) token: Arc<dyn Connect>,
    pub(crate) reviews: Arc<dyn Connect>,
}

/// What the rules of some kinds need.
pub(crate) struct Settings {
    pub(crate) ca_pem: String,
    pub(crate) service_cidrs: Vec<IpNet>,
}

struct Names {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    scope: Scope,
}

impl Names {
    const fn core(kind: &'static str, plural: &'static str, scope: Scope) -> Self {
        Self { group: "", kind, plural, short: &[], scope }
    }

    const fn grouped(
        group: &'static str,
        kind: &'static str,
        plural: &'static str,
        scope: Scope,
    ) -> Self {
        Self { group, kind, plural, short: &[], scope }
    }

    const fn short(mut self, short: &'static [&'static str]) -> Self {
        self.short = short;
        self
    }
}

/// Makes resources out of the table of types.
struct Maker {
    types: BTreeMap<String, Arc<Struct>>,
}

/// Kinds that are also written as protobuf: what a cluster has many of, and clients list whole.
const WRITTEN_AS_PROTOBUF: [&str; 8] = [
    "Deployment",
    "EndpointSlice",
    "Namespace",
    "NetworkPolicy",
    "Node",
    "Pod",
    "ReplicaSet",
    "Service",
];

fn offer(kind: &str) -> Offer {
    if WRITTEN_AS_PROTOBUF.contains(&kind) { Offer::TextAndProtobuf } else { Offer::Text }
}

/// What writes and reads the protobuf form of built-in kinds.
///
/// # Errors
/// When the types make no sense.
pub fn protobuf() -> Result<Protobuf, SchemaError> {
    let types = schema::parse(include_str!("kinds/types.txt"))?;
    Ok(Protobuf::new(types, include_str!("kinds/protobuf.txt")))
}

impl Maker {
    fn stored(&self, names: Names, columns: &str, strategy: Arc<dyn Strategy>) -> Resource {
        Resource {
            group: names.group.to_owned(),
            version: "v1".to_owned(),
            kind: names.kind.to_owned(),
            plural: names.plural.to_owned(),
            singular: names.kind.to_lowercase(),
            short_names: names.short.iter().map(|name| (*name).to_owned()).collect(),
            categories: Vec::new(),
            scope: names.scope,
            verbs: ALL.to_vec(),
            shape: self.types.get(names.kind).cloned().unwrap_or_default(),
            unknown: Unknown::Drop,
            strategic: Strategic::Supported,
            columns: Column::parse(columns),
            fields: Vec::new(),
            counts_generation: false,
            unconditional_update: true,
            custom: false,
            delete_answer: DeleteAnswer::Status,
            strategy,
            offer: offer(names.kind),
            source: None,
            connect: None,
            subresources: Vec::new(),
        }
    }

    fn review(&self, names: Names, connect: &Arc<dyn Connect>) -> Resource {
        let mut resource = self.stored(names, "Name", Arc::new(NoRules));
        resource.verbs = vec!["create"];
        resource.connect = Some(Arc::clone(connect));
        resource
    }
}

fn status_of(resource: &Resource) -> Subresource {
    Subresource {
        name: "status",
        group_version: None,
        kind: resource.kind.clone(),
        verbs: STATUS.to_vec(),
        connect: None,
    }
}

fn part(
    name: &'static str,
    kind: &str,
    verbs: &[&'static str],
    connect: &Arc<dyn Connect>,
) -> Subresource {
    Subresource {
        name,
        group_version: None,
        kind: kind.to_owned(),
        verbs: verbs.to_vec(),
        connect: Some(Arc::clone(connect)),
    }
}

/// Serves all built-in kinds from `registry`; gives what reads their protobuf form.
pub(crate) fn register(
    registry: &Arc<Registry>,
    settings: Settings,
    connectors: &Connectors,
) -> Result<Protobuf, SchemaError> {
    let maker = Maker { types: schema::parse(include_str!("kinds/types.txt"))? };
    register_core(registry, &maker, settings, connectors);
    register_groups(registry, &maker, connectors);
    protobuf()
}

fn register_core(registry: &Registry, maker: &Maker, settings: Settings, to: &Connectors) {
    use Scope::{Cluster, Namespaced};
    let fields = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();

    let mut namespaces = maker.stored(
        Names::core("Namespace", "namespaces", Cluster).short(&["ns"]),
        "Name, Status, Age",
        Arc::new(namespace::Rules { ca_pem: settings.ca_pem }),
    );
    namespaces.verbs.retain(|verb| *verb != "deletecollection");
    namespaces.delete_answer = DeleteAnswer::Object;
    namespaces.fields = fields(&["status.phase"]);
    namespaces.subresources =
        vec![part("finalize", "Namespace", &["update"], &to.finalize), status_of(&namespaces)];
    registry.insert(namespaces);

    let mut nodes = maker.stored(
        Names::core("Node", NODES, Cluster).short(&["no"]),
        "Name, Status, Roles, Age, Version | Internal-IP, External-IP, OS-Image, \
         Kernel-Version, Container-Runtime",
        Arc::new(node::Rules),
    );
    nodes.fields = fields(&["spec.unschedulable"]);
    nodes.subresources = vec![status_of(&nodes)];
    registry.insert(nodes);

    let mut pods = maker.stored(
        Names::core("Pod", POD, Namespaced).short(&["po"]),
        "Name, Ready, Status, Restarts, Age | IP, Node, Nominated Node, Readiness Gates",
        Arc::new(pod::Rules),
    );
    pods.categories = vec!["all".to_owned()];
    pods.fields = fields(&[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ]);
    pods.counts_generation = true;
    pods.delete_answer = DeleteAnswer::Object;
    let mut eviction = part("eviction", "Eviction", &["create"], &to.eviction);
    eviction.group_version = Some(("policy", "v1"));
    pods.subresources = vec![
        part("attach", "PodAttachOptions", &["create", "get"], &to.kubelet),
        part("binding", "Binding", &["create"], &to.binding),
        eviction,
        part("exec", "PodExecOptions", &["create", "get"], &to.kubelet),
        part("log", "Pod", &["get"], &to.kubelet),
        status_of(&pods),
    ];
    registry.insert(pods);

    let mut services = maker.stored(
        Names::core("Service", "services", Namespaced).short(&["svc"]),
        "Name, Type, Cluster-IP, External-IP, Port(s), Age | Selector",
        Arc::new(service::Rules { ranges: settings.service_cidrs }),
    );
    services.categories = vec!["all".to_owned()];
    services.fields = fields(&["spec.clusterIP", "spec.type"]);
    services.delete_answer = DeleteAnswer::Object;
    services.subresources = vec![status_of(&services)];
    registry.insert(services);

    registry.insert(maker.stored(
        Names::core("Endpoints", "endpoints", Namespaced).short(&["ep"]),
        "Name, Endpoints, Age",
        Arc::new(network::EndpointsRules),
    ));
    registry.insert(maker.stored(
        Names::core("ConfigMap", "configmaps", Namespaced).short(&["cm"]),
        "Name, Data, Age",
        Arc::new(config::ConfigMapRules),
    ));
    let mut secrets = maker.stored(
        Names::core("Secret", "secrets", Namespaced),
        "Name, Type, Data, Age",
        Arc::new(config::SecretRules),
    );
    secrets.fields = fields(&["type"]);
    registry.insert(secrets);

    let mut accounts = maker.stored(
        Names::core("ServiceAccount", SERVICE_ACCOUNTS, Namespaced).short(&["sa"]),
        "Name, Secrets, Age",
        Arc::new(config::ServiceAccountRules),
    );
    accounts.delete_answer = DeleteAnswer::Object;
    let mut token = part("token", "TokenRequest", &["create"], &to.token);
    token.group_version = Some(("authentication.k8s.io", "v1"));
    accounts.subresources = vec![token];
    registry.insert(accounts);

    let mut events = maker.stored(
        Names::core("Event", "events", Namespaced).short(&["ev"]),
        "Last Seen, Type, Reason, Object, Message | Name",
        Arc::new(config::EventRules),
    );
    events.fields = fields(&[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.fieldPath",
        "reason",
        "type",
    ]);
    registry.insert(events);
}

fn register_groups(registry: &Arc<Registry>, maker: &Maker, to: &Connectors) {
    use Scope::{Cluster, Namespaced};

    let mut leases = maker.stored(
        Names::grouped("coordination.k8s.io", "Lease", "leases", Namespaced),
        "Name, Holder, Age",
        Arc::new(network::LeaseRules),
    );
    leases.unconditional_update = false;
    registry.insert(leases);

    let mut slices = maker.stored(
        Names::grouped("discovery.k8s.io", "EndpointSlice", "endpointslices", Namespaced),
        "Name, AddressType, Ports, Endpoints, Age",
        Arc::new(network::SliceRules),
    );
    slices.counts_generation = true;
    registry.insert(slices);

    for (kind, plural, short, columns) in [
        (
            "Deployment",
            "deployments",
            &["deploy"][..],
            "Name, Ready, Up-to-date, Available, Age | Containers, Images, Selector",
        ),
        (
            "ReplicaSet",
            "replicasets",
            &["rs"],
            "Name, Desired, Current, Ready, Age | Containers, Images, Selector",
        ),
    ] {
        let names = Names::grouped("apps", kind, plural, Namespaced).short(short);
        let rules = match kind {
            "Deployment" => workload::Rules::Deployment,
            _ => workload::Rules::ReplicaSet,
        };
        let mut workloads = maker.stored(names, columns, Arc::new(rules));
        workloads.categories = vec!["all".to_owned()];
        workloads.counts_generation = true;
        workloads.subresources = vec![status_of(&workloads)];
        registry.insert(workloads);
    }

    let mut policies = maker.stored(
        Names::grouped("networking.k8s.io", "NetworkPolicy", "networkpolicies", Namespaced)
            .short(&["netpol"]),
        "Name, Pod-Selector, Age",
        Arc::new(network_policy::Rules),
    );
    policies.counts_generation = true;
    registry.insert(policies);

    let mut services = maker.stored(
        Names::grouped(crate::aggregation::GROUP, "APIService", "apiservices", Cluster),
        "Name, Service, Available, Age",
        Arc::new(extensions::ApiServiceRules),
    );
    services.categories = vec!["api-extensions".to_owned()];
    services.unconditional_update = false;
    services.subresources = vec![status_of(&services)];
    registry.insert(services);
    for (kind, plural) in [
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ] {
        let names = Names::grouped(crate::webhooks::GROUP, kind, plural, Cluster);
        let rules = Arc::new(extensions::WebhookRules);
        let mut configurations = maker.stored(names, "Name, Webhooks, Age", rules);
        configurations.counts_generation = true;
        configurations.categories = vec!["api-extensions".to_owned()];
        registry.insert(configurations);
    }

    let group = apiserver::rbac::GROUP;
    for (kind, plural, scope, columns) in [
        ("ClusterRole", "clusterroles", Cluster, "Name, Created At"),
        ("ClusterRoleBinding", "clusterrolebindings", Cluster, "Name, Role, Age"),
        ("Role", "roles", Namespaced, "Name, Created At"),
        ("RoleBinding", "rolebindings", Namespaced, "Name, Role, Age"),
    ] {
        let rules: Arc<dyn Strategy> = match kind {
            "ClusterRole" | "Role" => Arc::new(rbac::RoleRules),
            _ => Arc::new(rbac::BindingRules),
        };
        registry.insert(maker.stored(Names::grouped(group, kind, plural, scope), columns, rules));
    }

    let object_meta = maker.types.get("ObjectMeta").cloned().unwrap_or_default();
    let mut definitions = maker.stored(
        Names::grouped(
            crd::GROUP,
            "CustomResourceDefinition",
            "customresourcedefinitions",
            Cluster,
        )
        .short(&["crd", "crds"]),
        "Name, Created At",
        Arc::new(crd::Rules::new(registry, object_meta)),
    );
    definitions.counts_generation = true;
    definitions.categories = vec!["api-extensions".to_owned()];
    definitions.unconditional_update = false;
    definitions.delete_answer = DeleteAnswer::Object;
    definitions.subresources = vec![status_of(&definitions)];
    registry.insert(definitions);

    for (group, kind, plural, scope) in [
        ("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", Cluster),
        ("authentication.k8s.io", "TokenReview", "tokenreviews", Cluster),
        (
            "authorization.k8s.io",
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            Namespaced,
        ),
        ("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", Cluster),
        ("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews", Cluster),
        ("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", Cluster),
    ] {
        registry.insert(maker.review(Names::grouped(group, kind, plural, scope), &to.reviews));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_numbered_field_exists() {
        assert_eq!(protobuf().unwrap().strays(), Vec::<String>::new());
    }
}

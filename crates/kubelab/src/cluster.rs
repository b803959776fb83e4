//! One cluster's state: its store, resources and loops, wired together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apiserver::api::Api;
use apiserver::meta;
use apiserver::names::{GroupResource, split_api_version};
use apiserver::objects::{Admission, Writer};
use apiserver::pki::Identity;
use apiserver::query::{FieldValidation, WriteOptions};
use apiserver::rbac::Rbac;
use apiserver::resource::{Gone, Part, Registry, Resource, Scope};
use apiserver::server::Handler;
use apiserver::status::ApiError;
use apiserver::store::{Store, Tx, key};
use apiserver::token::TokenKey;
use apiserver::upstream::Dial;
use apiserver::user::{MASTERS, User};
use ipnet::IpNet;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::accounts::{Accounts, Authentication};
use crate::aggregation::Aggregation;
use crate::kinds::{self, Connectors, NAMESPACES, Settings};
use crate::server::ServerError;
use crate::webhooks::Callers;
use crate::{bootstrap, kubelet, loops, pod_parts, reviews};

/// What a cluster is made from.
pub(crate) struct Setup {
    pub(crate) token_key: TokenKey,
    pub(crate) journal: PathBuf,
    pub(crate) ca_pem: String,
    pub(crate) kubelet_dir: Option<PathBuf>,
    pub(crate) kubelet_advice: String,
    pub(crate) service_cidrs: Vec<IpNet>,
    pub(crate) endpoint: Option<SocketAddr>,
    pub(crate) watch_window: usize,
    pub(crate) node_grace: Duration,
    pub(crate) dial: Dial,
    pub(crate) front_proxy: Identity,
    pub(crate) front_proxy_ca_pem: String,
    pub(crate) stopping: CancellationToken,
}

/// The parts of a running cluster.
pub(crate) struct Cluster {
    api: Arc<Api>,
    accounts: Arc<Accounts>,
    aggregation: Arc<Aggregation>,
    ca_pem: String,
    node_grace: Duration,
}

/// The user as whom the server itself writes.
pub(crate) fn system_user() -> User {
    User::new("system:apiserver", [MASTERS])
}

/// Options of the server's own writes.
pub(crate) const PLAIN: WriteOptions =
    WriteOptions { dry_run: false, field_validation: FieldValidation::Strict };

/// Above every version that an earlier process with the same clients gave out, as long as it wrote
/// less than a million objects a second.
fn first_revision() -> u64 {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    (seconds << 20).max(1)
}

impl Cluster {
    pub(crate) fn new(setup: Setup) -> Result<Arc<Self>, ServerError> {
        let store = Store::open(setup.watch_window, first_revision(), &setup.journal)
            .map_err(ServerError::DataDir)?;
        let store = Arc::new(store);
        let registry = Arc::new(Registry::default());
        let rbac = Arc::new(Rbac::new(Arc::clone(&store)));
        let accounts = Arc::new(Accounts::new(Arc::clone(&store), setup.token_key));
        let connectors = Connectors {
            binding: Arc::new(pod_parts::Binding),
            eviction: Arc::new(pod_parts::Eviction),
            finalize: Arc::new(pod_parts::Finalize),
            kubelet: Arc::new(kubelet::Proxy::new(setup.kubelet_dir, setup.kubelet_advice)),
            token: Arc::new(crate::accounts::TokenRequests(Arc::clone(&accounts))),
            reviews: Arc::new(reviews::Reviews::new(Arc::clone(&accounts), Arc::clone(&rbac))),
        };
        let settings =
            Settings { ca_pem: setup.ca_pem.clone(), service_cidrs: setup.service_cidrs.clone() };
        let protobuf = kinds::register(&registry, settings, &connectors)
            .map_err(|error| ApiError::internal(format!("types: {error}")))?;
        let aggregation =
            Aggregation::new(Arc::clone(&store), setup.front_proxy, Arc::clone(&setup.dial));
        let aggregation = Arc::new(aggregation);
        let webhooks = Arc::new(Callers::new(Arc::clone(&store), setup.dial));
        let address = setup.endpoint.map(|address| address.to_string()).unwrap_or_default();
        let api = Arc::new(Api {
            store,
            registry,
            authenticator: Arc::new(Authentication(Arc::clone(&accounts))),
            authorizer: rbac,
            admission: Arc::new(NamespaceLifecycle),
            protobuf: Arc::new(protobuf),
            version: version(),
            server_address: address,
            webhooks: Some(webhooks),
            aggregator: Some(Arc::clone(&aggregation) as _),
            pages: std::collections::BTreeMap::new(),
            in_flight: None,
            stopping: setup.stopping,
        });
        let cluster = Arc::new(Self {
            api,
            accounts,
            aggregation,
            ca_pem: setup.ca_pem,
            node_grace: setup.node_grace,
        });
        cluster.serve_known_crds();
        bootstrap::run(&cluster, &setup.service_cidrs, setup.endpoint)?;
        bootstrap::publish_trust(&cluster, &cluster.ca_pem, &setup.front_proxy_ca_pem)?;
        Ok(cluster)
    }

    /// Custom kinds of an earlier process are served again.
    fn serve_known_crds(&self) {
        let found =
            self.api.registry.by_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let Some(resource) = found else { return };
        self.api.store.write(|tx| {
            for definition in tx.list(&resource.collection(), "") {
                resource.strategy.written(tx, definition.value(), Gone::No);
            }
        });
    }

    pub(crate) fn handler(&self) -> Arc<dyn Handler> {
        Arc::clone(&self.api) as Arc<dyn Handler>
    }

    pub(crate) fn start_loops(&self) {
        loops::start(&self.api, &self.ca_pem, self.node_grace);
        tokio::spawn(Arc::clone(&self.aggregation).run(Arc::clone(&self.api)));
    }

    pub(crate) fn token_for(&self, namespace: &str, name: &str) -> Result<String, ApiError> {
        self.accounts.mint_for_owner(namespace, name)
    }

    pub(crate) fn token_on_node(
        &self,
        namespace: &str,
        name: &str,
        node: &str,
    ) -> Result<String, ApiError> {
        self.accounts.mint_for_node(namespace, name, node)
    }

    pub(crate) fn apply_yaml(&self, yaml: &str) -> Result<usize, ServerError> {
        let manifest = |error: &dyn std::fmt::Display| ServerError::Manifest(error.to_string());
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(yaml).map_err(|error| manifest(&error))?;
        let mut count = 0;
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            let items = match object["items"].as_array() {
                Some(items) if object["kind"].as_str().is_some_and(|k| k.ends_with("List")) => {
                    items.clone()
                }
                _ => vec![object],
            };
            for item in items {
                self.apply(item)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Creates an object, or replaces it.
    pub(crate) fn apply(&self, object: Value) -> Result<(), ServerError> {
        let kind = object["kind"].as_str().unwrap_or("").to_owned();
        let api_version = object["apiVersion"].as_str().unwrap_or("").to_owned();
        let (group, version) = split_api_version(&api_version);
        let Some(resource) = self.api.registry.by_kind(group, version, &kind) else {
            let name = meta::name(&object);
            return Err(ServerError::Manifest(format!(
                "{kind:?} in version {api_version:?} is not served (object {name:?})"
            )));
        };
        let namespace = match (resource.scope, meta::namespace(&object)) {
            (Scope::Cluster, _) => String::new(),
            (Scope::Namespaced, "") => "default".to_owned(),
            (Scope::Namespaced, namespace) => namespace.to_owned(),
        };
        let user = system_user();
        let writer = self.writer(&user);
        let name = meta::name(&object).to_owned();
        // A look first: a create may be refused for what the same object holds already.
        if self.api.store.get(&resource.collection(), &key(&namespace, &name)).is_none() {
            writer.create(&resource, &namespace, object)?;
        } else {
            writer.update(&resource, &namespace, &name, Part::Main, |old| {
                let mut object = object;
                let version = old["metadata"]["resourceVersion"].clone();
                meta::set(&mut object, "resourceVersion", version);
                Ok(object)
            })?;
        }
        Ok(())
    }

    fn writer<'a>(&'a self, user: &'a User) -> Writer<'a> {
        Writer {
            store: &self.api.store,
            registry: &self.api.registry,
            admission: self.api.admission.as_ref(),
            user,
            options: PLAIN,
            manager: "kube-apiserver",
        }
    }
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": "v1.36.0-kubelab",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": "linux/amd64",
    })
}

/// Objects go only into namespaces that exist and stay.
struct NamespaceLifecycle;

impl Admission for NamespaceLifecycle {
    fn admit_create(
        &self,
        tx: &Tx<'_>,
        resource: &Resource,
        object: &Value,
    ) -> Result<(), ApiError> {
        if resource.scope == Scope::Cluster {
            return Ok(());
        }
        let namespace = meta::namespace(object);
        let Some(found) = tx.get(NAMESPACES, namespace) else {
            return Err(ApiError::not_found(&GroupResource::new("", NAMESPACES), namespace));
        };
        if meta::is_deleting(found.value()) {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being \
                 terminated"
            );
            let cause = format!("namespace {namespace} is being terminated");
            let name = meta::name(object);
            return Err(ApiError::forbidden(&resource.group_resource(), name, &why).with_cause(
                "NamespaceTerminating",
                &cause,
                "metadata.namespace",
            ));
        }
        Ok(())
    }
}

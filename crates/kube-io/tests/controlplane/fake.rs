//! A controller's API with objects that a test puts there.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use apis::controlplane::wire::{WireObject, encode_message};
use apis::controlplane::{
    AddressGroup, AddressGroupPatch, AppliedToGroup, AppliedToGroupPatch, GROUP, NetworkPolicy,
    Typed, VERSION,
};
use apiserver::api::{Aggregated, Api};
use apiserver::authn::{Authenticator, Credentials};
use apiserver::authz::{Attributes, Authorizer, Decision};
use apiserver::body::Response;
use apiserver::negotiate::Offer;
use apiserver::pki::Authority;
use apiserver::protobuf::ProtobufError;
use apiserver::query::At;
use apiserver::resource::{Call, Connect, Registry, Resource, Scope, Subresource};
use apiserver::rest;
use apiserver::server::{Request, TlsServer};
use apiserver::source::{AsOf, Batch, Epoch, Event, Listed, Object, Shared, Source, View};
use apiserver::status::ApiError;
use apiserver::store::{ChangeKind, VersionError};
use apiserver::trust::{ClientTrust, ServingCert, tls_config};
use apiserver::user::User;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::future::BoxFuture;
use kube_io::{Client, ClientOptions};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const WINDOW: usize = 8;

/// An object in both encodings, with its version.
struct Encoded {
    name: String,
    kind: &'static str,
    version: u64,
    json: Bytes,
    protobuf: Bytes,
}

fn encoded<T: WireObject>(object: &T, version: u64) -> Arc<Encoded> {
    // The version goes in by way of JSON, so that the fake works for every kind.
    let mut value = serde_json::to_value(object).unwrap();
    value["metadata"]["resourceVersion"] = json!(version.to_string());
    let object: T = serde_json::from_value(value).unwrap();
    Arc::new(Encoded {
        name: object.metadata().name.clone().unwrap(),
        kind: T::KIND,
        version,
        json: serde_json::to_vec(&Typed::new(&object)).unwrap().into(),
        protobuf: encode_message(&object).into(),
    })
}

impl Object for Encoded {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn kind(&self) -> Option<&str> {
        Some(self.kind)
    }

    fn json(&self) -> Bytes {
        self.json.clone()
    }

    fn protobuf(&self) -> Result<Bytes, ProtobufError> {
        Ok(self.protobuf.clone())
    }
}

struct State<T> {
    epoch: Epoch,
    count: u32,
    objects: BTreeMap<String, T>,
    history: VecDeque<(u64, ChangeKind, Arc<Encoded>)>,
    complete_after: u64,
    as_of: AsOf,
    nodes_asked: Vec<String>,
}

/// Objects of one kind.
pub(crate) struct Fake<T, P> {
    state: Mutex<State<T>>,
    changed: watch::Sender<u64>,
    patches: std::marker::PhantomData<fn() -> P>,
}

impl<T: WireObject, P: WireObject> Fake<T, P> {
    pub(crate) fn new() -> Arc<Self> {
        let epoch = Epoch::random();
        let state = State {
            epoch,
            count: 1,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            complete_after: epoch.version(1),
            as_of: AsOf::default(),
            nodes_asked: Vec::new(),
        };
        let (changed, patches) = (watch::Sender::new(0), std::marker::PhantomData);
        Arc::new(Self { state: Mutex::new(state), changed, patches })
    }

    fn record(&self, state: &mut State<T>, kind: ChangeKind, object: Arc<Encoded>) {
        state.history.push_back((object.version, kind, object));
        if state.history.len() > WINDOW {
            state.complete_after = state.history.pop_front().unwrap().0;
        }
        self.changed.send_replace(0);
    }

    /// Puts an object there; a change is told by the patch, if there is one.
    pub(crate) fn put(&self, object: T, patch: Option<P>) {
        let mut state = self.state.lock().unwrap();
        state.count += 1;
        let version = state.epoch.version(state.count);
        let whole = encoded(&object, version);
        let before = state.objects.insert(whole.name.clone(), object);
        let (kind, object) = match (before, patch) {
            (None, _) => (ChangeKind::Added, whole),
            (Some(_), None) => (ChangeKind::Modified, whole),
            (Some(_), Some(patch)) => (ChangeKind::Modified, encoded(&patch, version)),
        };
        self.record(&mut state, kind, object);
    }

    pub(crate) fn remove(&self, name: &str) {
        let mut state = self.state.lock().unwrap();
        let object = state.objects.remove(name).unwrap();
        state.count += 1;
        let object = encoded(&object, state.epoch.version(state.count));
        self.record(&mut state, ChangeKind::Deleted, object);
    }

    /// Says what the inputs were read up to.
    pub(crate) fn reach(&self, inputs: &[(&str, &str)]) {
        let as_of = inputs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        self.state.lock().unwrap().as_of = Arc::new(as_of.collect());
        self.changed.send_replace(0);
    }

    /// Goes on as another process that has the same objects.
    pub(crate) fn become_another(&self, epoch: Epoch) {
        let mut state = self.state.lock().unwrap();
        state.epoch = epoch;
        state.count = 1;
        state.history.clear();
        state.complete_after = epoch.version(1);
    }

    /// The nodes for which somebody watched.
    pub(crate) fn nodes_asked(&self) -> Vec<String> {
        self.state.lock().unwrap().nodes_asked.clone()
    }

    pub(crate) fn window(&self) -> usize {
        self.state.lock().unwrap().history.len()
    }
}

impl<T: WireObject, P: WireObject> Source for Fake<T, P> {
    fn admit(&self, _user: &User, view: &mut View) -> Result<(), ApiError> {
        let node = view.fields.wanted("nodeName").unwrap_or("").to_owned();
        self.state.lock().unwrap().nodes_asked.push(node);
        Ok(())
    }

    fn get(&self, _view: &View, _name: &str) -> Option<Shared> {
        None
    }

    fn list(&self, _view: &View, _at: At) -> Result<Listed, VersionError> {
        let state = self.state.lock().unwrap();
        let version = state.epoch.version(state.count);
        let objects = state.objects.values().map(|o| encoded(o, version) as Shared).collect();
        Ok(Listed { version, objects, as_of: Arc::clone(&state.as_of) })
    }

    fn changes_after(
        &self,
        _view: &View,
        version: u64,
        _limit: usize,
    ) -> Result<Batch, VersionError> {
        let state = self.state.lock().unwrap();
        if state.epoch.count(version).is_none() || version < state.complete_after {
            return Err(VersionError::TooOld { oldest: state.complete_after });
        }
        let events = state.history.iter().filter(|(at, ..)| *at > version);
        let events = events
            .map(|(_, kind, object)| Event { kind: *kind, object: Arc::clone(object) as Shared })
            .collect();
        let up_to = state.epoch.version(state.count);
        Ok(Batch { up_to, events, more: false, as_of: Arc::clone(&state.as_of) })
    }

    fn version(&self) -> u64 {
        let state = self.state.lock().unwrap();
        state.epoch.version(state.count)
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// Whoever shows a token is the agent.
struct Everyone;

impl Authenticator for Everyone {
    fn authenticate<'a>(
        &'a self,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<User, ApiError>> {
        let user = match credentials.bearer.as_deref() {
            Some(_) => Ok(User::new("agent", [""; 0])),
            None => Err(ApiError::unauthorized()),
        };
        Box::pin(async move { user })
    }
}

impl Authorizer for Everyone {
    fn authorize<'a>(&'a self, act: &'a Attributes) -> BoxFuture<'a, Result<Decision, ApiError>> {
        let refused = matches!(&act.object,
            apiserver::authz::Target::Resource { name, .. } if name == "refused");
        Box::pin(async move { Ok(Decision { allowed: !refused, reason: String::new() }) })
    }
}

#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<Value>>>);

impl Connect for Reports {
    fn connect(
        &self,
        call: Call,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let reports = self.clone();
        Box::pin(async move {
            let body = rest::read_object(&call.api, request, "NetworkPolicyStatus").await?;
            reports.0.lock().unwrap().push(body.clone());
            Ok(apiserver::body::json(201, &body))
        })
    }
}

/// A running controller's API.
pub(crate) struct Served {
    pub(crate) policies: Arc<Fake<NetworkPolicy, NetworkPolicy>>,
    pub(crate) address_groups: Arc<Fake<AddressGroup, AddressGroupPatch>>,
    pub(crate) address: SocketAddr,
    reports: Reports,
    authority: Arc<Authority>,
    dir: PathBuf,
    _server: TlsServer,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn resource(kind: &str, plural: &str, source: Arc<dyn Source>) -> Resource {
    let mut resource = Resource::read_only((GROUP, VERSION), kind, plural, Scope::Cluster, source);
    resource.offer = Offer::TextAndProtobuf;
    resource.fields = vec!["nodeName".to_owned()];
    resource
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::start_for(Arc::new(Authority::create("controller").unwrap())).await
    }

    /// One of several replicas, with a certificate of an authority that all share.
    pub(crate) async fn start_for(authority: Arc<Authority>) -> Self {
        let names = ["127.0.0.1".to_owned(), "antrea.kube-system.svc".to_owned()];
        let serving = ServingCert::new(&authority.issue_serving(&names).unwrap()).unwrap();
        let (policies, address_groups) = (Fake::new(), Fake::new());
        let applied: Arc<Fake<AppliedToGroup, AppliedToGroupPatch>> = Fake::new();
        let reports = Reports::default();
        let registry = Arc::new(Registry::default());
        let mut resources = resource("NetworkPolicy", "networkpolicies", policies.clone());
        resources.subresources = vec![Subresource {
            name: "status",
            group_version: None,
            kind: "NetworkPolicyStatus".to_owned(),
            verbs: vec!["create"],
            connect: Some(Arc::new(reports.clone())),
        }];
        registry.insert(resources);
        registry.insert(resource("AddressGroup", "addressgroups", address_groups.clone()));
        registry.insert(resource("AppliedToGroup", "appliedtogroups", applied));
        let stopping = CancellationToken::new();
        let api = Api::aggregated(Aggregated {
            registry,
            authenticator: Arc::new(Everyone),
            authorizer: Arc::new(Everyone),
            pages: BTreeMap::new(),
            version: json!({}),
            max_in_flight: 100,
            stopping: stopping.clone(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = tls_config(&serving, &ClientTrust::new()).unwrap();
        let server = TlsServer::start(vec![listener], tls, api, stopping);
        let dir = std::env::temp_dir().join(format!("controlplane-{}", rand::random::<u64>()));
        std::fs::create_dir_all(&dir).unwrap();
        Self { policies, address_groups, address, reports, authority, dir, _server: server }
    }

    pub(crate) fn ca_pem(&self) -> String {
        self.authority.cert_pem().to_owned()
    }

    pub(crate) fn reports(&self) -> Vec<Value> {
        self.reports.0.lock().unwrap().clone()
    }

    async fn client_with(&self, address: SocketAddr, ca: &str) -> Client {
        let ca = BASE64.encode(ca);
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: \
             https://{address}\n    certificate-authority-data: {ca}\nusers:\n- name: u\n  user:\n    \
             token: agent\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\n\
             current-context: c\n"
        );
        let path = self.dir.join("kubeconfig");
        std::fs::write(&path, text).unwrap();
        Client::from_kubeconfig(&path, &ClientOptions::new("test", "v0")).await.unwrap()
    }

    /// An agent's client of this server, behind an address.
    pub(crate) async fn client(&self, address: SocketAddr) -> Client {
        self.client_with(address, self.authority.cert_pem()).await
    }

    /// An agent's client of an API server that is not there.
    pub(crate) async fn client_of_nobody(&self) -> Client {
        let other = Authority::create("cluster").unwrap();
        self.client_with(([127, 0, 0, 1], 1).into(), other.cert_pem()).await
    }
}

//! A server whose objects a source of its own keeps, as a controller's.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::api::{Aggregated, Api};
use apiserver::authz::{Attributes, Decision};
use apiserver::delegated::{
    AccessReviewer, Authentication, Authorization, ReviewError, TokenReviewer,
};
use apiserver::negotiate::Offer;
use apiserver::pki::Authority;
use apiserver::protobuf::ProtobufError;
use apiserver::protobuf::write::Message;
use apiserver::query::At;
use apiserver::resource::{Registry, Resource, Scope};
use apiserver::server::TlsServer;
use apiserver::source::{AsOf, Batch, Epoch, Event, Listed, Object, Shared, Source, View};
use apiserver::status::ApiError;
use apiserver::store::{ChangeKind, VersionError};
use apiserver::trust::{ClientTrust, ServingCert, tls_config};
use apiserver::user::User;
use apiserver::webhook::{AdmissionRequest, Reviewer, Verdict, Webhook};
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::Method;
use kubelab::client::{Client, ClientError, Credential};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) const GROUP: &str = "toys.example.test";

/// A toy, and the nodes that it is for.
#[derive(Clone)]
struct Toy {
    name: &'static str,
    nodes: Vec<&'static str>,
    version: u64,
}

impl Object for Toy {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.name)
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn json(&self) -> Bytes {
        let toy = json!({
            "apiVersion": "toys.example.test/v1", "kind": "Toy",
            "metadata": { "name": self.name, "resourceVersion": self.version.to_string() },
        });
        toy.to_string().into()
    }

    fn protobuf(&self) -> Result<Bytes, ProtobufError> {
        let meta = Message::default().text(1, self.name).done();
        Ok(Message::default().bytes(1, &meta).done().into())
    }
}

/// Version, the toy before, the toy after.
type Change = (u64, Option<Arc<Toy>>, Option<Arc<Toy>>);

struct State {
    toys: BTreeMap<&'static str, Arc<Toy>>,
    history: VecDeque<Change>,
    complete_after: u64,
    count: u32,
    as_of: AsOf,
}

/// Toys with a window of changes.
pub(crate) struct Toys {
    epoch: Epoch,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

impl Toys {
    pub(crate) fn new(epoch: Epoch) -> Arc<Self> {
        let state = State {
            toys: BTreeMap::new(),
            history: VecDeque::new(),
            complete_after: epoch.version(1),
            count: 1,
            as_of: AsOf::default(),
        };
        Arc::new(Self { epoch, state: Mutex::new(state), changed: watch::Sender::new(0) })
    }

    /// Puts a toy where its nodes see it; for none, it goes.
    pub(crate) fn put(&self, name: &'static str, nodes: &[&'static str]) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.count += 1;
        let version = self.epoch.version(state.count);
        let toy = Arc::new(Toy { name, nodes: nodes.to_vec(), version });
        let after = (!nodes.is_empty()).then_some(toy);
        let before = match &after {
            Some(toy) => state.toys.insert(name, Arc::clone(toy)),
            None => state.toys.remove(name),
        };
        state.history.push_back((version, before, after));
        if state.history.len() > 4 {
            state.complete_after = state.history.pop_front().unwrap().0;
        }
        self.changed.send_replace(version);
        version
    }

    fn reach(&self, pods: &str) {
        let as_of = BTreeMap::from([("as-of/pods".to_owned(), pods.to_owned())]);
        self.state.lock().unwrap().as_of = Arc::new(as_of);
        self.changed.send_replace(0);
    }
}

fn sees(view: &View, toy: &Toy) -> bool {
    view.node.as_deref().is_none_or(|node| toy.nodes.contains(&node))
}

impl Source for Toys {
    fn admit(&self, user: &User, view: &mut View) -> Result<(), ApiError> {
        let asked = view.fields.wanted("nodeName").map(str::to_owned);
        view.node = match (user.node(), asked) {
            (Some(own), Some(asked)) if own != asked => {
                return Err(ApiError::forbidden_path("only your own node"));
            }
            (Some(own), _) => Some(own.to_owned()),
            (None, asked) => asked,
        };
        Ok(())
    }

    fn get(&self, view: &View, name: &str) -> Option<Shared> {
        let state = self.state.lock().unwrap();
        let toy = state.toys.get(name).filter(|toy| sees(view, toy))?;
        Some(Arc::clone(toy) as Shared)
    }

    fn list(&self, view: &View, at: At) -> Result<Listed, VersionError> {
        let state = self.state.lock().unwrap();
        let version = self.epoch.version(state.count);
        if let At::Exact(asked) | At::NotOlderThan(asked) = at
            && self.epoch.count(asked).is_none()
        {
            return Err(VersionError::TooOld { oldest: version });
        }
        let seen = state.toys.values().filter(|toy| sees(view, toy));
        let objects = seen.map(|toy| Arc::clone(toy) as Shared).collect();
        Ok(Listed { version, objects, as_of: state.as_of.clone() })
    }

    fn changes_after(
        &self,
        view: &View,
        version: u64,
        _limit: usize,
    ) -> Result<Batch, VersionError> {
        let state = self.state.lock().unwrap();
        if self.epoch.count(version).is_none() || version < state.complete_after {
            return Err(VersionError::TooOld { oldest: state.complete_after });
        }
        let changes = state.history.iter().filter(|(at, ..)| *at > version);
        let events = changes.filter_map(|(_, before, after)| {
            let before = before.clone().filter(|toy| sees(view, toy));
            let after = after.clone().filter(|toy| sees(view, toy));
            let (kind, object) = match (before, after) {
                (None, Some(toy)) => (ChangeKind::Added, toy),
                (Some(_), Some(toy)) => (ChangeKind::Modified, toy),
                (Some(toy), None) => (ChangeKind::Deleted, toy),
                (None, None) => return None,
            };
            Some(Event { kind, object })
        });
        let up_to = self.epoch.version(state.count);
        Ok(Batch { up_to, events: events.collect(), more: false, as_of: state.as_of.clone() })
    }

    fn version(&self) -> u64 {
        self.epoch.version(self.state.lock().unwrap().count)
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// Tokens name users; `agent-n1` is bound to node `n1`. All may do everything but delete.
struct Cluster;

impl TokenReviewer for Cluster {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>> {
        let mut user = User::new(token, [""; 0]);
        if let Some(node) = token.strip_prefix("agent-") {
            let key = "authentication.kubernetes.io/node-name".to_owned();
            user.extra.insert(key, vec![node.to_owned()]);
        }
        let known = token != "stranger";
        Box::pin(async move { Ok(known.then_some(user)) })
    }
}

impl AccessReviewer for Cluster {
    fn review<'a>(&'a self, act: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>> {
        let allowed = act.verb != "delete" && act.user.username != "system:anonymous";
        Box::pin(async move { Ok(Decision { allowed, reason: String::new() }) })
    }
}

struct NoRed;

impl Reviewer for NoRed {
    fn review(&self, request: AdmissionRequest) -> BoxFuture<'_, Verdict> {
        let verdict = if request.object["data"]["color"] == "red" {
            Verdict::Deny { code: 422, message: "color: red is not supported yet".to_owned() }
        } else {
            Verdict::Patch(json!([{ "op": "add", "path": "/data/color", "value": "blue" }]))
        };
        Box::pin(async move { verdict })
    }
}

/// A running server of toys.
pub(crate) struct Served {
    pub(crate) toys: Arc<Toys>,
    pub(crate) trust: ClientTrust,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) authority: Authority,
    _server: TlsServer,
}

impl Served {
    pub(crate) async fn start() -> Self {
        let authority = Authority::create("controller").unwrap();
        let names = ["127.0.0.1".to_owned(), "toys.lab.svc".to_owned()];
        let serving = ServingCert::new(&authority.issue_serving(&names).unwrap()).unwrap();
        let trust = ClientTrust::new();
        let toys = Toys::new(Epoch::random());
        let registry = Arc::new(Registry::default());
        let source: Arc<dyn Source> = toys.clone();
        let mut resource =
            Resource::read_only((GROUP, "v1"), "Toy", "toys", Scope::Cluster, source);
        resource.offer = Offer::TextAndProtobuf;
        resource.fields = vec!["nodeName".to_owned()];
        registry.insert(resource);
        let stopping = CancellationToken::new();
        let webhook = Arc::new(Webhook(Arc::new(NoRed)));
        let api = Api::aggregated(Aggregated {
            registry,
            authenticator: Arc::new(Authentication::new(trust.clone(), Cluster)),
            authorizer: Arc::new(Authorization::new(Cluster, &["/healthz", "/validate/*"])),
            pages: BTreeMap::from([("/validate/toys".to_owned(), webhook as _)]),
            version: json!({ "gitVersion": "v0" }),
            max_in_flight: 100,
            stopping: stopping.clone(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = tls_config(&serving, &trust).unwrap();
        let server = TlsServer::start(vec![listener], tls, api, stopping);
        Self { toys, trust, address, authority, _server: server }
    }

    fn client(&self, token: &str) -> Client {
        let url = format!("https://{}", self.address);
        let credential = Credential::Token(token.to_owned());
        Client::new(&url, self.authority.cert_pem(), credential).unwrap()
    }
}

const TOYS: &str = "/apis/toys.example.test/v1/toys";

fn short(event: &Value) -> String {
    format!("{} {}", event["type"].as_str().unwrap(), event["object"]["metadata"]["name"])
}

#[tokio::test]
async fn a_watcher_sees_only_its_node() {
    let served = Served::start().await;
    served.toys.put("ball", &["n1", "n2"]);
    served.toys.put("kite", &["n2"]);
    let client = served.client("agent-n1");
    let list = client.json(Method::GET, TOYS, "application/json", None).await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["kind"], "ToyList");

    let path = format!(
        "{TOYS}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true\
         &resourceVersionMatch=NotOlderThan&fieldSelector=nodeName%3Dn1"
    );
    let mut lines = client.watch(&path, "application/json").await.unwrap();
    assert_eq!(short(&lines.next().await.unwrap().unwrap()), "ADDED \"ball\"");
    let end = lines.next().await.unwrap().unwrap();
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(end["object"]["kind"], "Toy");
    served.toys.put("kite", &["n1"]);
    served.toys.put("ball", &["n1"]);
    served.toys.put("ball", &["n3"]);
    for want in ["ADDED \"kite\"", "MODIFIED \"ball\"", "DELETED \"ball\""] {
        assert_eq!(short(&lines.next().await.unwrap().unwrap()), want);
    }

    let other = path.replace("n1", "n2");
    let refused = client.watch(&other, "application/json").await.err();
    assert!(matches!(refused, Some(ClientError::Refused { code: 403, .. })), "{refused:?}");
    let refused = served.client("stranger").json(Method::GET, TOYS, "", None).await.err();
    assert!(matches!(refused, Some(ClientError::Refused { code: 401, .. })), "{refused:?}");
}

#[tokio::test]
async fn progress_of_the_inputs_is_told_at_once() {
    let served = Served::start().await;
    let path = format!("{TOYS}?watch=1&allowWatchBookmarks=true");
    let mut lines = served.client("agent-n1").watch(&path, "application/json").await.unwrap();
    for pods in ["17", "23"] {
        served.toys.reach(pods);
        let next = tokio::time::timeout(Duration::from_secs(2), lines.next());
        let mark = next.await.unwrap().unwrap().unwrap();
        assert_eq!(mark["type"], "BOOKMARK");
        assert_eq!(mark["object"]["metadata"]["annotations"]["as-of/pods"], pods);
    }
}

#[tokio::test]
async fn versions_of_another_process_and_old_ones_are_gone() {
    let served = Served::start().await;
    let first = served.toys.put("ball", &["n1"]);
    let client = served.client("admin");
    let foreign = Epoch::random().version(5);
    for _ in 0..6 {
        served.toys.put("ball", &["n1"]);
    }
    for version in [foreign, first] {
        let path = format!("{TOYS}?watch=1&resourceVersion={version}");
        let mut lines = client.watch(&path, "application/json").await.unwrap();
        let error = lines.next().await.unwrap().unwrap();
        assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
        assert_eq!(lines.next().await.unwrap(), None);
    }
    let path = format!("{TOYS}?resourceVersion={foreign}");
    let refused = client.json(Method::GET, &path, "", None).await.err();
    assert!(matches!(refused, Some(ClientError::Refused { code: 410, .. })), "{refused:?}");
}

#[tokio::test]
async fn objects_lists_and_events_come_as_protobuf_too() {
    let served = Served::start().await;
    served.toys.put("ball", &["n1"]);
    let client = served.client("admin");
    let accept = [("accept", "application/vnd.kubernetes.protobuf,application/json")];
    for (path, kind) in [(TOYS.to_owned(), "ToyList"), (format!("{TOYS}/ball"), "Toy")] {
        let answer = client.send(Method::GET, &path, &accept, "").await.unwrap();
        assert_eq!(answer.headers["content-type"], "application/vnd.kubernetes.protobuf");
        assert!(answer.body.starts_with(b"k8s\0"), "{path}");
        let text = String::from_utf8_lossy(&answer.body);
        assert!(text.contains(kind) && text.contains("ball"), "{text:?}");
    }
    let path = format!("{TOYS}?watch=1&timeoutSeconds=1");
    let answer = client.send(Method::GET, &path, &accept, "").await.unwrap();
    assert_eq!(answer.headers["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let length = u32::from_be_bytes(answer.body[..4].try_into().unwrap()) as usize;
    let frame = String::from_utf8_lossy(&answer.body[4..4 + length]);
    assert!(frame.contains("ADDED") && frame.contains("k8s\0") && frame.contains("ball"));
}

#[tokio::test]
async fn discovery_health_and_webhooks_are_served() {
    let served = Served::start().await;
    let client = served.client("admin");
    let accept =
        [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let groups = client.send(Method::GET, "/apis", &accept, "").await.unwrap().json();
    assert_eq!(groups["items"][0]["metadata"]["name"], GROUP);
    assert_eq!(groups["items"][0]["versions"][0]["resources"][0]["resource"], "toys");
    let path = "/openapi/v3/apis/toys.example.test/v1";
    let openapi = client.json(Method::GET, path, "", None).await.unwrap();
    assert!(openapi["components"]["schemas"]["toys.example.test.v1.Toy"].is_object(), "{openapi}");
    let deleted = client.send(Method::DELETE, &format!("{TOYS}/ball"), &[], "").await.unwrap();
    assert_eq!(deleted.code, 403);

    let url = format!("https://{}", served.address);
    let nobody = Client::new(&url, served.authority.cert_pem(), Credential::None).unwrap();
    let code = async |path: &str| nobody.send(Method::GET, path, &[], "").await.unwrap().code;
    assert_eq!((code("/healthz").await, code("/version").await), (200, 403));
    let review = |color: &str| {
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u", "operation": "CREATE", "object": { "data": { "color": color } },
        }})
    };
    for (color, allowed) in [("red", false), ("green", true)] {
        let path = "/validate/toys?timeout=5s";
        let body = review(color);
        let answer = nobody.json(Method::POST, path, "application/json", Some(&body)).await;
        let response = &answer.unwrap()["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("u"), &json!(allowed)));
    }
}

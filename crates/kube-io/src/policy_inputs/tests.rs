//! Objects read in both encodings are the same.

use std::sync::LazyLock;

use apis::controlplane::wire::DecodeError;
use apiserver::protobuf::Protobuf;
use futures::FutureExt;
use kube::client::Body;
use serde_json::{Value, json};
use testkit::fuzz::{Campaign, Outcome, Random};

use super::*;
use crate::call::List;
use crate::lists::{ListMeta, ListReader};
use crate::watch::{Frames, Heard};

/// Writes objects whole, by a table of all their fields.
static PROTOBUF: LazyLock<Protobuf> = LazyLock::new(|| kubelab::protobuf().unwrap());

fn encode(kind: &str, object: &Value) -> Vec<u8> {
    PROTOBUF.encode(kind, object).unwrap()
}

/// An input in a form that can be compared: protobuf does not order labels.
fn plain<T: Debug>(input: Input<T>, sort: impl Fn(&mut T)) -> String {
    let mut input = input;
    sort(&mut input.object);
    format!("{input:?}")
}

fn of_json<K: serde::de::DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).unwrap()
}

#[track_caller]
fn check_pod(object: &Value) {
    let sort = |pod: &mut PodFacts| pod.labels.sort();
    let from_json = plain(of_json::<pod::Pod>(object).into_input(), sort);
    let message = encode("Pod", object);
    assert_eq!(plain(message::pod(&message).unwrap(), sort), from_json, "{object}");
}

#[track_caller]
fn check_namespace(object: &Value) {
    let sort = |namespace: &mut NamespaceFacts| namespace.labels.sort();
    let from_json = plain(of_json::<Namespace>(object).into_input(), sort);
    let message = encode("Namespace", object);
    assert_eq!(plain(message::namespace(&message).unwrap(), sort), from_json, "{object}");
}

/// What of a policy counts: an empty list says what an absent one says.
fn essence(policy: &mut K8sNetworkPolicy) {
    let meta = &policy.metadata;
    policy.metadata = ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        generation: meta.generation,
        creation_timestamp: meta.creation_timestamp.clone(),
        ..ObjectMeta::default()
    };
    let Some(spec) = &mut policy.spec else { return };
    spec.ingress.take_if(|all| all.is_empty());
    spec.egress.take_if(|all| all.is_empty());
    for rule in spec.ingress.iter_mut().flatten() {
        rule.from.take_if(|all| all.is_empty());
        rule.ports.take_if(|all| all.is_empty());
    }
    for rule in spec.egress.iter_mut().flatten() {
        rule.to.take_if(|all| all.is_empty());
        rule.ports.take_if(|all| all.is_empty());
    }
}

#[track_caller]
fn check_policy(object: &Value) {
    let from_json = plain(into_input(of_json::<K8sNetworkPolicy>(object)), essence);
    let message = encode("NetworkPolicy", object);
    assert_eq!(plain(message::network_policy(&message).unwrap(), essence), from_json, "{object}");
}

#[track_caller]
fn check_node(object: &Value) {
    let from_json = of_json::<Node>(object).into_view();
    let message = encode("Node", object);
    assert_eq!(Node::read(&message).unwrap().into_view(), from_json, "{object}");
}

#[test]
fn metadata_is_slim() {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {
        "name": "x", "uid": "u", "resourceVersion": "12", "labels": {"a": "b"},
        "annotations": {ENABLE_LOGGING: "true"},
        "managedFields": [{"manager": "m"}]}}))
    .unwrap();
    let key = InputKey::of(&namespace.metadata);
    assert_eq!((key.name.as_str(), key.version), ("x", 12));
    assert!(namespace.metadata.managed_fields.is_none());
    assert_eq!(namespace.metadata.annotations.unwrap()[ENABLE_LOGGING], "true");
}

/// Makes objects of a generator whose seed is known.
struct Maker(Random);

impl Maker {
    fn pick(&mut self, words: &[&str]) -> String {
        words[self.0.below(words.len())].to_owned()
    }

    fn some(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> Value) -> Value {
        let n = self.0.below(most + 1);
        Value::Array((0..n).map(|_| make(self)).collect())
    }

    fn chance(&mut self) -> bool {
        self.0.below(2) == 0
    }

    fn labels(&mut self) -> Value {
        let mut labels = serde_json::Map::new();
        for _ in 0..self.0.below(4) {
            let key = self.pick(&["app", "tier", "kubernetes.io/metadata.name", "x", ""]);
            labels.insert(key, json!(self.pick(&["web", "db", "", "ä"])));
        }
        Value::Object(labels)
    }

    fn metadata(&mut self) -> Value {
        let mut metadata = json!({
            "name": self.pick(&["a", "b"]), "generateName": "a-", "namespace": "x",
            "uid": self.pick(&["u1", "u2"]), "resourceVersion": self.pick(&["5", "77", "odd"]),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": self.labels(),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a",
                "uid": "o", "controller": true}],
            "finalizers": ["f"],
            "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {}}}}],
        });
        if self.chance() {
            metadata["generation"] = json!(self.0.below(300));
        }
        if self.chance() {
            let value = self.pick(&["true", "1", "false", ""]);
            metadata["annotations"] = json!({ENABLE_LOGGING: value, "other": "x"});
        }
        metadata
    }

    fn container(&mut self) -> Value {
        let mut container = json!({
            "name": "c", "image": "i", "command": ["x"], "env": [{"name": "A", "value": "1"}],
            "resources": {"requests": {"cpu": "100m"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "ports": self.some(3, |maker| json!({
                "name": maker.pick(&["web", "dns", ""]),
                "containerPort": maker.0.below(70_000),
                "protocol": maker.pick(&["TCP", "UDP", "SCTP", ""]),
            })),
        });
        if self.chance() {
            container["restartPolicy"] = json!(self.pick(&["Always", "Never"]));
        }
        container
    }

    fn pod(&mut self) -> Value {
        let ip = |maker: &mut Self| maker.pick(&["10.0.0.1", "fd00::1", "", "none", "10.0.0.2"]);
        json!({
            "metadata": self.metadata(),
            "spec": {
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
                "containers": self.some(3, Self::container),
                "initContainers": self.some(2, Self::container),
                "serviceAccountName": self.pick(&["default", ""]),
                "nodeName": self.pick(&["n1", ""]),
                "hostNetwork": self.chance(),
                "tolerations": [{"operator": "Exists", "tolerationSeconds": 300}],
            },
            "status": {
                "phase": self.pick(&["Running", "Succeeded", "Failed", "Pending"]),
                "podIP": ip(self),
                "podIPs": self.some(3, |maker| json!({"ip": ip(maker)})),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    }

    fn selector(&mut self) -> Value {
        let expressions = self.some(2, |maker| {
            let values = maker.some(2, |maker| json!(maker.pick(&["a", "b"])));
            json!({"key": "k", "operator": maker.pick(&["In", "Exists"]), "values": values})
        });
        // A list that is there and empty is not told apart.
        let mut selector = json!({});
        let labels = self.labels();
        if labels != json!({}) {
            selector["matchLabels"] = labels;
        }
        if expressions != json!([]) {
            selector["matchExpressions"] = expressions;
            for expression in selector["matchExpressions"].as_array_mut().unwrap() {
                if expression["values"] == json!([]) {
                    expression.as_object_mut().unwrap().remove("values");
                }
            }
        }
        selector
    }

    fn peer(&mut self) -> Value {
        let mut peer = json!({});
        if self.chance() {
            peer["podSelector"] = self.selector();
        }
        if self.chance() {
            peer["namespaceSelector"] = self.selector();
        }
        if self.chance() {
            peer["ipBlock"] = json!({"cidr": "10.0.0.0/8"});
            if self.chance() {
                peer["ipBlock"]["except"] = json!(["10.1.0.0/16"]);
            }
        }
        peer
    }

    fn port(&mut self) -> Value {
        let mut port = json!({});
        if self.chance() {
            port["protocol"] = json!(self.pick(&["TCP", "UDP"]));
        }
        if self.chance() {
            port["port"] = if self.chance() { json!("web") } else { json!(self.0.below(65_536)) };
        }
        if self.chance() {
            port["endPort"] = json!(self.0.below(65_536));
        }
        port
    }

    fn policy(&mut self) -> Value {
        json!({
            "metadata": self.metadata(),
            "spec": {
                "podSelector": self.selector(),
                "ingress": self.some(2, |maker| json!({
                    "from": maker.some(2, Self::peer), "ports": maker.some(2, Self::port)})),
                "egress": self.some(2, |maker| json!({
                    "to": maker.some(2, Self::peer), "ports": maker.some(2, Self::port)})),
                "policyTypes": ["Ingress", "Egress"],
            },
        })
    }

    fn node(&mut self) -> Value {
        let mut metadata = self.metadata();
        metadata["annotations"] = json!({
            "node.antrea.io/transport-addresses": self.pick(&["10.9.0.1,fd00::9", "bad", ""])});
        if self.chance() {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        json!({
            "metadata": metadata,
            "spec": {
                "podCIDR": self.pick(&["10.1.0.0/24", ""]),
                "podCIDRs": self.some(2, |maker| json!(maker.pick(&["10.1.0.0/24", "fd00::/64"]))),
                "unschedulable": self.chance(),
                "taints": self.some(2, |maker| json!({
                    "key": "k", "effect": maker.pick(&["NoSchedule", "NoExecute"])})),
            },
            "status": {
                "capacity": {"cpu": "4"},
                "addresses": self.some(3, |maker| json!({
                    "type": maker.pick(&["InternalIP", "ExternalIP", "Hostname"]),
                    "address": maker.pick(&["10.9.0.1", "fd00::9", "n1"])})),
                "conditions": self.some(2, |maker| json!({
                    "type": maker.pick(&["Ready", "NetworkUnavailable"]),
                    "status": maker.pick(&["True", "False"])})),
                "images": [{"names": ["i"], "sizeBytes": 5_000_000_000_i64}],
            },
        })
    }
}

#[test]
fn random_objects_are_the_same_in_both_encodings() {
    let mut maker = Maker(Random::new(7));
    for _ in 0..500 {
        check_pod(&maker.pod());
        check_namespace(&json!({"metadata": maker.metadata(), "spec": {"finalizers": ["k"]}}));
        check_policy(&maker.policy());
        check_node(&maker.node());
    }
}

/// The answers of a Kubernetes 1.34 to the same questions in both encodings.
macro_rules! recorded {
    ($kind:literal) => {
        [
            &include_bytes!(concat!("../../fuzz/corpus/lists/", $kind, ".pb"))[..],
            &include_bytes!(concat!("recorded/", $kind, ".list.json"))[..],
            &include_bytes!(concat!("../../fuzz/corpus/watches/", $kind, ".pb"))[..],
            &include_bytes!(concat!("recorded/", $kind, ".watch.json"))[..],
        ]
    };
}

/// Reads a list in protobuf, in pieces of some size.
fn read_list<K: Resource<DynamicType = ()>, T>(
    bytes: &[u8],
    size: usize,
    form: &Form<K, Input<T>>,
) -> Result<(Vec<Input<T>>, ListMeta), DecodeError> {
    let mut reader = ListReader::new(&K::api_version(&()), &K::kind(&()));
    let mut all = Vec::new();
    for piece in bytes.chunks(size) {
        reader.push(piece, |item| {
            all.push(form.of_message(item)?);
            Ok(())
        })?;
    }
    Ok((all, reader.finish()?))
}

/// Reads all events of an answer to a watch, as text.
async fn read_watch<K, T: Debug>(
    bytes: &[u8],
    media_type: &str,
    form: &Form<K, Input<T>>,
    sort: fn(&mut T),
) -> Vec<String>
where
    K: Resource<DynamicType = ()> + serde::de::DeserializeOwned,
{
    let answer = http::Response::builder().header("content-type", media_type);
    let mut frames = Frames::of(answer.body(Body::from(bytes.to_vec())).unwrap());
    let mut all = Vec::new();
    while let Some((heard, version)) = frames.next(form).await.unwrap() {
        all.push(match heard {
            Heard::Applied(input) => format!("applied {} at {version}", plain(input, sort)),
            Heard::Deleted(key) => format!("deleted {key:?} at {version}"),
            Heard::Bookmark => format!("bookmark at {version}"),
            Heard::Refused(error) => format!("{error}"),
        });
    }
    all
}

async fn check_recorded<K, T: Debug>(
    recorded: [&[u8]; 4],
    form: Form<K, Input<T>>,
    sort: fn(&mut T),
) where
    K: Resource<DynamicType = ()> + serde::de::DeserializeOwned,
{
    let [list, list_json, watch, watch_json] = recorded;
    let page: List<K> = serde_json::from_slice(list_json).unwrap();
    let want: Vec<String> =
        page.items.into_iter().map(|object| plain(form.of_json(object), sort)).collect();
    for size in [1, 7, 100, list.len()] {
        let (got, meta) = read_list(list, size, &form).unwrap();
        let got: Vec<String> = got.into_iter().map(|input| plain(input, sort)).collect();
        assert_eq!(got, want);
        assert_eq!(meta.resource_version, page.metadata.resource_version);
    }
    assert!(!want.is_empty());
    let media_type = "application/vnd.kubernetes.protobuf;stream=watch";
    let got = read_watch(watch, media_type, &form, sort).await;
    assert_eq!(got, read_watch(watch_json, "application/json", &form, sort).await);
    assert!(got.len() > 1, "{got:?}");
}

#[tokio::test]
async fn recorded_answers_are_the_same_in_both_encodings() {
    check_recorded(recorded!("pod"), pod_form(), |pod| pod.labels.sort()).await;
    check_recorded(recorded!("namespace"), namespace_form(), |one| one.labels.sort()).await;
    check_recorded(recorded!("networkpolicy"), policy_form(), essence).await;
    check_recorded(recorded!("node"), node_form(), |_| {}).await;
}

/// The lab's API server writes what Kubernetes' own does.
#[test]
fn recorded_objects_are_written_as_they_were() {
    for ([list, json, ..], kind) in [
        (recorded!("pod"), "Pod"),
        (recorded!("namespace"), "Namespace"),
        (recorded!("networkpolicy"), "NetworkPolicy"),
        (recorded!("node"), "Node"),
    ] {
        let page: Value = serde_json::from_slice(json).unwrap();
        let api_version = page["apiVersion"].as_str().unwrap();
        let (mut reader, mut messages) = (ListReader::new(api_version, kind), Vec::new());
        reader
            .push(list, |item| {
                messages.push(item.to_vec());
                Ok(())
            })
            .unwrap();
        let items = page["items"].as_array().unwrap();
        assert_eq!(messages.len(), items.len());
        for (message, item) in messages.iter().zip(items) {
            let read = |message: &[u8]| {
                let bytes = apiserver::protobuf::write::envelope(api_version, kind, message);
                full(&PROTOBUF.decode(&bytes).unwrap())
            };
            assert_eq!(read(&encode(kind, item)), read(message));
        }
    }
}

/// An object without what says nothing: Go writes fields that JSON leaves out.
fn full(value: &Value) -> Value {
    let says_nothing = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false))
            || *value == json!("")
            || *value == json!(0)
            || value.as_object().is_some_and(serde_json::Map::is_empty)
    };
    match value {
        Value::Object(map) => {
            let entries = map.iter().map(|(name, value)| (name.clone(), full(value)));
            Value::Object(entries.filter(|(_, value)| !says_nothing(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(full).collect()),
        other => other.clone(),
    }
}

/// Damaged lists: no panic, and the same whether they come in at once or in pieces.
#[test]
fn fuzz_lists() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/lists");
    let (pods, namespaces, policies) = (pod_form(), namespace_form(), policy_form());
    fn same<K: Resource<DynamicType = ()>, T: Debug>(
        bytes: &[u8],
        form: &Form<K, Input<T>>,
    ) -> bool {
        let whole = read_list(bytes, bytes.len().max(1), form);
        let pieces = read_list(bytes, 1 + bytes.len() / 5, form);
        assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
        whole.is_ok()
    }
    let report = Campaign::from_dir("lists in protobuf", dir).run(|bytes| {
        let read = [same(bytes, &pods), same(bytes, &namespaces), same(bytes, &policies)];
        let node = read_list(bytes, 1 << 20, &node_form()).is_ok();
        if node || read.contains(&true) { Outcome::Accepted } else { Outcome::Refused }
    });
    assert!(report.accepted > report.executions / 20, "{report:?}");
}

/// Damaged watches: no panic.
#[test]
fn fuzz_watches() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/watches");
    let media_type = "application/vnd.kubernetes.protobuf";
    let form = pod_form();
    let report = Campaign::from_dir("watches in protobuf", dir).run(|bytes| {
        let answer = http::Response::builder().header("content-type", media_type);
        let mut frames = Frames::of(answer.body(Body::from(bytes.to_vec())).unwrap());
        let mut n_heard = 0;
        // Everything is there: nothing is waited for.
        while let Some(Ok(Some(_))) = frames.next(&form).now_or_never() {
            n_heard += 1;
        }
        if n_heard > 0 { Outcome::Accepted } else { Outcome::Refused }
    });
    assert!(report.accepted > report.executions / 20, "{report:?}");
}

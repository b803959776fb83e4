//! Random clusters with random policies of every kind, the same for the same seed.
//!
//! For tests that hold two ways to an answer against each other. Values come from small sets, so that
//! selectors select, networks contain and ports meet; [`Coverage`] counts what was made, for a test to
//! make sure that nothing has quietly stopped being tried.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::verdict::Objects;

mod rules;

/// How often each thing was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(pub BTreeMap<String, u64>);

impl Coverage {
    /// Adds what another cluster covered.
    pub fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what.clone()).or_default() += times;
        }
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }
}

/// Numbers that look random (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A sequence that depends on the seed alone.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % end as u64).unwrap_or_default()
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of some values.
    pub fn pick<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.below(values.len())]
    }
}

/// Namespaces of random clusters.
const NAMESPACES: [&str; 4] = ["x", "y", "z", "bare"];
/// Nodes of random clusters.
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Makes a cluster: 3 Nodes, 14 to 19 Pods in 4 Namespaces, 8 to 14 policies with what they need.
pub fn objects(seed: u64, coverage: &mut Coverage) -> Objects {
    let mut maker = Maker { rng: Rng::new(seed), coverage, n_addrs: 0 };
    let mut objects = Objects {
        namespaces: NAMESPACES.iter().map(|name| maker.namespace(name)).collect(),
        nodes: (1..=NODES.len()).map(|n| maker.node(n)).collect(),
        ..Objects::default()
    };
    for n in 0..14 + maker.rng.below(6) {
        objects.pods.push(maker.pod(n));
    }
    maker.tiers(&mut objects);
    maker.groups(&mut objects);
    maker.names(&mut objects);
    for n in 0..8 + maker.rng.below(7) {
        maker.policy(n, &mut objects);
    }
    objects
}

/// What is needed to make the next object.
struct Maker<'a> {
    rng: Rng,
    coverage: &'a mut Coverage,
    n_addrs: usize,
}

/// An object of the API from its parts.
fn mk<T: DeserializeOwned>(api: &str, kind: &str, namespace: &str, name: &str, parts: Value) -> T {
    let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}});
    let uid = format!("{kind}/{namespace}/{name}/{api}");
    object["metadata"]["uid"] = json!(uid);
    object["metadata"]["generation"] = json!(1);
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    if let Value::Object(parts) = parts {
        for (key, value) in parts {
            match key.as_str() {
                "labels" => object["metadata"]["labels"] = value,
                _ => object[key] = value,
            }
        }
    }
    serde_json::from_value(object).expect("the parts are those of the type")
}

impl Maker<'_> {
    fn namespace(&mut self, name: &str) -> k8s_openapi::api::core::v1::Namespace {
        let mut labels = Map::new();
        if name != "bare" {
            labels.insert("team".into(), json!(*self.rng.pick(&["red", "blue"])));
            if self.rng.one_in(2) {
                labels.insert("env".into(), json!(*self.rng.pick(&["prod", "dev"])));
            }
        }
        // The API server adds it to every Namespace.
        labels.insert("kubernetes.io/metadata.name".into(), json!(name));
        mk("v1", "Namespace", "", name, json!({"labels": labels}))
    }

    fn node(&mut self, n: usize) -> k8s_openapi::api::core::v1::Node {
        let role = *self.rng.pick(&["edge", "inner"]);
        let addrs = [format!("172.30.0.{n}"), format!("fd00:172:30::{n}")];
        let addrs = addrs.map(|addr| json!({"type": "InternalIP", "address": addr}));
        let cidrs = [format!("10.10.{n}.0/24"), format!("fd00:10:10:{n}::/64")];
        let parts = json!({
            "labels": {"role": role},
            "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
            "status": {"addresses": addrs},
        });
        mk("v1", "Node", "", NODES[n - 1], parts)
    }

    fn pod(&mut self, n: usize) -> k8s_openapi::api::core::v1::Pod {
        let namespace = *self.rng.pick(&NAMESPACES);
        let node = self.rng.below(NODES.len());
        let host = self.rng.one_in(12);
        let finished = self.rng.one_in(12);
        let mut labels = Map::new();
        for (key, values) in [("app", ["web", "db", "job"]), ("rank", ["one", "two", "two"])] {
            if !self.rng.one_in(4) {
                labels.insert(key.into(), json!(*self.rng.pick(&values)));
            }
        }
        let mut ports = Vec::new();
        if !self.rng.one_in(3) {
            let number = *self.rng.pick(&[80, 8080, 53]);
            let protocol = *self.rng.pick(&["TCP", "TCP", "UDP"]);
            ports.push(json!({"name": "web", "containerPort": number, "protocol": protocol}));
        }
        if self.rng.one_in(3) {
            ports.push(json!({"name": "dns", "containerPort": 53, "protocol": "UDP"}));
        }
        // Now and then an address is used again, after a Pod that has finished.
        if !finished {
            self.n_addrs += 1;
        }
        let (four, six) = match host {
            true => (format!("172.30.0.{}", node + 1), format!("fd00:172:30::{}", node + 1)),
            false => (
                format!("10.10.{}.{}", node + 1, self.n_addrs + 1),
                format!("fd00:10:10:{}::{}", node + 1, self.n_addrs + 1),
            ),
        };
        let ips = match self.rng.below(4) {
            0 => vec![four],
            1 => vec![six],
            _ => vec![four, six],
        };
        self.coverage.count(format!("pod {} families", ips.len()));
        if host || finished {
            self.coverage.count(if host { "pod host" } else { "pod finished" });
        }
        let parts = json!({
            "labels": labels,
            "spec": {
                "nodeName": NODES[node],
                "hostNetwork": host,
                "serviceAccountName": *self.rng.pick(&["robot", "default"]),
                "containers": [{"name": "c", "ports": ports}],
            },
            "status": {
                "phase": if finished { "Succeeded" } else { "Running" },
                "podIPs": ips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>(),
            },
        });
        mk("v1", "Pod", namespace, &format!("p{n}"), parts)
    }

    fn tiers(&mut self, objects: &mut Objects) {
        for (name, priority) in [("early", 20), ("between", 240)] {
            let parts = json!({"spec": {"priority": priority}});
            objects.tiers.push(mk("crd.antrea.io/v1beta1", "Tier", "", name, parts));
        }
    }

    fn groups(&mut self, objects: &mut Objects) {
        let api = "crd.antrea.io/v1beta1";
        for name in ["pods", "nets", "nodes"] {
            let spec = match name {
                "pods" => self.labels_of_pods(true),
                "nets" => json!({"ipBlocks": [self.ip_block(), self.ip_block()]}),
                _ => json!({"nodeSelector": {"matchLabels": {"role": "edge"}}}),
            };
            objects.cluster_groups.push(mk(api, "ClusterGroup", "", name, json!({"spec": spec})));
        }
        let children = [json!(["pods", "nets"]), json!(["pods", "missing"]), json!(["nested"])];
        let spec = json!({"childGroups": self.rng.pick(&children)});
        objects.cluster_groups.push(mk(api, "ClusterGroup", "", "nested", json!({"spec": spec})));
        for namespace in NAMESPACES {
            let spec = json!({"podSelector": self.selector("app", &["web", "db"])});
            objects.groups.push(mk(api, "Group", namespace, "own", json!({"spec": spec})));
            let spec = self.labels_of_pods(true);
            objects.groups.push(mk(api, "Group", namespace, "wide", json!({"spec": spec})));
        }
    }

    fn names(&mut self, objects: &mut Objects) {
        for (name, addr) in [
            ("www.example.com", "192.0.2.80"),
            ("api.example.com", "2001:db8::80"),
            ("example.org", "192.0.2.81"),
        ] {
            objects.names.extend(addr.parse().map(|addr| (name.to_owned(), addr)));
        }
    }

    fn policy(&mut self, n: usize, objects: &mut Objects) {
        let (antrea, upstream) = ("crd.antrea.io/v1beta1", "policy.networking.k8s.io/v1alpha2");
        let (name, namespace) = (format!("p{n}"), *self.rng.pick(&NAMESPACES));
        match self.rng.below(4) {
            0 => {
                self.coverage.count("policy NetworkPolicy");
                let spec = self.kubernetes();
                let parts = json!({"spec": spec});
                let api = "networking.k8s.io/v1";
                objects.network_policies.push(mk(api, "NetworkPolicy", namespace, &name, parts));
            }
            1 => {
                self.coverage.count("policy Antrea ClusterNetworkPolicy");
                let parts = json!({"spec": self.antrea("")});
                let kind = "ClusterNetworkPolicy";
                objects.antrea_cluster_policies.push(mk(antrea, kind, "", &name, parts));
            }
            2 => {
                self.coverage.count("policy Antrea NetworkPolicy");
                let parts = json!({"spec": self.antrea(namespace)});
                let kind = "NetworkPolicy";
                objects.antrea_policies.push(mk(antrea, kind, namespace, &name, parts));
            }
            _ => {
                self.coverage.count("policy ClusterNetworkPolicy");
                let parts = json!({"spec": self.upstream()});
                let kind = "ClusterNetworkPolicy";
                objects.cluster_policies.push(mk(upstream, kind, "", &name, parts));
            }
        }
    }
}

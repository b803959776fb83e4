//! Clusters in a few words.

use std::net::IpAddr;

use apis::common::Protocol;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::verdict::{Cluster, End, Objects, Reason, Severity, Traffic, Verdict};

/// A cluster that is being written down.
#[derive(Default)]
pub(super) struct World(pub(super) Objects);

fn mk<T: DeserializeOwned>(api: &str, kind: &str, name: &str, parts: Value) -> T {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    for (key, value) in parts.as_object().unwrap() {
        match (key.as_str(), value) {
            ("labels", labels) => object["metadata"]["labels"] = labels.clone(),
            (key, value) => object[key] = value.clone(),
        }
    }
    serde_json::from_value(object).unwrap()
}

fn spec(yaml: &str) -> Value {
    // A Namespace may be called y.
    let options = serde_saphyr::options! { strict_booleans: true };
    json!({"spec": serde_saphyr::from_str_with_options::<Value>(yaml, options).unwrap()})
}

impl World {
    /// `x/a app=web 10.0.0.1 web:80/TCP sa:robot @node-1 !host !done`
    pub(super) fn pod(&mut self, words: &str) {
        let mut words = words.split_whitespace();
        let name = words.next().unwrap();
        let (mut labels, mut ips, mut ports) = (Map::new(), Vec::new(), Vec::new());
        let mut spec = json!({"containers": []});
        let mut status = json!({"phase": "Running"});
        for word in words {
            if let Some((key, value)) = word.split_once('=') {
                labels.insert(key.into(), json!(value));
            } else if let Ok(ip) = word.parse::<IpAddr>() {
                ips.push(json!({"ip": ip}));
            } else if let Some(node) = word.strip_prefix('@') {
                spec["nodeName"] = json!(node);
            } else if let Some(account) = word.strip_prefix("sa:") {
                spec["serviceAccountName"] = json!(account);
            } else if word == "!host" {
                spec["hostNetwork"] = json!(true);
            } else if word == "!done" {
                status["phase"] = json!("Succeeded");
            } else {
                let (port, rest) = word.split_once(':').unwrap();
                let (number, protocol) = rest.split_once('/').unwrap();
                let number: i32 = number.parse().unwrap();
                ports.push(json!({"name": port, "containerPort": number, "protocol": protocol}));
            }
        }
        status["podIPs"] = json!(ips);
        spec["containers"] = json!([{"name": "c", "ports": ports}]);
        let parts = json!({"labels": labels, "spec": spec, "status": status});
        self.0.pods.push(mk("v1", "Pod", name, parts));
    }

    /// `x team=a`
    pub(super) fn namespace(&mut self, words: &str) {
        let (name, labels) = named_with_labels(words);
        self.0.namespaces.push(mk("v1", "Namespace", name, json!({"labels": labels})));
    }

    /// `node-1 172.30.0.1 10.10.1.0/24 role=edge`
    pub(super) fn node(&mut self, words: &str) {
        let (name, labels) = named_with_labels(words);
        let words = words.split_whitespace();
        let addrs = words.clone().filter(|word| word.parse::<IpAddr>().is_ok());
        let addrs: Vec<_> =
            addrs.map(|addr| json!({"type": "InternalIP", "address": addr})).collect();
        let cidrs: Vec<_> = words.filter(|word| word.contains('/')).collect();
        let parts = json!({
            "labels": labels,
            "spec": {"podCIDRs": cidrs},
            "status": {"addresses": addrs},
        });
        self.0.nodes.push(mk("v1", "Node", name, parts));
    }

    pub(super) fn service(&mut self, name: &str, yaml: &str) {
        self.0.services.push(mk("v1", "Service", name, spec(yaml)));
    }

    pub(super) fn netpol(&mut self, name: &str, yaml: &str) {
        let policy = mk("networking.k8s.io/v1", "NetworkPolicy", name, spec(yaml));
        self.0.network_policies.push(policy);
    }

    pub(super) fn acnp(&mut self, name: &str, yaml: &str) {
        let policy = mk("crd.antrea.io/v1beta1", "ClusterNetworkPolicy", name, spec(yaml));
        self.0.antrea_cluster_policies.push(policy);
    }

    pub(super) fn annp(&mut self, name: &str, yaml: &str) {
        let policy = mk("crd.antrea.io/v1beta1", "NetworkPolicy", name, spec(yaml));
        self.0.antrea_policies.push(policy);
    }

    pub(super) fn tier(&mut self, name: &str, priority: i32) {
        let yaml = format!("{{priority: {priority}}}");
        self.0.tiers.push(mk("crd.antrea.io/v1beta1", "Tier", name, spec(&yaml)));
    }

    pub(super) fn cluster_group(&mut self, name: &str, yaml: &str) {
        let group = mk("crd.antrea.io/v1beta1", "ClusterGroup", name, spec(yaml));
        self.0.cluster_groups.push(group);
    }

    pub(super) fn group(&mut self, name: &str, yaml: &str) {
        self.0.groups.push(mk("crd.antrea.io/v1beta1", "Group", name, spec(yaml)));
    }

    pub(super) fn cnp(&mut self, name: &str, yaml: &str) {
        let api = "policy.networking.k8s.io/v1alpha2";
        self.0.cluster_policies.push(mk(api, "ClusterNetworkPolicy", name, spec(yaml)));
    }

    /// Makes a name known by an address.
    pub(super) fn name(&mut self, name: &str, addr: &str) {
        self.0.names.push((name.into(), addr.parse().unwrap()));
    }

    fn end(cluster: &Cluster, end: &str) -> End {
        match end.split_once('/') {
            Some((namespace, name)) => End::Pod(cluster.pod(namespace, name).unwrap()),
            None => End::Addr(end.parse().unwrap()),
        }
    }

    pub(super) fn verdict(&self, from: &str, to: &str, traffic: &str) -> Verdict {
        let cluster = Cluster::new(&self.0);
        let (from, to) = (Self::end(&cluster, from), Self::end(&cluster, to));
        let verdict = cluster.verdict(from, to, &mk_traffic(traffic));
        // The two questions that can be asked about a connection have one answer.
        let traffic = mk_traffic(traffic);
        if traffic.source_port.is_none() && cluster.source_ports().len() == 1 {
            let set = cluster.connections(from, to);
            let allowed = verdict.action() == crate::verdict::Action::Allow;
            assert_eq!(traffic.is_in(&set), allowed, "{set}");
        }
        verdict
    }

    /// `Action Direction Kind namespace/name rule`
    pub(super) fn explain(&self, from: &str, to: &str, traffic: &str) -> String {
        let verdict = self.verdict(from, to, traffic);
        let (direction, decision) = verdict.deciding();
        let why = match &decision.reason {
            Reason::Rule(rule) => {
                let policy = &rule.policy;
                let (type_, namespace, name) = (&policy.type_, &policy.namespace, &policy.name);
                format!("{type_} {namespace}/{name} {}", rule.index)
            }
            Reason::Isolation(policy) => {
                format!("{} {}/{} isolation", policy.type_, policy.namespace, policy.name)
            }
            other => format!("{other:?}"),
        };
        format!("{:?} {direction:?} {why}", decision.action)
    }

    pub(super) fn conns(&self, from: &str, to: &str) -> String {
        let cluster = Cluster::new(&self.0);
        let set = cluster.connections(Self::end(&cluster, from), Self::end(&cluster, to));
        let shown = if cluster.speaks_of_icmp() { set } else { set.with_ports_only() };
        shown.to_string()
    }

    /// Asserts actions: one `from -> to traffic: action` a line.
    #[track_caller]
    pub(super) fn check(&self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (question, want) = line.rsplit_once(": ").unwrap();
            let mut words = question.split_whitespace();
            let (from, _, to) = (words.next().unwrap(), words.next(), words.next().unwrap());
            let verdict = self.verdict(from, to, words.next().unwrap());
            assert_eq!(format!("{:?}", verdict.action()), want, "{line}: {verdict:?}");
        }
    }

    /// Faults, as `kind name field: reason`.
    pub(super) fn faults(&self) -> Vec<String> {
        self.problems(Severity::Fault)
    }

    /// Problems of a severity, in the same form.
    pub(super) fn problems(&self, severity: Severity) -> Vec<String> {
        let cluster = Cluster::new(&self.0);
        let found = cluster.problems().iter().filter(|p| p.severity == severity);
        found.map(|p| format!("{} {} {}: {}", p.kind, p.name, p.field, p.reason)).collect()
    }
}

fn named_with_labels(words: &str) -> (&str, Map<String, Value>) {
    let mut words = words.split_whitespace();
    let name = words.next().unwrap();
    let labels = words.filter_map(|word| word.split_once('='));
    (name, labels.map(|(key, value)| (key.into(), json!(value))).collect())
}

/// `TCP:80`, `TCP:80<5000` with a source port, `ICMP:8/0`, or `GRE`
fn mk_traffic(text: &str) -> Traffic {
    let (text, source) = match text.split_once('<') {
        Some((text, source)) => (text, source.parse().ok()),
        None => (text, None),
    };
    let (protocol, port) = text.split_once(':').unwrap_or((text, "0"));
    let traffic = match (protocol, port.split_once('/')) {
        ("ICMP", Some((type_, code))) => {
            Traffic::icmp(type_.parse().unwrap(), code.parse().unwrap())
        }
        _ => Traffic::new(Protocol::from(protocol), port.parse().unwrap()),
    };
    Traffic { source_port: source, ..traffic }
}

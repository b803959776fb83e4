//! Random clusters, and what they have covered.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::cluster::{Node, Pod, Policy, World};

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % n.max(1)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, things: &[T]) -> T {
        things[self.below(things.len())].clone()
    }

    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        for n in (1..things.len()).rev() {
            things.swap(n, self.below(n + 1));
        }
    }
}

/// How often each kind of thing was there.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    counts: BTreeMap<&'static str, usize>,
    n_large: u64,
}

/// Everything that has to come often.
const KINDS: [&str; 37] = [
    "peer podSelector",
    "peer namespaceSelector",
    "peer both selectors",
    "peer ipBlock",
    "peer except",
    "peer group",
    "peer nested group",
    "peer serviceAccount",
    "peer Self",
    "peer sameLabels",
    "peer nodeSelector",
    "peer fqdn",
    "peer any",
    "peer upstream networks",
    "peer upstream pods",
    "peer upstream namespaces",
    "action Allow",
    "action Drop",
    "action Reject",
    "action Pass",
    "action Accept",
    "action Deny",
    "port any",
    "port number",
    "port range",
    "port named",
    "port source",
    "port icmp",
    "port sctp",
    "port protocol only",
    "tier other",
    "tier equal",
    "tier baseline",
    "tier kubernetes",
    "tier upstream",
    "family v4",
    "family v6",
];

impl Coverage {
    fn count(&mut self, kind: &'static str) {
        assert!(KINDS.contains(&kind), "{kind} is listed");
        *self.counts.entry(kind).or_default() += 1;
    }

    /// Asserts that a full run covered everything.
    pub(super) fn check(&self, n_worlds: u64) {
        if n_worlds < 140 {
            return;
        }
        let count = |kind| self.counts.get(kind).copied().unwrap_or_default();
        let rare: Vec<_> = KINDS.map(|kind| (kind, count(kind))).into();
        let rare: Vec<_> = rare.into_iter().filter(|(_, n)| *n < 100).collect();
        assert!(rare.is_empty(), "too rare: {rare:?}");
        assert!(self.n_large * 2 >= n_worlds, "{} of {n_worlds} are large", self.n_large);
    }
}

const NAMESPACES: [&str; 3] = ["x", "y", "z"];
const APPS: [&str; 4] = ["web", "db", "dns", "job"];
const TEAMS: [&str; 2] = ["a", "b"];

fn label(key: &str, value: &str) -> (String, String) {
    (key.into(), value.into())
}

pub(super) fn world(random: &mut Random, coverage: &mut Coverage) -> World {
    let mut world = World::default();
    let large = !random.one_in(3);
    let n_nodes = if large { 3 + random.below(2) } else { 1 + random.below(2) };
    let n_pods = if large { 12 + random.below(4) } else { 4 + random.below(5) };
    let n_policies = if large { 8 + random.below(7) } else { 2 + random.below(6) };
    coverage.n_large += u64::from(large);
    for name in NAMESPACES {
        // The API server sees to this one.
        let mut labels = vec![label("kubernetes.io/metadata.name", name)];
        if !random.one_in(4) {
            labels.push(label("team", random.pick(&TEAMS)));
        }
        if random.one_in(2) {
            labels.push(label("env", random.pick(&["prod", "dev"])));
        }
        world.namespaces.push((name.into(), labels));
    }
    for n in 1..=n_nodes {
        let labels = if random.one_in(2) {
            vec![label("role", random.pick(&["edge", "core"]))]
        } else {
            vec![]
        };
        let mut ips: Vec<IpAddr> = vec![format!("172.30.0.{n}").parse().unwrap()];
        if random.one_in(2) {
            ips.push(format!("fd00:30::{n}").parse().unwrap());
        }
        world.nodes.push(Node { name: format!("node-{n}"), labels, ips });
    }
    for n in 0..n_pods {
        let pod = pod(random, coverage, &world, n);
        world.pods.push(pod);
    }
    if random.one_in(2) {
        world.tiers.push(("custom".into(), random.pick(&[5, 120, 221, 240])));
    }
    world.names = vec![
        ("db.example.org".into(), "198.51.100.7".parse().unwrap()),
        ("www.example.org".into(), "2001:db8::7".parse().unwrap()),
        ("www.example.org".into(), "198.51.100.8".parse().unwrap()),
        ("www.example.net".into(), "198.51.100.9".parse().unwrap()),
    ];
    world.outside = ["198.51.100.7", "198.51.100.8", "203.0.113.5", "2001:db8::7", "2001:db8::99"]
        .map(|ip| ip.parse().unwrap())
        .into();
    // Nodes are ends too, as somebody's addresses.
    world.outside.extend(world.nodes.iter().map(|node| node.ips[0]).take(0));
    groups(random, &mut world);
    for n in 0..n_policies {
        let policy = policy(random, coverage, n);
        world.policies.push(policy);
    }
    world
}

fn pod(random: &mut Random, coverage: &mut Coverage, world: &World, n: usize) -> Pod {
    let namespace = random.pick(&NAMESPACES).to_owned();
    let node = world.nodes[random.below(world.nodes.len())].clone();
    let mut labels = Vec::new();
    if !random.one_in(6) {
        labels.push(label("app", random.pick(&APPS)));
    }
    if random.one_in(3) {
        labels.push(label("track", random.pick(&["stable", "canary"])));
    }
    let host_network = random.one_in(12);
    let finished = !host_network && random.one_in(12);
    let v4: IpAddr = format!("10.10.{}.{}", n % 3, 10 + n).parse().unwrap();
    let v6: IpAddr = format!("fd00:10::{}", 10 + n).parse().unwrap();
    let ips = if host_network {
        node.ips.clone()
    } else if finished && !world.pods.is_empty() {
        // It still shows an address that another Pod has now.
        world.pods[random.below(world.pods.len())].ips.clone()
    } else {
        match random.below(6) {
            0 => vec![v4],
            1 => vec![v6],
            _ => vec![v4, v6],
        }
    };
    for ip in &ips {
        coverage.count(if ip.is_ipv4() { "family v4" } else { "family v6" });
    }
    let mut ports = Vec::new();
    if random.one_in(2) {
        ports.push(("web".to_owned(), "TCP", random.pick(&[80, 8080])));
    }
    if random.one_in(3) {
        ports.push(("dns".to_owned(), random.pick(&["UDP", "TCP", "SCTP"]), 5000));
    }
    Pod {
        namespace,
        name: format!("pod{n}"),
        labels,
        account: if random.one_in(3) { "robot".into() } else { "default".into() },
        node: node.name,
        host_network,
        finished,
        ips,
        ports,
    }
}

fn selector(random: &mut Random, key: &str, values: &[&str]) -> Value {
    match random.below(7) {
        0 => json!({}),
        1 => json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}),
        2 => json!({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}),
        3 => json!({"matchExpressions": [
            {"key": key, "operator": "NotIn", "values": [random.pick(values)]}]}),
        4 => json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]}),
        _ => json!({"matchLabels": {key: random.pick(values)}}),
    }
}

fn pods(random: &mut Random) -> Value {
    selector(random, "app", &APPS)
}

fn namespaces(random: &mut Random) -> Value {
    if random.one_in(4) {
        let name = random.pick(&NAMESPACES);
        return json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    }
    selector(random, "team", &TEAMS)
}

fn block(random: &mut Random, coverage: &mut Coverage) -> Value {
    if random.one_in(2) {
        coverage.count("peer except");
        return random
            .pick(&[
                json!({"cidr": "10.10.0.0/16", "except": ["10.10.1.0/24"]}),
                json!({"cidr": "0.0.0.0/0", "except": ["10.10.0.0/16", "198.51.100.8/32"]}),
                json!({"cidr": "::/0", "except": ["fd00:10::/64"]}),
                json!({"cidr": "fd00:10::/32", "except": ["fd00:10::10/124"]}),
            ])
            .clone();
    }
    coverage.count("peer ipBlock");
    let nets =
        ["0.0.0.0/0", "::/0", "10.10.0.0/24", "198.51.100.0/24", "fd00:10::/112", "10.10.1.11/32"];
    json!({"cidr": random.pick(&nets)})
}

const GROUPS: [&str; 3] = ["pods", "nets", "nested"];

fn groups(random: &mut Random, world: &mut World) {
    for namespace in ["", "x", "y", "z"] {
        let pods = match namespace {
            "" => json!({"podSelector": pods(random), "namespaceSelector": namespaces(random)}),
            _ => json!({"podSelector": pods(random)}),
        };
        let nets = json!({"ipBlocks": [
            {"cidr": "198.51.100.0/29"},
            {"cidr": random.pick(&["10.10.2.0/24", "fd00:10::/120"])},
        ]});
        let mut children = vec!["pods", "nets"];
        children.truncate(1 + random.below(2));
        let nested = json!({"childGroups": children});
        for (name, spec) in GROUPS.into_iter().zip([pods, nets, nested]) {
            world.groups.push((namespace.into(), name.into(), spec));
        }
    }
}

/// Who a policy is by: what may be written in it.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    K8s,
    Cluster,
    Namespaced,
}

fn peer(random: &mut Random, coverage: &mut Coverage, kind: Kind, egress: bool) -> Value {
    let native = kind != Kind::K8s;
    loop {
        let (word, value) = match random.below(14) {
            0 => ("peer podSelector", json!({"podSelector": pods(random)})),
            1 => ("peer namespaceSelector", json!({"namespaceSelector": namespaces(random)})),
            2 => (
                "peer both selectors",
                json!({"podSelector": pods(random), "namespaceSelector": namespaces(random)}),
            ),
            3 | 4 => return json!({"ipBlock": block(random, coverage)}),
            5 | 13 if native => {
                let name = random.pick(&["pods", "nets", "nested", "nested"]);
                let word = if name == "nested" { "peer nested group" } else { "peer group" };
                (word, json!({"group": name}))
            }
            6 if native => (
                "peer serviceAccount",
                json!({"serviceAccount": {
                    "name": random.pick(&["robot", "default"]),
                    "namespace": random.pick(&NAMESPACES)}}),
            ),
            7 if kind == Kind::Cluster => {
                let mut value = json!({"namespaces": {"match": "Self"}});
                if random.one_in(2) {
                    value["podSelector"] = pods(random);
                }
                ("peer Self", value)
            }
            8 | 12 if kind == Kind::Cluster => {
                let keys = random.pick(&[&["team"][..], &["team", "env"], &["env"]]);
                let mut value = json!({"namespaces": {"sameLabels": keys}});
                if random.one_in(2) {
                    value["podSelector"] = pods(random);
                }
                ("peer sameLabels", value)
            }
            9 if native => (
                "peer nodeSelector",
                json!({"nodeSelector": selector(random, "role", &["edge", "core"])}),
            ),
            10 if native && egress => {
                let name =
                    random.pick(&["db.example.org", "*.example.org", "www.*", "nobody.test"]);
                ("peer fqdn", json!({"fqdn": name}))
            }
            _ => continue,
        };
        coverage.count(word);
        return value;
    }
}

/// Whether peers are named by address. Agents are not told which Pods have such addresses, so what
/// a port's name means there is not known to them: the two ways differ, and it is not asked.
fn names_addresses(peers: &Value) -> bool {
    let by_address = |peer: &Value| {
        let group = peer.get("group").and_then(Value::as_str);
        peer.get("ipBlock").is_some() || group.is_some_and(|name| name != "pods")
    };
    peers.as_array().is_some_and(|peers| peers.iter().any(by_address))
}

fn port(random: &mut Random, coverage: &mut Coverage, native: bool, by_address: bool) -> Value {
    let protocol = random.pick(&["TCP", "TCP", "TCP", "UDP", "SCTP"]);
    if protocol == "SCTP" {
        coverage.count("port sctp");
    }
    let mut value = json!({"protocol": protocol});
    match random.below(6) {
        0 => coverage.count("port protocol only"),
        1 => {
            coverage.count("port range");
            let (first, last) = random.pick(&[(80, 90), (81, 1000), (1, 79), (443, 443)]);
            value["port"] = json!(first);
            value["endPort"] = json!(last);
        }
        2 if !by_address => {
            coverage.count("port named");
            value["port"] = json!(random.pick(&["web", "dns", "nobody"]));
        }
        _ => {
            coverage.count("port number");
            value["port"] = json!(random.pick(&super::PORTS));
        }
    }
    if native && random.one_in(3) {
        coverage.count("port source");
        value["sourcePort"] = json!(random.pick(&[1000, 1500]));
        if random.one_in(2) {
            value["sourceEndPort"] = json!(2000);
        }
    }
    value
}

fn rule(random: &mut Random, coverage: &mut Coverage, kind: Kind, egress: bool) -> Value {
    let mut rule = json!({});
    let mut has_fqdn = false;
    if random.one_in(4) {
        coverage.count("peer any");
    } else {
        let n = 1 + random.below(3);
        let peers: Vec<Value> = (0..n).map(|_| peer(random, coverage, kind, egress)).collect();
        has_fqdn = peers.iter().any(|peer| peer.get("fqdn").is_some());
        rule[if egress { "to" } else { "from" }] = json!(peers);
    }
    let native = kind != Kind::K8s;
    let by_address = egress && names_addresses(&rule["to"]);
    match random.below(5) {
        0 => coverage.count("port any"),
        1 if native => {
            coverage.count("port icmp");
            let icmp = random
                .pick(&[
                    json!({}),
                    json!({"icmpType": 8}),
                    json!({"icmpType": 8, "icmpCode": 0}),
                    json!({"icmpType": 13, "icmpCode": 1}),
                ])
                .clone();
            rule["protocols"] = json!([{"icmp": icmp}]);
            if random.one_in(3) {
                rule["ports"] = json!([port(random, coverage, native, by_address)]);
            }
        }
        _ => {
            let n = 1 + random.below(3);
            let ports: Vec<Value> =
                (0..n).map(|_| port(random, coverage, native, by_address)).collect();
            rule["ports"] = json!(ports);
        }
    }
    if native {
        let mut actions =
            vec![("action Allow", "Allow"), ("action Drop", "Drop"), ("action Reject", "Reject")];
        if !has_fqdn {
            actions.push(("action Pass", "Pass"));
        }
        let (word, action) = random.pick(&actions);
        coverage.count(word);
        rule["action"] = json!(action);
    }
    rule
}

fn rules(random: &mut Random, coverage: &mut Coverage, kind: Kind, egress: bool) -> Vec<Value> {
    let n = random.below(4);
    (0..n).map(|_| rule(random, coverage, kind, egress)).collect()
}

fn target(random: &mut Random, kind: Kind) -> Value {
    match random.below(6) {
        0 => json!({"group": "pods"}),
        1 => json!({"serviceAccount": {"name": "robot", "namespace": random.pick(&NAMESPACES)}}),
        2 if kind == Kind::Cluster => json!({"namespaceSelector": namespaces(random)}),
        3 if kind == Kind::Cluster => {
            json!({"podSelector": pods(random), "namespaceSelector": namespaces(random)})
        }
        _ => json!({"podSelector": pods(random)}),
    }
}

fn policy(random: &mut Random, coverage: &mut Coverage, n: usize) -> Policy {
    let namespace = random.pick(&NAMESPACES);
    let metadata = |kind: &str, namespaced: bool| {
        let mut value =
            json!({"name": format!("p{n}"), "uid": format!("{kind}-{n}"), "generation": 1});
        if namespaced {
            value["namespace"] = json!(namespace);
        }
        value
    };
    match random.below(7) {
        0 | 1 => {
            coverage.count("tier kubernetes");
            let types = random.pick(&[&["Ingress"][..], &["Egress"], &["Ingress", "Egress"]]);
            let mut spec = json!({"podSelector": pods(random), "policyTypes": types});
            for word in types {
                let egress = *word == "Egress";
                spec[if egress { "egress" } else { "ingress" }] =
                    json!(rules(random, coverage, Kind::K8s, egress));
            }
            Policy::K8s(json!({"metadata": metadata("k8s", true), "spec": spec}))
        }
        2 => {
            coverage.count("tier upstream");
            Policy::Upstream(json!({
                "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
                "metadata": metadata("cnp", false), "spec": upstream(random, coverage)}))
        }
        choice => {
            let kind = if choice < 5 { Kind::Cluster } else { Kind::Namespaced };
            let (word, tier) = match random.below(5) {
                0 => ("tier baseline", json!("baseline")),
                1 => ("tier other", json!(random.pick(&["emergency", "platform", "securityops"]))),
                2 => ("tier other", json!("custom")),
                _ => ("tier equal", Value::Null),
            };
            coverage.count(word);
            let is_baseline = word == "tier baseline";
            let mut spec = json!({"priority": random.pick(&[1.0, 5.0, 5.0, 5.5, 9999.0])});
            if !tier.is_null() {
                spec["tier"] = tier;
            }
            let per_rule = random.one_in(3);
            if !per_rule {
                let n = 1 + random.below(2);
                spec["appliedTo"] = (0..n).map(|_| target(random, kind)).collect();
            }
            for egress in [false, true] {
                let mut all = rules(random, coverage, kind, egress);
                for rule in &mut all {
                    if per_rule {
                        rule["appliedTo"] = json!([target(random, kind)]);
                    }
                    if is_baseline && rule["action"] == "Pass" {
                        rule["action"] = json!("Drop");
                    }
                }
                spec[if egress { "egress" } else { "ingress" }] = json!(all);
            }
            let (word, namespaced) = match kind {
                Kind::Cluster => ("ClusterNetworkPolicy", false),
                _ => ("NetworkPolicy", true),
            };
            let value = json!({
                "apiVersion": "crd.antrea.io/v1beta1", "kind": word,
                "metadata": metadata(word, namespaced), "spec": spec});
            if namespaced { Policy::Namespaced(value) } else { Policy::Cluster(value) }
        }
    }
}

fn upstream(random: &mut Random, coverage: &mut Coverage) -> Value {
    let subject = |random: &mut Random| {
        if random.one_in(2) {
            json!({"namespaces": namespaces(random)})
        } else {
            json!({"pods": {"namespaceSelector": namespaces(random), "podSelector": pods(random)}})
        }
    };
    let mut spec = json!({
        "tier": random.pick(&["Admin", "Baseline"]),
        "priority": random.pick(&[0, 5, 5, 1000]),
        "subject": subject(random),
    });
    for egress in [false, true] {
        let n = random.below(4);
        let mut rules = Vec::new();
        for _ in 0..n {
            let (word, action) = random.pick(&[
                ("action Accept", "Accept"),
                ("action Deny", "Deny"),
                ("action Pass", "Pass"),
            ]);
            coverage.count(word);
            let peer = match random.below(4) {
                0 | 1 if egress => {
                    coverage.count("peer upstream networks");
                    json!({"networks": [random.pick(&["198.51.100.0/24", "::/0", "10.10.0.0/23"])]})
                }
                2 => {
                    coverage.count("peer upstream namespaces");
                    json!({"namespaces": namespaces(random)})
                }
                _ => {
                    coverage.count("peer upstream pods");
                    json!({"pods": {
                        "namespaceSelector": namespaces(random), "podSelector": pods(random)}})
                }
            };
            let mut rule = json!({"action": action, if egress { "to" } else { "from" }: [peer]});
            if random.one_in(2) {
                let by_address = rule["to"][0].get("networks").is_some();
                rule["protocols"] = json!([match random.below(4) {
                    0 if !by_address => json!({"destinationNamedPort": "web"}),
                    1 => json!({"udp": {"destinationPort": {"number": 80}}}),
                    2 => json!({"tcp": {"destinationPort": {"range": {"start": 80, "end": 90}}}}),
                    _ => json!({"tcp": {}}),
                }]);
            }
            rules.push(rule);
        }
        spec[if egress { "egress" } else { "ingress" }] = json!(rules);
    }
    spec
}

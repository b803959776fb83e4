//! Random policies: targets, peers, ports and actions.

use serde_json::{Map, Value, json};

use super::Maker;

impl Maker<'_> {
    /// A selector of one label.
    pub(super) fn selector(&mut self, key: &str, values: &[&str]) -> Value {
        let value = *self.rng.pick(values);
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        match self.rng.below(8) {
            0 => json!({}),
            1 => expression("In", json!(values)),
            2 => expression("NotIn", json!([value])),
            3 => json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}),
            4 => json!({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}),
            _ => json!({"matchLabels": {key: value}}),
        }
    }

    fn pods(&mut self) -> Value {
        if self.rng.one_in(2) {
            self.selector("app", &["web", "db", "job"])
        } else {
            self.selector("rank", &["one", "two"])
        }
    }

    fn namespaces(&mut self) -> Value {
        match self.rng.below(3) {
            0 => self.selector("kubernetes.io/metadata.name", &["x", "y", "z"]),
            1 => self.selector("env", &["prod", "dev"]),
            _ => self.selector("team", &["red", "blue"]),
        }
    }

    /// Fields that tell Pods by labels: their own, those of their Namespaces, or both.
    pub(super) fn labels_of_pods(&mut self, may_leave: bool) -> Value {
        let mut fields = Map::new();
        let way = if may_leave { self.rng.below(3) } else { 0 };
        if way != 1 {
            fields.insert("podSelector".into(), self.pods());
        }
        if way != 0 {
            fields.insert("namespaceSelector".into(), self.namespaces());
        }
        self.coverage.count(["peer pods", "peer namespaces", "peer pods of namespaces"][way]);
        Value::Object(fields)
    }

    pub(super) fn ip_block(&mut self) -> Value {
        let (cidr, except) = *self.rng.pick(&[
            ("0.0.0.0/0", "10.10.2.0/24"),
            ("10.10.0.0/16", "10.10.1.0/28"),
            ("10.10.1.0/24", "10.10.1.4/30"),
            ("192.0.2.0/24", "192.0.2.80/32"),
            ("172.30.0.0/24", "172.30.0.2/32"),
            ("::/0", "fd00:10:10:2::/64"),
            ("fd00:10:10::/48", "fd00:10:10:1::/64"),
            ("2001:db8::/32", "2001:db8::80/128"),
        ]);
        if self.rng.one_in(2) {
            self.coverage.count("peer block with except");
            return json!({"cidr": cidr, "except": [except]});
        }
        self.coverage.count(if cidr.contains(':') { "peer block v6" } else { "peer block v4" });
        json!({"cidr": cidr})
    }

    /// Up to two entries of a list, or none.
    fn list(&mut self, mut entry: impl FnMut(&mut Self) -> Value) -> Option<Value> {
        let n = self.rng.below(3);
        (n > 0).then(|| (0..n).map(|_| entry(self)).collect())
    }

    /// A port as Kubernetes' and Antrea's policies have it.
    fn port(&mut self, source: bool) -> Value {
        let protocol = *self.rng.pick(&["TCP", "TCP", "UDP", "SCTP"]);
        self.coverage.count(format!("port {protocol}"));
        let mut port = json!({"protocol": protocol});
        match self.rng.below(5) {
            0 => self.coverage.count("port any"),
            1 => {
                self.coverage.count("port range");
                port["port"] = json!(*self.rng.pick(&[53, 79, 80]));
                port["endPort"] = json!(*self.rng.pick(&[80, 443, 8080]));
            }
            2 => {
                self.coverage.count("port named");
                port["port"] = json!(*self.rng.pick(&["web", "web", "dns", "nobody"]));
            }
            _ => {
                self.coverage.count("port number");
                port["port"] = json!(*self.rng.pick(&[53, 80, 81, 443, 8080]));
            }
        }
        if source && self.rng.one_in(5) {
            self.coverage.count("port source");
            port["sourcePort"] = json!(1000);
            if self.rng.one_in(2) {
                port["sourceEndPort"] = json!(2000);
            }
        }
        port
    }

    pub(super) fn kubernetes(&mut self) -> Value {
        let mut spec = json!({"podSelector": self.pods()});
        match self.rng.below(4) {
            0 => {}
            1 => spec["policyTypes"] = json!(["Ingress"]),
            2 => spec["policyTypes"] = json!(["Egress"]),
            _ => spec["policyTypes"] = json!(["Ingress", "Egress"]),
        }
        for (direction, side) in [("ingress", "from"), ("egress", "to")] {
            let rules = self.list(|this| {
                let mut rule = Map::new();
                let peers = this.list(|this| match this.rng.below(3) {
                    0 => json!({"ipBlock": this.ip_block()}),
                    _ => this.labels_of_pods(true),
                });
                rule.extend(peers.map(|peers| (side.to_owned(), peers)));
                let ports = this.list(|this| this.port(false));
                rule.extend(ports.map(|ports| ("ports".to_owned(), ports)));
                Value::Object(rule)
            });
            if let Some(rules) = rules {
                spec[direction] = rules;
            }
        }
        spec
    }

    fn targets(&mut self, namespace: &str) -> Value {
        let target = match (self.rng.below(6), namespace) {
            (0, "") => {
                self.coverage.count("target group");
                json!({"group": *self.rng.pick(&["pods", "nested", "missing"])})
            }
            (0, _) => {
                self.coverage.count("target group");
                json!({"group": *self.rng.pick(&["own", "wide"])})
            }
            (1, "") => {
                self.coverage.count("target service account");
                json!({"serviceAccount": {"name": "robot", "namespace": *self.rng.pick(&["x", "y"])}})
            }
            (_, "") => self.labels_of_pods(true),
            _ => json!({"podSelector": self.pods()}),
        };
        json!([target])
    }

    pub(super) fn antrea(&mut self, namespace: &str) -> Value {
        let tiers = [
            "",
            "application",
            "Emergency",
            "securityops",
            "platform",
            "early",
            "between",
            "baseline",
            "baseline",
            "nowhere",
        ];
        let tier = *self.rng.pick(&tiers);
        self.coverage.count(format!("tier {tier}"));
        let priority = *self.rng.pick(&[1.0, 5.0, 5.0, 5.5, 10.0]);
        let mut spec = json!({"tier": tier, "priority": priority});
        let own_targets = self.rng.one_in(3);
        if own_targets {
            self.coverage.count("target of rule");
        } else {
            spec["appliedTo"] = self.targets(namespace);
        }
        for (direction, side) in [("ingress", "from"), ("egress", "to")] {
            let rules = self.list(|this| {
                let actions = ["Allow", "Allow", "Drop", "Reject", "Pass", "Permit"];
                let action = *this.rng.pick(&actions);
                this.coverage.count(format!("action {action}"));
                let mut rule = json!({"action": action});
                if own_targets {
                    rule["appliedTo"] = this.targets(namespace);
                }
                let peers = this.list(|this| this.antrea_peer(namespace, side));
                if let Some(peers) = peers {
                    rule[side] = peers;
                }
                if let Some(ports) = this.list(|this| this.port(true)) {
                    rule["ports"] = ports;
                }
                if this.rng.one_in(5) {
                    this.coverage.count("port icmp");
                    let messages =
                        [json!({"icmpType": 8, "icmpCode": 0}), json!({"icmpType": 3}), json!({})];
                    rule["protocols"] = json!([{"icmp": this.rng.pick(&messages)}]);
                }
                rule
            });
            if let Some(rules) = rules {
                spec[direction] = rules;
            }
        }
        spec
    }

    fn antrea_peer(&mut self, namespace: &str, side: &str) -> Value {
        let cluster_wide = namespace.is_empty();
        match self.rng.below(9) {
            0 => json!({"ipBlock": self.ip_block()}),
            1 => {
                self.coverage.count("peer group");
                let groups: &[&str] = match cluster_wide {
                    true => &["pods", "nets", "nodes", "nested", "missing"],
                    false => &["own", "wide", "missing"],
                };
                json!({"group": *self.rng.pick(groups)})
            }
            2 if side == "to" => {
                self.coverage.count("peer name");
                json!({"fqdn": *self.rng.pick(&["*.example.com", "example.org", "nobody.test"])})
            }
            3 => {
                self.coverage.count("peer nodes");
                json!({"nodeSelector": self.selector("role", &["edge", "inner"])})
            }
            4 if cluster_wide => {
                self.coverage.count("peer own namespace");
                match self.rng.one_in(2) {
                    true => json!({"namespaces": {"match": "Self"}}),
                    false => json!({"namespaces": {"match": "Self"}, "podSelector": self.pods()}),
                }
            }
            5 if cluster_wide => {
                self.coverage.count("peer same labels");
                let keys = [json!(["team"]), json!(["team", "env"])];
                json!({"namespaces": {"sameLabels": self.rng.pick(&keys)}})
            }
            6 if cluster_wide => {
                self.coverage.count("peer service account");
                json!({"serviceAccount": {"name": "robot", "namespace": *self.rng.pick(&["x", "y"])}})
            }
            _ => self.labels_of_pods(true),
        }
    }

    pub(super) fn upstream(&mut self) -> Value {
        let tier = *self.rng.pick(&["Admin", "Baseline"]);
        self.coverage.count(format!("tier {tier}"));
        let mut spec = json!({
            "tier": tier,
            "priority": *self.rng.pick(&[0, 5, 5, 1000]),
            "subject": self.upstream_pods(),
        });
        for (direction, side) in [("ingress", "from"), ("egress", "to")] {
            let rules = self.list(|this| {
                let action = *this.rng.pick(&["Accept", "Deny", "Deny", "Pass", "Block"]);
                this.coverage.count(format!("action {action}"));
                let mut rule = json!({"action": action});
                let n = 1 + this.rng.below(2);
                rule[side] = (0..n).map(|_| this.upstream_peer(side)).collect();
                if let Some(protocols) = this.list(Self::upstream_protocol) {
                    rule["protocols"] = protocols;
                }
                rule
            });
            if let Some(rules) = rules {
                spec[direction] = rules;
            }
        }
        spec
    }

    fn upstream_pods(&mut self) -> Value {
        match self.rng.one_in(2) {
            true => json!({"namespaces": self.namespaces()}),
            false => {
                let (namespaces, pods) = (self.namespaces(), self.pods());
                json!({"pods": {"namespaceSelector": namespaces, "podSelector": pods}})
            }
        }
    }

    fn upstream_peer(&mut self, side: &str) -> Value {
        match self.rng.below(7) {
            0 if side == "to" => {
                self.coverage.count("peer nodes");
                json!({"nodes": self.selector("role", &["edge", "inner"])})
            }
            1 | 2 if side == "to" => {
                self.coverage.count("peer networks");
                let all = ["0.0.0.0/0", "::/0", "10.10.1.0/24", "192.0.2.0/24", "fd00:10:10::/48"];
                json!({"networks": [*self.rng.pick(&all), *self.rng.pick(&all[2..])]})
            }
            3 if side == "to" => {
                self.coverage.count("peer name");
                json!({"domainNames": ["*.example.com"]})
            }
            4 if self.rng.one_in(3) => {
                self.coverage.count("peer without meaning");
                json!({})
            }
            _ => self.upstream_pods(),
        }
    }

    fn upstream_protocol(&mut self) -> Value {
        if self.rng.one_in(4) {
            self.coverage.count("port named");
            return json!({"destinationNamedPort": *self.rng.pick(&["web", "dns"])});
        }
        let protocol = *self.rng.pick(&["tcp", "udp", "sctp"]);
        match self.rng.below(3) {
            0 => json!({protocol: {}}),
            1 => {
                self.coverage.count("port range");
                json!({protocol: {"destinationPort": {"range": {"start": 79, "end": 443}}}})
            }
            _ => {
                self.coverage.count("port number");
                let number = *self.rng.pick(&[53, 80, 81, 8080]);
                json!({protocol: {"destinationPort": {"number": number}}})
            }
        }
    }
}

//! Flows of policies as text.

use std::net::IpAddr;

use openflow::{ConjId, Flow, OfPort};

use super::fixture::{MODES, flows, mk_node, mk_policy_config};
use super::golden::check;
use crate::Families;
use crate::policy::{
    Clause, ClauseKey, Counter, Counts, Direction, HostMark, Isolation, Place, PolicyConfig,
    PortRange, RuleSpec, ServiceSpec, Transport, Verdict, clause_flow, dns_flows, node_flows,
    read_counter, rule_flows, rule_table,
};

/// A rule and its clauses, in the making.
pub(super) struct Rule {
    pub(super) spec: RuleSpec,
    pub(super) clauses: Vec<Vec<ClauseKey>>,
}

pub(super) fn mk_rule(id: u32, direction: Direction, place: Place, verdict: Verdict) -> Rule {
    let priority = match place {
        Place::Tiered | Place::NodePort => 14900,
        Place::Kubernetes => crate::fields::K8S_RULE_MIN,
        Place::Baseline => 150,
    };
    let spec = RuleSpec {
        id: ConjId(id),
        direction,
        place,
        priority,
        verdict,
        log: false,
        owner: [7; 12],
    };
    Rule { spec, clauses: Vec::new() }
}

pub(super) fn tcp(first: u16, last: u16) -> ServiceSpec {
    let dst = Some(PortRange { first, last });
    ServiceSpec::Transport { protocol: Transport::Tcp, dst, src: None }
}

impl Rule {
    pub(super) fn priority(mut self, priority: u16) -> Self {
        self.spec.priority = priority;
        self
    }

    pub(super) fn log(mut self) -> Self {
        self.spec.log = true;
        self
    }

    pub(super) fn from(mut self, nets: &[&str]) -> Self {
        let key = |net: &&str| ClauseKey::from_net(net.parse().expect("a prefix"));
        self.clauses.push(nets.iter().map(key).collect());
        self
    }

    pub(super) fn to(mut self, nets: &[&str]) -> Self {
        let key = |net: &&str| ClauseKey::to_net(net.parse().expect("a prefix"));
        self.clauses.push(nets.iter().map(key).collect());
        self
    }

    pub(super) fn pods(mut self, ofports: &[u32]) -> Self {
        self.clauses.push(ofports.iter().map(|n| ClauseKey::ToPort(OfPort(*n))).collect());
        self
    }

    pub(super) fn through(mut self, keys: &[ClauseKey]) -> Self {
        self.clauses.push(keys.to_vec());
        self
    }

    pub(super) fn services(mut self, families: Families, services: &[ServiceSpec]) -> Self {
        let matches = services.iter().flat_map(|service| service.matches(families));
        self.clauses.push(matches.map(ClauseKey::Service).collect());
        self
    }

    /// Its flows, if it shares none.
    pub(super) fn flows(&self, config: &PolicyConfig) -> Vec<Flow> {
        let table = rule_table(self.spec.direction, self.spec.place);
        let n_clauses = u8::try_from(self.clauses.len()).unwrap();
        let mut all = rule_flows(config, &self.spec);
        for (clause, keys) in (1..).zip(&self.clauses) {
            let clause = Clause { id: self.spec.id, clause, n_clauses };
            let flow = |key: &ClauseKey| clause_flow(table, self.spec.priority, *key, [clause]);
            all.extend(keys.iter().map(flow));
        }
        all
    }
}

#[test]
fn what_a_node_needs() {
    for (mode, families) in MODES {
        let node = mk_node(families);
        let config = PolicyConfig {
            packet_in_rate: Some(500),
            host_mark: HostMark::Marked,
            ..mk_policy_config(families)
        };
        let intents = node_flows(&node, &config);
        assert_eq!(intents.len() - flows(intents.clone()).len(), 2, "two meters");
        check(&format!("policy-node-{mode}.flows"), &flows(intents));
    }
}

#[test]
fn what_rules_do() {
    let config = PolicyConfig { packet_in_rate: Some(500), ..mk_policy_config(Families::Dual) };
    let mut all = Vec::new();
    let mut id = 10;
    for direction in [Direction::Egress, Direction::Ingress] {
        for (place, verdict) in [
            (Place::Tiered, Verdict::Allow),
            (Place::Tiered, Verdict::Drop),
            (Place::Tiered, Verdict::Reject),
            (Place::Tiered, Verdict::Pass),
            (Place::Kubernetes, Verdict::Allow),
            (Place::Baseline, Verdict::Allow),
            (Place::Baseline, Verdict::Drop),
        ] {
            id += 1;
            all.extend(mk_rule(id, direction, place, verdict).flows(&config));
        }
        for verdict in [Verdict::Allow, Verdict::Reject] {
            id += 1;
            all.extend(mk_rule(id, direction, Place::Tiered, verdict).log().flows(&config));
        }
    }
    check("policy-rules.flows", &all);
}

#[test]
fn flows_that_count_tell_what_they_count_and_no_others_do() {
    let (node, config) = (mk_node(Families::Dual), mk_policy_config(Families::Dual));
    let gates = flows(node_flows(&node, &config));
    assert!(gates.iter().all(|flow| read_counter(flow).is_none()), "they are no rule's");
    let allowed = [Counts::Opening, Counts::Known];
    for (verdict, want) in [
        (Verdict::Allow, &allowed[..]),
        (Verdict::Pass, &allowed),
        (Verdict::Drop, &[Counts::Denied]),
        (Verdict::Reject, &[Counts::Denied]),
    ] {
        for direction in [Direction::Egress, Direction::Ingress] {
            let rule = mk_rule(7, direction, Place::Tiered, verdict).from(&["10.0.0.1/32"]);
            // As the switch tells them.
            let told = rule.flows(&config).into_iter().map(|flow| {
                let text = format!("cookie={:#x}, {flow}", flow.cookie.0);
                text.parse::<Flow>().unwrap_or_else(|_| flow.clone())
            });
            let found: Vec<Counter> = told.filter_map(|flow| read_counter(&flow)).collect();
            let want = want.iter().map(|counts| Counter { rule: 7, counts: *counts });
            assert_eq!(found, want.collect::<Vec<_>>(), "{verdict:?} {direction:?}");
        }
    }
}

#[test]
fn what_clauses_match() {
    let families = Families::Dual;
    let config = mk_policy_config(families);
    let sctp = ServiceSpec::Transport { protocol: Transport::Sctp, dst: None, src: None };
    let udp = ServiceSpec::Transport {
        protocol: Transport::Udp,
        dst: Some(PortRange::one(53)),
        src: Some(PortRange { first: 1024, last: 65535 }),
    };
    let icmp = ServiceSpec::Icmp { kind: Some(8), code: Some(0) };
    let all_icmp = ServiceSpec::Icmp { kind: None, code: None };
    let egress = mk_rule(1, Direction::Egress, Place::Kubernetes, Verdict::Allow)
        .from(&["10.77.1.2/32", "fd00:77:1::2/128"])
        .to(&["0.0.0.0/0", "::/0", "10.0.0.0/8"])
        .services(families, &[tcp(1001, 1999), udp, sctp]);
    let ingress = mk_rule(2, Direction::Ingress, Place::Tiered, Verdict::Drop)
        .from(&["10.77.1.3/32", "fd00:77:1::3/128"])
        .pods(&[2])
        .services(families, &[icmp, all_icmp]);
    check("policy-clauses.flows", &[egress.flows(&config), ingress.flows(&config)].concat());
}

#[test]
fn what_pods_need() {
    let config = mk_policy_config(Families::Dual);
    let ips: Vec<IpAddr> = vec!["10.77.1.2".parse().unwrap(), "fd00:77:1::2".parse().unwrap()];
    let mut all = Vec::new();
    for (direction, log) in [(Direction::Egress, false), (Direction::Ingress, true)] {
        let isolation = Isolation { direction, ofport: OfPort(2), ips: ips.clone(), log };
        all.extend(isolation.flows(&config));
    }
    all.extend(dns_flows(&config, OfPort(2)));
    check("policy-pod.flows", &all);
}

/// `ovs-ofctl parse-flows` reads what we print.
#[test]
fn ovs_ofctl_reads_policy_flows() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut n_files = 0;
    for file in std::fs::read_dir(golden).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let n_flows = text.lines().filter(|line| !line.starts_with('#')).count();
        let output = std::process::Command::new("ovs-ofctl")
            .args(["-O", "OpenFlow15", "parse-flows"])
            .arg(&path)
            .output()
            .expect("ovs-ofctl is installed");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {error}", path.display());
        let parsed = String::from_utf8_lossy(&output.stdout);
        let n_mods = parsed.lines().filter(|line| line.contains("FLOW_MOD")).count();
        assert_eq!(n_mods, n_flows, "{}", path.display());
        n_files += 1;
    }
    assert!(n_files > 10);
}

//! Verdicts of a real switch on packets that policies look at.

use openflow::{Flow, OfPort};
use testkit::netns::in_netns;

use super::fixture::{mk_pod, mk_policy_config};
use super::policy_flows::{Rule, mk_rule, tcp};
use super::switch::Switch;
use crate::Families;
use crate::policy::{Direction, Isolation, Place, ServiceSpec, Transport, Verdict};

const NEW: &str = "trk,new";

fn isolated(families: Families, pod: u32, direction: Direction) -> Vec<Flow> {
    let ips = mk_pod(families, pod).ips;
    let isolation = Isolation { direction, ofport: OfPort(pod), ips, log: false };
    isolation.flows(&mk_policy_config(families))
}

/// A packet, `from` and `to` as the last part of an address or a word.
fn packet(v6: bool, from: &str, to: &str, l4: &str) -> String {
    let ip = |who: &str| match (who, v6) {
        ("host", false) => "10.77.1.1".into(),
        ("host", true) => "fd00:77:1::1".into(),
        ("outside", false) => "198.51.100.1".into(),
        ("outside", true) => "2001:db8::1".into(),
        ("remote", false) => "10.77.2.9".into(),
        ("remote", true) => "fd00:77:2::9".into(),
        (n, false) => format!("10.77.1.{n}"),
        (n, true) => format!("fd00:77:1::{n}"),
    };
    let port = match from {
        "host" | "outside" => "in_port=32769,dl_src=0a:00:00:00:01:01".into(),
        "remote" => "in_port=32768,tun_src=172.30.0.2,tun_dst=172.30.0.1,\
                     dl_src=0a:00:00:00:01:02"
            .into(),
        n => format!("in_port={n},dl_src=0a:00:00:00:02:0{n}"),
    };
    let (src, dst) = if v6 { ("ipv6_src", "ipv6_dst") } else { ("nw_src", "nw_dst") };
    let (proto, rest) = l4.split_once(',').unwrap_or((l4, ""));
    let family = if v6 { "6" } else { "" };
    format!(
        "{port},{proto}{family},{src}={},{dst}={},nw_ttl=64{}{rest}",
        ip(from),
        ip(to),
        if rest.is_empty() { "" } else { "," }
    )
}

struct World {
    switch: Switch,
    families: Families,
}

impl World {
    fn start(families: Families, rules: Vec<Rule>, more: Vec<Flow>) -> Self {
        let config = mk_policy_config(families);
        let switch = Switch::start(families);
        let mut flows: Vec<Flow> = rules.iter().flat_map(|rule| rule.flows(&config)).collect();
        flows.extend(more);
        switch.add(&flows);
        Self { switch, families }
    }

    #[track_caller]
    fn check(&self, what: &str, from: &str, to: &str, l4: &str, want: &str) {
        self.check_state(what, from, to, l4, NEW, want);
    }

    #[track_caller]
    fn check_state(&self, what: &str, from: &str, to: &str, l4: &str, ct: &str, want: &str) {
        for v6 in [false, true] {
            if v6 && !self.families.has_v6() {
                continue;
            }
            let trace = self.switch.trace(&packet(v6, from, to, l4), ct);
            assert_eq!(trace.verdict(), want, "{what}: {from} to {to}, {l4}\n{}", trace.text);
        }
    }
}

#[test]
#[ignore = "needs root: make test"]
fn isolation_and_the_ways_around_it() {
    let families = Families::Dual;
    in_netns(|| {
        let allow = mk_rule(21, Direction::Ingress, Place::Kubernetes, Verdict::Allow)
            .from(&["10.77.1.2/32", "fd00:77:1::2/128"])
            .pods(&[3])
            .services(families, &[tcp(80, 81)]);
        let world = World::start(families, vec![allow], isolated(families, 3, Direction::Ingress));
        world.check("allowed", "2", "3", "tcp,tcp_dst=80", "pod3");
        world.check("allowed, end of the range", "2", "3", "tcp,tcp_dst=81", "pod3");
        world.check("next port", "2", "3", "tcp,tcp_dst=82", "drop");
        world.check("other protocol", "2", "3", "udp,udp_dst=80", "drop");
        world.check("other source", "remote", "3", "tcp,tcp_dst=80", "drop");
        world.check("probe", "host", "3", "tcp,tcp_dst=99", "pod3");
        world.check("outside through the host", "outside", "3", "tcp,tcp_dst=80", "drop");
        world.check("not isolated", "3", "2", "tcp,tcp_dst=80", "pod2");
        world.check("leaving is not isolated", "3", "host", "tcp,tcp_dst=80", "gw0");
        for (what, l4, ct, want) in [
            ("established", "tcp,tcp_dst=82,ct_mark=3", "trk,est", "pod3"),
            ("established by the host", "tcp,tcp_dst=82,ct_mark=2", "trk,est", "pod3"),
            ("established by a remote Pod", "tcp,tcp_dst=82,ct_mark=1", "trk,est", "pod3"),
            ("related", "icmp,ct_mark=3", "trk,rel,rpl", "pod3"),
            ("never passed", "tcp,tcp_dst=82,ct_mark=0x10", "trk,est", "drop"),
            ("never passed, allowed now", "tcp,tcp_dst=80,ct_mark=0x10", "trk,est", "pod3"),
            ("to itself by a Service", "tcp,tcp_dst=82,ct_mark=0x40", "trk,est", "pod3"),
            ("invalid", "tcp,tcp_dst=80", "trk,inv", "drop"),
        ] {
            world.check_state(what, "2", "3", l4, ct, want);
        }
        let reply = "tcp,tcp_src=80,ct_mark=3";
        world.check_state("reply to the isolated", "2", "3", reply, "trk,est,rpl", "pod3");
        let trace = world.switch.trace(&packet(false, "2", "3", "tcp,tcp_dst=80"), NEW);
        assert!(trace.actions.contains("label=0x15/0xffffffffffffffff"), "{}", trace.actions);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn tiers_kubernetes_and_baseline() {
    let families = Families::Dual;
    in_netns(|| {
        let from2 = &["10.77.1.2/32", "fd00:77:1::2/128"];
        let any = &["0.0.0.0/0", "::/0"];
        let tiered = |id, verdict, priority, port| {
            mk_rule(id, Direction::Ingress, Place::Tiered, verdict)
                .priority(priority)
                .from(any)
                .pods(&[3])
                .services(families, &[tcp(port, port)])
        };
        let rules = vec![
            tiered(1, Verdict::Drop, 1000, 80),
            tiered(2, Verdict::Allow, 2000, 80).from(from2),
            tiered(3, Verdict::Pass, 3000, 82),
            tiered(4, Verdict::Drop, 1000, 82),
            tiered(5, Verdict::Allow, 1000, 83),
            tiered(6, Verdict::Reject, 999, 83),
            mk_rule(7, Direction::Ingress, Place::Kubernetes, Verdict::Allow)
                .from(from2)
                .pods(&[3])
                .services(families, &[tcp(82, 82)]),
            mk_rule(8, Direction::Ingress, Place::Baseline, Verdict::Allow)
                .priority(100)
                .from(any)
                .pods(&[2, 3]),
            mk_rule(9, Direction::Ingress, Place::Baseline, Verdict::Drop)
                .priority(101)
                .from(any)
                .pods(&[2])
                .services(families, &[tcp(99, 99)]),
        ];
        let world = World::start(families, rules, isolated(families, 3, Direction::Ingress));
        world.check("a higher rule allows", "2", "3", "tcp,tcp_dst=80", "pod3");
        world.check("a lower rule drops", "remote", "3", "tcp,tcp_dst=80", "drop");
        world.check("passed to Kubernetes' rules", "2", "3", "tcp,tcp_dst=82", "pod3");
        world.check("passed, and isolated", "remote", "3", "tcp,tcp_dst=82", "drop");
        world.check("allowed whatever Kubernetes says", "remote", "3", "tcp,tcp_dst=83", "pod3");
        world.check("baseline is not for the isolated", "2", "3", "tcp,tcp_dst=84", "drop");
        world.check("baseline allows the others", "3", "2", "tcp,tcp_dst=84", "pod2");
        world.check("baseline drops", "3", "2", "tcp,tcp_dst=99", "drop");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn egress_rules_and_labels() {
    let families = Families::Dual;
    in_netns(|| {
        let of2 = &["10.77.1.2/32", "fd00:77:1::2/128"];
        let icmp = ServiceSpec::Icmp { kind: Some(8), code: Some(0) };
        let sctp = ServiceSpec::Transport { protocol: Transport::Sctp, dst: None, src: None };
        let rules = vec![
            mk_rule(11, Direction::Egress, Place::Tiered, Verdict::Allow)
                .from(of2)
                .to(&["10.77.1.3/32", "fd00:77:1::3/128"])
                .services(families, &[tcp(80, 80), sctp]),
            mk_rule(12, Direction::Egress, Place::Tiered, Verdict::Drop)
                .priority(90)
                .from(of2)
                .to(&["10.77.0.0/16", "fd00:77::/32"])
                .services(families, &[tcp(0, 65535)]),
            mk_rule(13, Direction::Egress, Place::Tiered, Verdict::Drop)
                .priority(89)
                .from(of2)
                .to(&["0.0.0.0/0", "::/0"])
                .services(families, &[icmp]),
            mk_rule(14, Direction::Ingress, Place::Tiered, Verdict::Allow).from(of2).pods(&[3]),
        ];
        let world = World::start(families, rules, Vec::new());
        world.check("allowed", "2", "3", "tcp,tcp_dst=80", "pod3");
        world.check("allowed SCTP", "2", "3", "sctp,sctp_dst=7777", "pod3");
        world.check("dropped", "2", "3", "tcp,tcp_dst=81", "drop");
        world.check("dropped, far away", "2", "remote", "tcp,tcp_dst=81", "drop");
        world.check("other protocol", "2", "3", "udp,udp_dst=81", "pod3");
        world.check("another Pod", "3", "2", "tcp,tcp_dst=81", "pod2");
        world.check("to the outside", "2", "outside", "tcp,tcp_dst=81", "gw0");
        let echo = packet(false, "2", "3", "icmp,icmp_type=8,icmp_code=0");
        assert_eq!(world.switch.trace(&echo, NEW).verdict(), "drop", "echo request");
        let other = packet(false, "2", "3", "icmp,icmp_type=13,icmp_code=0");
        assert_eq!(world.switch.trace(&other, NEW).verdict(), "pod3", "no echo request");
        let trace = world.switch.trace(&packet(false, "2", "3", "tcp,tcp_dst=80"), NEW);
        let label = "label=0xb0000000e/0xffffffffffffffff";
        assert!(trace.actions.contains(label), "both rules: {}", trace.actions);
        let passes = trace.text.lines().filter(|line| line.starts_with("recirc(")).count();
        assert_eq!(passes, 1, "one pass through conntrack:\n{}", trace.text);
    });
}

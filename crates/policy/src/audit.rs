//! Lines of the audit log: which rule met which connection.
//!
//! What is denied is often tried again: the same packets within a second make one line, with their
//! number. More lines than may be written in a second are lost, and counted; packets never are.
//! The caller's clock is an argument, and the caller puts the time of day before each line.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use apis::controlplane::{NetworkPolicyReference, PolicyType};
use pipeline::packet::protocol;
use pipeline::policy::{Direction, Verdict};

/// How long the same packets are gathered.
const GATHER: Duration = Duration::from_secs(1);
/// Different packets gathered at most.
const MAX_GATHERED: usize = 10_000;

/// One packet and the rule it met.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Name of the table.
    pub table: String,
    /// The policy; none where no policy allowed the packet.
    pub policy: Option<NetworkPolicyReference>,
    /// Name of the rule; empty for none.
    pub rule: String,
    /// Which way the rule looks.
    pub direction: Direction,
    /// What it says.
    pub verdict: Verdict,
    /// Its place in its policy; none for Kubernetes' own.
    pub priority: Option<u16>,
    /// The Pod it is applied to, as `namespace/name`; empty for none.
    pub applied_to: String,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source and destination port.
    pub ports: Option<(u16, u16)>,
    /// IP protocol number.
    pub protocol: u8,
    /// Length of the packet.
    pub len: u32,
    /// The user's word for it; empty for none.
    pub label: String,
}

/// A line to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When the first of its packets came, by the caller's clock.
    pub at: Duration,
    /// The line without its time.
    pub text: String,
}

/// A value, or the word for none.
fn or_nil<T: fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "<nil>".to_owned(), |value| value.to_string())
}

fn text_or_nil(text: &str) -> String {
    or_nil((!text.is_empty()).then_some(text))
}

fn policy_name(policy: Option<&NetworkPolicyReference>) -> String {
    match policy {
        None => PolicyType::K8sNetworkPolicy.to_string(),
        Some(policy) if policy.namespace.is_empty() => format!("{}:{}", policy.type_, policy.name),
        Some(policy) => format!("{}:{}/{}", policy.type_, policy.namespace, policy.name),
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Egress => "Egress",
            Direction::Ingress => "Ingress",
        };
        let verdict = match self.verdict {
            Verdict::Allow => "Allow",
            Verdict::Drop => "Drop",
            Verdict::Reject => "Reject",
            Verdict::Pass => "Pass",
        };
        let number = self.protocol.to_string();
        let protocol = match self.protocol {
            protocol::TCP => "TCP",
            protocol::UDP => "UDP",
            protocol::SCTP => "SCTP",
            protocol::ICMP => "ICMP",
            protocol::ICMPV6 => "ICMPv6",
            _ => &number,
        };
        write!(
            f,
            "{} {} {} {direction} {verdict} {} {} {} {} {} {} {protocol} {} {}",
            self.table,
            policy_name(self.policy.as_ref()),
            text_or_nil(&self.rule),
            or_nil(self.priority),
            text_or_nil(&self.applied_to),
            self.src,
            or_nil(self.ports.map(|(src, _)| src)),
            self.dst,
            or_nil(self.ports.map(|(_, dst)| dst)),
            self.len,
            text_or_nil(&self.label),
        )
    }
}

/// Gathers and limits.
#[derive(Debug)]
pub struct AuditLog {
    per_second: u32,
    /// Lines that may be written, and since when that was counted.
    tokens: u32,
    counted_at: Duration,
    gathered: BTreeMap<Entry, (Duration, u64)>,
    n_lost: u64,
}

impl AuditLog {
    /// A log of at most so many lines a second.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self {
            per_second,
            tokens: per_second,
            counted_at: Duration::ZERO,
            gathered: BTreeMap::new(),
            n_lost: 0,
        }
    }

    /// A packet came. Gives a line at once if it was allowed.
    pub fn packet(&mut self, now: Duration, entry: Entry) -> Option<Line> {
        if matches!(entry.verdict, Verdict::Allow | Verdict::Pass) {
            return self.line(now, now, entry.to_string());
        }
        let full = self.gathered.len() >= MAX_GATHERED;
        match self.gathered.get_mut(&entry) {
            Some((_, n_packets)) => *n_packets += 1,
            None if full => self.n_lost += 1,
            None => {
                self.gathered.insert(entry, (now, 1));
            }
        }
        None
    }

    /// Lines that have been gathered long enough.
    pub fn tick(&mut self, now: Duration) -> Vec<Line> {
        let due: Vec<(Entry, (Duration, u64))> =
            self.gathered.extract_if(.., |_, (since, _)| *since + GATHER <= now).collect();
        let mut lines = Vec::with_capacity(due.len());
        for (entry, (since, n_packets)) in due {
            let text = match n_packets {
                1 => entry.to_string(),
                n => format!("{entry} [{n} packets in {:.9}s]", (now - since).as_secs_f64()),
            };
            lines.extend(self.line(now, since, text));
        }
        lines.sort_by_key(|line| line.at);
        lines
    }

    /// When [`AuditLog::tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.gathered.values().map(|(since, _)| *since + GATHER).min()
    }

    /// How many lines were lost.
    #[must_use]
    pub fn n_lost(&self) -> u64 {
        self.n_lost
    }

    fn line(&mut self, now: Duration, at: Duration, text: String) -> Option<Line> {
        if now >= self.counted_at + Duration::from_secs(1) {
            self.tokens = self.per_second;
            self.counted_at = now;
        }
        if self.tokens == 0 {
            self.n_lost += 1;
            return None;
        }
        self.tokens -= 1;
        Some(Line { at, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_entry(verdict: Verdict) -> Entry {
        Entry {
            table: "AntreaPolicyIngressRule".into(),
            policy: Some(NetworkPolicyReference {
                type_: PolicyType::AntreaNetworkPolicy,
                namespace: "default".into(),
                name: "reject-tcp".into(),
                uid: "u".into(),
            }),
            rule: "RejectTCP".into(),
            direction: Direction::Ingress,
            verdict,
            priority: Some(14_500),
            applied_to: "default/web".into(),
            src: "10.10.1.7".parse().unwrap(),
            dst: "10.10.1.14".parse().unwrap(),
            ports: Some((53646, 80)),
            protocol: protocol::TCP,
            len: 60,
            label: "tcp-label".into(),
        }
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn lines() {
        assert_eq!(
            mk_entry(Verdict::Reject).to_string(),
            "AntreaPolicyIngressRule AntreaNetworkPolicy:default/reject-tcp RejectTCP Ingress \
             Reject 14500 default/web 10.10.1.7 53646 10.10.1.14 80 TCP 60 tcp-label"
        );
        let isolated = Entry {
            table: "IngressDefaultRule".into(),
            policy: None,
            rule: String::new(),
            priority: None,
            ports: None,
            protocol: protocol::ICMP,
            label: String::new(),
            ..mk_entry(Verdict::Drop)
        };
        assert_eq!(
            isolated.to_string(),
            "IngressDefaultRule K8sNetworkPolicy <nil> Ingress Drop <nil> default/web 10.10.1.7 \
             <nil> 10.10.1.14 <nil> ICMP 60 <nil>"
        );
    }

    #[test]
    fn what_is_denied_again_makes_one_line() {
        let mut log = AuditLog::new(100);
        for n in 0..3 {
            assert_eq!(log.packet(MS(n), mk_entry(Verdict::Drop)), None);
        }
        assert!(log.tick(MS(999)).is_empty());
        assert_eq!(log.deadline(), Some(MS(1000)));
        let lines = log.tick(MS(1000));
        assert_eq!((lines.len(), lines[0].at), (1, MS(0)));
        assert!(lines[0].text.ends_with(" tcp-label [3 packets in 1.000000000s]"), "{lines:?}");
        assert!(log.tick(MS(5000)).is_empty());
        assert!(log.packet(MS(5000), mk_entry(Verdict::Allow)).is_some(), "at once");
    }

    #[test]
    fn lines_are_lost_and_counted() {
        let mut log = AuditLog::new(10);
        let n_written =
            (0..25).filter(|_| log.packet(MS(1), mk_entry(Verdict::Allow)).is_some()).count();
        assert_eq!((n_written, log.n_lost()), (10, 15));
        assert!(log.packet(MS(1001), mk_entry(Verdict::Allow)).is_some());
    }
}

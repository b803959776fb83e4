//! The audit log: a line for each connection that a logged rule decided about.
//!
//! Lines for denied packets that differ in nothing but time are joined for a second, with their
//! number. Pure but for [`Audit::write`]; the clock is an argument.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use openflow::message::PacketIn;
use pipeline::policy::{Direction, Place, PolicyPacket, Verdict};
use policy::realize::RuleInfo;

/// Lines of denied packets are joined for so long.
const JOIN: Duration = Duration::from_secs(1);
/// Different lines that may wait; more are written at once.
const MOST: usize = 4096;
/// What stands for nothing.
const NONE: &str = "<nil>";

/// How the file is kept.
#[derive(Clone, Debug)]
pub(crate) struct AuditConfig {
    /// The file.
    pub(crate) path: PathBuf,
    /// Size in bytes at which another one is begun; 0 never does.
    pub(crate) max_size: u64,
    /// Older files that are kept; 0 keeps all.
    pub(crate) max_backups: usize,
}

/// A line that waits.
#[derive(Debug)]
struct Waiting {
    first: Duration,
    time: String,
    n: u64,
}

/// Lines that wait, and the file.
#[derive(Debug)]
pub(super) struct Audit {
    config: AuditConfig,
    file: Option<(File, u64)>,
    waiting: BTreeMap<String, Waiting>,
    failed: bool,
}

impl Audit {
    pub(super) fn new(config: AuditConfig) -> Self {
        Self { config, file: None, waiting: BTreeMap::new(), failed: false }
    }

    /// Takes a packet in; gives lines that are to be written at once.
    pub(super) fn note(
        &mut self,
        now: Duration,
        time: String,
        what: &PolicyPacket,
        rule: Option<&RuleInfo>,
        packet: &PacketIn,
    ) -> Option<String> {
        let line = line(what, rule, packet)?;
        if matches!(what.verdict, Verdict::Allow | Verdict::Pass) || self.waiting.len() >= MOST {
            return Some(format!("{time} {line}"));
        }
        let entry = self.waiting.entry(line);
        entry.or_insert(Waiting { first: now, time, n: 0 }).n += 1;
        None
    }

    /// When lines are due.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.waiting.values().map(|waiting| waiting.first + JOIN).min()
    }

    /// Lines that waited long enough.
    pub(super) fn due(&mut self, now: Duration) -> Vec<String> {
        let over = |waiting: &Waiting| waiting.first + JOIN <= now;
        let due = self.waiting.extract_if(.., |_, waiting| over(waiting));
        due.map(|(line, waiting)| match waiting.n {
            1 => format!("{} {line}", waiting.time),
            n => {
                let seconds = now.saturating_sub(waiting.first).as_secs_f64();
                format!("{} {line} [{n} packets in {seconds:.3}s]", waiting.time)
            }
        })
        .collect()
    }

    /// Writes lines; a file that cannot be written is said once.
    pub(super) fn write(&mut self, lines: &[String]) {
        match lines.iter().try_for_each(|line| self.put(line)) {
            Ok(()) => self.failed = false,
            Err(error) => {
                self.file = None;
                if !std::mem::replace(&mut self.failed, true) {
                    let path = self.config.path.display();
                    tracing::warn!(%error, %path, "the audit log cannot be written");
                }
            }
        }
    }

    fn put(&mut self, line: &str) -> io::Result<()> {
        let max = self.config.max_size;
        if max > 0 && self.file.as_ref().is_some_and(|(_, size)| *size >= max) {
            self.file = None;
            rotate(&self.config.path, self.config.max_backups)?;
        }
        let (file, size) = match &mut self.file {
            Some(open) => open,
            None => {
                if let Some(dir) = self.config.path.parent() {
                    fs::create_dir_all(dir)?;
                }
                let file = OpenOptions::new().create(true).append(true).open(&self.config.path)?;
                let size = file.metadata()?.len();
                self.file.insert((file, size))
            }
        };
        let line = format!("{line}\n");
        file.write_all(line.as_bytes())?;
        *size += line.len() as u64;
        Ok(())
    }
}

/// Renames the file and those before it; the oldest goes where there are too many.
fn rotate(path: &Path, max_backups: usize) -> io::Result<()> {
    let numbered = |n: usize| path.with_extension(format!("log.{n}"));
    let mut n = 1;
    while numbered(n).exists() {
        n += 1;
    }
    if max_backups > 0 && n > max_backups {
        n = max_backups;
    }
    for n in (1..n).rev() {
        fs::rename(numbered(n), numbered(n + 1))?;
    }
    fs::rename(path, numbered(1))
}

/// Everything of a line but its time; none for what is no IP packet.
fn line(what: &PolicyPacket, rule: Option<&RuleInfo>, packet: &PacketIn) -> Option<String> {
    let met = Packet::read(&packet.data)?;
    let table = pipeline::fields::table_name(packet.table);
    let word = |text: String| if text.is_empty() { NONE.to_owned() } else { text };
    let (mut name, mut reference, mut label, mut priority) =
        (NONE.to_owned(), "K8sNetworkPolicy".to_owned(), NONE.to_owned(), NONE.to_owned());
    if let Some(rule) = rule {
        if let Some(source) = rule.source() {
            reference = if source.namespace.is_empty() {
                format!("{}:{}", source.type_, source.name)
            } else {
                format!("{}:{}/{}", source.type_, source.namespace, source.name)
            };
        }
        if let Some(rule) = rule.policy.rules.get(rule.rule) {
            name = word(rule.name.clone());
            label = word(rule.log_label.clone());
            if what.place != Place::Kubernetes {
                priority = rule.priority.to_string();
            }
        }
    }
    let direction = match what.direction {
        Direction::Ingress => "Ingress",
        Direction::Egress => "Egress",
    };
    Some(format!(
        "{table} {reference} {name} {direction} {:?} {priority} {} {} {} {} {} {} {label}",
        what.verdict,
        met.source,
        port(met.ports.map(|ports| ports.0)),
        met.target,
        port(met.ports.map(|ports| ports.1)),
        met.protocol(),
        packet.full_len.saturating_sub(14),
    ))
}

fn port(port: Option<u16>) -> String {
    port.map_or_else(|| NONE.to_owned(), |port| port.to_string())
}

/// What a line tells of a packet.
#[derive(Debug, PartialEq, Eq)]
struct Packet {
    source: IpAddr,
    target: IpAddr,
    protocol: u8,
    ports: Option<(u16, u16)>,
}

impl Packet {
    fn read(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(14..)?;
        let (source, target, protocol, payload) = match frame.get(12..14)? {
            [0x08, 0x00] => {
                let header = packet.get(..20)?;
                let len = usize::from(header[0] & 0x0f) * 4;
                let source = <[u8; 4]>::try_from(&header[12..16]).ok()?;
                let target = <[u8; 4]>::try_from(&header[16..20]).ok()?;
                (source.into(), target.into(), header[9], packet.get(len..))
            }
            [0x86, 0xdd] => {
                let header = packet.get(..40)?;
                let source = <[u8; 16]>::try_from(&header[8..24]).ok()?;
                let target = <[u8; 16]>::try_from(&header[24..40]).ok()?;
                (source.into(), target.into(), header[6], packet.get(40..))
            }
            _ => return None,
        };
        let ports = payload.and_then(|payload| payload.first_chunk::<4>()).map(|ports| {
            (u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]]))
        });
        let ports = ports.filter(|_| matches!(protocol, 6 | 17 | 132));
        Some(Self { source, target, protocol, ports })
    }

    fn protocol(&self) -> String {
        match self.protocol {
            1 => "ICMP".into(),
            2 => "IGMP".into(),
            6 => "TCP".into(),
            17 => "UDP".into(),
            58 => "IPv6-ICMP".into(),
            132 => "SCTP".into(),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use openflow::message::PacketInReason;
    use openflow::{ConjId, Match};
    use pipeline::fields;

    use super::*;

    fn mk_packet() -> PacketIn {
        let mut frame = vec![0; 12];
        frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 0, 80]);
        PacketIn {
            data: frame.into(),
            full_len: 74,
            table: fields::INGRESS_RULE,
            cookie: openflow::Cookie(0),
            reason: PacketInReason::Action,
            metadata: Match::new(),
            userdata: Vec::new().into(),
            continuation: None,
        }
    }

    fn mk(verdict: Verdict) -> PolicyPacket {
        PolicyPacket {
            direction: Direction::Ingress,
            place: Place::Kubernetes,
            verdict,
            rule: Some(ConjId(7)),
            log: true,
            reject: false,
        }
    }

    #[test]
    fn denied_packets_are_joined_and_allowed_ones_are_not() {
        let config = AuditConfig { path: PathBuf::new(), max_size: 0, max_backups: 0 };
        let (mut audit, packet) = (Audit::new(config), mk_packet());
        let at = Duration::from_millis;
        let words = "10.0.0.1 40000 10.0.0.2 80 TCP 60 <nil>";
        let allowed = audit.note(at(0), "T1".into(), &mk(Verdict::Allow), None, &packet).unwrap();
        let head = "IngressRule K8sNetworkPolicy <nil> Ingress";
        assert_eq!(allowed, format!("T1 {head} Allow <nil> {words}"));
        for n in 0..3 {
            let time = format!("T{n}");
            assert_eq!(audit.note(at(n), time, &mk(Verdict::Drop), None, &packet), None);
        }
        assert_eq!(audit.deadline(), Some(at(1000)));
        assert!(audit.due(at(999)).is_empty());
        let want = format!("T0 {head} Drop <nil> {words} [3 packets in 1.000s]");
        assert_eq!(audit.due(at(1000)), [want]);
        assert_eq!(audit.deadline(), None);
    }

    #[test]
    fn files_are_begun_anew_and_old_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("networkpolicy/np.log");
        let config = AuditConfig { path: path.clone(), max_size: 10, max_backups: 2 };
        let mut audit = Audit::new(config);
        for n in 0..5 {
            audit.write(&[format!("line number {n}")]);
        }
        let read = |name: &str| fs::read_to_string(path.with_file_name(name)).unwrap_or_default();
        assert_eq!(read("np.log"), "line number 4\n");
        assert_eq!(read("np.log.1"), "line number 3\n");
        assert_eq!(read("np.log.2"), "line number 2\n");
        assert_eq!(read("np.log.3"), "");
    }

    #[test]
    fn cut_frames_never_panic() {
        let packet = mk_packet();
        for len in 0..packet.data.len() {
            let _ = Packet::read(&packet.data[..len]);
        }
    }
}

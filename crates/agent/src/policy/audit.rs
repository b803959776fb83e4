//! The audit log's file, and what of a packet stands in it.
//!
//! Which lines are written, joined or lost is decided by `policy::audit`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use openflow::message::PacketIn;
use pipeline::packet::Headers;
use pipeline::policy::{Direction, Place, PolicyPacket};
use policy::audit::Entry;
use policy::realize::RuleInfo;

use crate::cni::PodRecord;

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

/// The file.
#[derive(Debug)]
pub(super) struct AuditFile {
    config: AuditConfig,
    file: Option<(File, u64)>,
    failed: bool,
}

impl AuditFile {
    pub(super) fn new(config: AuditConfig) -> Self {
        Self { config, file: None, failed: false }
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

/// What of a packet and the rule that it met stands in the log; none for what is no IP packet.
pub(super) fn entry(
    what: &PolicyPacket,
    rule: Option<&RuleInfo>,
    packet: &PacketIn,
    pods: &[PodRecord],
) -> Option<Entry> {
    let headers = Headers::read(&packet.data).ok()?;
    let named = rule.and_then(|rule| rule.policy.rules.get(rule.rule));
    let own = match what.direction {
        Direction::Ingress => headers.dst,
        Direction::Egress => headers.src,
    };
    let applied_to = pods.iter().find(|record| record.ips.contains(&own));
    let priority = named.filter(|_| what.place != Place::Kubernetes).map(|rule| rule.priority);
    Some(Entry {
        table: pipeline::fields::table_name(packet.table),
        policy: rule.and_then(RuleInfo::source).cloned(),
        rule: named.map(|rule| rule.name.clone()).unwrap_or_default(),
        direction: what.direction,
        verdict: what.verdict,
        priority: priority.and_then(|priority| u16::try_from(priority).ok()),
        applied_to: applied_to.map(|record| record.pod.to_string()).unwrap_or_default(),
        src: headers.src,
        dst: headers.dst,
        ports: headers.ports(),
        protocol: headers.protocol,
        len: headers.ip_len,
        label: named.map(|rule| rule.log_label.clone()).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use openflow::message::PacketInReason;
    use openflow::{ConjId, Match};
    use pipeline::fields;
    use pipeline::policy::Verdict;

    use super::*;
    use crate::cni::mk_record;

    #[test]
    fn a_line_tells_the_pod_and_the_packet() {
        let mut frame = vec![0; 12];
        frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend_from_slice(&[10, 0, 0, 1, 10, 77, 1, 5, 0x9c, 0x40, 0, 80]);
        frame.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        let packet = PacketIn {
            data: frame.into(),
            full_len: 74,
            table: fields::INGRESS_RULE,
            cookie: openflow::Cookie(0),
            reason: PacketInReason::Action,
            metadata: Match::new(),
            userdata: Vec::new().into(),
            continuation: None,
        };
        let what = PolicyPacket {
            direction: Direction::Ingress,
            place: Place::Kubernetes,
            verdict: Verdict::Drop,
            rule: Some(ConjId(7)),
            log: true,
            reject: false,
        };
        let entry = entry(&what, None, &packet, &[mk_record("c1", 7)]).unwrap();
        assert_eq!(
            entry.to_string(),
            "IngressRule K8sNetworkPolicy <nil> Ingress Drop <nil> shop/c1 10.0.0.1 40000 10.77.1.5 80 \
             TCP 60 <nil>"
        );
    }

    #[test]
    fn files_are_begun_anew_and_old_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("networkpolicy/np.log");
        let config = AuditConfig { path: path.clone(), max_size: 10, max_backups: 2 };
        let mut audit = AuditFile::new(config);
        for n in 0..5 {
            audit.write(&[format!("line number {n}")]);
        }
        let read = |name: &str| fs::read_to_string(path.with_file_name(name)).unwrap_or_default();
        assert_eq!(read("np.log"), "line number 4\n");
        assert_eq!(read("np.log.1"), "line number 3\n");
        assert_eq!(read("np.log.2"), "line number 2\n");
        assert_eq!(read("np.log.3"), "");
    }
}

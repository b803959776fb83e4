//! The audit log's file, and what of a packet stands in it.
//!
//! Which lines are written, joined or lost is decided by `policy::audit`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use openflow::message::PacketIn;
use pipeline::packet::Headers;
use pipeline::policy::{Direction, PolicyPacket};
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
    /// Older files are kept for so long; without, for ever.
    pub(crate) max_age: Option<Duration>,
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
            rotate(&self.config)?;
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

/// Renames the file and those before it; the oldest go where there are too many, or too old ones.
fn rotate(config: &AuditConfig) -> io::Result<()> {
    let numbered = |n: usize| config.path.with_extension(format!("log.{n}"));
    let mut n = 1;
    while numbered(n).exists() {
        n += 1;
    }
    let too_old = |n: &usize| {
        let changed = fs::metadata(numbered(*n)).and_then(|file| file.modified());
        let age = changed.ok().and_then(|at| at.elapsed().ok());
        age.zip(config.max_age).is_some_and(|(age, most)| age > most)
    };
    // From the first that is too old on, all are.
    if let Some(first) = (1..n).find(too_old) {
        (first..n).try_for_each(|n| fs::remove_file(numbered(n)))?;
        n = first;
    }
    if config.max_backups > 0 && n > config.max_backups {
        n = config.max_backups;
    }
    for n in (1..n).rev() {
        fs::rename(numbered(n), numbered(n + 1))?;
    }
    fs::rename(&config.path, numbered(1))
}

/// What of a packet and the rule that it met stands in the log; none for what is no IP packet.
pub(super) fn entry<'a>(
    what: &PolicyPacket,
    rule: Option<&RuleInfo>,
    packet: &PacketIn,
    pods: impl IntoIterator<Item = &'a PodRecord>,
) -> Option<Entry> {
    let headers = Headers::read(&packet.data).ok()?;
    let named = rule.and_then(|rule| rule.policy.rules.get(rule.rule));
    let own = match what.direction {
        Direction::Ingress => headers.dst,
        Direction::Egress => headers.src,
    };
    let applied_to = pods.into_iter().find(|record| record.ips.contains(&own));
    Some(Entry {
        table: pipeline::fields::table_name(packet.table),
        policy: rule.and_then(RuleInfo::source).cloned(),
        rule: named.map(|rule| rule.name.clone()).unwrap_or_default(),
        direction: what.direction,
        verdict: what.verdict,
        priority: rule.and_then(|rule| rule.priority),
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
    use std::path::Path;

    use openflow::message::PacketInReason;
    use openflow::{ConjId, Match};
    use pipeline::fields;
    use pipeline::policy::{Place, Verdict};

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
        let config =
            AuditConfig { path: path.clone(), max_size: 10, max_backups: 2, max_age: None };
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

    #[test]
    fn what_is_too_old_goes_with_all_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("np.log");
        let day = Duration::from_secs(24 * 60 * 60);
        let config = AuditConfig { path, max_size: 10, max_backups: 0, max_age: Some(day) };
        let mut audit = AuditFile::new(config);
        let names = |dir: &Path| {
            let files = fs::read_dir(dir).unwrap();
            let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
            names.sort();
            names
        };
        for n in 0..4 {
            audit.write(&[format!("line number {n}")]);
        }
        assert_eq!(names(dir.path()), ["np.log", "np.log.1", "np.log.2", "np.log.3"]);
        let old = File::open(dir.path().join("np.log.2")).unwrap();
        old.set_modified(std::time::SystemTime::now() - 2 * day).unwrap();
        audit.write(&["line number 4".to_owned()]);
        assert_eq!(names(dir.path()), ["np.log", "np.log.1", "np.log.2"]);
    }
}

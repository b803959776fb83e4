//! A file for each Pod interface, for the day that Open vSwitch's database is lost.
//!
//! The ports' notes in the database say which Pods there are. When somebody deletes the bridge, or
//! the database file is lost, the Pods run on with their links and leases, and nothing but these
//! files knows what their ports were like: from them the ports are made again (`collect`).
//!
//! A record is written once its interface is made and goes before the interface is unmade, so that
//! what a crash cut short has none. Files are not synced to disk: a crash of the machine ends the
//! Pods as well.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni_api::Attachment;
use openflow::OfPort;
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use super::model::{HostIfName, PodName, PodRecord};

/// What files of records end in.
const EXTENSION: &str = "json";

/// One record as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    container_id: String,
    ifname: String,
    pod_namespace: String,
    pod_name: String,
    netns: String,
    #[serde(default)]
    network: String,
    host_name: String,
    mac: String,
    ips: Vec<IpAddr>,
    ofport: u32,
}

impl Written {
    fn of(record: &PodRecord) -> Self {
        Self {
            container_id: record.attachment.container_id.to_string(),
            ifname: record.attachment.ifname.to_string(),
            pod_namespace: record.pod.namespace.clone(),
            pod_name: record.pod.name.clone(),
            netns: record.netns.clone(),
            network: record.network.clone(),
            host_name: record.host_name.to_string(),
            mac: record.mac.to_string(),
            ips: record.ips.clone(),
            ofport: record.ofport.0,
        }
    }

    fn record(self) -> Option<PodRecord> {
        let attachment = Attachment::new(self.container_id, self.ifname).ok()?;
        let complete = !self.ips.is_empty() && !self.host_name.is_empty();
        complete.then_some(())?;
        Some(PodRecord {
            attachment,
            pod: PodName { namespace: self.pod_namespace, name: self.pod_name },
            netns: self.netns,
            network: self.network,
            host_name: HostIfName::existing(self.host_name),
            mac: self.mac.parse().ok()?,
            ips: self.ips,
            ofport: OfPort(self.ofport),
        })
    }
}

/// The folder of records; without one nothing is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    dir: Option<PathBuf>,
}

impl Journal {
    /// Records in this folder, which is made when the first one is written.
    pub(super) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir }
    }

    /// Writes the record of an interface that is made. A failure costs nothing now, and is logged.
    pub(super) async fn note(&self, record: &PodRecord) {
        let Some(dir) = self.dir.clone() else { return };
        let (path, written) = (self.path_in(&dir, &record.attachment), Written::of(record));
        let work = move || -> io::Result<()> {
            let text = serde_json::to_vec(&written)?;
            // Beside it and renamed: there is never half a record.
            let beside = path.with_extension("new");
            match std::fs::write(&beside, &text) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    std::fs::create_dir_all(&dir)?;
                    std::fs::write(&beside, &text)?;
                }
                written => written?,
            }
            std::fs::rename(&beside, &path)
        };
        if let Err(error) = blocking(work).await {
            warn!(pod = %record.pod, %error, "Pod not noted: it is lost with the database");
        }
    }

    /// Forgets an interface that is about to be unmade, known or not.
    pub(super) async fn forget(&self, attachment: &Attachment) {
        let Some(dir) = self.dir.clone() else { return };
        let path = self.path_in(&dir, attachment);
        let removed = blocking(move || std::fs::remove_file(path)).await;
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(%attachment, %error, "note of a Pod not removed");
            }
            _ => {}
        }
    }

    /// Every record. What cannot be read describes no interface.
    pub(super) async fn list(&self) -> Vec<PodRecord> {
        let Some(dir) = self.dir.clone() else { return Vec::new() };
        let listed = blocking(move || read_all(&dir)).await;
        match listed {
            Ok(records) => records,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                warn!(%error, "notes of Pods not read");
                Vec::new()
            }
        }
    }

    /// Neither part holds the sign between them.
    fn path_in(&self, dir: &Path, attachment: &Attachment) -> PathBuf {
        dir.join(format!("{}@{}.{EXTENSION}", attachment.container_id, attachment.ifname))
    }
}

fn read_all(dir: &Path) -> io::Result<Vec<PodRecord>> {
    let mut records = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                debug!(path = %path.display(), %error, "note of a Pod not read");
                continue;
            }
        };
        match serde_json::from_slice::<Written>(&bytes).ok().and_then(Written::record) {
            Some(record) => records.push(record),
            None => warn!(path = %path.display(), "note of a Pod not understood"),
        }
    }
    Ok(records)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::super::model::mac_for;
    use super::*;

    fn mk_record(container_id: &str) -> PodRecord {
        let ips = vec!["10.77.1.5".parse().unwrap(), "fd77::5".parse().unwrap()];
        PodRecord {
            attachment: Attachment::new(container_id, "eth0").unwrap(),
            pod: PodName { namespace: "shop".into(), name: "web-0".into() },
            netns: "/run/netns/p".into(),
            network: "antrea".into(),
            host_name: HostIfName::existing("web-0-abcdef"),
            mac: mac_for(&ips),
            ips,
            ofport: OfPort(70),
        }
    }

    #[tokio::test]
    async fn records_are_kept_until_they_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(Some(dir.path().join("interfaces")));
        let (one, two) = (mk_record("one"), mk_record("two"));
        assert!(journal.list().await.is_empty());
        journal.note(&one).await;
        journal.note(&two).await;
        journal.note(&two).await;
        let mut listed = journal.list().await;
        listed.sort_by(|a, b| a.attachment.cmp(&b.attachment));
        assert_eq!(listed, [one.clone(), two.clone()]);
        journal.forget(&one.attachment).await;
        journal.forget(&one.attachment).await;
        assert_eq!(journal.list().await, [two]);
    }

    #[tokio::test]
    async fn damaged_files_describe_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(Some(dir.path().to_owned()));
        for (name, text) in [
            ("empty.json", ""),
            ("half.json", "{\"containerId\":\"c1\","),
            (
                "no-id.json",
                &serde_json::to_string(&Written::of(&mk_record("c1")))
                    .unwrap()
                    .replace("c1", "../x"),
            ),
            ("cut-short.new", "{}"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        std::fs::create_dir(dir.path().join("folder.json")).unwrap();
        assert!(journal.list().await.is_empty());
        Journal::default().note(&mk_record("c1")).await;
        assert!(Journal::default().list().await.is_empty());
    }
}

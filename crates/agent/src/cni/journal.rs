//! A file for each Pod interface, for the day that Open vSwitch's database is lost.
//!
//! The ports' notes in the database say which Pods there are. When somebody deletes the bridge, or
//! the database file is lost, the Pods run on with their links and leases, and nothing but these
//! files knows what their ports were like: from them the ports are made again (`collect`).
//!
//! Beside them stands what is to be unmade still: of an interface whose container is gone for the
//! runtime, but whose port, flows and lease were not taken back because Open vSwitch did not answer
//! (`undo`).
//!
//! A record is written once its interface is made and goes before the interface is unmade, so that
//! what a crash cut short has none. Files are not synced to disk: a crash of the machine ends the
//! Pods as well.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni_api::Attachment;
use openflow::OfPort;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use super::model::{HostIfName, PodName, PodRecord};

/// What files of records end in.
const EXTENSION: &str = "json";
/// What files of interfaces end in that are to be unmade.
const OWED: &str = "owed";

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

    /// The record of an interface that is made.
    fn record(self) -> Option<PodRecord> {
        let complete = !self.ips.is_empty();
        complete.then_some(())?;
        self.partial_record()
    }

    /// The record of an interface that may lack its addresses.
    fn partial_record(self) -> Option<PodRecord> {
        let attachment = Attachment::new(self.container_id, self.ifname).ok()?;
        (!self.host_name.is_empty()).then_some(())?;
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

/// An interface that is to be unmade, as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenDebt {
    #[serde(flatten)]
    interface: Written,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_dir: Option<PathBuf>,
}

/// An interface that is to be unmade, and the folder of its lease when it is not the usual one.
pub(super) type Debt = (PodRecord, Option<PathBuf>);

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
        let path = path_in(&dir, &record.attachment, EXTENSION);
        let written = Written::of(record);
        if let Err(error) = blocking(move || write(&dir, &path, &written)).await {
            warn!(pod = %record.pod, %error, "Pod not noted: it is lost with the database");
        }
    }

    /// Forgets an interface that is about to be unmade, known or not.
    pub(super) async fn forget(&self, attachment: &Attachment) {
        let Some(dir) = self.dir.clone() else { return };
        remove(path_in(&dir, attachment, EXTENSION), attachment).await;
    }

    /// Writes down that an interface is to be unmade. False when that is known nowhere but in this
    /// process.
    pub(super) async fn owe(&self, record: &PodRecord, data_dir: Option<&PathBuf>) -> bool {
        let Some(dir) = self.dir.clone() else { return false };
        let path = path_in(&dir, &record.attachment, OWED);
        let debt = WrittenDebt { interface: Written::of(record), data_dir: data_dir.cloned() };
        let written = blocking(move || write(&dir, &path, &debt)).await;
        if let Err(error) = &written {
            warn!(attachment = %record.attachment, %error, "what is to be unmade is not noted");
        }
        written.is_ok()
    }

    /// Forgets that an interface is to be unmade.
    pub(super) async fn settle(&self, attachment: &Attachment) {
        let Some(dir) = self.dir.clone() else { return };
        remove(path_in(&dir, attachment, OWED), attachment).await;
    }

    /// Every interface that is to be unmade.
    pub(super) async fn owed(&self) -> Vec<Debt> {
        self.read(OWED, |debt: WrittenDebt| Some((debt.interface.partial_record()?, debt.data_dir)))
            .await
    }

    /// Every record. What cannot be read describes no interface.
    pub(super) async fn list(&self) -> Vec<PodRecord> {
        self.read(EXTENSION, Written::record).await
    }

    async fn read<W: DeserializeOwned + 'static, T: Send + 'static>(
        &self,
        extension: &'static str,
        understand: fn(W) -> Option<T>,
    ) -> Vec<T> {
        let Some(dir) = self.dir.clone() else { return Vec::new() };
        let listed = blocking(move || read_all(&dir, extension, understand)).await;
        match listed {
            Ok(records) => records,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                warn!(%error, "notes of Pods not read");
                Vec::new()
            }
        }
    }
}

/// Neither part of an attachment holds the sign between them.
fn path_in(dir: &Path, attachment: &Attachment, extension: &str) -> PathBuf {
    dir.join(format!("{}@{}.{extension}", attachment.container_id, attachment.ifname))
}

fn write(dir: &Path, path: &Path, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(what)?;
    // Beside it and renamed: there is never half a record.
    let beside = path.with_extension("new");
    match std::fs::write(&beside, &text) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(dir)?;
            std::fs::write(&beside, &text)?;
        }
        written => written?,
    }
    std::fs::rename(&beside, path)
}

async fn remove(path: PathBuf, attachment: &Attachment) {
    match blocking(move || std::fs::remove_file(path)).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            warn!(%attachment, %error, "note of a Pod not removed");
        }
        _ => {}
    }
}

fn read_all<W: DeserializeOwned, T>(
    dir: &Path,
    extension: &str,
    understand: fn(W) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut records = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|found| found != extension) {
            continue;
        }
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                debug!(path = %path.display(), %error, "note of a Pod not read");
                continue;
            }
        };
        match serde_json::from_slice::<W>(&bytes).ok().and_then(understand) {
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
    async fn what_is_owed_is_no_interface_and_may_lack_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(Some(dir.path().join("interfaces")));
        let bare = PodRecord { ips: vec![], netns: String::new(), ..mk_record("one") };
        let elsewhere = PathBuf::from("/var/lib/elsewhere");
        assert!(journal.owe(&bare, Some(&elsewhere)).await);
        journal.note(&mk_record("two")).await;
        assert_eq!(journal.owed().await, [(bare.clone(), Some(elsewhere))]);
        assert_eq!(journal.list().await, [mk_record("two")]);
        journal.settle(&bare.attachment).await;
        journal.settle(&bare.attachment).await;
        assert!(journal.owed().await.is_empty());
        assert!(!Journal::default().owe(&bare, None).await, "noted nowhere");
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

//! What the agent keeps about one Pod interface, and how OVSDB's `external_ids` say it.
//!
//! Pure. Not here: the collection of all of them (`store`), how the interface is made (`traits`).

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use cni_api::Attachment;
use ipnet::IpNet;
use openflow::{MacAddr, OfPort};
use sha1::{Digest, Sha1};

/// Bytes of the Pod's name that its host interface is named after.
const NAME_PREFIX: usize = 8;

/// Interface inside the Pod where notes do not say.
const USUAL_IFNAME: &str = "eth0";

/// Hex digits behind them.
const NAME_HASH: usize = 6;
/// The MAC of a Pod that has none yet.
const NO_MAC: &str = "00:00:00:00:00:00";

/// Value of `external_ids:antrea-type` of a Pod's port.
pub const CONTAINER: &str = "container";

/// The keys of `external_ids` on a Pod's port.
pub mod external_id {
    /// What kind of port it is.
    pub const TYPE: &str = "antrea-type";
    /// MAC address inside the Pod.
    pub const MAC: &str = "attached-mac";
    /// Addresses of the Pod, separated by commas.
    pub const IP: &str = "ip-address";
    /// The container.
    pub const CONTAINER_ID: &str = "container-id";
    /// Name of the Pod.
    pub const POD_NAME: &str = "pod-name";
    /// Its Kubernetes namespace.
    pub const POD_NAMESPACE: &str = "pod-namespace";
    /// Name of the interface inside the Pod.
    pub const IF_DEV: &str = "if-dev";
    /// Path of the Pod's network namespace.
    pub const NETNS: &str = "net-ns";
    /// Name of the network of its configuration: the folder of its leases.
    pub const NETWORK: &str = "antrea-network";
}

/// A Pod by name. Both parts are empty for a container that is no Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Name of the host's end of a Pod's veth pair, and of its OVS port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostIfName(String);

impl HostIfName {
    /// The name for an attachment: the first eight characters of the Pod's name and six of a hash,
    /// so that a person finds the Pod and no two attachments meet. Should two meet all the same,
    /// the next `attempt` gives another name.
    pub fn generate(pod: &PodName, attachment: &Attachment, attempt: u32) -> Self {
        let mut hash = Sha1::new();
        for part in [&pod.namespace, &pod.name, attachment.container_id.as_str()] {
            hash.update(part);
            hash.update("/");
        }
        hash.update(attachment.ifname.as_str());
        if attempt > 0 {
            hash.update(attempt.to_be_bytes());
        }
        let readable =
            if pod.name.is_empty() { attachment.container_id.as_str() } else { &pod.name };
        let mut name: String = readable
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
            .take(NAME_PREFIX)
            .collect();
        name.push('-');
        let digits = hash.finalize().into_iter().map(|byte| format!("{byte:02x}"));
        name.extend(digits.take(NAME_HASH / 2));
        Self(name)
    }

    /// A name read back from the switch or the kernel.
    pub fn existing(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostIfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One address of a Pod and the way out of its subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// The address with the prefix length of its subnet.
    pub address: IpNet,
    /// The node's gateway in that subnet.
    pub gateway: IpAddr,
}

/// One Pod interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRecord {
    /// Container and interface inside it: the key.
    pub attachment: Attachment,
    /// The Pod.
    pub pod: PodName,
    /// Path of its network namespace as the runtime gave it.
    pub netns: String,
    /// Name of the network that it was connected to; empty when that was not noted.
    pub network: String,
    /// The host's end and the port.
    pub host_name: HostIfName,
    /// MAC inside the Pod; zero until it has addresses.
    pub mac: MacAddr,
    /// Addresses inside the Pod; empty until they are leased.
    pub ips: Vec<IpAddr>,
    /// OpenFlow number: asked for at first, then the one OVS gave.
    pub ofport: OfPort,
}

/// Why a port's `external_ids` describe no Pod interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A key is absent.
    #[error("external_ids lack {0}")]
    Missing(&'static str),
    /// A key has a value that cannot be.
    #[error("external_ids have {key}={value:?}")]
    Bad {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

impl PodRecord {
    /// The notes on the port that describe this interface.
    pub fn external_ids(&self) -> BTreeMap<String, String> {
        let ids = BTreeMap::from(
            [
                (external_id::TYPE, CONTAINER.to_owned()),
                (external_id::CONTAINER_ID, self.attachment.container_id.to_string()),
                (external_id::POD_NAME, self.pod.name.clone()),
                (external_id::POD_NAMESPACE, self.pod.namespace.clone()),
                (external_id::IF_DEV, self.attachment.ifname.to_string()),
                (external_id::NETNS, self.netns.clone()),
            ]
            .map(|(key, value)| (key.to_owned(), value)),
        );
        let network = (external_id::NETWORK.to_owned(), self.network.clone());
        let network = Some(network).filter(|(_, name)| !name.is_empty());
        ids.into_iter().chain(network).chain(self.address_ids()).collect()
    }

    /// The part of the notes that says which addresses the Pod has; empty before it has any.
    pub fn address_ids(&self) -> BTreeMap<String, String> {
        if self.ips.is_empty() {
            return BTreeMap::new();
        }
        let ips: Vec<_> = self.ips.iter().map(ToString::to_string).collect();
        let (mac, ips) = (self.mac.to_string(), ips.join(","));
        BTreeMap::from([(external_id::MAC.to_owned(), mac), (external_id::IP.to_owned(), ips)])
    }

    /// Reads the notes back. None when they are those of another kind of port. A port of the Go
    /// agent may lack the namespace path; it is empty then. A port whose ADD was cut short may have
    /// neither MAC nor addresses yet.
    pub fn from_external_ids(
        port_name: &str,
        ofport: OfPort,
        ids: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, RecordError> {
        if ids.get(external_id::TYPE).map(String::as_str) != Some(CONTAINER) {
            return Ok(None);
        }
        let get =
            |key: &'static str| ids.get(key).map(String::as_str).ok_or(RecordError::Missing(key));
        let bad =
            |key: &'static str, value: &str| RecordError::Bad { key, value: value.to_owned() };
        let container_id = get(external_id::CONTAINER_ID)?;
        let ifname = ids.get(external_id::IF_DEV).map_or(USUAL_IFNAME, String::as_str);
        let attachment = Attachment::new(container_id, ifname)
            .map_err(|_| bad(external_id::CONTAINER_ID, container_id))?;
        let is_bare = !ids.contains_key(external_id::MAC) && !ids.contains_key(external_id::IP);
        let (mac, ip) = match is_bare {
            true => (NO_MAC, ""),
            false => (get(external_id::MAC)?, get(external_id::IP)?),
        };
        let ips = ip.split(',').map(str::trim).filter(|text| !text.is_empty());
        let text_of = |key| ids.get(key).cloned().unwrap_or_default();
        Ok(Some(Self {
            attachment,
            pod: PodName {
                namespace: text_of(external_id::POD_NAMESPACE),
                name: text_of(external_id::POD_NAME),
            },
            netns: text_of(external_id::NETNS),
            network: text_of(external_id::NETWORK),
            host_name: HostIfName::existing(port_name),
            mac: mac.parse().map_err(|_| bad(external_id::MAC, mac))?,
            ips: ips
                .map(|text| text.parse().map_err(|_| bad(external_id::IP, ip)))
                .collect::<Result<_, _>>()?,
            ofport,
        }))
    }
}

/// Whether these are the notes of a port of this attachment, be they complete or not.
pub(super) fn is_port_of(ids: &BTreeMap<String, String>, attachment: &Attachment) -> bool {
    let text = |key| ids.get(key).map(String::as_str);
    text(external_id::TYPE) == Some(CONTAINER)
        && text(external_id::CONTAINER_ID) == Some(attachment.container_id.as_str())
        && text(external_id::IF_DEV).unwrap_or(USUAL_IFNAME) == attachment.ifname.as_str()
}

/// Whether a port has no notes that say what kind of port it is.
pub(super) fn is_unmarked(ids: &BTreeMap<String, String>) -> bool {
    !ids.contains_key(external_id::TYPE) && !ids.contains_key(external_id::CONTAINER_ID)
}

/// The MAC of a Pod with these addresses: made from them, so that a neighbour entry which outlives
/// a Pod is still right for the next one with its address.
pub fn mac_for(ips: &[IpAddr]) -> MacAddr {
    // Locally administered, unicast, and none of the prefixes that mark traffic on the gateway.
    let [b0, b1] = [0x5e, 0x41];
    let v4 = ips.iter().find_map(|ip| match ip {
        IpAddr::V4(v4) => Some(v4.octets()),
        IpAddr::V6(_) => None,
    });
    let [b2, b3, b4, b5] = v4.unwrap_or_else(|| {
        let mut hash = Sha1::new();
        for ip in ips {
            hash.update(ip.to_string());
        }
        let digest = hash.finalize();
        [digest[0], digest[1], digest[2], digest[3]]
    });
    MacAddr([b0, b1, b2, b3, b4, b5])
}

/// Interfaces for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// A complete interface of a Pod named like its container.
    pub(crate) fn mk_record(container_id: &str, ofport: u32) -> PodRecord {
        let attachment = Attachment::new(container_id, USUAL_IFNAME).unwrap();
        let pod = PodName { namespace: "shop".into(), name: container_id.into() };
        let ips = vec!["10.77.1.5".parse().unwrap()];
        PodRecord {
            host_name: HostIfName::generate(&pod, &attachment, 0),
            attachment,
            pod,
            netns: "/run/netns/p".into(),
            network: "antrea".into(),
            mac: mac_for(&ips),
            ips,
            ofport: OfPort(ofport),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_record() -> PodRecord {
        let pod = PodName { namespace: "shop".into(), name: "web-frontend-0".into() };
        let named_otherwise = fixture::mk_record("c1", 17);
        PodRecord {
            host_name: HostIfName::generate(&pod, &named_otherwise.attachment, 0),
            pod,
            mac: MacAddr([0x5e, 0x41, 10, 77, 1, 5]),
            ips: vec!["10.77.1.5".parse().unwrap(), "fd77::5".parse().unwrap()],
            ..named_otherwise
        }
    }

    #[test]
    fn records_survive_in_external_ids() {
        let record = mk_record();
        let ids = record.external_ids();
        assert_eq!(ids["ip-address"], "10.77.1.5,fd77::5");
        let read =
            |ids: &_| PodRecord::from_external_ids(record.host_name.as_str(), OfPort(17), ids);
        assert_eq!(read(&ids), Ok(Some(record.clone())));
        // Of a port that was made before networks were noted.
        let mut older = ids;
        older.remove("antrea-network");
        let unknown = PodRecord { network: String::new(), ..record.clone() };
        assert_eq!(unknown.external_ids(), older);
        assert_eq!(read(&older), Ok(Some(unknown)));
    }

    #[test]
    fn a_port_may_be_there_before_its_addresses() {
        let bare = PodRecord { mac: MacAddr([0; 6]), ips: vec![], ..mk_record() };
        let mut ids = bare.external_ids();
        assert!(!ids.contains_key("ip-address") && !ids.contains_key("attached-mac"), "{ids:?}");
        let read = |ids: &_| PodRecord::from_external_ids(bare.host_name.as_str(), OfPort(17), ids);
        assert_eq!(read(&ids), Ok(Some(bare.clone())));
        ids.extend(mk_record().address_ids());
        assert_eq!(read(&ids), Ok(Some(mk_record())));
    }

    #[test]
    fn damaged_notes_still_say_whose_they_are() {
        let record = mk_record();
        let mut ids = record.external_ids();
        ids.remove("ip-address");
        assert!(PodRecord::from_external_ids("p", OfPort(1), &ids).is_err());
        assert!(is_port_of(&ids, &record.attachment));
        assert!(!is_port_of(&ids, &Attachment::new("c1", "eth1").unwrap()));
        assert!(!is_port_of(&ids, &Attachment::new("c2", "eth0").unwrap()));
        ids.remove("if-dev");
        assert!(is_port_of(&ids, &record.attachment));
        ids.insert("antrea-type".into(), "gateway".into());
        assert!(!is_port_of(&ids, &record.attachment));
    }

    #[test]
    fn other_ports_are_not_pods_and_broken_notes_are_named() {
        let mut ids = mk_record().external_ids();
        let read = |ids: &BTreeMap<_, _>| PodRecord::from_external_ids("p", OfPort(1), ids);
        ids.insert("attached-mac".into(), "nonsense".into());
        assert_eq!(
            read(&ids),
            Err(RecordError::Bad { key: "attached-mac", value: "nonsense".into() })
        );
        ids.remove("attached-mac");
        assert_eq!(read(&ids), Err(RecordError::Missing("attached-mac")));
        ids.insert("antrea-type".into(), "gateway".into());
        assert_eq!(read(&ids), Ok(None));
        assert_eq!(read(&BTreeMap::new()), Ok(None));
    }

    #[test]
    fn host_names_fit_are_readable_and_differ() {
        let pod = |name: &str| PodName { namespace: "shop".into(), name: name.into() };
        let c1 = Attachment::new("c1", "eth0").unwrap();
        let name = HostIfName::generate(&pod("web-frontend-0"), &c1, 0);
        assert!(name.as_str().starts_with("web-fron-"), "{name}");
        assert_eq!(name.as_str().len(), 15);
        assert_eq!(name, HostIfName::generate(&pod("web-frontend-0"), &c1, 0));
        let others = [
            HostIfName::generate(&pod("web-frontend-1"), &c1, 0),
            HostIfName::generate(&pod("web-frontend-0"), &c1, 1),
            HostIfName::generate(
                &pod("web-frontend-0"),
                &Attachment::new("c2", "eth0").unwrap(),
                0,
            ),
            HostIfName::generate(
                &pod("web-frontend-0"),
                &Attachment::new("c1", "eth1").unwrap(),
                0,
            ),
        ];
        assert!(others.iter().all(|other| *other != name));
        assert_eq!(HostIfName::generate(&pod("a.b"), &c1, 0).as_str().len(), 2 + 1 + 6);
        let no_pod = HostIfName::generate(&PodName::default(), &c1, 0);
        assert!(no_pod.as_str().starts_with("c1-"), "{no_pod}");
    }

    #[test]
    fn macs_come_from_addresses() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(mac_for(&[ip("fd77::5"), ip("10.77.1.5")]).to_string(), "5e:41:0a:4d:01:05");
        assert_ne!(mac_for(&[ip("fd77::5")]), mac_for(&[ip("fd77::6")]));
    }
}

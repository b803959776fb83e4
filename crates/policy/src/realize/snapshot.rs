//! The last known set, as bytes: with it an agent that starts while no controller answers enforces
//! what it enforced before.

use std::io::Write;
use std::sync::Arc;

use apis::controlplane::{AddressGroup, AppliedToGroup, GroupMember, NetworkPolicy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Event, Realizer};

const FORMAT: u32 = 1;

/// All that is known of policies and groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    format: u32,
    /// Shared with the state: they are most of it.
    #[serde(serialize_with = "serialize_shared", deserialize_with = "deserialize_shared")]
    policies: Vec<Arc<NetworkPolicy>>,
    applied_to_groups: Vec<AppliedToGroup>,
    address_groups: Vec<AddressGroup>,
}

fn serialize_shared<S: Serializer>(
    policies: &[Arc<NetworkPolicy>],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(policies.iter().map(|policy| &**policy))
}

fn deserialize_shared<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Arc<NetworkPolicy>>, D::Error> {
    let policies = Vec::<NetworkPolicy>::deserialize(deserializer)?;
    Ok(policies.into_iter().map(Arc::new).collect())
}

/// Why saved bytes are of no use.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// They are cut short or are something else.
    #[error("read the last known policies")]
    Read(#[from] serde_json::Error),
    /// They were written by another version.
    #[error("last known policies have format {0}")]
    Format(u32),
}

impl Snapshot {
    /// Reads what [`Snapshot::write`] wrote.
    pub fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let snapshot: Self = serde_json::from_slice(bytes)?;
        match snapshot.format {
            FORMAT => Ok(snapshot),
            other => Err(SnapshotError::Format(other)),
        }
    }

    /// Writes it, in small pieces.
    ///
    /// # Errors
    /// When the bytes cannot be written.
    pub fn write(&self, to: impl Write) -> Result<(), serde_json::Error> {
        serde_json::to_writer(to, self)
    }

    /// What it tells.
    #[must_use]
    pub fn into_events(self) -> [Event; 3] {
        [
            Event::ReplaceAddressGroups(self.address_groups),
            Event::ReplaceAppliedToGroups(self.applied_to_groups),
            Event::ReplacePolicies(self.policies.into_iter().map(Arc::unwrap_or_clone).collect()),
        ]
    }
}

impl Realizer {
    /// All that is known now, to be kept for the next start.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let metadata =
            |name: &String| ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let applied_to = self.applied_to.iter().filter(|(_, group)| group.gone.is_none());
        let addresses = self.addresses.iter().filter(|(_, group)| !group.gone);
        Snapshot {
            format: FORMAT,
            policies: self.policies.values().map(|state| Arc::clone(&state.latest)).collect(),
            applied_to_groups: applied_to
                .map(|(name, group)| {
                    let services = group.services.iter().map(|service| GroupMember {
                        service: Some(service.clone()),
                        ..GroupMember::default()
                    });
                    let group_members = group.members.values().cloned().chain(services).collect();
                    AppliedToGroup { metadata: metadata(name), group_members }
                })
                .collect(),
            address_groups: addresses
                .map(|(name, group)| {
                    let group_members: Vec<GroupMember> = group.members.iter().cloned().collect();
                    AddressGroup { metadata: metadata(name), group_members }
                })
                .collect(),
        }
    }
}

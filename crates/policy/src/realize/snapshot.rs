//! The last known set, as bytes: with it an agent that starts while no controller answers enforces
//! what it enforced before.

use apis::controlplane::{AddressGroup, AppliedToGroup, GroupMember, NetworkPolicy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{Event, Realizer};

const FORMAT: u32 = 1;

/// All that is known of policies and groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    format: u32,
    policies: Vec<NetworkPolicy>,
    applied_to_groups: Vec<AppliedToGroup>,
    address_groups: Vec<AddressGroup>,
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
    /// Reads what [`Snapshot::to_bytes`] wrote.
    pub fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let snapshot: Self = serde_json::from_slice(bytes)?;
        match snapshot.format {
            FORMAT => Ok(snapshot),
            other => Err(SnapshotError::Format(other)),
        }
    }

    /// Writes it.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SnapshotError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// What it tells.
    #[must_use]
    pub fn into_events(self) -> [Event; 3] {
        [
            Event::ReplaceAddressGroups(self.address_groups),
            Event::ReplaceAppliedToGroups(self.applied_to_groups),
            Event::ReplacePolicies(self.policies),
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
            policies: self.policies.values().map(|state| (*state.latest).clone()).collect(),
            applied_to_groups: applied_to
                .map(|(name, group)| {
                    let group_members: Vec<GroupMember> = group.members.values().cloned().collect();
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

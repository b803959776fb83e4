//! Changes of groups and meters.

use crate::group::{Bucket, BucketId, Group, GroupType};
use crate::ids::{GroupId, MeterId};
use crate::meter::Meter;

/// Changes a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupMod {
    /// A new group; refused if it exists.
    Add(Group),
    /// Replaces an existing group.
    Modify(Group),
    /// Adds the group, or replaces it.
    AddOrModify(Group),
    /// Deletes the group, and the flows that use it.
    Delete(GroupId),
    /// Adds buckets to a group; see [`Group::check_len`] for how many it can have.
    InsertBuckets {
        /// The group.
        group: GroupId,
        /// Its type.
        group_type: GroupType,
        /// The bucket they come after, or [`BucketId::FIRST`] or [`BucketId::LAST`].
        after: BucketId,
        /// The buckets.
        buckets: Vec<Bucket>,
    },
    /// Takes a bucket out of a group.
    RemoveBucket {
        /// The group.
        group: GroupId,
        /// Its type.
        group_type: GroupType,
        /// The bucket, or [`BucketId::FIRST`], [`BucketId::LAST`] or [`BucketId::ALL`].
        bucket: BucketId,
    },
}

/// Changes a meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeterMod {
    /// A new meter; refused if it exists.
    Add(Meter),
    /// Replaces an existing meter.
    Modify(Meter),
    /// Deletes the meter, and the flows that use it.
    Delete(MeterId),
}

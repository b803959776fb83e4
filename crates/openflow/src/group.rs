//! Groups: sets of buckets of actions.

use crate::action::Action;
use crate::error::EncodeError;
use crate::field::Field;
use crate::ids::{GroupId, OfPort};

/// Which buckets of a group are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupType {
    /// All, each with a copy of the packet.
    All,
    /// One, chosen by a hash of the packet and the buckets' weights.
    Select,
    /// The only one.
    Indirect,
    /// The first that is alive.
    FastFailover,
}

/// How a select group chooses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SelectionMethod {
    /// `hash` or `dp_hash`.
    pub name: String,
    /// Parameter of the method.
    pub param: u64,
    /// Fields that `hash` uses.
    pub fields: Vec<Field>,
}

/// A group and its buckets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Its number.
    pub id: GroupId,
    /// Which buckets are run.
    pub group_type: GroupType,
    /// How a select group chooses; the switch's own way without it.
    pub selection: Option<SelectionMethod>,
    /// Its buckets, in the order of their ids.
    pub buckets: Vec<Bucket>,
}

/// Number of a bucket within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId(pub u32);

impl BucketId {
    /// Before all others, in insertions; the first one, in removals.
    pub const FIRST: Self = Self(0xffff_fffd);
    /// After all others, in insertions; the last one, in removals.
    pub const LAST: Self = Self(0xffff_fffe);
    /// All of the group, in removals.
    pub const ALL: Self = Self(0xffff_ffff);
    /// The highest number a bucket can have.
    pub const MAX: Self = Self(0xffff_ff00);
}

/// One bucket of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Its number.
    pub id: BucketId,
    /// Its share of the packets, in select groups.
    pub weight: u16,
    /// The port whose state tells whether the bucket is alive.
    pub watch_port: OfPort,
    /// The group whose state tells whether the bucket is alive.
    pub watch_group: GroupId,
    /// What it does.
    pub actions: Vec<Action>,
}

impl Group {
    /// A group whose buckets get a copy each.
    #[must_use]
    pub fn all(id: GroupId) -> Self {
        Self { id, group_type: GroupType::All, selection: None, buckets: Vec::new() }
    }

    /// A group that chooses one bucket by the switch's own hash.
    #[must_use]
    pub fn select(id: GroupId) -> Self {
        Self { id, group_type: GroupType::Select, selection: None, buckets: Vec::new() }
    }

    /// With one more bucket; it gets the next free number. In a select group its weight is
    /// `weight`, otherwise pass 0.
    #[must_use]
    pub fn bucket(mut self, weight: u16, actions: Vec<Action>) -> Self {
        let id = self.buckets.iter().map(|b| b.id.0.saturating_add(1)).max().unwrap_or(0);
        self.buckets.push(Bucket {
            id: BucketId(id),
            weight,
            watch_port: OfPort::ANY,
            watch_group: GroupId::ANY,
            actions,
        });
        self
    }

    /// Whether the group is short enough for its description to be read back (some 64 KiB). One that
    /// is not is refused when it is encoded; but [`GroupMod::InsertBuckets`] can make a group grow
    /// beyond that unseen, and a description of it then lacks buckets: check the whole before.
    ///
    /// [`GroupMod::InsertBuckets`]: crate::message::GroupMod::InsertBuckets
    pub fn check_len(&self) -> Result<(), EncodeError> {
        crate::wire::group::check_len(self)
    }

    /// The form that the switch gives back, for comparison: actions as [`Action::normalize`].
    #[must_use]
    pub fn normalize(mut self) -> Self {
        for bucket in &mut self.buckets {
            bucket.actions =
                std::mem::take(&mut bucket.actions).into_iter().map(Action::normalize).collect();
        }
        self
    }
}

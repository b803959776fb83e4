//! Waiting until one watch has said everything that another one knew.
//!
//! Policies, their targets and their peers come by three watches, in no order among them. A
//! bookmark says up to which versions of the cluster's objects its watch has told everything. So
//! what one watch said is complete once another one's bookmark covers the first bookmark after it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The highest version of each kind of input that a state takes into account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsOf(pub BTreeMap<String, u64>);

impl AsOf {
    /// Whether everything that `other` takes into account is here too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|(kind, version)| self.0.get(kind).is_some_and(|own| own >= version))
    }
}

/// The three watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Policies.
    NetworkPolicy,
    /// Their targets.
    AppliedToGroup,
    /// Their peers.
    AddressGroup,
}

/// Something that waits for another watch.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    since: Duration,
    /// What the other watch has to cover; unknown until the own one's next bookmark.
    needs: Option<AsOf>,
}

/// The last bookmarks.
#[derive(Debug, Default)]
pub(super) struct Bookmarks(BTreeMap<Kind, AsOf>);

impl Bookmarks {
    pub(super) fn set(&mut self, kind: Kind, as_of: AsOf) {
        self.0.insert(kind, as_of);
    }

    pub(super) fn forget(&mut self, kind: Kind) {
        self.0.remove(&kind);
    }

    /// Whether a watch told everything up to this.
    pub(super) fn covers(&self, kind: Kind, as_of: &AsOf) -> bool {
        self.0.get(&kind).is_some_and(|own| own.covers(as_of))
    }

    /// Whether all three did.
    pub(super) fn all_cover(&self, as_of: &AsOf) -> bool {
        [Kind::NetworkPolicy, Kind::AppliedToGroup, Kind::AddressGroup]
            .into_iter()
            .all(|kind| self.covers(kind, as_of))
    }
}

impl Hold {
    pub(super) fn new(now: Duration) -> Self {
        Self { since: now, needs: None }
    }

    /// The own watch's bookmark came.
    pub(super) fn marked(&mut self, as_of: &AsOf) {
        if self.needs.is_none() {
            self.needs = Some(as_of.clone());
        }
    }

    /// Whether it need not wait any longer.
    pub(super) fn is_over(
        &self,
        other: Kind,
        bookmarks: &Bookmarks,
        now: Duration,
        longest: Duration,
    ) -> bool {
        let told = self.needs.as_ref().is_some_and(|needs| bookmarks.covers(other, needs));
        told || now >= self.since + longest
    }

    /// When it ends at the latest.
    pub(super) fn deadline(&self, longest: Duration) -> Duration {
        self.since + longest
    }
}

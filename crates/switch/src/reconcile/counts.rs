//! How many flows there are of each kind, kept up to date change by change.

use openflow::TableId;

use super::flows::{Entry, Marks, OnSwitch};
use super::types::FlowCounts;

/// Numbers of flows.
#[derive(Debug)]
pub(super) struct Counts {
    /// Wanted flows on the switch, by table.
    tables: Box<[u32; 256]>,
    /// Flows on the switch that nobody claims.
    pub(super) n_unclaimed: usize,
    /// Flows whose state on the switch is not what it should be, refused ones apart.
    pub(super) n_pending: usize,
}

impl Default for Counts {
    fn default() -> Self {
        Self { tables: Box::new([0; 256]), n_unclaimed: 0, n_pending: 0 }
    }
}

impl Counts {
    pub(super) fn add(&mut self, entry: &Entry) {
        match kind(entry) {
            Kind::Installed => self.tables[usize::from(entry.view().table().0)] += 1,
            Kind::Unclaimed => self.n_unclaimed += 1,
            Kind::Pending => self.n_pending += 1,
            Kind::Aside => {}
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        match kind(entry) {
            Kind::Installed => self.tables[usize::from(entry.view().table().0)] -= 1,
            Kind::Unclaimed => self.n_unclaimed -= 1,
            Kind::Pending => self.n_pending -= 1,
            Kind::Aside => {}
        }
    }

    pub(super) fn tables(&self) -> FlowCounts {
        (0..=u8::MAX)
            .zip(self.tables.iter())
            .filter(|(_, n)| **n > 0)
            .map(|(t, n)| (TableId(t), *n))
            .collect()
    }
}

enum Kind {
    Installed,
    Unclaimed,
    Pending,
    Aside,
}

fn kind(entry: &Entry) -> Kind {
    if entry.is_wanted() {
        if entry.on_switch == OnSwitch::Exact {
            Kind::Installed
        } else if entry.marks.has(Marks::REFUSED) || entry.marks.has(Marks::EXPIRED) {
            Kind::Aside
        } else {
            Kind::Pending
        }
    } else if entry.marks.has(Marks::UNCLAIMED) {
        Kind::Unclaimed
    } else if entry.on_switch == OnSwitch::Absent {
        Kind::Aside
    } else {
        Kind::Pending
    }
}

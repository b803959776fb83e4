//! Every Pod interface of the node, by attachment.
//!
//! Pure. Rebuilt from the ports' notes when the agent starts; a request that is under way has an
//! entry too, so that no name, number or address is taken twice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cni_api::Attachment;
use openflow::OfPort;

use super::model::{HostIfName, PodName, PodRecord};

/// The numbers given to Pods: above those of the tunnel, of the gateway and of an administrator's
/// own ports.
const POD_OFPORTS: std::ops::RangeInclusive<u32> = 64..=32767;

/// Whether an interface is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryState {
    /// It is being made, or what could not be unmade is left of it.
    Partial,
    /// As `Partial`, and a step that outlived its deadline is still at work on it.
    Overdue,
    /// It is there.
    Made,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) record: PodRecord,
    pub(super) state: EntryState,
}

/// Every Pod interface of the node.
#[derive(Clone, Debug)]
pub struct InterfaceStore {
    entries: BTreeMap<Attachment, Entry>,
    /// Where the search for a free number starts: a number is given again as late as possible.
    next_ofport: u32,
}

impl Default for InterfaceStore {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), next_ofport: *POD_OFPORTS.start() }
    }
}

impl InterfaceStore {
    /// Takes over the interfaces that were there before.
    pub fn restore(&mut self, records: impl IntoIterator<Item = PodRecord>) {
        for record in records {
            let highest = record.ofport.0.saturating_add(1);
            if POD_OFPORTS.contains(&highest) {
                self.next_ofport = self.next_ofport.max(highest);
            }
            // A crash came before the port got its addresses.
            let state = if record.ips.is_empty() { EntryState::Partial } else { EntryState::Made };
            let entry = Entry { state, record };
            self.entries.insert(entry.record.attachment.clone(), entry);
        }
    }

    /// The complete interfaces.
    pub fn records(&self) -> impl Iterator<Item = &PodRecord> {
        let made = self.entries.values().filter(|entry| entry.state == EntryState::Made);
        made.map(|entry| &entry.record)
    }

    /// How many interfaces are complete.
    pub fn len(&self) -> usize {
        self.records().count()
    }

    /// Whether no interface is complete.
    pub fn is_empty(&self) -> bool {
        self.records().next().is_none()
    }

    /// The attachments of all entries, complete or not.
    pub(super) fn attachments(&self) -> Vec<Attachment> {
        self.entries.keys().cloned().collect()
    }

    /// Whether some entry's attachment is like this.
    pub(super) fn has(&self, fits: impl Fn(&Attachment) -> bool) -> bool {
        self.entries.keys().any(fits)
    }

    pub(super) fn get(&self, attachment: &Attachment) -> Option<&Entry> {
        self.entries.get(attachment)
    }

    /// A name that no other attachment has. The same attachment gets the same name again.
    pub(super) fn free_name(&self, pod: &PodName, attachment: &Attachment) -> HostIfName {
        let taken = |name: &HostIfName| {
            self.entries
                .iter()
                .any(|(key, entry)| key != attachment && entry.record.host_name == *name)
        };
        let mut attempt = 0;
        loop {
            let name = HostIfName::generate(pod, attachment, attempt);
            if !taken(&name) {
                return name;
            }
            attempt += 1;
        }
    }

    /// A number that neither an entry nor the switch has; none when all are in use.
    pub(super) fn free_ofport(&mut self, used: &BTreeSet<OfPort>) -> Option<OfPort> {
        let n_numbers = POD_OFPORTS.end() - POD_OFPORTS.start() + 1;
        for _ in 0..n_numbers {
            let number = OfPort(self.next_ofport);
            self.next_ofport += 1;
            if !POD_OFPORTS.contains(&self.next_ofport) {
                self.next_ofport = *POD_OFPORTS.start();
            }
            let ours = self.entries.values().any(|entry| entry.record.ofport == number);
            if !ours && !used.contains(&number) {
                return Some(number);
            }
        }
        None
    }

    /// Who else has this address.
    pub(super) fn other_holder(&self, ip: IpAddr, attachment: &Attachment) -> Option<&PodRecord> {
        let others = self.entries.iter().filter(|(key, _)| *key != attachment);
        others.map(|(_, entry)| &entry.record).find(|record| record.ips.contains(&ip))
    }

    pub(super) fn put(&mut self, record: PodRecord, state: EntryState) {
        self.entries.insert(record.attachment.clone(), Entry { record, state });
    }

    pub(super) fn mark_partial(&mut self, attachment: &Attachment) {
        if let Some(entry) = self.entries.get_mut(attachment) {
            entry.state = EntryState::Partial;
        }
    }

    pub(super) fn remove(&mut self, attachment: &Attachment) {
        self.entries.remove(attachment);
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::fixture::mk_record;
    use super::*;

    #[test]
    fn numbers_go_round_and_skip_what_is_used() {
        let mut store = InterfaceStore::default();
        store.restore([mk_record("c1", 70)]);
        let none = BTreeSet::new();
        assert_eq!(store.free_ofport(&none), Some(OfPort(71)));
        assert_eq!(store.free_ofport(&[OfPort(72)].into()), Some(OfPort(73)));
        assert_eq!(store.free_ofport(&none), Some(OfPort(74)), "not 72 again at once");
        let all = POD_OFPORTS.map(OfPort).collect();
        assert_eq!(store.free_ofport(&all), None);
    }

    #[test]
    fn a_name_is_one_attachments_only() {
        let mut store = InterfaceStore::default();
        let record = mk_record("c1", 70);
        let (pod, c2) = (record.pod.clone(), Attachment::new("c2", "eth0").unwrap());
        let mut squatter = record.clone();
        squatter.host_name = HostIfName::generate(&pod, &c2, 0);
        store.put(squatter, EntryState::Made);
        assert_eq!(store.free_name(&pod, &c2), HostIfName::generate(&pod, &c2, 1));
        assert_eq!(
            store.free_name(&pod, &record.attachment),
            HostIfName::generate(&pod, &record.attachment, 0)
        );
    }

    #[test]
    fn partial_entries_hold_addresses_but_are_no_interfaces() {
        let mut store = InterfaceStore::default();
        let record = mk_record("c1", 70);
        store.put(record.clone(), EntryState::Partial);
        assert!(store.is_empty());
        let c2 = Attachment::new("c2", "eth0").unwrap();
        assert_eq!(store.other_holder(record.ips[0], &c2), Some(&record));
        assert_eq!(store.other_holder(record.ips[0], &record.attachment), None);
    }
}

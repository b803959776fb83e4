//! Which Pods have a port, from what the CNI server says. Pure.

use std::collections::{BTreeMap, BTreeSet};

use cni_api::Attachment;
use openflow::OfPort;
use policy::realize::{Event, LocalPod, PodKey};

use crate::cni::PodRecord;

/// Pods with their ports, and whose ports are in the making.
#[derive(Debug, Default)]
pub(super) struct Pods {
    known: BTreeMap<Attachment, LocalPod>,
    /// Told by the gate, and not yet by a list.
    early: BTreeSet<Attachment>,
}

/// The Pod of a record; none for a container that is no Pod, or has no port yet.
pub(super) fn local_pod(record: &PodRecord) -> Option<LocalPod> {
    if record.pod.name.is_empty() || record.ofport == OfPort::NONE || record.ips.is_empty() {
        return None;
    }
    Some(LocalPod {
        key: PodKey { namespace: record.pod.namespace.clone(), name: record.pod.name.clone() },
        ofport: record.ofport,
        ips: record.ips.clone(),
    })
}

impl Pods {
    /// A Pod gets its port.
    pub(super) fn up(&mut self, record: &PodRecord) -> Option<Event> {
        let pod = local_pod(record)?;
        self.early.insert(record.attachment.clone());
        self.known.insert(record.attachment.clone(), pod.clone());
        Some(Event::PodUp(pod))
    }

    /// A Pod that was listed before, or is by now, has this port.
    pub(super) fn moved(&mut self, record: &PodRecord) -> Option<Event> {
        let pod = local_pod(record)?;
        let before = self.known.insert(record.attachment.clone(), pod.clone());
        (before.as_ref() != Some(&pod)).then_some(Event::PodUp(pod))
    }

    /// A Pod's port is gone, or was never made.
    pub(super) fn down(&mut self, attachment: &Attachment) -> Option<Event> {
        self.early.remove(attachment);
        let gone = self.known.remove(attachment)?;
        Some(self.without(&gone))
    }

    /// These are all interfaces that are complete.
    pub(super) fn list(&mut self, records: &[PodRecord]) -> Vec<Event> {
        let mut events = Vec::new();
        let mut listed = BTreeSet::new();
        for record in records {
            listed.insert(&record.attachment);
            self.early.remove(&record.attachment);
            let Some(pod) = local_pod(record) else { continue };
            if self.known.get(&record.attachment) != Some(&pod) {
                self.known.insert(record.attachment.clone(), pod.clone());
                events.push(Event::PodUp(pod));
            }
        }
        let gone: Vec<Attachment> = self
            .known
            .keys()
            .filter(|key| !listed.contains(key) && !self.early.contains(*key))
            .cloned()
            .collect();
        for attachment in gone {
            if let Some(gone) = self.known.remove(&attachment) {
                events.push(self.without(&gone));
            }
        }
        events
    }

    /// Another sandbox of the same Pod may be there.
    fn without(&self, gone: &LocalPod) -> Event {
        match self.known.values().find(|pod| pod.key == gone.key) {
            Some(other) => Event::PodUp(other.clone()),
            None => Event::PodDown(gone.key.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::mk_record;

    fn words(events: &[Event]) -> Vec<String> {
        let word = |event: &Event| match event {
            Event::PodUp(pod) => format!("up {}", pod.ofport.0),
            Event::PodDown(key) => format!("down {}", key.name),
            other => format!("{other:?}"),
        };
        events.iter().map(word).collect()
    }

    #[test]
    fn lists_say_what_came_and_went() {
        let mut pods = Pods::default();
        let (a, b) = (mk_record("c1", 70), mk_record("c2", 71));
        assert_eq!(words(&pods.list(std::slice::from_ref(&a))), ["up 70"]);
        assert!(pods.list(std::slice::from_ref(&a)).is_empty());
        // The port of the second is being made: a list of before does not take it away.
        assert!(pods.up(&b).is_some());
        assert!(pods.list(std::slice::from_ref(&a)).is_empty());
        assert!(pods.list(&[a.clone(), b.clone()]).is_empty());
        assert_eq!(words(&pods.list(std::slice::from_ref(&b))), ["down c1"]);
        // A list may tell of another number first.
        let moved = PodRecord { ofport: OfPort(73), ..b.clone() };
        assert_eq!(pods.moved(&moved).into_iter().len(), 1);
        assert!(pods.moved(&moved).is_none());
        assert_eq!(words(&pods.list(std::slice::from_ref(&b))), ["up 71"]);
        // Another sandbox of the same Pod takes over when one of two goes.
        let mut other = mk_record("c3", 72);
        other.pod = b.pod.clone();
        assert_eq!(words(&pods.list(&[b.clone(), other.clone()])), ["up 72"]);
        assert_eq!(words(&pods.list(std::slice::from_ref(&b))), ["up 71"]);
        let down: Vec<Event> = pods.down(&b.attachment).into_iter().collect();
        assert_eq!(words(&down), ["down c2"]);
        assert!(pods.down(&b.attachment).is_none());
    }
}

//! Follows the OpenFlow numbers of Pods' ports, and moves their flows along.
//!
//! A number is the switch's to give: it changes when ovs-vswitchd starts anew without one in the
//! database, or when somebody asks for another, and it goes with its port. A port that somebody
//! deleted under a running Pod is made again. What has to change is decided from the interfaces that
//! are known and the database's rows alone ([`decide`]); the loop around it takes each Pod's lock,
//! looks again, and states the flows anew.
//!
//! Not here: the number of a port that is being added (`plan`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cni_api::Attachment;
use openflow::OfPort;
use ovsdb::Snapshot;
use tokio::sync::watch;
use tracing::{info, warn};

use super::failure::chain;
use super::model::{PodRecord, is_port_of, is_unmarked};
use super::server::{Node, Server, Shared};
use super::store::EntryState;
use super::traits::PortState;

/// Pause before a port that could not be made again is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// A Pod whose port has another number than the one its flows are made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Renumbered {
    /// The Pod's interface.
    pub(super) attachment: Attachment,
    /// The number now; [`OfPort::NONE`] when it has none, and no flows may stand for it.
    pub(super) ofport: OfPort,
    /// Whether there is a port.
    pub(super) port: PortSeen,
}

/// What has become of a Pod's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortSeen {
    /// It is there.
    There,
    /// It is there, and somebody took its notes away: it gets them back.
    Unmarked,
    /// Somebody deleted it: it has to be made again.
    Gone,
}

/// Whether a change is dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// There is nothing more to do.
    Settled,
    /// It has to be tried again without another sign.
    TryAgain,
}

/// Compares numbers that are known with those in the database. Pods that lost theirs come first.
///
/// A port that ovs-vswitchd has not looked at yet keeps what it had; without a bridge there is
/// nothing to compare.
pub(super) fn decide<'a>(
    known: impl IntoIterator<Item = &'a PodRecord>,
    bridge: &str,
    rows: &Snapshot,
) -> Vec<Renumbered> {
    if rows.bridge(bridge).is_none() {
        return Vec::new();
    }
    let mut ports = BTreeMap::new();
    for view in rows.ports_of(bridge) {
        ports.insert(view.port.name.clone(), view);
    }
    let number = |record: &PodRecord| {
        let gone = Some((OfPort::NONE, PortSeen::Gone));
        let Some(view) = ports.get(record.host_name.as_str()) else { return gone };
        let notes = &view.port.external_ids;
        let port = match is_port_of(notes, &record.attachment) {
            true => PortSeen::There,
            false if is_unmarked(notes) => PortSeen::Unmarked,
            false => return gone,
        };
        view.interface.ofport?;
        Some((view.interface.valid_ofport().map_or(OfPort::NONE, OfPort), port))
    };
    let mut changes: Vec<Renumbered> = known
        .into_iter()
        .filter_map(|record| {
            let (ofport, port) = number(record)?;
            if ofport == record.ofport && port == PortSeen::There {
                return None;
            }
            Some(Renumbered { attachment: record.attachment.clone(), ofport, port })
        })
        .collect();
    changes.sort_by_key(|change| change.ofport != OfPort::NONE);
    changes
}

impl Server {
    /// Follows the rows of the database for as long as they come; to be stopped by dropping it.
    pub async fn follow_numbers(self, mut rows_rx: watch::Receiver<Arc<Snapshot>>, bridge: String) {
        let shared = self.shared();
        let mut interfaces_rx = self.interfaces();
        if self.restored().wait_for(|restored| *restored).await.is_err() {
            return;
        }
        loop {
            // What is known comes first: a port that is known to be made is in rows read later.
            interfaces_rx.mark_unchanged();
            let known: Vec<PodRecord> = shared.store().records().cloned().collect();
            let rows = rows_rx.borrow_and_update().clone();
            let changes = decide(&known, &bridge, &rows);
            let moves = changes.iter().map(|change| shared.renumber(change, &rows_rx, &bridge));
            let outcomes = futures::future::join_all(moves).await;
            let try_again = outcomes.contains(&Outcome::TryAgain);
            tokio::select! {
                () = tokio::time::sleep(RETRY), if try_again => {}
                changed = rows_rx.changed() => if changed.is_err() { return },
                changed = interfaces_rx.changed() => if changed.is_err() { return },
            }
        }
    }
}

impl Shared {
    async fn renumber(
        &self,
        change: &Renumbered,
        rows_rx: &watch::Receiver<Arc<Snapshot>>,
        bridge: &str,
    ) -> Outcome {
        let Ok(node) = self.node() else { return Outcome::Settled };
        let _guard = self.locks.lock(&change.attachment).await;
        // A request may have dealt with it meanwhile.
        let entry = self.store().get(&change.attachment).cloned();
        let Some(entry) = entry.filter(|entry| entry.state == EntryState::Made) else {
            return Outcome::Settled;
        };
        let rows = rows_rx.borrow().clone();
        let Some(change) = decide([&entry.record], bridge, &rows).pop() else {
            return Outcome::Settled;
        };
        let (was, ofport) = (entry.record.ofport, change.ofport);
        let record = PodRecord { ofport, ..entry.record };
        if ofport == was {
            // Known to be gone already.
        } else if ofport == OfPort::NONE {
            warn!(pod = %record.pod, port = %record.host_name, was = was.0, "port lost its number");
        } else {
            info!(pod = %record.pod, port = %record.host_name, was = was.0, now = ofport.0,
                "port has another number: its flows follow");
        }
        if ofport != was {
            self.follow_port(&node, record.clone());
        }
        match change.port {
            PortSeen::There => Outcome::Settled,
            PortSeen::Unmarked => note_again(&node, &record).await,
            PortSeen::Gone => self.remake_port(&node, &record).await,
        }
    }

    /// The Pod's flows follow to the port that it has now. It stays closed until those of policies
    /// have, which hear of it first.
    fn follow_port(&self, node: &Arc<Node>, record: PodRecord) {
        self.store().put(record.clone(), EntryState::Made);
        self.publish();
        node.flows.restore(&record, PortState::Closed);
    }

    /// Makes a port again that somebody deleted under its Pod.
    async fn remake_port(&self, node: &Arc<Node>, record: &PodRecord) -> Outcome {
        // One whose namespace is gone waits for its DEL.
        if !node.net.is_alive(record).await {
            return Outcome::Settled;
        }
        match self.remake(node, record).await {
            Ok(record) => {
                warn!(pod = %record.pod, port = %record.host_name, ofport = record.ofport.0,
                    "port of a running Pod was deleted: made again");
                self.follow_port(node, record);
                Outcome::Settled
            }
            Err(failure) => {
                warn!(pod = %record.pod, error = chain(&failure), "port not made again");
                Outcome::TryAgain
            }
        }
    }
}

/// Gives a port its notes back.
async fn note_again(node: &Node, record: &PodRecord) -> Outcome {
    match node.ports.add(record).await {
        Ok(()) => {
            warn!(pod = %record.pod, port = %record.host_name, "port lost its notes: noted again");
            Outcome::Settled
        }
        Err(failure) => {
            warn!(pod = %record.pod, error = chain(&failure), "port not noted again");
            Outcome::TryAgain
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ovsdb::{Bridge, Interface, Port, Uuid};

    use super::super::model::fixture::mk_record;
    use super::*;

    /// Rows of a bridge with these Pods' ports, each with what the database has as its number.
    fn mk_rows(ports: &[(&PodRecord, Option<i64>)]) -> Snapshot {
        let mut rows = Snapshot::default();
        let mut of_bridge = BTreeSet::new();
        for (n, (record, ofport)) in (0u128..).zip(ports) {
            let (port_uuid, interface_uuid) = (Uuid::from_u128(100 + n), Uuid::from_u128(200 + n));
            let name = record.host_name.to_string();
            let interface =
                Interface { name: name.clone(), ofport: *ofport, ..Interface::default() };
            let port = Port {
                name,
                interfaces: [interface_uuid].into(),
                external_ids: record.external_ids(),
                ..Port::default()
            };
            rows.interfaces.insert(interface_uuid, Arc::new(interface));
            rows.ports.insert(port_uuid, Arc::new(port));
            of_bridge.insert(port_uuid);
        }
        let bridge = Bridge { name: "br-int".into(), ports: of_bridge, ..Bridge::default() };
        rows.bridges.insert(Uuid::from_u128(1), Arc::new(bridge));
        rows
    }

    #[test]
    fn numbers() {
        let (a, other) = (mk_record("a", 70), mk_record("other", 70));
        let no_number = OfPort::NONE.0;
        let none = PodRecord { ofport: OfPort::NONE, ..a.clone() };
        for (name, known, rows, want) in [
            ("the same", &a, mk_rows(&[(&a, Some(70))]), None),
            ("another", &a, mk_rows(&[(&a, Some(71))]), Some((71, PortSeen::There))),
            ("one at last", &none, mk_rows(&[(&a, Some(71))]), Some((71, PortSeen::There))),
            ("not looked at yet", &a, mk_rows(&[(&a, None)]), None),
            ("refused", &a, mk_rows(&[(&a, Some(-1))]), Some((no_number, PortSeen::There))),
            ("still none", &none, mk_rows(&[(&a, Some(-1))]), None),
            ("port deleted", &a, mk_rows(&[(&other, Some(70))]), Some((no_number, PortSeen::Gone))),
            (
                "still gone",
                &none,
                mk_rows(&[(&other, Some(70))]),
                Some((no_number, PortSeen::Gone)),
            ),
            ("bridge deleted", &a, Snapshot::default(), None),
        ] {
            let seen = decide([known], "br-int", &rows);
            let want: Vec<_> = want
                .map(|(number, port)| Renumbered {
                    attachment: a.attachment.clone(),
                    ofport: OfPort(number),
                    port,
                })
                .into_iter()
                .collect();
            assert_eq!(seen, want, "{name}");
        }
    }

    #[test]
    fn a_port_without_notes_keeps_its_number() {
        let a = mk_record("a", 70);
        let mut rows = mk_rows(&[(&a, Some(70))]);
        for port in rows.ports.values_mut() {
            Arc::make_mut(port).external_ids.clear();
        }
        let seen = decide([&a], "br-int", &rows);
        assert_eq!((seen[0].ofport, seen[0].port), (OfPort(70), PortSeen::Unmarked));
    }

    #[test]
    fn a_port_of_the_same_name_is_somebody_elses() {
        let a = mk_record("a", 70);
        let thief = PodRecord { host_name: a.host_name.clone(), ..mk_record("thief", 70) };
        // The same container's other interface is somebody else, too.
        let second = Attachment::new("a", "eth1").unwrap();
        let second = PodRecord { attachment: second, ..a.clone() };
        for other in [thief, second] {
            let changes = decide([&a], "br-int", &mk_rows(&[(&other, Some(70))]));
            assert_eq!((changes[0].ofport, changes[0].port), (OfPort::NONE, PortSeen::Gone));
        }
    }

    #[test]
    fn who_lost_a_number_lets_go_before_who_got_it() {
        let (a, b) = (mk_record("a", 70), mk_record("b", 71));
        let rows = mk_rows(&[(&a, Some(71)), (&b, Some(-1))]);
        let numbers: Vec<_> = decide([&a, &b], "br-int", &rows)
            .into_iter()
            .map(|change| (change.attachment, change.ofport))
            .collect();
        assert_eq!(numbers, [(b.attachment, OfPort::NONE), (a.attachment, OfPort(71))]);
    }
}

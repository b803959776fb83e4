//! Brings flows and statuses up to date with what is known, at the end of a step.

use std::sync::Arc;
use std::time::Duration;

use openflow::Flow;
use pipeline::policy::{Direction, Isolation, dns_flows};

use super::isolation::PlacedPod;
use super::resolve::Keys;
use super::table::FlowId;
use super::{Kind, Op, PodKey, Realizer};

impl Realizer {
    /// Brings everything that is stale up to date, and says what changed.
    pub(super) fn settle(&mut self, now: Duration, take: &mut dyn FnMut(Op)) {
        let expired = self.names.expire(now);
        self.stale.extend(expired.policies);
        self.ops.extend(expired.ask.into_iter().map(Op::Resolve));
        for service in self.services.expire(now) {
            self.service_changed(&service);
        }
        self.end_holds(now);
        self.drop_gone(now);
        for uid in std::mem::take(&mut self.stale) {
            self.bring_up_to_date(now, &uid);
        }
        self.drop_left_out(now);
        self.forget_groups();
        while self.retired.front().is_some_and(|(at, ..)| *at + self.config.id_rest <= now) {
            self.retired.pop_front();
        }
        self.hand_on(take);
        self.emit_flows(take);
        if !std::mem::replace(&mut self.synced, true) {
            self.ids.forget_unclaimed(now);
            self.names.restored();
            self.ops.push(Op::Synced);
        }
        self.emit_statuses();
        let bookmarks = &self.bookmarks;
        let covered: Vec<PodKey> = self
            .waiting
            .extract_if(.., |_, since| bookmarks.all_cover(since))
            .map(|(pod, _)| pod)
            .collect();
        self.ops.extend(covered.into_iter().map(Op::PodCovered));
    }

    /// Groups and versions that waited long enough.
    fn end_holds(&mut self, now: Duration) {
        let longest = self.config.longest_hold;
        let over: Vec<String> = self
            .applied_to
            .iter()
            .filter(|(_, group)| {
                let hold = group.gone.as_ref();
                let other = Kind::NetworkPolicy;
                hold.is_some_and(|hold| hold.is_over(other, &self.bookmarks, now, longest))
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in over {
            self.applied_to.remove(&name);
            self.users_of_applied_to_are_stale(&name);
        }
        let waiting = self.policies.iter().filter(|(_, policy)| {
            let hold = policy.hold.as_ref();
            let other = Kind::AppliedToGroup;
            hold.is_some_and(|hold| hold.is_over(other, &self.bookmarks, now, longest))
        });
        self.stale.extend(waiting.map(|(uid, _)| uid.clone()));
    }

    /// Groups that are gone and that no installed rule uses.
    fn forget_groups(&mut self) {
        let applied_to_users = &self.applied_to_users;
        self.applied_to
            .retain(|name, group| group.gone.is_none() || applied_to_users.contains_key(name));
        let address_users = &self.address_users;
        self.addresses.retain(|name, group| !group.gone || address_users.contains_key(name));
    }

    fn emit_flows(&mut self, take: &mut dyn FnMut(Op)) {
        let stale_slots = std::mem::take(&mut self.stale_slots);
        let parts = self.policies.values().flat_map(|state| state.parts.values());
        for installed in parts.filter(|part| stale_slots.contains(&part.slot)) {
            self.stale_rules.insert(installed.id);
            for key in installed.part.keys() {
                self.table.touch(&FlowId { slot: installed.slot, key: *key });
            }
        }
        let slots = &self.slots;
        for (key, flows) in self.table.take_changes(|slot| slots.priority(slot)) {
            take(set_or_remove(key, flows));
        }
        for id in std::mem::take(&mut self.stale_rules) {
            take(set_or_remove(format!("rule/{}", id.0), self.rule_flows(id)));
        }
        for place in self.isolated.take_stale() {
            self.emit_isolation(place);
        }
        self.targets.retain(|keys| Arc::strong_count(keys) > 1);
        for pod in std::mem::take(&mut self.stale_dns) {
            let wanted = self.dns.contains_key(&pod);
            let port = self.pods.get(&pod).filter(|_| wanted).map(|pod| pod.ofport);
            if self.shown_dns.get(&pod).copied() == port {
                continue;
            }
            let key = format!("dns/{}/{}", pod.namespace, pod.name);
            let flows = port.map(|port| dns_flows(&self.config.policy, port)).unwrap_or_default();
            self.ops.push(set_or_remove(key, flows));
            match port {
                Some(port) => self.shown_dns.insert(pod, port),
                None => self.shown_dns.remove(&pod),
            };
        }
    }

    /// The one list of this content.
    pub(super) fn share(&mut self, keys: &Keys) -> Keys {
        if let Some(shared) = self.targets.get(keys) {
            return Arc::clone(shared);
        }
        self.targets.insert(Arc::clone(keys));
        Arc::clone(keys)
    }

    fn emit_isolation(&mut self, place: PlacedPod) {
        let log = self.isolated.log_of(&place);
        let (direction, key) = &place;
        let wanted = log.zip(self.pods.get(key)).map(|(log, pod)| Isolation {
            direction: *direction,
            ofport: pod.ofport,
            ips: pod.ips.clone(),
            log,
        });
        let word = match direction {
            Direction::Egress => "egress",
            Direction::Ingress => "ingress",
        };
        let op_key = format!("isolation/{word}/{}/{}", key.namespace, key.name);
        let flows = wanted.as_ref().map(|isolation| isolation.flows(&self.config.policy));
        if self.isolated.show(place, wanted) {
            self.ops.push(set_or_remove(op_key, flows.unwrap_or_default()));
        }
    }
}

fn set_or_remove(key: String, flows: Vec<Flow>) -> Op {
    if flows.is_empty() { Op::Remove { key } } else { Op::Set { key, flows } }
}

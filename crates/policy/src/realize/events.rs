//! Takes in what happens: notes what is known, and what of it makes policies stale.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use apis::controlplane::{AddressGroup, AppliedToGroup, AppliedToGroupPatch, ObjectName};

use super::groups::AddressDelta;
use super::{AsOf, Event, Kind, PodKey, Realizer};

impl Realizer {
    pub(super) fn take_in(&mut self, now: Duration, event: Event) {
        match event {
            Event::Recovered(found) => self.ids.recover(found),
            Event::ReplacePolicies(policies) => self.replace_policies(now, policies),
            Event::PolicySet(policy) => self.set_policy(policy),
            Event::PolicyDeleted(uid) => self.delete_policy(&uid),
            Event::ReplaceAppliedToGroups(groups) => {
                let names: BTreeSet<String> =
                    groups.iter().filter_map(|group| group.metadata.name.clone()).collect();
                let gone: Vec<String> =
                    self.applied_to.keys().filter(|name| !names.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.delete_applied_to(now, name));
                groups.into_iter().for_each(|group| self.set_applied_to(group));
                self.begin(Kind::AppliedToGroup);
            }
            Event::AppliedToGroupSet(group) => self.set_applied_to(group),
            Event::AppliedToGroupPatched(patch) => self.patch_applied_to(patch),
            Event::AppliedToGroupDeleted(name) => self.delete_applied_to(now, &name),
            Event::ReplaceAddressGroups(groups) => {
                let names: BTreeSet<String> =
                    groups.iter().filter_map(|group| group.metadata.name.clone()).collect();
                for (_, group) in
                    self.addresses.iter_mut().filter(|(name, _)| !names.contains(*name))
                {
                    group.gone = true;
                }
                groups.into_iter().for_each(|group| self.set_addresses(group));
                self.begin(Kind::AddressGroup);
            }
            Event::AddressGroupSet(group) => self.set_addresses(group),
            Event::AddressGroupPatched(patch) => {
                let name = patch.metadata.name.unwrap_or_default();
                if let Some(group) = self.addresses.get_mut(&name) {
                    let delta = group.patch(
                        patch.added_group_members,
                        &patch.removed_group_members,
                        &self.here,
                    );
                    self.addresses_changed(&name, &delta);
                }
            }
            Event::AddressGroupDeleted(name) => {
                if let Some(group) = self.addresses.get_mut(&name) {
                    group.gone = true;
                }
            }
            Event::Bookmark { kind, as_of } => self.bookmark(kind, as_of),
            Event::PodUp(pod) => {
                if self.pods.get(&pod.key) != Some(&pod) {
                    self.pod_changed(&pod.key);
                    self.pod_here(&pod.key, &pod.ips);
                    self.pods.insert(pod.key.clone(), pod);
                }
            }
            Event::PodDown(key) => {
                self.waiting.remove(&key);
                if self.pods.remove(&key).is_some() {
                    self.pod_changed(&key);
                    self.pod_here(&key, &[]);
                }
            }
            Event::PodWaits { pod, since } => {
                self.waiting.insert(pod, since);
            }
            Event::NameLearned { answer, asker } => {
                let changed = self.names.learn(now, &answer, asker);
                self.stale.extend(changed);
            }
            Event::NamesRestored(known) => self.names.restore(now, known),
            Event::ReplaceServices(all) => {
                let changed = self.services.replace(now, all);
                changed.iter().for_each(|service| self.service_changed(service));
            }
            Event::ServiceGroups(service, groups) => {
                if self.services.set(now, &service, groups) {
                    self.service_changed(&service);
                }
            }
            Event::Refused(flows) => self.refused(flows),
            Event::Tick => {}
        }
    }

    pub(super) fn begin(&mut self, kind: Kind) {
        self.replaced.insert(kind);
        self.bookmarks.forget(kind);
    }

    pub(super) fn bookmark(&mut self, kind: Kind, as_of: AsOf) {
        match kind {
            Kind::NetworkPolicy => {
                let holds = self.policies.values_mut().filter_map(|policy| policy.hold.as_mut());
                holds.chain(self.left_out.values_mut()).for_each(|hold| hold.marked(&as_of));
            }
            Kind::AppliedToGroup => {
                let holds = self.applied_to.values_mut().filter_map(|group| group.gone.as_mut());
                holds.for_each(|hold| hold.marked(&as_of));
            }
            Kind::AddressGroup => {}
        }
        self.bookmarks.set(kind, as_of);
    }

    fn set_applied_to(&mut self, group: AppliedToGroup) {
        let name = group.metadata.name.unwrap_or_default();
        let is_new = !self.applied_to.contains_key(&name);
        let changed = self.applied_to.entry(name.clone()).or_default().replace(group.group_members);
        if is_new || changed {
            self.users_of_applied_to_are_stale(&name);
        }
    }

    fn patch_applied_to(&mut self, patch: AppliedToGroupPatch) {
        let name = patch.metadata.name.unwrap_or_default();
        let Some(group) = self.applied_to.get_mut(&name) else { return };
        if group.patch(patch.added_group_members, &patch.removed_group_members) {
            self.users_of_applied_to_are_stale(&name);
        }
    }

    fn delete_applied_to(&mut self, now: Duration, name: &str) {
        if let Some(group) = self.applied_to.get_mut(name) {
            group.hold(now);
        }
    }

    pub(super) fn service_changed(&mut self, service: &ObjectName) {
        self.stale.extend(self.services.users(service).map(str::to_owned));
        let groups = self.applied_to.iter().filter(|(_, group)| group.services.contains(service));
        let names: Vec<String> = groups.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.users_of_applied_to_are_stale(name));
    }

    pub(super) fn users_of_applied_to_are_stale(&mut self, name: &str) {
        self.stale.extend(self.applied_to_users.get(name).into_iter().flatten().cloned());
    }

    fn set_addresses(&mut self, group: AddressGroup) {
        let name = group.metadata.name.unwrap_or_default();
        match self.addresses.get_mut(&name) {
            Some(known) => {
                let was_gone = known.gone;
                let delta = known.replace(group.group_members, &self.here);
                if was_gone {
                    self.stale.extend(self.address_users.get(&name).into_iter().flatten().cloned());
                } else {
                    self.addresses_changed(&name, &delta);
                }
            }
            None => {
                let known = self.addresses.entry(name.clone()).or_default();
                known.replace(group.group_members, &self.here);
                self.stale.extend(self.address_users.get(&name).into_iter().flatten().cloned());
            }
        }
    }

    /// Changes the flows of these addresses alone, where that is possible.
    fn addresses_changed(&mut self, name: &str, delta: &AddressDelta) {
        let users = self.address_users.get(name).cloned().unwrap_or_default();
        for uid in users {
            if !self.stale.contains(&uid) && !self.change_addresses(&uid, name, delta) {
                self.stale.insert(uid);
            }
        }
    }

    pub(super) fn pod_changed(&mut self, key: &PodKey) {
        let groups = self.applied_to.iter().filter(|(_, group)| group.members.contains_key(key));
        let names: Vec<String> = groups.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.users_of_applied_to_are_stale(name));
        self.isolated.touch(key);
        self.stale_dns.insert(key.clone());
    }

    /// A Pod has these addresses here, or is gone. Where a group says otherwise, the node is right.
    pub(super) fn pod_here(&mut self, key: &PodKey, ips: &[IpAddr]) {
        let touched = self.here.set(key, ips);
        for (name, group) in &mut self.addresses {
            if group.pod_changed(key, &touched, &self.here) {
                self.stale.extend(self.address_users.get(name).into_iter().flatten().cloned());
            }
        }
    }
}

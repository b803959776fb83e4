//! Groups as they are known here: targets and peers of rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use apis::controlplane::{GroupMember, ObjectName};

use super::here::Here;
use super::hold::Hold;

/// A Pod by Namespace and name.
pub type PodKey = ObjectName;

/// Targets: Pods of this node, or Services.
#[derive(Debug, Default)]
pub(super) struct AppliedTo {
    pub(super) members: BTreeMap<PodKey, GroupMember>,
    /// Services, at whose NodePorts rules are looked at.
    pub(super) services: BTreeSet<ObjectName>,
    /// Set while the group is gone from the controller, and kept for those who use it.
    pub(super) gone: Option<Hold>,
}

/// Peers: addresses.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    pub(super) members: BTreeSet<GroupMember>,
    /// How many members have an address: a Pod may have got that of one that ended.
    addresses: BTreeMap<IpAddr, u32>,
    /// How many members have other addresses here than were told.
    n_other: usize,
    /// Set while the group is gone from the controller, and kept for those who use it.
    pub(super) gone: bool,
}

/// Addresses that came to a group and went from it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AddressDelta {
    pub(super) added: Vec<IpAddr>,
    pub(super) removed: Vec<IpAddr>,
}

impl AppliedTo {
    /// Replaces all members. Says whether something changed.
    pub(super) fn replace(&mut self, members: Vec<GroupMember>) -> bool {
        let services = services(&members).cloned().collect();
        let members = by_pod(members);
        let same = self.members == members && self.services == services;
        let changed = !same || self.gone.is_some();
        (self.members, self.services) = (members, services);
        self.gone = None;
        changed
    }

    /// Changes some members. Those removed go first: a member whose ports changed is in both.
    pub(super) fn patch(&mut self, added: Vec<GroupMember>, removed: &[GroupMember]) -> bool {
        let mut changed = false;
        for service in services(removed) {
            changed |= self.services.remove(service);
        }
        for service in services(&added) {
            changed |= self.services.insert(service.clone());
        }
        for member in removed {
            if let Some(pod) = &member.pod {
                changed |= self.members.remove(pod).is_some();
            }
        }
        for (pod, member) in by_pod(added) {
            changed |= self.members.get(&pod) != Some(&member);
            self.members.insert(pod, member);
        }
        changed
    }

    pub(super) fn hold(&mut self, now: Duration) {
        self.gone.get_or_insert_with(|| Hold::new(now));
    }
}

fn services(members: &[GroupMember]) -> impl Iterator<Item = &ObjectName> {
    members.iter().filter_map(|member| member.service.as_ref())
}

fn by_pod(members: Vec<GroupMember>) -> BTreeMap<PodKey, GroupMember> {
    let pod = |member: GroupMember| Some((member.pod.clone()?, member));
    members.into_iter().filter_map(pod).collect()
}

impl Addresses {
    /// Replaces all members.
    pub(super) fn replace(&mut self, members: Vec<GroupMember>, here: &Here) -> AddressDelta {
        self.gone = false;
        let members: BTreeSet<GroupMember> = members.into_iter().collect();
        let removed: Vec<GroupMember> = self.members.difference(&members).cloned().collect();
        let added = members.into_iter().filter(|member| !self.members.contains(member)).collect();
        self.patch(added, &removed, here)
    }

    /// Changes some members. What is removed and not there, or added and there, changes nothing.
    pub(super) fn patch(
        &mut self,
        added: Vec<GroupMember>,
        removed: &[GroupMember],
        here: &Here,
    ) -> AddressDelta {
        let mut touched = BTreeMap::new();
        for member in removed {
            if self.members.remove(member) {
                let ips = here.ips_of(member);
                self.n_other -= usize::from(is_other(member, &ips));
                for ip in ips {
                    let count = self.addresses.entry(ip).or_default();
                    touched.entry(ip).or_insert(*count > 0);
                    *count = count.saturating_sub(1);
                }
            }
        }
        for member in added {
            if !self.members.contains(&member) {
                let ips = here.ips_of(&member);
                self.n_other += usize::from(is_other(&member, &ips));
                for ip in ips {
                    let count = self.addresses.entry(ip).or_default();
                    touched.entry(ip).or_insert(*count > 0);
                    *count += 1;
                }
                self.members.insert(member);
            }
        }
        let mut delta = AddressDelta::default();
        for (ip, was_there) in touched {
            let is_there = self.addresses.get(&ip).is_some_and(|count| *count > 0);
            match (was_there, is_there) {
                (false, true) => delta.added.push(ip),
                (true, false) => delta.removed.push(ip),
                _ => {}
            }
            if !is_there {
                self.addresses.remove(&ip);
            }
        }
        delta
    }

    /// A Pod came or went here, that has or had the `touched` addresses. Says whether any member's
    /// addresses are others now.
    pub(super) fn pod_changed(&mut self, pod: &PodKey, touched: &[IpAddr], here: &Here) -> bool {
        let claims =
            |ip: &IpAddr| self.of_pod(pod).filter(|member| member.ips.contains(ip)).count();
        let as_told = self.of_pod(pod).all(|member| !is_other(member, &here.ips_of(member)));
        let is_others = |ip: &IpAddr| {
            usize::try_from(self.addresses.get(ip).copied().unwrap_or(0)) != Ok(claims(ip))
        };
        if self.n_other == 0 && as_told && !touched.iter().any(is_others) {
            return false;
        }
        self.addresses.clear();
        self.n_other = 0;
        for member in &self.members {
            let ips = here.ips_of(member);
            self.n_other += usize::from(is_other(member, &ips));
            for ip in ips {
                *self.addresses.entry(ip).or_default() += 1;
            }
        }
        true
    }

    /// The members that are a Pod.
    fn of_pod(&self, pod: &PodKey) -> impl Iterator<Item = &GroupMember> {
        // A member's Pod comes first in the order of members.
        let first = GroupMember { pod: Some(pod.clone()), ..GroupMember::default() };
        let from_first = self.members.range(first..);
        from_first.take_while(move |member| member.pod.as_ref() == Some(pod))
    }

    /// Every address, once.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.keys().copied()
    }

    pub(super) fn has(&self, ip: IpAddr) -> bool {
        self.addresses.contains_key(&ip)
    }
}

/// Whether a member's addresses are not those that were told.
fn is_other(member: &GroupMember, ips: &[IpAddr]) -> bool {
    member.ips.len() != ips.len() || !member.ips.iter().all(|ip| ips.contains(ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, ip: &str) -> GroupMember {
        let pod = Some(ObjectName { name: name.into(), namespace: "x".into() });
        GroupMember { pod, ips: vec![ip.parse().unwrap()], ..GroupMember::default() }
    }

    #[test]
    fn an_address_stays_while_somebody_has_it() {
        let (mut group, here) = (Addresses::default(), Here::default());
        let delta = group.replace(vec![member("a", "10.0.0.1"), member("b", "10.0.0.2")], &here);
        assert_eq!(delta.added.len(), 2);
        // A new Pod gets the address of one that ended and is not removed yet.
        assert_eq!(group.patch(vec![member("c", "10.0.0.1")], &[], &here), AddressDelta::default());
        assert_eq!(group.patch(vec![], &[member("a", "10.0.0.1")], &here), AddressDelta::default());
        let delta = group.patch(vec![], &[member("c", "10.0.0.1")], &here);
        assert_eq!(delta.removed, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        // Twice, or never there.
        assert_eq!(group.patch(vec![], &[member("c", "10.0.0.1")], &here), AddressDelta::default());
        assert_eq!(group.patch(vec![member("b", "10.0.0.2")], &[], &here), AddressDelta::default());
        // An address moves within one patch.
        let delta = group.patch(vec![member("d", "10.0.0.2")], &[member("b", "10.0.0.2")], &here);
        assert_eq!(delta, AddressDelta::default());
        let delta = group.replace(vec![member("d", "10.0.0.3")], &here);
        assert_eq!((delta.added.len(), delta.removed.len()), (1, 1));
    }

    fn shown(group: &Addresses) -> Vec<String> {
        group.addresses().map(|ip| ip.to_string()).collect()
    }

    #[test]
    fn a_pod_that_is_here_has_the_addresses_that_it_has_here() {
        let pod = |name: &str| PodKey { name: name.into(), namespace: "x".into() };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (a, b) = ("10.0.0.1", "10.0.0.2");
        let (mut group, mut here) = (Addresses::default(), Here::default());
        group.replace(vec![member("a", a), member("far", "10.1.0.1")], &here);
        // As it was told: nothing changes.
        let touched = here.set(&pod("a"), &[ip(a)]);
        assert!(!group.pod_changed(&pod("a"), &touched, &here));
        // The machine begins anew: another Pod gets the address first.
        let touched = here.set(&pod("a"), &[]);
        assert!(!group.pod_changed(&pod("a"), &touched, &here));
        let touched = here.set(&pod("other"), &[ip(a)]);
        assert!(group.pod_changed(&pod("other"), &touched, &here));
        assert_eq!(shown(&group), ["10.1.0.1"]);
        let touched = here.set(&pod("a"), &[ip(b)]);
        assert!(group.pod_changed(&pod("a"), &touched, &here));
        assert_eq!(shown(&group), [b, "10.1.0.1"]);
        // The controller tells the same, and then forgets the Pod.
        let delta = group.patch(vec![member("a", b)], &[member("a", a)], &here);
        assert_eq!(delta, AddressDelta::default());
        assert_eq!(group.n_other, 0);
        let delta = group.patch(vec![], &[member("a", b)], &here);
        assert_eq!(delta.removed, [ip(b)]);
        // One that is told before it is here is taken at its word.
        assert_eq!(group.patch(vec![member("new", "10.0.0.9")], &[], &here).added.len(), 1);
        let touched = here.set(&pod("new"), &[ip("10.0.0.9")]);
        assert!(!group.pod_changed(&pod("new"), &touched, &here));
        // Somebody who is told to have an address of a Pod here has it not.
        assert_eq!(group.patch(vec![member("late", a)], &[], &here), AddressDelta::default());
        let touched = here.set(&pod("other"), &[]);
        assert!(group.pod_changed(&pod("other"), &touched, &here));
        assert_eq!(shown(&group), [a, "10.0.0.9", "10.1.0.1"]);
    }
}

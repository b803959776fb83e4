//! Groups by which connections to Services are known on this node, and who has rules about them.
//!
//! A connection keeps the number of its group for as long as the switch remembers it, which may be
//! longer than the Service has the group. So rules go on to know it for a while.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use apis::controlplane::ObjectName;
use openflow::GroupId;

/// For how long the switch remembers a connection that nobody answered, and then some: the kernel
/// does so for two minutes.
const REMEMBERED: Duration = Duration::from_secs(130);

/// Services by name; see the module's text.
#[derive(Debug, Default)]
pub(super) struct ServiceGroups {
    groups: BTreeMap<ObjectName, Box<[GroupId]>>,
    /// Groups that Services had until lately, with the time from which nobody knows them.
    left: HashMap<GroupId, (ObjectName, Duration)>,
    /// The same, the first to be forgotten first. What is not in `left` any more counts nothing.
    leaving: VecDeque<(Duration, GroupId)>,
    /// Policies that have rules about a Service, by UID, and the reverse.
    users: BTreeMap<ObjectName, BTreeSet<String>>,
    used: BTreeMap<String, BTreeSet<ObjectName>>,
    listed: bool,
    /// Since when the list is waited for.
    waiting: Option<Duration>,
}

impl ServiceGroups {
    /// These are all. Gives the Services whose groups changed.
    pub(super) fn replace(
        &mut self,
        now: Duration,
        all: Vec<(ObjectName, Vec<GroupId>)>,
    ) -> BTreeSet<ObjectName> {
        (self.listed, self.waiting) = (true, None);
        let named: BTreeSet<&ObjectName> = all.iter().map(|(name, _)| name).collect();
        let gone: Vec<ObjectName> =
            self.groups.keys().filter(|name| !named.contains(name)).cloned().collect();
        let gone = gone.into_iter().map(|name| (name, Vec::new()));
        let mut changed = BTreeSet::new();
        for (service, groups) in gone.chain(all) {
            if self.set(now, &service, groups) {
                changed.insert(service);
            }
        }
        changed
    }

    /// The groups of a Service; none, if it is gone. Says whether they changed.
    pub(super) fn set(
        &mut self,
        now: Duration,
        service: &ObjectName,
        mut groups: Vec<GroupId>,
    ) -> bool {
        groups.sort_unstable();
        groups.dedup();
        let before = self.groups.get(service).map(|known| &**known).unwrap_or_default();
        if before == groups {
            return false;
        }
        let until = now + REMEMBERED;
        for id in before.iter().filter(|id| !groups.contains(id)) {
            self.left.insert(*id, (service.clone(), until));
            self.leaving.push_back((until, *id));
        }
        // Whoever had one of them before has it no more.
        groups.iter().for_each(|id| drop(self.left.remove(id)));
        match groups.is_empty() {
            true => drop(self.groups.remove(service)),
            false => drop(self.groups.insert(service.clone(), groups.into())),
        }
        true
    }

    /// The groups by which connections to these Services are known, in order.
    pub(super) fn of<'a>(
        &self,
        services: impl IntoIterator<Item = &'a ObjectName>,
    ) -> BTreeSet<GroupId> {
        let services: BTreeSet<&ObjectName> = services.into_iter().collect();
        let now = services.iter().filter_map(|service| self.groups.get(*service));
        let left = self.left.iter().filter(|(_, (service, _))| services.contains(service));
        now.flat_map(|groups| groups.iter().copied()).chain(left.map(|(id, _)| *id)).collect()
    }

    /// Forgets groups that no connection has any more. Gives whose they were.
    pub(super) fn expire(&mut self, now: Duration) -> BTreeSet<ObjectName> {
        let mut changed = BTreeSet::new();
        while let Some((until, id)) = self.leaving.front().copied().filter(|(at, _)| *at <= now) {
            self.leaving.pop_front();
            if self.left.get(&id).is_some_and(|(_, at)| *at == until) {
                changed.extend(self.left.remove(&id).map(|(service, _)| service));
            }
        }
        changed
    }

    /// These, and no others, are the Services that a policy's rules name.
    pub(super) fn use_by(&mut self, uid: &str, services: BTreeSet<ObjectName>) {
        let before = self.used.remove(uid).unwrap_or_default();
        for service in before.difference(&services) {
            if let Some(users) = self.users.get_mut(service) {
                users.remove(uid);
                if users.is_empty() {
                    self.users.remove(service);
                }
            }
        }
        for service in services.difference(&before) {
            self.users.entry(service.clone()).or_default().insert(uid.to_owned());
        }
        if !services.is_empty() {
            self.used.insert(uid.to_owned(), services);
        }
    }

    /// The policies that name a Service in a rule.
    pub(super) fn users(&self, service: &ObjectName) -> impl Iterator<Item = &str> {
        self.users.get(service).into_iter().flatten().map(String::as_str)
    }

    /// Whether any does.
    pub(super) fn is_used(&self) -> bool {
        !self.users.is_empty()
    }

    /// Whether all Services were told once.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    /// Waits for them, but not for longer than this. Says whether that goes on.
    pub(super) fn wait(&mut self, now: Duration, longest: Duration) -> bool {
        let since = *self.waiting.get_or_insert(now);
        if now < since + longest {
            return true;
        }
        self.listed = true;
        self.waiting = None;
        false
    }

    /// When something is to be done without an event.
    pub(super) fn deadline(&self, longest: Duration) -> Option<Duration> {
        let forget = self.leaving.front().map(|(until, _)| *until);
        forget.into_iter().chain(self.waiting.map(|since| since + longest)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn mk(name: &str) -> ObjectName {
        ObjectName { namespace: "x".into(), name: name.into() }
    }

    fn ids(numbers: &[u32]) -> Vec<GroupId> {
        numbers.iter().copied().map(GroupId).collect()
    }

    #[track_caller]
    fn check(groups: &ServiceGroups, service: &str, want: &[u32]) {
        let got: Vec<u32> = groups.of([&mk(service)]).into_iter().map(|id| id.0).collect();
        assert_eq!(got, want, "{service}");
    }

    #[test]
    fn a_group_is_known_for_as_long_as_a_connection_may_have_it() {
        let mut groups = ServiceGroups::default();
        assert!(groups.set(S(0), &mk("a"), ids(&[2, 1, 2])));
        assert!(!groups.set(S(0), &mk("a"), ids(&[1, 2])));
        assert!(groups.set(S(10), &mk("a"), ids(&[1])));
        check(&groups, "a", &[1, 2]);
        assert_eq!(groups.deadline(S(10)), Some(S(140)));
        assert!(groups.expire(S(139)).is_empty());
        assert_eq!(groups.expire(S(140)), [mk("a")].into());
        check(&groups, "a", &[1]);
        assert_eq!(groups.deadline(S(10)), None);
    }

    #[test]
    fn a_group_that_another_gets_is_that_ones_alone() {
        let mut groups = ServiceGroups::default();
        groups.set(S(0), &mk("a"), ids(&[1]));
        groups.set(S(1), &mk("a"), ids(&[]));
        check(&groups, "a", &[1]);
        groups.set(S(2), &mk("b"), ids(&[1]));
        check(&groups, "a", &[]);
        check(&groups, "b", &[1]);
        // It comes back and goes again: the first time to forget it does not count any more.
        groups.set(S(3), &mk("b"), ids(&[]));
        groups.set(S(4), &mk("a"), ids(&[1]));
        groups.set(S(5), &mk("a"), ids(&[]));
        assert!(groups.expire(S(134)).is_empty());
        assert_eq!(groups.expire(S(135)), [mk("a")].into());
    }

    #[test]
    fn a_list_takes_away_what_it_leaves_out() {
        let mut groups = ServiceGroups::default();
        groups.set(S(0), &mk("a"), ids(&[1]));
        let changed = groups.replace(S(0), vec![(mk("b"), ids(&[2]))]);
        assert_eq!(changed, [mk("a"), mk("b")].into());
        assert!(groups.replace(S(0), vec![(mk("b"), ids(&[2]))]).is_empty());
        check(&groups, "b", &[2]);
    }
}

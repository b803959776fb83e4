//! Which Pods Kubernetes policies isolate.
//!
//! A thousand policies may isolate the same hundred Pods. So policies that isolate the same ones
//! share a list of them, and of a Pod it is noted how many policies isolate it, not which.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use pipeline::policy::{Direction, Isolation};

use super::groups::PodKey;

/// One direction of a Pod.
pub(super) type PlacedPod = (Direction, PodKey);

/// What a policy isolates, sorted, and whether it wants what falls through logged.
pub(super) type Isolated = Arc<Vec<(PlacedPod, bool)>>;

/// What all policies isolate.
#[derive(Debug, Default)]
pub(super) struct IsolatedPods {
    pods: BTreeMap<PlacedPod, Policies>,
    /// Each list that a policy has.
    lists: HashSet<Isolated>,
    /// What was asked of the switch.
    shown: BTreeMap<PlacedPod, Isolation>,
    stale: BTreeSet<PlacedPod>,
}

/// How many policies isolate a Pod, and how many of them log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Policies {
    n: usize,
    n_logging: usize,
}

impl IsolatedPods {
    /// The one list of this content.
    pub(super) fn share(&mut self, wanted: BTreeMap<PlacedPod, bool>) -> Isolated {
        let list = Arc::new(wanted.into_iter().collect());
        if let Some(shared) = self.lists.get(&list) {
            return Arc::clone(shared);
        }
        self.lists.insert(Arc::clone(&list));
        list
    }

    /// A policy isolates others than before.
    pub(super) fn change(&mut self, before: &Isolated, after: &Isolated) {
        if Arc::ptr_eq(before, after) {
            return;
        }
        for (place, log) in after.iter() {
            let policies = self.pods.entry(place.clone()).or_default();
            policies.n += 1;
            policies.n_logging += usize::from(*log);
            self.stale.insert(place.clone());
        }
        for (place, log) in before.iter() {
            if let Some(policies) = self.pods.get_mut(place) {
                policies.n -= 1;
                policies.n_logging -= usize::from(*log);
                if policies.n == 0 {
                    self.pods.remove(place);
                }
            }
            self.stale.insert(place.clone());
        }
    }

    /// The Pod has another port, or none.
    pub(super) fn touch(&mut self, pod: &PodKey) {
        let places = [Direction::Egress, Direction::Ingress].map(|d| (d, pod.clone()));
        self.stale.extend(places);
    }

    /// Whether a policy isolates it, and if so whether one of them logs.
    pub(super) fn log_of(&self, place: &PlacedPod) -> Option<bool> {
        self.pods.get(place).map(|policies| policies.n_logging > 0)
    }

    /// What may have changed since the last call.
    pub(super) fn take_stale(&mut self) -> BTreeSet<PlacedPod> {
        self.lists.retain(|list| Arc::strong_count(list) > 1);
        std::mem::take(&mut self.stale)
    }

    /// Notes what is asked of the switch; says whether it is something else than before.
    pub(super) fn show(&mut self, place: PlacedPod, wanted: Option<Isolation>) -> bool {
        if self.shown.get(&place) == wanted.as_ref() {
            return false;
        }
        match wanted {
            Some(isolation) => self.shown.insert(place, isolation),
            None => self.shown.remove(&place),
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PlacedPod {
        (Direction::Ingress, PodKey { namespace: "ns".into(), name: name.into() })
    }

    fn list(isolated: &mut IsolatedPods, pods: &[(&str, bool)]) -> Isolated {
        isolated.share(pods.iter().map(|(name, log)| (place(name), *log)).collect())
    }

    #[test]
    fn a_pod_is_isolated_until_the_last_policy_is_gone() {
        let mut isolated = IsolatedPods::default();
        let none = Isolated::default();
        let logged = list(&mut isolated, &[("a", true), ("b", false)]);
        let same = list(&mut isolated, &[("b", false), ("a", true)]);
        assert!(Arc::ptr_eq(&logged, &same));
        let quiet = list(&mut isolated, &[("a", false)]);
        isolated.change(&none, &logged);
        isolated.change(&none, &quiet);
        assert_eq!(isolated.take_stale().len(), 2);
        assert_eq!(isolated.log_of(&place("a")), Some(true));
        isolated.change(&logged, &same);
        assert_eq!(isolated.take_stale().len(), 0);
        isolated.change(&logged, &none);
        assert_eq!(isolated.log_of(&place("a")), Some(false));
        assert_eq!(isolated.log_of(&place("b")), None);
        isolated.change(&quiet, &none);
        assert_eq!(isolated.log_of(&place("a")), None);
        assert_eq!(isolated.take_stale().len(), 2);
        drop((logged, same, quiet));
        isolated.take_stale();
        assert!(isolated.lists.is_empty() && isolated.pods.is_empty());
    }
}

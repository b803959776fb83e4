//! Cohorts of Pods, and the selectors that select them.

use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

use super::labels::{LabelSetId, Labels, label_hash};
use super::pod::PodId;
use super::selector::Selector;
use super::{
    CohortId, Few, Index, NamespaceId, NamespaceInput, NamespaceSelectorId, Placed, SelectorId,
};

/// Pods of one namespace with equal labels.
#[derive(Debug)]
pub struct Cohort {
    namespace: NamespaceId,
    labels: LabelSetId,
    pods: Vec<PodId>,
    selectors: Few<SelectorId>,
}

impl Cohort {
    /// Its Pods.
    pub fn pods(&self) -> &[PodId] {
        &self.pods
    }

    /// The selectors that select it.
    pub fn selectors(&self) -> &[SelectorId] {
        &self.selectors
    }
}

/// The namespaces that a selector is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// One namespace.
    Namespace(NamespaceId),
    /// Those that a namespace selector selects.
    Namespaces(NamespaceSelectorId),
}

#[derive(Debug)]
pub(super) struct NamespaceSelector {
    selector: Selector,
    namespaces: Vec<NamespaceId>,
    selectors: Vec<SelectorId>,
    users: u32,
}

#[derive(Debug)]
pub(super) struct GroupSelector {
    scope: Scope,
    selector: Selector,
    cohorts: Vec<CohortId>,
    users: u32,
}

/// What a change of a namespace does to a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It selects a cohort from now on.
    Gains(SelectorId, CohortId),
    /// It selects a cohort no more.
    Loses(SelectorId, CohortId),
}

impl Index {
    /// A cohort.
    pub fn cohort_of(&self, id: CohortId) -> &Cohort {
        &self.cohorts[id]
    }

    /// The labels of the Pods of a cohort.
    pub fn labels_of(&self, id: CohortId) -> &Labels {
        self.label_sets.get(self.cohorts[id].labels)
    }

    /// The namespace of a cohort.
    pub fn namespace_of(&self, id: CohortId) -> NamespaceId {
        self.cohorts[id].namespace
    }

    /// The cohorts that a selector selects.
    pub fn selected(&self, id: SelectorId) -> &[CohortId] {
        &self.selectors[id].cohorts
    }

    /// Whether a selector selects a cohort.
    pub fn selects(&self, id: SelectorId, cohort: CohortId) -> bool {
        self.cohorts[cohort].selectors.contains(&id)
    }

    /// The namespaces of a scope that have been seen.
    pub fn scope_namespaces(&self, id: SelectorId) -> Vec<NamespaceId> {
        match self.selectors[id].scope {
            Scope::Namespace(namespace) => vec![namespace],
            Scope::Namespaces(selector) => self.namespace_selectors[selector].namespaces.clone(),
        }
    }

    pub(super) fn cohort(&mut self, namespace: NamespaceId, labels: Labels) -> CohortId {
        let set = self.label_sets.acquire(labels);
        if let Some(id) = self.cohort_by_labels.get(&(namespace, set)) {
            self.label_sets.release(set);
            return *id;
        }
        let cohort = Cohort { namespace, labels: set, pods: Vec::new(), selectors: Few::default() };
        let id = self.cohorts.insert(cohort);
        self.cohort_by_labels.insert((namespace, set), id);
        self.namespaces[namespace].cohorts.push(id);
        let mut hashes = Few::<u64>::default();
        hashes.push(0);
        let labels = self.label_sets.get(set);
        hashes.extend(labels.iter().map(|(key, value)| label_hash(key, value)));
        hashes.sort_unstable();
        hashes.dedup();
        for hash in &hashes[1..] {
            self.cohorts_by_label.entry((namespace, *hash)).or_default().push(id);
        }
        self.match_cohort(id, Scope::Namespace(namespace), &hashes);
        // Selectors over all namespaces are few beside those of single ones.
        if !self.namespace_selectors.is_empty() {
            let containing: Vec<NamespaceSelectorId> = self
                .namespace_selectors
                .iter()
                .filter(|(_, selector)| selector.namespaces.binary_search(&namespace).is_ok())
                .map(|(id, _)| id)
                .collect();
            for selector in containing {
                self.match_cohort(id, Scope::Namespaces(selector), &hashes);
            }
        }
        id
    }

    fn match_cohort(&mut self, cohort: CohortId, scope: Scope, hashes: &[u64]) {
        let labels = self.label_sets.get(self.cohorts[cohort].labels);
        let mut found = Few::<SelectorId>::default();
        for hash in hashes {
            for id in self.selectors_by_label.get(&(scope, *hash)).into_iter().flatten() {
                if self.selectors[*id].selector.matches(labels) {
                    found.push(*id);
                }
            }
        }
        for selector in found {
            self.tie(selector, cohort);
        }
    }

    fn tie(&mut self, selector: SelectorId, cohort: CohortId) {
        self.selectors[selector].cohorts.push(cohort);
        self.cohorts[cohort].selectors.push(selector);
    }

    fn untie(&mut self, selector: SelectorId, cohort: CohortId) {
        remove_from(&mut self.selectors[selector].cohorts, &cohort);
        let selectors = &mut self.cohorts[cohort].selectors;
        if let Some(at) = selectors.iter().position(|own| *own == selector) {
            selectors.swap_remove(at);
        }
    }

    pub(super) fn join(&mut self, pod: PodId, cohort: CohortId) {
        let pods = &mut self.cohorts[cohort].pods;
        let position = u32::try_from(pods.len()).expect("Pods are numbered with 32 bits");
        pods.push(pod);
        let slot = &mut self.pods[pod];
        slot.cohort = cohort;
        slot.position = position;
    }

    pub(super) fn leave(&mut self, pod: PodId, cohort: CohortId) {
        let position = self.pods[pod].position;
        let pods = &mut self.cohorts[cohort].pods;
        pods.swap_remove(position as usize);
        if let Some(moved) = pods.get(position as usize) {
            self.pods[*moved].position = position;
        }
        if self.cohorts[cohort].pods.is_empty() {
            self.drop_cohort(cohort);
        }
    }

    fn drop_cohort(&mut self, id: CohortId) {
        for selector in self.cohorts[id].selectors.clone() {
            self.untie(selector, id);
        }
        let Some(cohort) = self.cohorts.remove(id) else { return };
        self.cohort_by_labels.remove(&(cohort.namespace, cohort.labels));
        remove_from(&mut self.namespaces[cohort.namespace].cohorts, &id);
        let labels = self.label_sets.get(cohort.labels);
        for (key, value) in labels.iter() {
            let place = (cohort.namespace, label_hash(key, value));
            if let Some(cohorts) = self.cohorts_by_label.get_mut(&place) {
                cohorts.retain(|own| *own != id);
                if cohorts.is_empty() {
                    self.cohorts_by_label.remove(&place);
                }
            }
        }
        self.label_sets.release(cohort.labels);
    }

    pub(super) fn move_to_cohort(
        &mut self,
        placed: Placed,
        namespace: NamespaceId,
        labels: Labels,
    ) -> CohortId {
        let old = &self.cohorts[placed.cohort];
        if *self.label_sets.get(old.labels) == labels {
            return placed.cohort;
        }
        let cohort = self.cohort(namespace, labels);
        self.leave(placed.pod, placed.cohort);
        self.join(placed.pod, cohort);
        cohort
    }

    /// The number of a namespace selector, for as long as the caller uses it.
    pub fn use_namespace_selector(&mut self, selector: &Selector) -> NamespaceSelectorId {
        if let Some(id) = self.namespace_selector_by_content.get(selector) {
            self.namespace_selectors[*id].users += 1;
            return *id;
        }
        let mut namespaces: Vec<NamespaceId> = self
            .namespaces()
            .filter(|(_, _, labels)| selector.matches(labels))
            .map(|(id, _, _)| id)
            .collect();
        namespaces.sort();
        let id = self.namespace_selectors.insert(NamespaceSelector {
            selector: selector.clone(),
            namespaces,
            selectors: Vec::new(),
            users: 1,
        });
        self.namespace_selector_by_content.insert(selector.clone(), id);
        id
    }

    /// Ends a use of a namespace selector's number.
    pub fn release_namespace_selector(&mut self, id: NamespaceSelectorId) {
        let selector = &mut self.namespace_selectors[id];
        selector.users -= 1;
        if selector.users == 0
            && let Some(gone) = self.namespace_selectors.remove(id)
        {
            self.namespace_selector_by_content.remove(&gone.selector);
        }
    }

    /// The number of a selector in a scope, for as long as the caller uses it. Takes over the
    /// caller's use of the scope.
    pub fn use_selector(&mut self, scope: Scope, selector: Selector) -> SelectorId {
        let hash = FxBuildHasher.hash_one((scope, &selector));
        let known = self.selector_by_content.find(hash, |id| {
            let own = &self.selectors[*id];
            own.scope == scope && own.selector == selector
        });
        if let Some(id) = known {
            let id = *id;
            self.selectors[id].users += 1;
            self.release_scope(scope);
            return id;
        }
        let needed = selector.needed_label();
        let cohorts = self.find_cohorts(scope, &selector, needed);
        let id =
            self.selectors.insert(GroupSelector { scope, selector, cohorts: Vec::new(), users: 1 });
        let selectors = &self.selectors;
        self.selector_by_content.insert_unique(hash, id, |id| {
            let own = &selectors[*id];
            FxBuildHasher.hash_one((own.scope, &own.selector))
        });
        self.selectors_by_label.entry((scope, needed)).or_default().push(id);
        if let Scope::Namespaces(selector) = scope {
            self.namespace_selectors[selector].selectors.push(id);
        }
        self.selectors[id].cohorts.reserve_exact(cohorts.len());
        for cohort in cohorts {
            self.tie(id, cohort);
        }
        id
    }

    fn find_cohorts(&self, scope: Scope, selector: &Selector, needed: u64) -> Vec<CohortId> {
        let mut found = Vec::new();
        let one;
        let namespaces: &[NamespaceId] = match scope {
            Scope::Namespace(namespace) => {
                one = [namespace];
                &one
            }
            Scope::Namespaces(id) => &self.namespace_selectors[id].namespaces,
        };
        for namespace in namespaces {
            let candidates: &[CohortId] = if needed == 0 {
                &self.namespaces[*namespace].cohorts
            } else {
                self.cohorts_by_label.get(&(*namespace, needed)).map_or(&[], |few| few.as_slice())
            };
            found.extend(candidates.iter().copied().filter(|id| self.fits(selector, *id)));
        }
        found
    }

    fn fits(&self, selector: &Selector, cohort: CohortId) -> bool {
        selector.matches(self.label_sets.get(self.cohorts[cohort].labels))
    }

    fn release_scope(&mut self, scope: Scope) {
        match scope {
            Scope::Namespace(id) => self.release_namespace(id),
            Scope::Namespaces(id) => self.release_namespace_selector(id),
        }
    }

    /// Ends a use of a selector's number; returns whether the selector is gone.
    pub fn release_selector(&mut self, id: SelectorId) -> Released {
        let selector = &mut self.selectors[id];
        selector.users -= 1;
        if selector.users > 0 {
            return Released::StillUsed;
        }
        let (scope, needed) = (selector.scope, selector.selector.needed_label());
        for cohort in std::mem::take(&mut selector.cohorts) {
            let selectors = &mut self.cohorts[cohort].selectors;
            selectors.retain(|own| *own != id);
        }
        let own = &self.selectors[id];
        let hash = FxBuildHasher.hash_one((scope, &own.selector));
        if let Ok(found) = self.selector_by_content.find_entry(hash, |own| *own == id) {
            found.remove();
        }
        self.selectors.remove(id);
        if let Some(selectors) = self.selectors_by_label.get_mut(&(scope, needed)) {
            selectors.retain(|own| *own != id);
            if selectors.is_empty() {
                self.selectors_by_label.remove(&(scope, needed));
            }
        }
        if let Scope::Namespaces(selector) = scope {
            remove_from(&mut self.namespace_selectors[selector].selectors, &id);
        }
        self.release_scope(scope);
        Released::Gone
    }

    /// What it would do to selectors if a namespace had these labels, or went (`None`).
    pub fn namespace_effects(&self, name: &str, labels: Option<&Labels>) -> Vec<Effect> {
        let Some(id) = self.namespace_by_name.get(name) else { return Vec::new() };
        let before = self.namespace_labels(*id);
        let mut effects = Vec::new();
        for (_, selector) in self.namespace_selectors.iter() {
            let selected = before.is_some_and(|labels| selector.selector.matches(labels));
            let selects = labels.is_some_and(|labels| selector.selector.matches(labels));
            if selected == selects {
                continue;
            }
            for group in &selector.selectors {
                for cohort in &self.namespaces[*id].cohorts {
                    if self.fits(&self.selectors[*group].selector, *cohort) {
                        effects.push(match selects {
                            true => Effect::Gains(*group, *cohort),
                            false => Effect::Loses(*group, *cohort),
                        });
                    }
                }
            }
        }
        effects
    }

    /// Adds a namespace, or changes the one of its name. `effects` are those that
    /// [`Self::namespace_effects`] told of.
    pub fn upsert_namespace(&mut self, input: &NamespaceInput, effects: &[Effect]) -> NamespaceId {
        let id = self.namespace_id(&input.name);
        let set = self.label_sets.acquire(pack_labels(input));
        self.namespaces[id].log_policies = input.log_policies;
        let old = self.namespaces[id].labels.replace(set);
        self.namespace_changed(id, effects);
        if let Some(old) = old {
            self.label_sets.release(old);
        }
        id
    }

    /// Forgets a namespace; its Pods, if it has any, stay until they go themselves.
    pub fn remove_namespace(&mut self, name: &str, effects: &[Effect]) {
        let Some(id) = self.namespace_by_name.get(name).copied() else { return };
        let Some(old) = self.namespaces[id].labels.take() else { return };
        self.namespaces[id].log_policies = false;
        self.namespace_changed(id, effects);
        self.label_sets.release(old);
        self.drop_unused_namespace(id);
    }

    fn namespace_changed(&mut self, id: NamespaceId, effects: &[Effect]) {
        let labels = self.namespaces[id].labels.map(|labels| self.label_sets.get(labels));
        // Both borrow other fields than the selectors.
        let selectors = &mut self.namespace_selectors;
        let ids: Vec<NamespaceSelectorId> = selectors.iter().map(|(id, _)| id).collect();
        for selector in ids {
            let own = &mut selectors[selector];
            let selects = labels.is_some_and(|labels| own.selector.matches(labels));
            match (own.namespaces.binary_search(&id), selects) {
                (Err(at), true) => own.namespaces.insert(at, id),
                (Ok(at), false) => drop(own.namespaces.remove(at)),
                _ => {}
            }
        }
        for effect in effects {
            match effect {
                Effect::Gains(selector, cohort) => self.tie(*selector, *cohort),
                Effect::Loses(selector, cohort) => self.untie(*selector, *cohort),
            }
        }
    }
}

/// Packs a namespace's labels.
pub(crate) fn pack_labels(input: &NamespaceInput) -> Labels {
    Labels::pack(input.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

/// Whether the last use of a number ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Others use it.
    StillUsed,
    /// It may be given out again.
    Gone,
}

fn remove_from<T: PartialEq>(list: &mut Vec<T>, item: &T) {
    if let Some(at) = list.iter().position(|own| own == item) {
        list.swap_remove(at);
    }
}

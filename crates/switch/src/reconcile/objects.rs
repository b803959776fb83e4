//! Groups and meters: few, so they are kept as they are.

use std::collections::BTreeMap;

use super::flows::OnSwitch;
use super::owners::SetId;

/// One group or meter.
#[derive(Debug)]
pub(super) struct Object<T> {
    /// Who wants it, and how.
    pub(super) wanted: Option<(SetId, T)>,
    /// Who else wants it, and how, in order of coming.
    claims: Vec<(SetId, T)>,
    pub(super) on_switch: OnSwitch,
    /// What the switch holds, while nobody wants anything: it may be just what is wanted next.
    seen: Option<T>,
    /// Found on the switch and claimed by nobody so far.
    pub(super) unclaimed: bool,
    pub(super) in_flight: bool,
    /// Changed since it was put into the batch under way.
    pub(super) changed: bool,
    pub(super) refused: bool,
}

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self {
            wanted: None,
            claims: Vec::new(),
            on_switch: OnSwitch::Absent,
            seen: None,
            unclaimed: false,
            in_flight: false,
            changed: false,
            refused: false,
        }
    }
}

impl<T: PartialEq> Object<T> {
    fn put(&mut self, set: SetId, value: T) {
        let is_there = !self.in_flight && self.seen.take().is_some_and(|seen| seen == value);
        self.wanted = Some((set, value));
        self.changed = self.in_flight;
        self.refused = false;
        self.unclaimed = false;
        if is_there {
            self.on_switch = OnSwitch::Exact;
        } else if self.on_switch == OnSwitch::Exact {
            self.on_switch = OnSwitch::Unknown;
        }
    }
}

impl<T> Object<T> {
    fn is_nothing(&self) -> bool {
        self.wanted.is_none() && self.on_switch == OnSwitch::Absent && !self.in_flight
    }
}

/// All groups, or all meters.
#[derive(Debug)]
pub(super) struct Objects<K, T> {
    objects: BTreeMap<K, Object<T>>,
}

impl<K, T> Default for Objects<K, T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new() }
    }
}

impl<K: Ord + Copy, T: PartialEq> Objects<K, T> {
    pub(super) fn get(&self, id: K) -> Option<&Object<T>> {
        self.objects.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: K) -> Option<&mut Object<T>> {
        self.objects.get_mut(&id)
    }

    /// `set` wants `id` to be `value`. Returns who has it otherwise, if that is somebody else.
    pub(super) fn want(&mut self, id: K, set: SetId, value: T) -> Option<SetId> {
        let object = self.objects.entry(id).or_default();
        match &object.wanted {
            Some((holder, same)) if *holder == set && *same == value => None,
            Some((holder, other)) if *holder != set => {
                let (holder, differs) = (*holder, *other != value);
                object.claims.retain(|(claimant, _)| *claimant != set);
                object.claims.push((set, value));
                differs.then_some(holder)
            }
            _ => {
                object.put(set, value);
                None
            }
        }
    }

    /// `set` does not want `id` any more. Returns who takes over, if anybody.
    pub(super) fn release(&mut self, id: K, set: SetId) -> Option<SetId> {
        let object = self.objects.get_mut(&id)?;
        object.claims.retain(|(claimant, _)| *claimant != set);
        if object.wanted.as_ref().is_none_or(|(holder, _)| *holder != set) {
            return None;
        }
        let released = object.wanted.take();
        if !object.claims.is_empty() {
            let (claimant, value) = object.claims.remove(0);
            if released.is_some_and(|(_, old)| old == value) {
                object.wanted = Some((claimant, value));
            } else {
                object.put(claimant, value);
            }
            return Some(claimant);
        }
        object.changed = object.in_flight;
        object.refused = false;
        if object.is_nothing() {
            self.objects.remove(&id);
        }
        None
    }

    /// What has to be added or changed.
    pub(super) fn to_send(&self) -> Vec<K> {
        let is_due = |object: &Object<T>| {
            object.wanted.is_some() && object.on_switch != OnSwitch::Exact && !object.refused
        };
        self.objects.iter().filter(|(_, object)| is_due(object)).map(|(id, _)| *id).collect()
    }

    /// What has to be deleted; of what nobody ever claimed only once the gate is open.
    pub(super) fn to_delete(&self, gate_open: bool) -> Vec<K> {
        let is_due = |object: &Object<T>| {
            object.wanted.is_none()
                && object.on_switch != OnSwitch::Absent
                && (gate_open || !object.unclaimed)
        };
        self.objects.iter().filter(|(_, object)| is_due(object)).map(|(id, _)| *id).collect()
    }

    /// Marks an object as part of the batch under way.
    pub(super) fn begin(&mut self, id: K) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.in_flight = true;
            object.changed = false;
            object.seen = None;
            object.on_switch = OnSwitch::Unknown;
        }
    }

    /// The batch is done: `on_switch` holds unless the object changed meanwhile.
    pub(super) fn finish(&mut self, id: K, on_switch: OnSwitch) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.in_flight = false;
        object.on_switch = match (object.changed, on_switch) {
            (false, on_switch) => on_switch,
            // What was deleted is not there, whatever is wanted now.
            (true, OnSwitch::Absent) => OnSwitch::Absent,
            (true, OnSwitch::Exact | OnSwitch::Unknown) => OnSwitch::Unknown,
        };
        object.changed = false;
        if object.is_nothing() {
            self.objects.remove(&id);
        }
    }

    /// Takes in all that the switch holds; what is not understood is there, and not as anybody
    /// wants it. Returns how many wanted ones were not as believed.
    pub(super) fn take_in(&mut self, dumped: Vec<(K, Option<T>)>) -> u64 {
        let mut n_wrong = 0;
        let mut dumped: BTreeMap<K, Option<T>> = dumped.into_iter().collect();
        for (id, object) in &mut self.objects {
            if object.in_flight {
                continue;
            }
            let now = match (dumped.get(id), &object.wanted) {
                (None, _) => OnSwitch::Absent,
                (Some(Some(seen)), Some((_, wanted))) if seen == wanted => OnSwitch::Exact,
                (Some(_), _) => OnSwitch::Unknown,
            };
            if object.on_switch == OnSwitch::Exact && now != OnSwitch::Exact {
                n_wrong += 1;
            }
            object.on_switch = now;
            object.seen = match object.wanted {
                None => dumped.get_mut(id).and_then(Option::take),
                Some(_) => None,
            };
        }
        for (id, seen) in dumped {
            self.objects.entry(id).or_insert_with(|| Object {
                on_switch: OnSwitch::Unknown,
                seen,
                unclaimed: true,
                ..Object::default()
            });
        }
        self.objects.retain(|_, object| !object.is_nothing());
        n_wrong
    }

    /// The connection is gone: nothing is under way any more.
    pub(super) fn disconnect(&mut self) {
        for object in self.objects.values_mut() {
            object.in_flight = false;
            object.changed = false;
            object.refused = false;
        }
    }

    pub(super) fn n_wanted(&self) -> usize {
        self.objects.values().filter(|object| object.wanted.is_some()).count()
    }
}

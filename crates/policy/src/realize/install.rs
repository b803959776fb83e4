//! Policies into the tables, version by version and difference by difference.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use apis::controlplane::{Direction as RuleDirection, NetworkPolicy, ObjectName};
use openflow::{ConjId, Flow};
use pipeline::fields::{
    BASELINE_RULE_MAX, BASELINE_RULE_MIN, K8S_RULE_MAX, K8S_RULE_MIN, RULE_MAX, RULE_MIN,
};
use pipeline::policy::{
    Clause, ClauseKey, Direction, Place, RuleSpec, rule_flows, rule_table, rules_of,
};

use super::groups::PodKey;
use super::hold::{Hold, Kind};
use super::ids::RuleOwner;
use super::isolation::{Isolated, PlacedPod};
use super::names::normal;
use super::priority::{Assigner, Full, Rank};
use super::resolve::{Context, Part, Resolved, identity, resolve, targets_of, uid_of};
use super::status::name_of;
use super::table::{FlowId, MAX_RULES_PER_FLOW, Slot};
use super::{PolicyState, Realizer};

/// A part of a rule that is in the tables.
#[derive(Debug)]
pub(super) struct InstalledPart {
    pub(super) part: Part,
    /// Which of the policy's rules.
    pub(super) rule: usize,
    pub(super) id: ConjId,
    pub(super) slot: Slot,
}

/// The priorities of all tables.
#[derive(Debug, Default)]
pub(super) struct Slots {
    tables: BTreeMap<(Direction, Place), Ranked>,
    users: HashMap<Slot, usize>,
}

/// The ranks of one table, and the numbers they have while they are in use.
#[derive(Debug)]
struct Ranked {
    assigner: Assigner,
    levels: BTreeMap<Rank, u32>,
    ranks: HashMap<u32, Rank>,
    next: u32,
}

impl Ranked {
    fn new(place: Place) -> Self {
        let (lowest, highest) = match place {
            Place::Baseline => (BASELINE_RULE_MIN, BASELINE_RULE_MAX),
            Place::Tiered | Place::Kubernetes | Place::NodePort => (RULE_MIN, RULE_MAX),
        };
        Self {
            assigner: Assigner::new(lowest, highest),
            levels: BTreeMap::new(),
            ranks: HashMap::new(),
            next: 0,
        }
    }
}

impl Slots {
    /// A slot's OpenFlow priority.
    pub(super) fn priority(&self, slot: Slot) -> Option<u16> {
        let (direction, place) = rules_of(slot.table)?;
        if place == Place::Kubernetes {
            let spread = u16::try_from(slot.level).ok()?;
            return K8S_RULE_MIN.checked_add(spread).filter(|p| *p <= K8S_RULE_MAX);
        }
        let ranked = self.tables.get(&(direction, place))?;
        ranked.assigner.get(ranked.ranks.get(&slot.level)?)
    }

    /// The slot for a part at its `spread`-th try; slots that had to move are added to `moved`.
    fn acquire(&mut self, part: &Part, spread: u16, moved: &mut Vec<Slot>) -> Result<Slot, Full> {
        let table = rule_table(part.direction, part.place);
        let slot = match part.rank {
            None if spread > K8S_RULE_MAX - K8S_RULE_MIN => return Err(Full),
            None => Slot { table, level: spread.into() },
            Some(rank) => {
                let rank = Rank { spread, ..rank };
                let place = (part.direction, part.place);
                let ranked = self.tables.entry(place).or_insert_with(|| Ranked::new(part.place));
                let mut ranks = Vec::new();
                ranked.assigner.acquire(rank, &mut ranks)?;
                let levels = &ranked.levels;
                let slots = ranks.iter().filter_map(|rank| levels.get(rank));
                moved.extend(slots.map(|level| Slot { table, level: *level }));
                let level = *ranked.levels.entry(rank).or_insert_with(|| {
                    ranked.next += 1;
                    ranked.next
                });
                ranked.ranks.insert(level, rank);
                Slot { table, level }
            }
        };
        *self.users.entry(slot).or_default() += 1;
        Ok(slot)
    }

    fn release(&mut self, slot: Slot) {
        if let Some(n_users) = self.users.get_mut(&slot) {
            *n_users -= 1;
            if *n_users == 0 {
                self.users.remove(&slot);
            }
        }
        let Some((direction, place)) = rules_of(slot.table) else { return };
        let Some(ranked) = self.tables.get_mut(&(direction, place)) else { return };
        let Some(rank) = ranked.ranks.get(&slot.level).copied() else { return };
        ranked.assigner.release(&rank);
        if ranked.assigner.get(&rank).is_none() {
            ranked.ranks.remove(&slot.level);
            ranked.levels.remove(&rank);
        }
    }

    /// Whether a flow of the slot could be full: each part is in a flow at most once.
    pub(super) fn may_be_full(&self, slot: Slot) -> bool {
        self.users.get(&slot).is_some_and(|n_users| *n_users > MAX_RULES_PER_FLOW)
    }
}

/// The Services whose connections a policy's rules are about.
fn services_of(policy: &NetworkPolicy) -> impl Iterator<Item = &ObjectName> {
    policy.rules.iter().flat_map(|rule| &rule.peer().to_services)
}

/// The groups that a policy names.
fn groups_of(policy: &NetworkPolicy) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let mut applied_to: BTreeSet<&str> =
        policy.applied_to_groups.iter().map(String::as_str).collect();
    let mut addresses = BTreeSet::new();
    for rule in &policy.rules {
        applied_to.extend(rule.applied_to_groups.iter().map(String::as_str));
        addresses.extend(rule.peer().address_groups.iter().map(String::as_str));
    }
    (applied_to, addresses)
}

fn forget_user(users: &mut BTreeMap<String, BTreeSet<String>>, group: &str, uid: &str) {
    if let Some(uids) = users.get_mut(group) {
        uids.remove(uid);
        if uids.is_empty() {
            users.remove(group);
        }
    }
}

impl Realizer {
    pub(super) fn replace_policies(&mut self, now: Duration, policies: Vec<NetworkPolicy>) {
        let uids: BTreeSet<String> = policies.iter().map(|p| uid_of(p).to_owned()).collect();
        let gone: Vec<String> =
            self.policies.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
        for uid in gone {
            self.left_out.entry(uid).or_insert_with(|| Hold::new(now));
        }
        policies.into_iter().for_each(|policy| self.set_policy(policy));
        self.begin(Kind::NetworkPolicy);
    }

    pub(super) fn set_policy(&mut self, policy: NetworkPolicy) {
        let uid = uid_of(&policy).to_owned();
        self.gone.remove(&uid);
        self.left_out.remove(&uid);
        let latest = Arc::new(policy);
        match self.policies.get_mut(&uid) {
            Some(state) if *state.latest == *latest => return,
            Some(state) => {
                state.latest = latest;
                state.hold = None;
            }
            None => {
                let state = PolicyState {
                    latest,
                    hold: None,
                    installed: None,
                    identities: Vec::new(),
                    parts: BTreeMap::new(),
                    isolated: Isolated::default(),
                    dns_pods: BTreeSet::new(),
                    problems: Vec::new(),
                    pending: false,
                    reported: None,
                };
                self.policies.insert(uid.clone(), state);
            }
        }
        self.note_users(&uid);
        self.stale.insert(uid);
    }

    pub(super) fn delete_policy(&mut self, uid: &str) {
        if self.policies.contains_key(uid) {
            self.left_out.remove(uid);
            self.gone.insert(uid.to_owned());
        }
    }

    /// Takes policies that a new list left out of the tables, once nothing of that list waits for
    /// its groups any more.
    pub(super) fn drop_left_out(&mut self, now: Duration) {
        if self.left_out.is_empty() {
            return;
        }
        let listed = self.policies.iter().filter(|(uid, _)| !self.left_out.contains_key(*uid));
        let is_whole = listed.into_iter().all(|(_, state)| {
            let installed = state.installed.as_ref();
            installed.is_some_and(|i| Arc::ptr_eq(i, &state.latest)) && !state.pending
        });
        let longest = self.config.longest_hold;
        let bookmarks = &self.bookmarks;
        let over: Vec<String> = self
            .left_out
            .extract_if(.., |_, hold| {
                is_whole
                    || [Kind::AppliedToGroup, Kind::AddressGroup]
                        .into_iter()
                        .all(|other| hold.is_over(other, bookmarks, now, longest))
            })
            .map(|(uid, _)| uid)
            .collect();
        self.gone.extend(over);
        self.drop_gone(now);
    }

    /// Takes policies that are gone out of the tables.
    pub(super) fn drop_gone(&mut self, now: Duration) {
        for uid in std::mem::take(&mut self.gone) {
            self.stale.remove(&uid);
            self.apply(now, &uid, Vec::new());
            self.policies.remove(&uid);
            self.names.use_patterns(now, &uid, BTreeSet::new());
            let noted = self.noted.remove(&uid).unwrap_or_default();
            self.services.use_by(&uid, BTreeSet::new());
            let maps = [&mut self.applied_to_users, &mut self.address_users];
            for (users, names) in maps.into_iter().zip(noted) {
                names.iter().for_each(|name| forget_user(users, name, &uid));
            }
        }
    }

    /// Which groups a policy uses, in both versions of it.
    fn note_users(&mut self, uid: &str) {
        let Some(state) = self.policies.get(uid) else { return };
        let versions = [Some(&state.latest), state.installed.as_ref()];
        let (mut applied_to, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        let mut services: BTreeSet<ObjectName> = BTreeSet::new();
        for policy in versions.into_iter().flatten() {
            services.extend(services_of(policy).cloned());
            let (targets, peers) = groups_of(policy);
            applied_to.extend(targets.into_iter().map(str::to_owned));
            addresses.extend(peers.into_iter().map(str::to_owned));
        }
        let maps = [(&mut self.applied_to_users, applied_to), (&mut self.address_users, addresses)];
        let noted = self.noted.entry(uid.to_owned()).or_default();
        for (n, (users, names)) in maps.into_iter().enumerate() {
            for name in noted[n].difference(&names) {
                forget_user(users, name, uid);
            }
            for name in names.difference(&noted[n]) {
                users.entry(name.clone()).or_default().insert(uid.to_owned());
            }
            noted[n] = names;
        }
        self.services.use_by(uid, services);
    }

    /// Installs the latest version if it is complete, and then what the installed version asks for
    /// as groups and Pods are now.
    pub(super) fn bring_up_to_date(&mut self, now: Duration, uid: &str) {
        let Some(state) = self.policies.get(uid) else { return };
        let is_new = state.installed.as_ref().is_none_or(|i| !Arc::ptr_eq(i, &state.latest));
        if is_new && self.is_complete(now, uid) {
            self.adopt(now, uid);
        }
        let Some(state) = self.policies.get(uid) else { return };
        let Some(policy) = state.installed.clone() else { return };
        let identities = state.identities.clone();
        let context = Context {
            families: self.config.policy.families,
            applied_to: &self.applied_to,
            addresses: &self.addresses,
            pods: &self.pods,
            here: &self.here,
            names: &self.names,
            serves: self.config.serves,
            services: &self.services,
        };
        let mut all = Vec::with_capacity(policy.rules.len());
        for (rule, identity) in policy.rules.iter().zip(identities) {
            all.push(resolve(&context, &policy, rule, identity));
        }
        self.apply(now, uid, all);
    }

    /// The latest version becomes the installed one.
    fn adopt(&mut self, now: Duration, uid: &str) {
        let Some(state) = self.policies.get_mut(uid) else { return };
        let policy = Arc::clone(&state.latest);
        state.hold = None;
        let mut seen: HashMap<RuleOwner, u32> = HashMap::new();
        state.identities = policy
            .rules
            .iter()
            .map(|rule| {
                let said = identity(&policy, rule, 0);
                let ordinal = seen.entry(said).or_default();
                *ordinal += 1;
                if *ordinal == 1 { said } else { identity(&policy, rule, *ordinal) }
            })
            .collect();
        let fqdns = policy.rules.iter().filter(|rule| rule.direction == RuleDirection::Out);
        let patterns = fqdns.flat_map(|rule| &rule.to.fqdns).map(|name| normal(name)).collect();
        state.installed = Some(policy);
        let ask = self.names.use_patterns(now, uid, patterns);
        self.ops.extend(ask.into_iter().map(super::Op::Resolve));
        self.note_users(uid);
    }

    /// Whether the groups that the latest version names are here.
    ///
    /// Peers always come, as the policy does. Targets only come if some of their Pods are on this
    /// node: what is not here may be on its way, or may have none. So a new version waits for
    /// targets that the installed one does not name, but not for ever.
    fn is_complete(&mut self, now: Duration, uid: &str) -> bool {
        let Some(state) = self.policies.get(uid) else { return false };
        let latest = Arc::clone(&state.latest);
        let here = |name: &str| self.applied_to.get(name).is_some_and(|g| g.gone.is_none());
        let known = |name: &str| self.addresses.get(name).is_some_and(|group| !group.gone);
        for rule in &latest.rules {
            let targets = targets_of(&latest, rule);
            let is_local = targets.iter().any(|name| here(name));
            if is_local && !rule.peer().address_groups.iter().all(|name| known(name)) {
                return false;
            }
        }
        let (targets, _) = groups_of(&latest);
        let missing: Vec<&str> = targets.iter().copied().filter(|name| !here(name)).collect();
        let Some(installed) = &state.installed else {
            return missing.len() < targets.len() || targets.is_empty();
        };
        let (before, _) = groups_of(installed);
        if missing.iter().all(|name| before.contains(name)) {
            return true;
        }
        let longest = self.config.longest_hold;
        let other = Kind::AppliedToGroup;
        match &state.hold {
            Some(hold) => hold.is_over(other, &self.bookmarks, now, longest),
            None => {
                if let Some(state) = self.policies.get_mut(uid) {
                    state.hold = Some(Hold::new(now));
                }
                false
            }
        }
    }

    /// Makes the tables hold what a policy's rules ask for, and nothing else of the policy.
    fn apply(&mut self, now: Duration, uid: &str, all: Vec<Resolved>) {
        let Some(state) = self.policies.get_mut(uid) else { return };
        let policy = state.installed.clone().unwrap_or_else(|| Arc::clone(&state.latest));
        let mut old = std::mem::take(&mut state.parts);
        let mut wanted: BTreeMap<RuleOwner, (usize, Part)> = BTreeMap::new();
        let mut isolated: BTreeMap<PlacedPod, bool> = BTreeMap::new();
        let mut dns_pods = BTreeSet::new();
        let mut problems = Vec::new();
        state.pending = all.iter().any(|resolved| resolved.pending);
        for (rule, resolved) in all.into_iter().enumerate() {
            let log = policy.rules[rule].enable_logging;
            for (direction, pod) in resolved.isolated {
                *isolated.entry((direction, pod)).or_default() |= log;
            }
            dns_pods.extend(resolved.dns_pods);
            for problem in resolved.problems {
                problems.push(format!("{}: {problem}", name_of(&policy, rule)));
            }
            wanted.extend(resolved.parts.into_iter().map(|part| (part.owner, (rule, part))));
        }
        let mut parts = BTreeMap::new();
        // What goes makes room, so it goes first.
        old.retain(|owner, installed| {
            let stays = wanted.contains_key(owner);
            if !stays {
                self.uninstall(now, installed, &policy);
            }
            stays
        });
        for (owner, (rule, mut part)) in wanted {
            let own_side = part.own_side();
            if let Some(keys) = part.clauses.get_mut(own_side) {
                *keys = self.share(keys);
            }
            let installed = match old.remove(&owner) {
                Some(installed) => self.change(now, installed, part, rule, &policy),
                None => self.install(now, uid, part, rule),
            };
            match installed {
                Ok(installed) => {
                    parts.insert(owner, installed);
                }
                Err(problem) => problems.push(format!("{}: {problem}", name_of(&policy, rule))),
            }
        }
        let isolated = self.isolated.share(isolated);
        self.watch_dns(uid, &dns_pods);
        if let Some(state) = self.policies.get_mut(uid) {
            state.parts = parts;
            self.isolated.change(&state.isolated, &isolated);
            state.isolated = isolated;
            state.dns_pods = dns_pods;
            state.problems = problems;
        }
        self.stale_status.insert(uid.to_owned());
    }

    fn watch_dns(&mut self, uid: &str, wanted: &BTreeSet<PodKey>) {
        let before = self.policies.get(uid).map(|state| state.dns_pods.clone()).unwrap_or_default();
        for pod in before.symmetric_difference(wanted) {
            let users = self.dns.entry(pod.clone()).or_default();
            if wanted.contains(pod) {
                users.insert(uid.to_owned());
            } else {
                users.remove(uid);
            }
            if users.is_empty() {
                self.dns.remove(pod);
            }
            self.stale_dns.insert(pod.clone());
        }
    }

    fn install(
        &mut self,
        now: Duration,
        uid: &str,
        part: Part,
        rule: usize,
    ) -> Result<InstalledPart, String> {
        let id = self.ids.take(part.owner, now).ok_or("no rule number is left")?;
        match self.place(&part, id) {
            Ok(slot) => {
                self.by_id.insert(id, (uid.to_owned(), part.owner));
                Ok(InstalledPart { part, rule, id, slot })
            }
            Err(full) => {
                self.ids.release(id, now);
                Err(full.to_string())
            }
        }
    }

    fn uninstall(&mut self, now: Duration, installed: &InstalledPart, policy: &Arc<NetworkPolicy>) {
        let info = self.info(Arc::clone(policy), installed);
        self.displace(installed);
        self.ids.release(installed.id, now);
        self.by_id.remove(&installed.id);
        self.retired.push_back((now, installed.id, info));
        self.stale_rules.insert(installed.id);
    }

    /// Changes a part in place where only the alternatives of its clauses changed.
    fn change(
        &mut self,
        now: Duration,
        mut installed: InstalledPart,
        part: Part,
        rule: usize,
        policy: &Arc<NetworkPolicy>,
    ) -> Result<InstalledPart, String> {
        installed.rule = rule;
        let same_rule = Part { clauses: Vec::new(), ..part.clone() }
            == Part { clauses: Vec::new(), ..installed.part.clone() };
        let n_clauses = part.clauses.len();
        if same_rule && n_clauses == installed.part.clauses.len() {
            let fits = part.keys().all(|key| {
                !self.slots.may_be_full(installed.slot) || {
                    let id = FlowId { slot: installed.slot, key: *key };
                    self.table.n_rules(&id) < MAX_RULES_PER_FLOW
                        || self.table.rules(&id).any(|rule| rule == installed.id)
                }
            });
            if fits {
                for n in 0..n_clauses {
                    let clause = clause(installed.id, n, n_clauses);
                    let (old, new) = (&installed.part.clauses[n], &part.clauses[n]);
                    if Arc::ptr_eq(old, new) {
                        continue;
                    }
                    let (gone, come) = differences(old, new);
                    for key in gone {
                        self.table.remove(FlowId { slot: installed.slot, key }, clause);
                    }
                    for key in come {
                        self.table.add(FlowId { slot: installed.slot, key }, clause);
                    }
                }
                installed.part = part;
                return Ok(installed);
            }
        }
        let info = self.info(Arc::clone(policy), &installed);
        self.displace(&installed);
        match self.place(&part, installed.id) {
            Ok(slot) => {
                installed.part = part;
                installed.slot = slot;
                Ok(installed)
            }
            Err(full) => {
                let owner = installed.id;
                self.ids.release(owner, now);
                self.by_id.remove(&owner);
                self.retired.push_back((now, owner, info));
                Err(full.to_string())
            }
        }
    }

    /// Puts a part into the first slot that has room for it.
    fn place(&mut self, part: &Part, id: ConjId) -> Result<Slot, Full> {
        let mut spread = 0;
        let slot = loop {
            let mut moved = Vec::new();
            let slot = self.slots.acquire(part, spread, &mut moved)?;
            self.stale_slots.extend(moved);
            let fits = !self.slots.may_be_full(slot)
                || part.keys().all(|key| {
                    self.table.n_rules(&FlowId { slot, key: *key }) < MAX_RULES_PER_FLOW
                });
            if fits {
                break slot;
            }
            self.slots.release(slot);
            spread = spread.checked_add(1).ok_or(Full)?;
        };
        for (n, keys) in part.clauses.iter().enumerate() {
            let clause = clause(id, n, part.clauses.len());
            for key in keys.iter() {
                self.table.add(FlowId { slot, key: *key }, clause);
            }
        }
        self.stale_rules.insert(id);
        Ok(slot)
    }

    fn displace(&mut self, installed: &InstalledPart) {
        let n_clauses = installed.part.clauses.len();
        for (n, keys) in installed.part.clauses.iter().enumerate() {
            let clause = clause(installed.id, n, n_clauses);
            for key in keys.iter() {
                self.table.remove(FlowId { slot: installed.slot, key: *key }, clause);
            }
        }
        self.slots.release(installed.slot);
        self.stale_rules.insert(installed.id);
    }

    /// The flows of a rule's number; none when it has no rule.
    pub(super) fn rule_flows(&self, id: ConjId) -> Vec<Flow> {
        let installed = self.by_id.get(&id).and_then(|(uid, owner)| {
            self.policies.get(uid).and_then(|state| state.parts.get(owner))
        });
        let Some(installed) = installed else { return Vec::new() };
        let Some(priority) = self.slots.priority(installed.slot) else { return Vec::new() };
        let part = &installed.part;
        let spec = RuleSpec {
            id,
            direction: part.direction,
            place: part.place,
            priority,
            verdict: part.verdict,
            log: part.log,
            owner: part.owner.0,
        };
        rule_flows(&self.config.policy, &spec)
    }
}

pub(super) fn clause(id: ConjId, n: usize, n_clauses: usize) -> Clause {
    let small = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
    Clause { id, clause: small(n + 1), n_clauses: small(n_clauses) }
}

/// What is in one of two sorted lists only: in the first, and in the second.
fn differences(old: &[ClauseKey], new: &[ClauseKey]) -> (Vec<ClauseKey>, Vec<ClauseKey>) {
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    let (mut a, mut b) = (old.iter().peekable(), new.iter().peekable());
    loop {
        match (a.peek(), b.peek()) {
            (None, None) => return (gone, come),
            (Some(x), Some(y)) if x == y => {
                a.next();
                b.next();
            }
            (Some(x), Some(y)) if x > y => come.extend(b.next().copied()),
            (None, Some(_)) => come.extend(b.next().copied()),
            (Some(_), _) => gone.extend(a.next().copied()),
        }
    }
}

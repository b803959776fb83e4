//! Turns what a node gets of policies, groups and Pods into flows, and says how far each policy is
//! realized.
//!
//! A plain state machine: events in, ops out; the caller's clock is an argument. Three watches
//! (policies, their targets, their peers) come in no order among them, so:
//!
//! - Nothing is asked of the switch before each of the three lists was there once.
//! - A policy's new version replaces the installed one as a whole, and not before the groups it
//!   names are here. Until then the installed version stays, with groups that are gone from the
//!   controller but not from it.
//! - All changes of one step come out together, to be put on the switch at once.
//!
//! A step with a changed member of a group changes the flows of that member alone.
//!
//! Not here: what flows look like (`pipeline::policy`), which Pods a selector matches (`translate`).

mod groups;
mod here;
mod hold;
mod ids;
mod install;
mod isolation;
mod names;
mod nets;
mod priority;
mod resolve;
mod service;
mod service_groups;
mod snapshot;
mod status;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use apis::controlplane::{
    AddressGroup, AddressGroupPatch, AppliedToGroup, AppliedToGroupPatch, NetworkPolicy,
    NetworkPolicyReference, ObjectName,
};
use openflow::{ConjId, Flow, GroupId, OfPort};
use pipeline::policy::{Direction, Isolation, PolicyConfig, dns_flows};

pub use groups::PodKey;
pub use hold::{AsOf, Kind};
pub use ids::{RuleOwner, recover};
pub use priority::{PolicyPriority, Rank, say};
pub use snapshot::{Snapshot, SnapshotError};
pub use status::{PolicyStatus, RefusedFlow, rules_in};
pub use table::MAX_RULES_PER_FLOW;

use crate::dns::Answer;
use groups::{AddressDelta, Addresses, AppliedTo};
use here::Here;
use hold::{Bookmarks, Hold};
use ids::Ids;
use install::{InstalledPart, Slots};
use isolation::{Isolated, IsolatedPods, PlacedPod};
use names::Names;
use resolve::Keys;
use service_groups::ServiceGroups;
use table::{FlowId, FlowTable, Slot};

/// What does not change while the agent runs.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What flows need to know.
    pub policy: PolicyConfig,
    /// How long a rule's number rests before another rule gets it: longer than anybody takes to
    /// look up whose number a connection carries.
    pub id_rest: Duration,
    /// How long an update is held back, at most, for groups that do not come.
    pub longest_hold: Duration,
    /// Addresses of names are good for at least so long.
    pub min_ttl: Duration,
    /// Which Services this node serves.
    pub serves: Serves,
}

/// Which connections to Services a node translates itself, so that rules can be about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Serves {
    /// None.
    Nothing,
    /// Those of its Pods.
    Pods,
    /// Those of anybody, at its NodePorts too.
    Everybody,
}

impl Config {
    /// Usual times.
    #[must_use]
    pub fn new(policy: PolicyConfig) -> Self {
        Self {
            policy,
            id_rest: Duration::from_secs(60),
            longest_hold: Duration::from_secs(10),
            min_ttl: Duration::ZERO,
            serves: Serves::Nothing,
        }
    }
}

/// A Pod of this node that has its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPod {
    /// Namespace and name.
    pub key: PodKey,
    /// Its port.
    pub ofport: OfPort,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
}

/// Everything that can change what is wanted.
#[derive(Clone, Debug)]
pub enum Event {
    /// Rules that were on the switch at the start, by [`recover`]; comes before everything else.
    Recovered(Vec<(RuleOwner, ConjId)>),
    /// These are all policies.
    ReplacePolicies(Vec<NetworkPolicy>),
    /// A policy is new or has changed.
    PolicySet(NetworkPolicy),
    /// A policy (by its UID) is gone.
    PolicyDeleted(String),
    /// These are all targets.
    ReplaceAppliedToGroups(Vec<AppliedToGroup>),
    /// A group is new or is given as a whole.
    AppliedToGroupSet(AppliedToGroup),
    /// Members of a group changed.
    AppliedToGroupPatched(AppliedToGroupPatch),
    /// A group is gone.
    AppliedToGroupDeleted(String),
    /// These are all peers.
    ReplaceAddressGroups(Vec<AddressGroup>),
    /// A group is new or is given as a whole.
    AddressGroupSet(AddressGroup),
    /// Members of a group changed.
    AddressGroupPatched(AddressGroupPatch),
    /// A group is gone.
    AddressGroupDeleted(String),
    /// A watch has told everything up to here.
    Bookmark {
        /// Which one.
        kind: Kind,
        /// Up to where.
        as_of: AsOf,
    },
    /// A Pod has its port, or another one than before.
    PodUp(LocalPod),
    /// A Pod's port is gone.
    PodDown(PodKey),
    /// A Pod waits, with its port closed, until all watches have told everything up to a version
    /// at which it was there; answered by [`Op::PodCovered`].
    PodWaits {
        /// The Pod.
        pod: PodKey,
        /// That version.
        since: AsOf,
    },
    /// A DNS answer.
    NameLearned {
        /// What it says.
        answer: Answer,
        /// Who asked.
        asker: Asker,
    },
    /// Addresses of names that were known before the start; comes before the policies.
    NamesRestored(Vec<Known>),
    /// These are all Services that have groups on this node, with those groups.
    ReplaceServices(Vec<(ObjectName, Vec<GroupId>)>),
    /// A Service has these groups now; told before a packet can meet them.
    ServiceGroups(ObjectName, Vec<GroupId>),
    /// These flows, and no others, are wanted and not on the switch.
    Refused(Vec<RefusedFlow>),
    /// Time has passed.
    Tick,
}

/// Whose question a DNS answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A Pod's, by a server of its choice: the answer adds addresses, and takes none away.
    Pod,
    /// The agent's own, about what may be out of date.
    Agent,
}

/// An address of a name that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name.
    pub name: String,
    /// The address.
    pub ip: IpAddr,
    /// For how long it is good.
    pub left: Duration,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// These, and only these, are the flows under a key.
    Set {
        /// The key.
        key: String,
        /// The flows.
        flows: Vec<Flow>,
    },
    /// There are no flows under the key any more.
    Remove {
        /// The key.
        key: String,
    },
    /// Everything that was there before the start is claimed.
    Synced,
    /// What was asked for with the ops before is what this policy needs.
    Status(PolicyStatus),
    /// The Pod's policies are known: once the ops before are done, its port may be opened.
    PodCovered(PodKey),
    /// The addresses of a name are to be asked for.
    Resolve(String),
}

/// What a rule's number stands for.
#[derive(Clone, Debug)]
pub struct RuleInfo {
    /// The policy, as installed.
    pub policy: Arc<NetworkPolicy>,
    /// Which of its rules.
    pub rule: usize,
    /// The OpenFlow priority of its flows.
    pub priority: Option<u16>,
}

impl RuleInfo {
    /// The user's policy.
    #[must_use]
    pub fn source(&self) -> Option<&NetworkPolicyReference> {
        self.policy.source_ref.as_ref()
    }
}

/// A policy that is known.
#[derive(Debug)]
struct PolicyState {
    latest: Arc<NetworkPolicy>,
    /// Set while the latest version waits for targets.
    hold: Option<Hold>,
    installed: Option<Arc<NetworkPolicy>>,
    /// Hashes of the installed version's rules.
    identities: Vec<RuleOwner>,
    parts: BTreeMap<RuleOwner, InstalledPart>,
    isolated: Isolated,
    dns_pods: BTreeSet<PodKey>,
    problems: Vec<String>,
    /// Whether a rule waits for its peers.
    pending: bool,
    reported: Option<(i64, Option<String>)>,
}

/// The state machine.
#[derive(Debug)]
pub struct Realizer {
    config: Config,
    replaced: BTreeSet<Kind>,
    synced: bool,
    policies: BTreeMap<String, PolicyState>,
    applied_to: BTreeMap<String, AppliedTo>,
    addresses: BTreeMap<String, Addresses>,
    /// Policies that use a group, in their latest or installed version.
    applied_to_users: BTreeMap<String, BTreeSet<String>>,
    address_users: BTreeMap<String, BTreeSet<String>>,
    /// The groups that each policy is noted for in these two.
    noted: BTreeMap<String, [BTreeSet<String>; 2]>,
    pods: BTreeMap<PodKey, LocalPod>,
    here: Here,
    waiting: BTreeMap<PodKey, AsOf>,
    bookmarks: Bookmarks,
    names: Names,
    services: ServiceGroups,
    ids: Ids,
    /// Whose number it is: policy and rule.
    by_id: HashMap<ConjId, (String, RuleOwner)>,
    /// What numbers stood for that rest now.
    retired: VecDeque<(Duration, ConjId, RuleInfo)>,
    slots: Slots,
    table: FlowTable,
    isolated: IsolatedPods,
    /// Lists of a node's own Pods in clauses, each once: policies for the same Pods share them.
    targets: HashSet<Keys>,
    dns: BTreeMap<PodKey, BTreeSet<String>>,
    shown_dns: BTreeMap<PodKey, OfPort>,
    refused: BTreeMap<ConjId, String>,
    /// What the step under way has to look at.
    stale: BTreeSet<String>,
    gone: BTreeSet<String>,
    /// Policies that a new list left out: they go when what the list has instead is installed.
    left_out: BTreeMap<String, Hold>,
    stale_slots: BTreeSet<Slot>,
    stale_status: BTreeSet<String>,
    stale_rules: BTreeSet<ConjId>,
    stale_dns: BTreeSet<PodKey>,
    ops: Vec<Op>,
}

impl Realizer {
    /// A state that knows of nothing.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            replaced: BTreeSet::new(),
            synced: false,
            policies: BTreeMap::new(),
            applied_to: BTreeMap::new(),
            addresses: BTreeMap::new(),
            applied_to_users: BTreeMap::new(),
            address_users: BTreeMap::new(),
            noted: BTreeMap::new(),
            pods: BTreeMap::new(),
            here: Here::default(),
            waiting: BTreeMap::new(),
            bookmarks: Bookmarks::default(),
            names: Names::new(config.min_ttl),
            services: ServiceGroups::default(),
            ids: Ids::new(config.id_rest),
            by_id: HashMap::new(),
            retired: VecDeque::new(),
            slots: Slots::default(),
            table: FlowTable::default(),
            isolated: IsolatedPods::default(),
            targets: HashSet::new(),
            dns: BTreeMap::new(),
            shown_dns: BTreeMap::new(),
            refused: BTreeMap::new(),
            stale: BTreeSet::new(),
            gone: BTreeSet::new(),
            left_out: BTreeMap::new(),
            stale_slots: BTreeSet::new(),
            stale_status: BTreeSet::new(),
            stale_rules: BTreeSet::new(),
            stale_dns: BTreeSet::new(),
            ops: Vec::new(),
        }
    }

    /// One step.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Op> {
        self.step_all(now, [event])
    }

    /// One step with several events: only what has changed in the end comes out.
    pub fn step_all(&mut self, now: Duration, events: impl IntoIterator<Item = Event>) -> Vec<Op> {
        let mut ops = Vec::new();
        self.step_into(now, events, &mut |op| ops.push(op));
        ops
    }

    /// Like [`Self::step_all`], but hands each operation on as soon as it is known: the flows of
    /// many at a time take many times the room that they take once they are encoded.
    pub fn step_into(
        &mut self,
        now: Duration,
        events: impl IntoIterator<Item = Event>,
        take: &mut dyn FnMut(Op),
    ) {
        for event in events {
            self.take_in(now, event);
        }
        if self.replaced.len() == 3 && !self.waits_for_services(now) {
            self.settle(now, take);
        }
        self.hand_on(take);
    }

    fn hand_on(&mut self, take: &mut dyn FnMut(Op)) {
        std::mem::take(&mut self.ops).into_iter().for_each(take);
    }

    /// When [`Event::Tick`] is due next.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let longest = self.config.longest_hold;
        let policies = self.policies.values().filter_map(|policy| policy.hold.as_ref());
        let groups = self.applied_to.values().filter_map(|group| group.gone.as_ref());
        let holds = policies.chain(groups).chain(self.left_out.values());
        let holds = holds.map(|hold| hold.deadline(longest));
        let services = self.services.deadline(longest);
        holds.chain(self.names.deadline()).chain(services).min()
    }

    /// Whether rules that are on the switch since before the start would lose their Services: those
    /// come from elsewhere, and soon, but perhaps never.
    fn waits_for_services(&mut self, now: Duration) -> bool {
        let none = self.synced || self.config.serves == Serves::Nothing;
        let named = || {
            let targets = self.applied_to.values().any(|group| !group.services.is_empty());
            targets || self.services.is_used()
        };
        if none || self.services.is_listed() || !named() {
            return false;
        }
        self.services.wait(now, self.config.longest_hold)
    }

    /// What a rule's number stands for, or stood for until a short while ago.
    #[must_use]
    pub fn rule(&self, id: ConjId) -> Option<RuleInfo> {
        if let Some((uid, owner)) = self.by_id.get(&id) {
            let state = self.policies.get(uid)?;
            let part = state.parts.get(owner)?;
            return Some(self.info(state.installed.clone()?, part));
        }
        let retired = self.retired.iter().rev().find(|(_, retired, _)| *retired == id);
        retired.map(|(_, _, info)| info.clone())
    }

    /// The numbers of all installed rules; a rule may have several.
    pub fn rules(&self) -> impl Iterator<Item = (ConjId, RuleInfo)> {
        self.policies.values().flat_map(|state| {
            state.parts.values().filter_map(|part| {
                let policy = state.installed.clone()?;
                Some((part.id, self.info(policy, part)))
            })
        })
    }

    fn info(&self, policy: Arc<NetworkPolicy>, part: &InstalledPart) -> RuleInfo {
        RuleInfo { policy, rule: part.rule, priority: self.slots.priority(part.slot) }
    }

    /// How far each installed policy is realized.
    pub fn statuses(&self) -> impl Iterator<Item = PolicyStatus> {
        self.policies.iter().filter_map(|(uid, state)| {
            let (generation, failure) = state.reported.clone()?;
            let source = state.installed.as_ref().and_then(|policy| policy.source_ref.clone());
            Some(PolicyStatus { uid: uid.clone(), source, generation, failure })
        })
    }

    /// Names that DNS answers told, with their addresses and until when those are good.
    pub fn names(&self) -> impl Iterator<Item = (&str, IpAddr, Duration)> {
        self.names.all()
    }

    /// Whether a rule of this node names it: then an answer about it has to wait for flows.
    #[must_use]
    pub fn uses_name(&self, name: &str) -> bool {
        self.names.is_used(name)
    }

    /// How many names are known, and how many were forgotten because there were too many.
    #[must_use]
    pub fn n_names(&self) -> (usize, u64) {
        self.names.counts()
    }

    /// How many flows clauses have.
    #[must_use]
    pub fn n_clause_flows(&self) -> usize {
        self.table.len()
    }

    /// How many policies are known.
    #[must_use]
    pub fn n_policies(&self) -> usize {
        self.policies.len()
    }

    fn take_in(&mut self, now: Duration, event: Event) {
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

    fn begin(&mut self, kind: Kind) {
        self.replaced.insert(kind);
        self.bookmarks.forget(kind);
    }

    fn bookmark(&mut self, kind: Kind, as_of: AsOf) {
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

    fn service_changed(&mut self, service: &ObjectName) {
        self.stale.extend(self.services.users(service).map(str::to_owned));
        let groups = self.applied_to.iter().filter(|(_, group)| group.services.contains(service));
        let names: Vec<String> = groups.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.users_of_applied_to_are_stale(name));
    }

    fn users_of_applied_to_are_stale(&mut self, name: &str) {
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

    fn pod_changed(&mut self, key: &PodKey) {
        let groups = self.applied_to.iter().filter(|(_, group)| group.members.contains_key(key));
        let names: Vec<String> = groups.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.users_of_applied_to_are_stale(name));
        self.isolated.touch(key);
        self.stale_dns.insert(key.clone());
    }

    /// A Pod has these addresses here, or is gone. Where a group says otherwise, the node is right.
    fn pod_here(&mut self, key: &PodKey, ips: &[IpAddr]) {
        let touched = self.here.set(key, ips);
        for (name, group) in &mut self.addresses {
            if group.pod_changed(key, &touched, &self.here) {
                self.stale.extend(self.address_users.get(name).into_iter().flatten().cloned());
            }
        }
    }

    /// Brings everything that is stale up to date, and says what changed.
    fn settle(&mut self, now: Duration, take: &mut dyn FnMut(Op)) {
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
    fn share(&mut self, keys: &Keys) -> Keys {
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

#[cfg(test)]
pub(crate) mod tests;

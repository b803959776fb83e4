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

mod addresses;
mod events;
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
mod settle;
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
use pipeline::policy::PolicyConfig;

pub use groups::PodKey;
pub use hold::{AsOf, Kind};
pub use ids::{RuleOwner, recover};
pub use priority::{PolicyPriority, Rank, say};
pub use snapshot::{Snapshot, SnapshotError};
pub use status::{PolicyStatus, RefusedFlow, rules_in};
pub use table::MAX_RULES_PER_FLOW;

use crate::dns::Answer;
use groups::{Addresses, AppliedTo};
use here::Here;
use hold::{Bookmarks, Hold};
use ids::Ids;
use install::{InstalledPart, Slots};
use isolation::{Isolated, IsolatedPods};
use names::Names;
use resolve::Keys;
use service_groups::ServiceGroups;
use table::{FlowTable, Slot};

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
}

#[cfg(test)]
pub(crate) mod tests;

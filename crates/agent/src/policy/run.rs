//! The loop around the state machine: takes in what changed, carries out what follows.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use cni_api::Attachment;
use jiff::{SignedDuration, Zoned};
use kube_io::Client;
use kube_io::controlplane::Controlplane;
use openflow::Intent;
use pipeline::NodeConfig;
use pipeline::policy::Direction;
use policy::audit::{AuditLog, Line};
use policy::dns::Answer;
use policy::realize::{
    AsOf, Asker, Config, Event, Kind, Op, PodKey, PolicyStatus, Realizer, RefusedFlow, recover,
    rules_in,
};
use switch::bridge::{Bridge, BridgeState, Changes};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::after::{After, carry_on};
use super::audit::{self, AuditConfig, AuditFile};
use super::closings::Closings;
use super::dns::{self, Held, Release};
use super::feed::{self, Fed, Taken};
use super::gate::{Gate, GateEvent, Ticket};
use super::known::{KeptName, Known, KnownNames, today};
use super::names_page::AskNames;
use super::pods::{Pods, local_pod};
use super::resolver::{self, DnsServer};
use super::services::{HearServices, Told};
use super::traffic::{CountTraffic, Counters};
use super::{Counts, DnsCounts, OWNER, packets, report};
use crate::cni::PodRecord;

/// How long a controller is waited for before the last known set is taken.
const CONTROLLER_PATIENCE: Duration = Duration::from_secs(3);
/// Changes within this time are kept on disk together.
const SAVE_AFTER: Duration = Duration::from_secs(1);
/// Pause between attempts to read the switch at the start.
const READ_RETRY: Duration = Duration::from_millis(100);
/// Events that are taken in together.
const BATCH: usize = 512;
/// Lines of the audit log in a second; more are lost.
const LOG_LINES: u32 = 500;
/// New addresses of names within this time are kept on disk together.
const SAVE_NAMES_AFTER: Duration = Duration::from_secs(1);
/// Memory that changes took is given back so long after the first of them.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(5);
/// So are new times of addresses that are known.
const SAVE_TIMES_AFTER: Duration = Duration::from_secs(30);
/// The name under which bookmarks tell of Pods.
const PODS: &str = "pods";

/// What the loop works with.
pub(crate) struct PolicyLoop {
    /// The API server.
    pub(crate) client: Client,
    /// The way to the controller.
    pub(crate) controlplane: Controlplane,
    /// Name of this node.
    pub(crate) node: String,
    /// Where the last known set is kept.
    pub(crate) state_dir: PathBuf,
    /// Where flows go.
    pub(crate) bridge: Bridge,
    /// This node, as the pipeline sees it.
    pub(crate) network: NodeConfig,
    /// What does not change.
    pub(crate) config: Config,
    /// Whether the gate AntreaPolicy is on.
    pub(crate) antrea_policies: AntreaPolicies,
    /// Ports of new Pods.
    pub(crate) gate: Gate,
    /// What it tells.
    pub(crate) gate_rx: mpsc::UnboundedReceiver<GateEvent>,
    /// Complete interfaces.
    pub(crate) interfaces: watch::Receiver<Arc<Vec<PodRecord>>>,
    /// Whether the interfaces of before are taken over.
    pub(crate) restored: watch::Receiver<bool>,
    /// Whether traffic is counted.
    pub(crate) count_traffic: CountTraffic,
    /// How the audit log is kept.
    pub(crate) audit: AuditConfig,
    /// What the proxy tells.
    pub(crate) services: HearServices,
    /// Who is asked for names.
    pub(crate) dns_server: DnsServer,
    /// Where counts are shown.
    pub(crate) counts_tx: watch::Sender<Counts>,
    /// Who asks which addresses of names are known.
    pub(crate) ask_names_rx: mpsc::Receiver<AskNames>,
    /// Where counts of DNS are shown.
    pub(crate) dns_counts: Arc<DnsCounts>,
}

/// Whether policies of Antrea's own kinds are realized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AntreaPolicies {
    /// They are.
    On,
    /// Only those of Kubernetes are.
    Off,
}

/// The loop's state.
struct Running {
    realizer: Realizer,
    bridge: Bridge,
    started: Instant,
    pods: Pods,
    closings: Closings,
    /// Made since our start: these are told before they are published.
    records: Vec<PodRecord>,
    /// As last published.
    interfaces: Arc<Vec<PodRecord>>,
    names: [BTreeSet<String>; 3],
    broken: BTreeSet<Kind>,
    listed: BTreeSet<Kind>,
    refused: Vec<RefusedFlow>,
    after_tx: mpsc::UnboundedSender<After>,
    release: Release,
    /// Names to be asked for.
    ask_tx: mpsc::Sender<String>,
    counts_tx: watch::Sender<Counts>,
    audit: AuditLog,
    audit_file: AuditFile,
    /// When what is known is kept.
    save_at: Option<Instant>,
    /// When names are.
    save_names_at: Option<Instant>,
    /// When memory is given back.
    give_back_at: Option<Instant>,
}

impl PolicyLoop {
    /// Runs until cancelled.
    ///
    /// # Errors
    /// None for now; a failure would end the agent.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<()> {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            outcome = self.follow(stop.clone()) => outcome,
        }
    }

    async fn follow(mut self, stop: CancellationToken) -> Result<()> {
        let recovered = read_numbers(&self.bridge).await;
        if self.restored.wait_for(|restored| *restored).await.is_err() {
            return Ok(());
        }
        let taken = match self.antrea_policies {
            AntreaPolicies::On => Taken::All,
            AntreaPolicies::Off => Taken::Kubernetes,
        };
        let mut fed_rx = feed::start(&self.controlplane, taken);
        let (after_tx, after_rx) = mpsc::unbounded_channel();
        let (statuses_tx, statuses_rx) = mpsc::unbounded_channel();
        let release = Release::start(&self.bridge, self.dns_counts);
        let way = (self.bridge.clone(), release.clone(), self.gate.clone());
        tokio::spawn(carry_on(way, after_rx, statuses_tx));
        tokio::spawn(report::run(self.controlplane.clone(), self.node.clone(), statuses_rx));
        let (versions_tx, mut versions_rx) = mpsc::unbounded_channel();
        let known = Known::new(&self.state_dir);
        let known_names = KnownNames::new(&self.state_dir);
        let mut answers_rx = dns::start(&self.bridge, release.clone());
        let families = self.config.policy.families;
        let (ask_tx, mut told_rx) = resolver::start(self.dns_server, families);
        let of_node = (self.node.as_str(), self.state_dir.as_path());
        let mut counters =
            Counters::start(self.count_traffic, &self.bridge, &self.controlplane, of_node);
        let mut to_log = packets::start(&self.bridge, self.network);
        let mut state = self.bridge.state();
        let mut running = Running {
            realizer: Realizer::new(self.config),
            bridge: self.bridge.clone(),
            started: Instant::now(),
            pods: Pods::default(),
            closings: Closings::default(),
            records: Vec::new(),
            interfaces: Arc::default(),
            names: Default::default(),
            broken: BTreeSet::new(),
            listed: BTreeSet::new(),
            refused: Vec::new(),
            after_tx,
            release,
            ask_tx,
            counts_tx: self.counts_tx.clone(),
            audit: AuditLog::new(LOG_LINES),
            audit_file: AuditFile::new(self.audit),
            save_at: None,
            save_names_at: None,
            give_back_at: None,
        };
        running.step(vec![Event::Recovered(recovered), Event::NamesRestored(known_names.load())]);
        running.list(&self.interfaces.borrow_and_update().clone());
        let mut services = self.services;
        services.follows_tx.send_replace(true);
        let held = first_lists(&mut fed_rx, &known).await;
        running.take(held);
        self.gate.policies_in_force();

        let mut fed = Vec::new();
        let mut answers = Vec::new();
        loop {
            let log_at = running.audit.deadline().map(|at| running.started + at);
            let tick = running.realizer.deadline().map(|at| running.started + at);
            tokio::select! {
                n = fed_rx.recv_many(&mut fed, BATCH) => {
                    if n == 0 {
                        return Ok(());
                    }
                    running.take(std::mem::take(&mut fed));
                }
                Some(event) = self.gate_rx.recv() => match event {
                    GateEvent::Made(record, ticket) => {
                        ask_version(&self.client, &record, &versions_tx);
                        running.closings.made(ticket);
                        running.made(record);
                    }
                    GateEvent::Moved(record, ticket) => running.moved(&record, ticket),
                    GateEvent::Overdue(ticket) => running.closings.overdue(&ticket),
                    GateEvent::Removed(attachment) => running.removed(&attachment),
                },
                Some((record, version)) = versions_rx.recv() => match version {
                    Some(version) => running.waits(&record, version),
                    None => {
                        let ticket = running.closings.covered(&record.attachment);
                        ticket.into_iter().for_each(|ticket| _ = self.gate.open(&ticket));
                    }
                },
                // Nobody tells anything where no Services are served.
                Some(first) = services.told_rx.recv() => {
                    let rest = std::iter::from_fn(|| services.told_rx.try_recv().ok());
                    running.serve(std::iter::once(first).chain(rest));
                }
                Ok(()) = self.interfaces.changed() => {
                    let records = self.interfaces.borrow_and_update().clone();
                    running.list(&records);
                }
                Ok(()) = state.changed() => {
                    let seen = state.borrow_and_update().clone();
                    running.look_at(&seen);
                }
                Some(packet) = to_log.recv() => running.log(&packet),
                Some(read) = counters.read_rx.recv() => {
                    counters.attribute(read, &running.realizer, &running.names[0]);
                }
                n = answers_rx.recv_many(&mut answers, BATCH)=> {
                    if n > 0 {
                        running.learn(answers.drain(..));
                    }
                }
                Some(answer) = told_rx.recv() => running.told(answer),
                Some(reply_tx) = self.ask_names_rx.recv() => {
                    // Who does not wait any more does not matter.
                    let _ = reply_tx.send(running.known_names());
                }
                () = at(tick) => running.step(vec![Event::Tick]),
                () = at(log_at) => running.write_log(),
                () = at(running.save_at) => running.save(&known).await,
                () = at(running.save_names_at) => running.save_names(&known_names).await,
                () = at(running.give_back_at) => {
                    running.give_back_at = None;
                    tokio::task::spawn_blocking(host::memory::give_back);
                }
                () = stop.cancelled() => {
                    running.save(&known).await;
                    running.save_names(&known_names).await;
                    return Ok(());
                }
            }
        }
    }
}

/// Sleeps until then; for ever without a time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn is_of(record: &PodRecord, pod: &PodKey) -> bool {
    record.pod.namespace == pod.namespace && record.pod.name == pod.name
}

/// The numbers of rules that are on the switch: they come before any is given out.
async fn read_numbers(bridge: &Bridge) -> Vec<(policy::realize::RuleOwner, openflow::ConjId)> {
    let mut state = bridge.state();
    loop {
        if state.wait_for(|state| state.connected).await.is_err() {
            std::future::pending::<()>().await;
        }
        match bridge.flows_on_switch(OWNER).await {
            Ok(flows) => return recover(&flows),
            Err(error) => tracing::debug!("read rules: {}", crate::nodes::chain(&error)),
        }
        tokio::time::sleep(READ_RETRY).await;
    }
}

/// Waits for the first lists, but not for ever: then what was known last comes before what came.
async fn first_lists(fed_rx: &mut mpsc::Receiver<Fed>, known: &Known) -> Vec<Fed> {
    let mut held = Vec::new();
    let mut listed = BTreeSet::new();
    let deadline = Instant::now() + CONTROLLER_PATIENCE;
    while listed.len() < 3 {
        match tokio::time::timeout_at(deadline, fed_rx.recv()).await {
            Ok(Some(fed)) => {
                if let Fed::List(kind, _) = &fed {
                    listed.insert(*kind);
                }
                held.push(fed);
            }
            Ok(None) => break,
            Err(_) => {
                let known = known.clone();
                let load = tokio::task::spawn_blocking(move || known.load());
                let Some(events) = load.await.ok().flatten() else {
                    tracing::warn!("no controller answers, and nothing is known of policies");
                    break;
                };
                tracing::warn!("no controller answers: the last known policies are enforced");
                let known = events
                    .into_iter()
                    .map(|event| Fed::Event(Kind::NetworkPolicy, Box::new(event)));
                held = known.chain(held).collect();
                break;
            }
        }
    }
    held
}

/// Asks as of when a Pod is there. One that the API server does not have is nobody's target.
fn ask_version(
    client: &Client,
    record: &PodRecord,
    versions_tx: &mpsc::UnboundedSender<(PodRecord, Option<u64>)>,
) {
    if local_pod(record).is_none() {
        let _ = versions_tx.send((record.clone(), None));
        return;
    }
    let (client, record, versions_tx) = (client.clone(), record.clone(), versions_tx.clone());
    tokio::spawn(async move {
        let (namespace, name) = (&record.pod.namespace, &record.pod.name);
        let version = match kube_io::pods::version(&client, namespace, name).await {
            Ok(version) => Some(version),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                // The gate opens by itself after a while.
                tracing::warn!("look up Pod {}: {}", record.pod, error.chain());
                return;
            }
        };
        let _ = versions_tx.send((record, version));
    });
}

impl Running {
    fn step(&mut self, events: Vec<Event>) {
        self.step_with(events, Vec::new());
    }

    /// With answers that wait for the flows of this step. Says whether flows change.
    fn step_with(&mut self, events: Vec<Event>, answers: Vec<Held>) -> bool {
        if events.is_empty() {
            return false;
        }
        let mut changes = Changes::of(OWNER);
        let mut after = After { answers, ..After::default() };
        let (mut synced, mut asked, mut covered) = (false, Vec::new(), Vec::new());
        let has_answers = !after.answers.is_empty();
        self.realizer.step_into(self.started.elapsed(), events, &mut |op| match op {
            Op::Set { key, flows } => {
                changes.set(&key, flows.into_iter().map(Intent::from).collect());
                after.keys.extend(has_answers.then_some(key));
            }
            Op::Remove { key } => {
                changes.set(&key, Vec::new());
                after.keys.extend(has_answers.then_some(key));
            }
            Op::Synced => synced = true,
            Op::Status(status) => {
                if let Some(failure) = &status.failure {
                    tracing::warn!(policy = status.uid, "not realized as written: {failure}");
                }
                after.statuses.push(status);
            }
            Op::PodCovered(pod) => covered.push(pod),
            Op::Resolve(name) => asked.push(name),
        });
        // With too many to be asked for at once, the rest comes again later.
        asked.into_iter().for_each(|name| drop(self.ask_tx.try_send(name)));
        let changed = !changes.is_empty();
        self.bridge.change(changes);
        if changed {
            self.give_back_at.get_or_insert_with(|| Instant::now() + GIVE_BACK_AFTER);
        }
        if synced {
            tracing::info!(policies = self.realizer.n_policies(), "policies are in force");
            self.bridge.synced(OWNER);
        }
        for record in
            self.records.iter().filter(|record| covered.iter().any(|pod| is_of(record, pod)))
        {
            after.to_open.extend(self.closings.covered(&record.attachment));
        }
        if !after.statuses.is_empty() || !after.to_open.is_empty() || has_answers {
            let _ = self.after_tx.send(after);
        }
        if changed || synced {
            self.count();
        }
        changed
    }

    /// Takes in what the watches said.
    fn take(&mut self, fed: Vec<Fed>) {
        let mut events = Vec::new();
        let mut again = false;
        for fed in fed {
            match fed {
                Fed::Broken(kind) => {
                    self.broken.insert(kind);
                }
                Fed::List(kind, event) => {
                    self.broken.remove(&kind);
                    // Whoever takes statuses may not have got those of before.
                    again |= !self.listed.insert(kind) && kind == Kind::NetworkPolicy;
                    self.note(&event);
                    events.push(*event);
                }
                Fed::Event(kind, event) => {
                    self.broken.remove(&kind);
                    self.note(&event);
                    events.push(*event);
                }
            }
        }
        self.step(events);
        if again {
            let statuses: Vec<PolicyStatus> = self.realizer.statuses().collect();
            let _ = self.after_tx.send(After { statuses, ..After::default() });
        }
        self.count();
    }

    /// Notes names of objects, and that there is something to keep.
    fn note(&mut self, event: &Event) {
        fn name(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> String {
            metadata.name.clone().unwrap_or_default()
        }
        let [policies, applied_to, addresses] = &mut self.names;
        match event {
            Event::ReplacePolicies(all) => {
                *policies = all.iter().map(|policy| name(&policy.metadata)).collect();
            }
            Event::PolicySet(policy) => drop(policies.insert(name(&policy.metadata))),
            Event::PolicyDeleted(gone) => drop(policies.remove(gone)),
            Event::ReplaceAppliedToGroups(all) => {
                *applied_to = all.iter().map(|group| name(&group.metadata)).collect();
            }
            Event::AppliedToGroupSet(group) => drop(applied_to.insert(name(&group.metadata))),
            Event::AppliedToGroupDeleted(gone) => drop(applied_to.remove(gone)),
            Event::ReplaceAddressGroups(all) => {
                *addresses = all.iter().map(|group| name(&group.metadata)).collect();
            }
            Event::AddressGroupSet(group) => drop(addresses.insert(name(&group.metadata))),
            Event::AddressGroupDeleted(gone) => drop(addresses.remove(gone)),
            Event::AppliedToGroupPatched(_) | Event::AddressGroupPatched(_) => {}
            _ => return,
        }
        self.save_at.get_or_insert_with(|| Instant::now() + SAVE_AFTER);
    }

    fn made(&mut self, record: PodRecord) {
        let event = self.pods.up(&record);
        self.records.retain(|known| known.attachment != record.attachment);
        self.records.push(record);
        self.step(event.into_iter().collect());
    }

    /// A Pod of before has this port: it is opened once policies have followed.
    fn moved(&mut self, record: &PodRecord, ticket: Ticket) {
        let event = self.pods.moved(record);
        self.step(event.into_iter().collect());
        let to_open: Vec<Ticket> = self.closings.moved(ticket).into_iter().collect();
        if !to_open.is_empty() {
            let _ = self.after_tx.send(After { to_open, ..After::default() });
        }
    }

    fn removed(&mut self, attachment: &Attachment) {
        self.records.retain(|record| record.attachment != *attachment);
        self.closings.removed(attachment);
        let event = self.pods.down(attachment);
        self.step(event.into_iter().collect());
    }

    fn waits(&mut self, record: &PodRecord, version: u64) {
        let Some(pod) = local_pod(record) else { return };
        let since = AsOf([(PODS.to_owned(), version)].into());
        self.step(vec![Event::PodWaits { pod: pod.key, since }]);
    }

    fn list(&mut self, records: &Arc<Vec<PodRecord>>) {
        self.interfaces = Arc::clone(records);
        let events = self.pods.list(records);
        self.step(events);
    }

    /// Takes in which groups Services have; the proxy goes on when what follows was handed on.
    fn serve(&mut self, told: impl Iterator<Item = Told>) {
        let (mut events, mut waiting) = (Vec::new(), Vec::new());
        for Told { event, done_tx } in told {
            events.extend(event.into_events());
            waiting.push(done_tx);
        }
        self.step(events);
        for done_tx in waiting {
            // Who does not wait any more does not matter.
            let _ = done_tx.send(());
        }
    }

    /// Finds flows of ours that the switch refused.
    fn look_at(&mut self, state: &BridgeState) {
        let ours = state.refused.iter().filter(|refusal| refusal.owner == OWNER);
        let refused: Vec<RefusedFlow> = ours
            .map(|refusal| RefusedFlow {
                rules: rules_in(&refusal.intent),
                reason: refusal.reason.to_string(),
            })
            .collect();
        if refused != self.refused {
            self.refused.clone_from(&refused);
            self.step(vec![Event::Refused(refused)]);
        }
    }

    /// Takes in what answers to Pods tell; each goes on when the flows are there.
    fn learn(&mut self, answers: impl Iterator<Item = Held>) {
        let (mut events, mut waiting) = (Vec::new(), Vec::new());
        for mut held in answers {
            let mut told = std::mem::take(&mut held.answers);
            told.retain(|answer| self.realizer.uses_name(&answer.name));
            if told.is_empty() {
                self.release.now(held);
            } else if self.release.may_wait(&held) {
                let event = |answer| Event::NameLearned { answer, asker: Asker::Pod };
                events.extend(told.into_iter().map(event));
                waiting.push(held);
            }
        }
        self.release.counts.n_learned.fetch_add(waiting.len() as u64, Ordering::Relaxed);
        let changed = self.step_with(events, waiting);
        self.names_changed(changed);
    }

    /// Takes in what the agent was told.
    fn told(&mut self, answer: Answer) {
        let event = Event::NameLearned { answer, asker: Asker::Agent };
        let changed = self.step_with(vec![event], Vec::new());
        self.names_changed(changed);
    }

    /// New addresses are kept soon, new times of known ones some time later.
    fn names_changed(&mut self, addresses_changed: bool) {
        let (n_names, n_evicted) = self.realizer.n_names();
        self.release.counts.n_names.store(n_names, Ordering::Relaxed);
        self.release.counts.n_evicted.store(n_evicted, Ordering::Relaxed);
        let after = if addresses_changed { SAVE_NAMES_AFTER } else { SAVE_TIMES_AFTER };
        let at = Instant::now() + after;
        self.save_names_at = Some(self.save_names_at.map_or(at, |before| before.min(at)));
    }

    /// Logs who decided about a packet.
    fn log(&mut self, packet: &packets::ToLog) {
        let rule = packet.what.rule.and_then(|id| self.realizer.rule(id));
        let pods = self.records.iter().chain(self.interfaces.iter());
        let entry = audit::entry(&packet.what, rule.as_ref(), &packet.packet, pods);
        let Some(entry) = entry else { return };
        let line = self.audit.packet(self.started.elapsed(), entry);
        self.write_lines(line.as_slice());
    }

    fn write_log(&mut self) {
        let lines = self.audit.tick(self.started.elapsed());
        self.write_lines(&lines);
    }

    /// Writes lines with the time of day of their first packets.
    fn write_lines(&mut self, lines: &[Line]) {
        let (now, day) = (self.started.elapsed(), Zoned::now());
        let dated = lines.iter().map(|line| {
            let ago = SignedDuration::try_from(now.saturating_sub(line.at)).unwrap_or_default();
            let time = day.checked_sub(ago).unwrap_or_else(|_| day.clone());
            format!("{} {}", time.strftime("%Y/%m/%d %H:%M:%S%.6f"), line.text)
        });
        let dated: Vec<String> = dated.collect();
        self.audit_file.write(&dated);
    }

    fn count(&self) {
        let [policies, applied_to, addresses] = &self.names;
        let mut counts = Counts {
            policies: policies.len(),
            address_groups: addresses.len(),
            applied_to_groups: applied_to.len(),
            connected: self.broken.is_empty() && self.listed.len() == 3,
            ..Counts::default()
        };
        for (_, info) in self.realizer.rules() {
            let Some(rule) = info.policy.rules.get(info.rule) else { continue };
            match direction(rule.direction) {
                Direction::Ingress => counts.ingress_rules += 1,
                Direction::Egress => counts.egress_rules += 1,
            }
        }
        self.counts_tx.send_if_modified(|shown| {
            let changed = *shown != counts;
            *shown = counts;
            changed
        });
    }

    /// Addresses of names, and until what time of day they are good.
    fn known_names(&self) -> Vec<KeptName> {
        let (now, today) = (self.started.elapsed(), today());
        let names = self.realizer.names().map(|(name, ip, until)| KeptName {
            name: name.to_owned(),
            ip,
            until: (today + until).saturating_sub(now).as_secs(),
        });
        names.collect()
    }

    /// Keeps the addresses of names.
    async fn save_names(&mut self, known: &KnownNames) {
        if self.save_names_at.take().is_none() {
            return;
        }
        let (names, known) = (self.known_names(), known.clone());
        let saved = tokio::task::spawn_blocking(move || known.save(&names)).await;
        if let Err(error) = saved.map_err(std::io::Error::other).flatten() {
            tracing::warn!(%error, "the known names are not kept");
        }
    }

    /// Keeps what is known, unless not everything is known yet.
    async fn save(&mut self, known: &Known) {
        if self.save_at.take().is_none() || self.listed.len() < 3 {
            return;
        }
        let (snapshot, known) = (self.realizer.snapshot(), known.clone());
        let saved = tokio::task::spawn_blocking(move || known.save(&snapshot)).await;
        if let Err(error) = saved.map_err(std::io::Error::other).flatten() {
            tracing::warn!(%error, "the known policies are not kept");
        }
    }
}

fn direction(way: apis::controlplane::Direction) -> Direction {
    match way {
        apis::controlplane::Direction::Out => Direction::Egress,
        _ => Direction::Ingress,
    }
}

//! Feeds the computation from watches of the cluster.
//!
//! One task per watch forwards what it sees; one loop takes it in, in batches, so that a burst costs
//! one commit. Nothing is shown before every kind was listed once. A list that comes again says what
//! is gone by not naming it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use antrea_runtime::CancellationToken;
use apis::controlplane::{AS_OF, UP_TO};
use apis::policy::{ClusterGroup, Group, GroupStatus};
use futures::{Stream, StreamExt};
use kube_io::policy_inputs::{self as inputs, Input, InputKey, NamespaceFacts, PodFacts};
use kube_io::{Client, Versioned, WatchEvent, nodes};
use policy::index::{NamedPort, NamespaceInput, NodeInput, PodInput, PortProtocol};
use policy::store::AsOf;
use policy::translate::{Event, InputKind, Known, PolicyFacts, PolicyKind};
use tokio::sync::mpsc;

use super::groups::GroupFacts;
use super::state::State;

/// Events that may wait between watches and the loop.
const QUEUE: usize = 4096;

/// What a watch saw, in the computation's words.
#[derive(Debug)]
enum Seen {
    Begin,
    There(Known, u64, Box<Event>, Option<GroupFacts>),
    Gone(Known, u64),
    End,
    /// Everything up to this version was told.
    UpTo(u64),
    Failed(String),
}

type Message = (InputKind, Seen);

/// Reads the cluster until `stop`; facts of policies go to `facts_tx`.
pub(crate) async fn run(
    client: Client,
    state: Arc<State>,
    facts_tx: mpsc::UnboundedSender<Vec<PolicyFacts>>,
    stop: CancellationToken,
) {
    let (seen_tx, mut seen_rx) = mpsc::channel(QUEUE);
    let watches = Watches { client, seen_tx, stop: stop.clone() };
    watches.start();
    drop(watches);
    let mut feed = Feed::new(state);
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            n = seen_rx.recv_many(&mut batch, QUEUE) => {
                if n == 0 {
                    return;
                }
            }
        }
        for (kind, seen) in batch.drain(..) {
            feed.take(kind, seen);
        }
        let facts = feed.commit();
        if !facts.is_empty() && facts_tx.send(facts).is_err() {
            tracing::debug!("nobody asks for the facts of policies");
        }
    }
}

/// Kinds without which nothing can be computed.
const NEEDED: [InputKind; 10] = [
    InputKind::Pod,
    InputKind::Namespace,
    InputKind::Node,
    InputKind::Policy(PolicyKind::K8s),
    InputKind::Policy(PolicyKind::Cluster),
    InputKind::Policy(PolicyKind::Namespaced),
    InputKind::Policy(PolicyKind::Upstream),
    InputKind::Tier,
    InputKind::ClusterGroup,
    InputKind::Group,
];

/// Plural of a kind, as it is told to readers.
fn plural(kind: InputKind) -> &'static str {
    match kind {
        InputKind::Pod => "pods",
        InputKind::Namespace => "namespaces",
        InputKind::Node => "nodes",
        InputKind::Policy(PolicyKind::K8s) => "networkpolicies.networking.k8s.io",
        InputKind::Policy(PolicyKind::Cluster) => "clusternetworkpolicies.crd.antrea.io",
        InputKind::Policy(PolicyKind::Namespaced) => "networkpolicies.crd.antrea.io",
        InputKind::Policy(PolicyKind::Upstream) => {
            "clusternetworkpolicies.policy.networking.k8s.io"
        }
        InputKind::Tier => "tiers",
        InputKind::ClusterGroup => "clustergroups",
        InputKind::Group => "groups",
    }
}

/// Whether a cluster may be without the kind: a CRD that is not installed has no objects.
fn is_custom(kind: InputKind) -> bool {
    !matches!(
        kind,
        InputKind::Pod
            | InputKind::Namespace
            | InputKind::Node
            | InputKind::Policy(PolicyKind::K8s)
    )
}

/// The loop's own state.
struct Feed {
    state: Arc<State>,
    events: Vec<Event>,
    begun: HashSet<InputKind>,
    listed: HashSet<InputKind>,
    /// Objects of a list that comes again.
    again: HashMap<InputKind, HashSet<Known>>,
    /// Kinds of which a list left out something, whose last change is as old as the list.
    left_out: HashSet<InputKind>,
    /// What is new of groups' objects.
    groups: Vec<((String, String), Option<GroupFacts>)>,
    /// The last change of each kind.
    changed_at: BTreeMap<&'static str, u64>,
    /// How far each kind is read: as its last change, or further where nothing changed since.
    read_up_to: BTreeMap<&'static str, u64>,
    /// Something is to be shown.
    changed: bool,
    /// More is read, without a change.
    progressed: bool,
}

impl Feed {
    fn new(state: Arc<State>) -> Self {
        Self {
            state,
            events: Vec::new(),
            begun: HashSet::new(),
            listed: HashSet::new(),
            again: HashMap::new(),
            left_out: HashSet::new(),
            groups: Vec::new(),
            changed_at: BTreeMap::new(),
            read_up_to: BTreeMap::new(),
            changed: false,
            progressed: false,
        }
    }

    fn take(&mut self, kind: InputKind, seen: Seen) {
        match seen {
            Seen::Begin => {
                // A list that broke off has told something, too.
                if !self.begun.insert(kind) {
                    self.again.insert(kind, HashSet::new());
                }
            }
            Seen::There(known, version, event, facts) => {
                if let Some(facts) = facts {
                    let key = (known.namespace.clone(), known.name.clone());
                    self.groups.push((key, Some(facts)));
                }
                if let Some(again) = self.again.get_mut(&kind) {
                    again.insert(known);
                }
                self.read(kind, version);
                self.events.push(*event);
            }
            Seen::Gone(known, version) => {
                self.read(kind, version);
                self.gone(known);
            }
            Seen::End => self.end(kind),
            Seen::UpTo(version) => {
                if self.left_out.remove(&kind) {
                    raise(&mut self.changed_at, kind, version);
                    self.changed = true;
                }
                raise(&mut self.read_up_to, kind, version);
                self.progressed = true;
            }
            Seen::Failed(error) => {
                // The words with which a server says that it has no such kind.
                if is_custom(kind) && error.contains(", 404)") {
                    if self.listed.insert(kind) {
                        tracing::info!(kind = plural(kind), "the cluster has no such kind");
                        self.changed = true;
                    }
                } else {
                    tracing::warn!(kind = plural(kind), %error, "watch broke");
                }
            }
        }
    }

    fn read(&mut self, kind: InputKind, version: u64) {
        raise(&mut self.changed_at, kind, version);
        raise(&mut self.read_up_to, kind, version);
        self.changed = true;
    }

    fn end(&mut self, kind: InputKind) {
        self.changed = true;
        self.listed.insert(kind);
        let Some(again) = self.again.remove(&kind) else { return };
        self.apply();
        let known = self.state.lock().engine().known(kind);
        for known in known.into_iter().filter(|known| !again.contains(known)) {
            self.left_out.insert(kind);
            self.gone(known);
        }
    }

    fn gone(&mut self, known: Known) {
        if matches!(known.kind, InputKind::ClusterGroup | InputKind::Group) {
            self.groups.push(((known.namespace.clone(), known.name.clone()), None));
        }
        self.events.push(known.gone());
    }

    fn apply(&mut self) {
        self.state.apply(std::mem::take(&mut self.events));
    }

    /// Shows what was read, once everything was read at all.
    fn commit(&mut self) -> Vec<PolicyFacts> {
        self.apply();
        if !NEEDED.iter().all(|kind| self.listed.contains(kind)) {
            return Vec::new();
        }
        let facts = match std::mem::take(&mut self.changed) {
            true => self.show(),
            false => Vec::new(),
        };
        self.state.note_groups(std::mem::take(&mut self.groups));
        // After what it promises is shown.
        if std::mem::take(&mut self.progressed) {
            self.state.read_up_to(annotations(UP_TO, &self.read_up_to));
        }
        facts
    }

    fn show(&self) -> Vec<PolicyFacts> {
        let first = !self.state.is_complete();
        let committed = self.state.commit(annotations(AS_OF, &self.changed_at));
        if first {
            tracing::info!(objects = committed.n_changes, "policies are computed");
        }
        committed.facts
    }
}

fn raise(versions: &mut BTreeMap<&'static str, u64>, kind: InputKind, version: u64) {
    let highest = versions.entry(plural(kind)).or_default();
    *highest = version.max(*highest);
}

fn annotations(prefix: &str, versions: &BTreeMap<&'static str, u64>) -> AsOf {
    let named = versions.iter();
    let named = named.map(|(kind, version)| (format!("{prefix}{kind}"), version.to_string()));
    Arc::new(named.collect())
}

struct Watches {
    client: Client,
    seen_tx: mpsc::Sender<Message>,
    stop: CancellationToken,
}

impl Watches {
    fn start(&self) {
        let client = &self.client;
        self.follow(InputKind::Pod, inputs::pods(client), pod);
        self.follow(InputKind::Namespace, inputs::namespaces(client), namespace);
        let of = InputKind::Policy(PolicyKind::K8s);
        self.follow(of, inputs::k8s_policies(client), |input| {
            Event::K8sPolicy(Box::new(input.object))
        });
        let of = InputKind::Policy(PolicyKind::Cluster);
        self.follow(of, inputs::cluster_policies(client), |input| {
            Event::ClusterPolicy(Box::new(input.object))
        });
        let of = InputKind::Policy(PolicyKind::Namespaced);
        self.follow(of, inputs::namespaced_policies(client), |input| {
            Event::NamespacedPolicy(Box::new(input.object))
        });
        let of = InputKind::Policy(PolicyKind::Upstream);
        self.follow(of, inputs::upstream_policies(client), |input| {
            Event::UpstreamPolicy(Box::new(input.object))
        });
        self.follow(InputKind::Tier, inputs::tiers(client), |input| Event::Tier {
            name: input.key.name,
            priority: Some(input.object.spec.priority),
        });
        let facts = |input: &Input<ClusterGroup>| facts_of(&input.key, &input.object.status);
        self.follow_groups(
            InputKind::ClusterGroup,
            inputs::cluster_groups(client),
            facts,
            |input| {
                let (name, spec) = (input.key.name, Some(Box::new(input.object.spec)));
                Event::Group { namespace: String::new(), name, spec }
            },
        );
        let facts = |input: &Input<Group>| facts_of(&input.key, &input.object.status);
        self.follow_groups(InputKind::Group, inputs::groups(client), facts, |input| {
            let InputKey { namespace, name, .. } = input.key;
            Event::Group { namespace, name, spec: Some(Box::new(input.object.spec)) }
        });
        self.follow(InputKind::Node, inputs::nodes(client), |input| {
            let node = input.object;
            Event::Node(NodeInput {
                ips: addresses(&node),
                name: node.name,
                labels: node.labels.into_iter().collect(),
            })
        });
    }

    fn follow<T: Send + 'static>(
        &self,
        kind: InputKind,
        stream: impl Stream<Item = Versioned<Input<T>>> + Send + Unpin + 'static,
        event: fn(Input<T>) -> Event,
    ) {
        self.follow_groups(kind, stream, |_| None, event);
    }

    fn follow_groups<T: Send + 'static>(
        &self,
        kind: InputKind,
        mut stream: impl Stream<Item = Versioned<Input<T>>> + Send + Unpin + 'static,
        facts: fn(&Input<T>) -> Option<GroupFacts>,
        event: fn(Input<T>) -> Event,
    ) {
        let (seen_tx, stop) = (self.seen_tx.clone(), self.stop.clone());
        tokio::spawn(async move {
            loop {
                let told = tokio::select! {
                    () = stop.cancelled() => return,
                    told = stream.next() => told,
                };
                let seen = match told {
                    None => return,
                    Some(Versioned::UpTo(version)) => Seen::UpTo(version),
                    Some(Versioned::Seen(seen)) => match seen {
                        WatchEvent::Init => Seen::Begin,
                        WatchEvent::Applied(input) => {
                            let known = known(kind, &input.key);
                            let version = input.key.version;
                            let facts = facts(&input);
                            Seen::There(known, version, Box::new(event(input)), facts)
                        }
                        WatchEvent::Deleted(key) => Seen::Gone(known(kind, &key), key.version),
                        WatchEvent::InitDone => Seen::End,
                        WatchEvent::Failed(error) => Seen::Failed(error),
                    },
                };
                if seen_tx.send((kind, seen)).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Every address from which a Node's own traffic may come: those that it lists, and its gateway's in
/// each Pod CIDR.
fn addresses(node: &nodes::NodeView) -> Vec<IpAddr> {
    let listed = [&node.internal_addresses, &node.external_addresses, &node.transport_addresses];
    let gateways = node.pod_cidrs.iter().filter_map(|cidr| cidr.hosts().next());
    listed.into_iter().flatten().copied().chain(gateways).collect()
}

fn facts_of(key: &InputKey, status: &Option<GroupStatus>) -> Option<GroupFacts> {
    Some(GroupFacts { uid: key.uid.clone(), status: status.clone() })
}

fn known(kind: InputKind, key: &InputKey) -> Known {
    match kind {
        InputKind::Policy(_) => Known { kind, namespace: String::new(), name: key.uid.clone() },
        _ => Known { kind, namespace: key.namespace.clone(), name: key.name.clone() },
    }
}

fn pod(input: Input<PodFacts>) -> Event {
    let InputKey { namespace, name, .. } = input.key;
    let facts = input.object;
    let ports = facts.ports.into_iter().filter_map(|port| {
        let protocol = match port.protocol.as_str() {
            "TCP" => PortProtocol::Tcp,
            "UDP" => PortProtocol::Udp,
            "SCTP" => PortProtocol::Sctp,
            _ => return None,
        };
        Some(NamedPort { name: port.name.into(), port: port.port, protocol })
    });
    Event::Pod(PodInput {
        namespace,
        name,
        labels: facts.labels,
        service_account: facts.service_account,
        node: facts.node,
        host_network: facts.host_network,
        finished: facts.finished,
        ips: facts.ips,
        ports: ports.collect(),
    })
}

fn namespace(input: Input<NamespaceFacts>) -> Event {
    Event::Namespace(NamespaceInput {
        name: input.key.name,
        labels: input.object.labels,
        log_policies: input.object.log_policies,
    })
}

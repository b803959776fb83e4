//! Feeds the computation from watches of the cluster.
//!
//! One task per watch forwards what it sees; one loop takes it in, in batches, so that a burst costs
//! one commit. Nothing is shown before every kind was listed once. A list that comes again says what
//! is gone by not naming it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use antrea_runtime::CancellationToken;
use apis::controlplane::AS_OF;
use futures::{Stream, StreamExt};
use kube_io::policy_inputs::{self as inputs, Input, InputKey, NamespaceFacts, PodFacts};
use kube_io::{Client, Keyed, WatchEvent, nodes};
use policy::index::{NamedPort, NamespaceInput, NodeInput, PodInput, PortProtocol};
use policy::translate::{Event, InputKind, Known, PolicyFacts, PolicyKind};
use tokio::sync::mpsc;

use super::state::State;

/// Events that may wait between watches and the loop.
const QUEUE: usize = 4096;

/// What a watch saw, in the computation's words.
#[derive(Debug)]
enum Seen {
    Begin,
    There(Known, u64, Box<Event>),
    Gone(Known, u64),
    End,
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
    listed: HashSet<InputKind>,
    /// Objects of a list that comes again.
    again: HashMap<InputKind, HashSet<Known>>,
    read_up_to: BTreeMap<&'static str, u64>,
    changed: bool,
}

impl Feed {
    fn new(state: Arc<State>) -> Self {
        Self {
            state,
            events: Vec::new(),
            listed: HashSet::new(),
            again: HashMap::new(),
            read_up_to: BTreeMap::new(),
            changed: false,
        }
    }

    fn take(&mut self, kind: InputKind, seen: Seen) {
        match seen {
            Seen::Begin => {
                if self.listed.contains(&kind) {
                    self.again.insert(kind, HashSet::new());
                }
            }
            Seen::There(known, version, event) => {
                if let Some(again) = self.again.get_mut(&kind) {
                    again.insert(known);
                }
                self.read(kind, version);
                self.events.push(*event);
            }
            Seen::Gone(known, version) => {
                self.read(kind, version);
                self.events.push(known.gone());
            }
            Seen::End => self.end(kind),
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
        let highest = self.read_up_to.entry(plural(kind)).or_default();
        *highest = version.max(*highest);
        self.changed = true;
    }

    fn end(&mut self, kind: InputKind) {
        self.changed = true;
        self.listed.insert(kind);
        let Some(again) = self.again.remove(&kind) else { return };
        self.apply();
        let known = self.state.lock().engine().known(kind);
        let gone = known.into_iter().filter(|known| !again.contains(known));
        self.events.extend(gone.map(Known::gone));
    }

    fn apply(&mut self) {
        self.state.apply(std::mem::take(&mut self.events));
    }

    /// Shows what was read, once everything was read at all.
    fn commit(&mut self) -> Vec<PolicyFacts> {
        self.apply();
        if !NEEDED.iter().all(|kind| self.listed.contains(kind)) || !self.changed {
            return Vec::new();
        }
        self.changed = false;
        let as_of = self.read_up_to.iter();
        let as_of = as_of.map(|(kind, version)| (format!("{AS_OF}{kind}"), version.to_string()));
        let first = !self.state.is_complete();
        let committed = self.state.commit(Arc::new(as_of.collect()));
        if first {
            tracing::info!(objects = committed.n_changes, "policies are computed");
        }
        committed.facts
    }
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
        self.follow(InputKind::ClusterGroup, inputs::cluster_groups(client), |input| {
            let (name, spec) = (input.key.name, Some(Box::new(input.object.spec)));
            Event::Group { namespace: String::new(), name, spec }
        });
        self.follow(InputKind::Group, inputs::groups(client), |input| {
            let InputKey { namespace, name, .. } = input.key;
            Event::Group { namespace, name, spec: Some(Box::new(input.object.spec)) }
        });
        self.follow_nodes();
    }

    fn follow<T: Send + 'static>(
        &self,
        kind: InputKind,
        stream: impl Stream<Item = WatchEvent<Input<T>>> + Send + Unpin + 'static,
        event: fn(Input<T>) -> Event,
    ) {
        self.forward(
            kind,
            stream,
            move |input| {
                let known = known(kind, &input.key);
                let version = input.key.version;
                Seen::There(known, version, Box::new(event(input)))
            },
            move |key| Seen::Gone(known(kind, &key), key.version),
        );
    }

    fn follow_nodes(&self) {
        let kind = InputKind::Node;
        let known =
            move |name: &str| Known { kind, namespace: String::new(), name: name.to_owned() };
        self.forward(
            kind,
            nodes::watch(&self.client),
            move |node| {
                let version = node.resource_version.parse().unwrap_or(0);
                let input = NodeInput {
                    name: node.name.clone(),
                    labels: node.labels.clone().into_iter().collect(),
                    ips: addresses(&node),
                };
                Seen::There(known(&node.name), version, Box::new(Event::Node(input)))
            },
            move |name| Seen::Gone(known(&name), 0),
        );
    }

    fn forward<V: Keyed + Send + 'static>(
        &self,
        kind: InputKind,
        mut stream: impl Stream<Item = WatchEvent<V>> + Send + Unpin + 'static,
        there: impl Fn(V) -> Seen + Send + 'static,
        gone: impl Fn(V::Key) -> Seen + Send + 'static,
    ) where
        V::Key: Send,
    {
        let (seen_tx, stop) = (self.seen_tx.clone(), self.stop.clone());
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    () = stop.cancelled() => return,
                    event = stream.next() => event,
                };
                let seen = match event {
                    None => return,
                    Some(WatchEvent::Init) => Seen::Begin,
                    Some(WatchEvent::Applied(object)) => there(object),
                    Some(WatchEvent::Deleted(key)) => gone(key),
                    Some(WatchEvent::InitDone) => Seen::End,
                    Some(WatchEvent::Failed(error)) => Seen::Failed(error),
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
        labels: facts.labels.into_iter().collect(),
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
        labels: input.object.labels.into_iter().collect(),
        log_policies: input.object.log_policies,
    })
}

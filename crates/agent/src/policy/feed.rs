//! The watches of policies and groups, as one stream of events.

use apis::controlplane::{
    AS_OF, AddressGroup, AddressGroupPatch, AppliedToGroup, AppliedToGroupPatch, NetworkPolicy,
    PolicyType,
};
use futures::{Stream, StreamExt};
use kube_io::controlplane::{self, Controlplane};
use policy::realize::{AsOf, Event, Kind};
use tokio::sync::mpsc;

/// Events that may wait.
const QUEUE: usize = 1024;

/// What the watches say.
#[derive(Debug)]
pub(super) enum Fed {
    /// For the state machine.
    Event(Kind, Box<Event>),
    /// A whole list, for the state machine.
    List(Kind, Box<Event>),
    /// The watch broke.
    Broken(Kind),
}

/// Which policies are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// All.
    All,
    /// Kubernetes' own, where the gate AntreaPolicy is off.
    Kubernetes,
}

impl Taken {
    fn takes(self, policy: &NetworkPolicy) -> bool {
        let kind = policy.source_ref.as_ref().map(|source| &source.type_);
        self == Self::All || kind == Some(&PolicyType::K8sNetworkPolicy)
    }
}

/// Starts the watches; they end with the receiver.
pub(super) fn start(controlplane: &Controlplane, taken: Taken) -> mpsc::Receiver<Fed> {
    let (tx, rx) = mpsc::channel(QUEUE);
    forward(Kind::NetworkPolicy, controlplane.network_policies(), &tx, policies(taken));
    forward(Kind::AppliedToGroup, controlplane.applied_to_groups(), &tx, applied_to);
    forward(Kind::AddressGroup, controlplane.address_groups(), &tx, addresses);
    rx
}

/// One thing that a watch said of objects.
enum Said<T, P> {
    All(Vec<T>),
    Added(T),
    Modified(P),
    Deleted(String),
}

fn forward<T: Send + 'static, P: Send + 'static>(
    kind: Kind,
    mut stream: impl Stream<Item = controlplane::Event<T, P>> + Send + Unpin + 'static,
    tx: &mpsc::Sender<Fed>,
    event: impl Fn(Said<T, P>) -> Option<Event> + Send + 'static,
) {
    let tx = tx.clone();
    tokio::spawn(async move {
        let mut stands = true;
        loop {
            let said = tokio::select! {
                said = stream.next() => said,
                () = tx.closed() => return,
            };
            let Some(said) = said else { return };
            let mut fed = Vec::with_capacity(2);
            let mut put = |event: Option<Event>| {
                fed.extend(event.map(|event| Fed::Event(kind, Box::new(event))));
            };
            match said {
                controlplane::Event::Failed(why) => {
                    if std::mem::replace(&mut stands, false) {
                        tracing::warn!(?kind, "watch broke: {why}");
                    } else {
                        tracing::debug!(?kind, "watch: {why}");
                    }
                    fed.push(Fed::Broken(kind));
                }
                controlplane::Event::Replaced { objects, as_of } => {
                    if !std::mem::replace(&mut stands, true) {
                        tracing::info!(?kind, "watch stands again");
                    }
                    let list = event(Said::All(objects)).map(Box::new);
                    fed.extend(list.map(|event| Fed::List(kind, event)));
                    fed.push(Fed::Event(kind, Box::new(up_to(kind, &as_of))));
                }
                controlplane::Event::Bookmark { as_of } => put(Some(up_to(kind, &as_of))),
                controlplane::Event::Added(object) => put(event(Said::Added(object))),
                controlplane::Event::Modified(change) => put(event(Said::Modified(change))),
                controlplane::Event::Deleted(name) => put(event(Said::Deleted(name))),
            }
            for fed in fed {
                if tx.send(fed).await.is_err() {
                    return;
                }
            }
        }
    });
}

fn up_to(kind: Kind, as_of: &controlplane::AsOf) -> Event {
    let versions = as_of.iter().filter_map(|(key, version)| {
        Some((key.strip_prefix(AS_OF)?.to_owned(), version.parse().ok()?))
    });
    Event::Bookmark { kind, as_of: AsOf(versions.collect()) }
}

fn policies(taken: Taken) -> impl Fn(Said<NetworkPolicy, NetworkPolicy>) -> Option<Event> {
    move |said| match said {
        Said::All(mut all) => {
            all.retain(|policy| taken.takes(policy));
            Some(Event::ReplacePolicies(all))
        }
        Said::Added(policy) | Said::Modified(policy) => {
            if !taken.takes(&policy) {
                return None;
            }
            Some(Event::PolicySet(policy))
        }
        Said::Deleted(name) => Some(Event::PolicyDeleted(name)),
    }
}

fn applied_to(said: Said<AppliedToGroup, AppliedToGroupPatch>) -> Option<Event> {
    Some(match said {
        Said::All(all) => Event::ReplaceAppliedToGroups(all),
        Said::Added(group) => Event::AppliedToGroupSet(group),
        Said::Modified(patch) => Event::AppliedToGroupPatched(patch),
        Said::Deleted(name) => Event::AppliedToGroupDeleted(name),
    })
}

fn addresses(said: Said<AddressGroup, AddressGroupPatch>) -> Option<Event> {
    Some(match said {
        Said::All(all) => Event::ReplaceAddressGroups(all),
        Said::Added(group) => Event::AddressGroupSet(group),
        Said::Modified(patch) => Event::AddressGroupPatched(patch),
        Said::Deleted(name) => Event::AddressGroupDeleted(name),
    })
}

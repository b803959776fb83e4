//! The watches of Services and their slices, as events of `services`.

use apis::service::{EndpointSlice, Service};
use futures::{Stream, StreamExt};
use kube_io::{Client, Keyed, WatchEvent};
use services::Event;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Events that may wait to be taken in.
const QUEUE: usize = 4096;

/// Watches both kinds, until nobody takes what they say or the tasks are ended.
pub(super) fn start(
    client: &Client,
    proxy_name: &str,
    tasks: &mut JoinSet<()>,
) -> mpsc::Receiver<Event> {
    let (events_tx, events_rx) = mpsc::channel(QUEUE);
    let services = kube_io::services::watch(client, proxy_name);
    let slices = kube_io::services::watch_slices(client, proxy_name);
    tasks.spawn(follow(services, "Services", service, events_tx.clone()));
    tasks.spawn(follow(slices, "EndpointSlices", slice, events_tx));
    events_rx
}

async fn follow<T: Keyed>(
    mut seen: impl Stream<Item = WatchEvent<T>> + Unpin,
    kind: &'static str,
    event: fn(Told<T>) -> Event,
    events_tx: mpsc::Sender<Event>,
) {
    let mut lister = Lister::default();
    let mut broken = false;
    while let Some(seen) = seen.next().await {
        match &seen {
            // Each failure in a row says the same.
            WatchEvent::Failed(reason) if !broken => {
                broken = true;
                tracing::warn!("watch of {kind} broke: {reason}");
            }
            WatchEvent::Failed(reason) => tracing::debug!("watch of {kind}: {reason}"),
            // `Init` only says that the watch is about to ask.
            WatchEvent::Init => {}
            _ => broken = false,
        }
        let Some(told) = lister.take(seen) else { continue };
        if events_tx.send(event(told)).await.is_err() {
            return;
        }
    }
}

/// What a watch says, with lists as wholes.
#[derive(Debug)]
enum Told<T: Keyed> {
    All(Vec<T>),
    There(T),
    Gone(T::Key),
}

fn service(told: Told<Service>) -> Event {
    match told {
        Told::All(all) => Event::Services(all),
        Told::There(service) => Event::Service(service),
        Told::Gone(name) => Event::ServiceGone(name),
    }
}

fn slice(told: Told<EndpointSlice>) -> Event {
    match told {
        Told::All(all) => Event::Slices(all),
        Told::There(slice) => Event::Slice(slice),
        Told::Gone(name) => Event::SliceGone(name),
    }
}

/// Gathers lists. Pure.
struct Lister<T> {
    listing: Option<Vec<T>>,
}

impl<T> Default for Lister<T> {
    fn default() -> Self {
        Self { listing: None }
    }
}

impl<T: Keyed> Lister<T> {
    fn take(&mut self, seen: WatchEvent<T>) -> Option<Told<T>> {
        match (seen, &mut self.listing) {
            (WatchEvent::Init, listing) => {
                *listing = Some(Vec::new());
                None
            }
            (WatchEvent::Applied(object), Some(listing)) => {
                listing.push(object);
                None
            }
            (WatchEvent::Applied(object), None) => Some(Told::There(object)),
            (WatchEvent::Deleted(key), _) => Some(Told::Gone(key)),
            (WatchEvent::InitDone, listing) => listing.take().map(Told::All),
            (WatchEvent::Failed(_), _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use apis::service::ServiceName;

    use super::*;

    fn mk(name: &str) -> Service {
        Service { name: ServiceName::new("x", name), ..Service::default() }
    }

    #[test]
    fn lists_come_as_wholes_and_changes_one_by_one() {
        let mut lister = Lister::default();
        let names = |told: Option<Told<Service>>| match told {
            None => "nothing".to_owned(),
            Some(Told::All(all)) => {
                all.iter().map(|one| one.name.to_string()).collect::<Vec<_>>().join(",")
            }
            Some(Told::There(one)) => format!("+{}", one.name),
            Some(Told::Gone(name)) => format!("-{name}"),
        };
        for (seen, want) in [
            (WatchEvent::Init, "nothing"),
            (WatchEvent::Applied(mk("a")), "nothing"),
            (WatchEvent::Failed("cut".into()), "nothing"),
            // A list that broke off begins anew.
            (WatchEvent::Init, "nothing"),
            (WatchEvent::Applied(mk("b")), "nothing"),
            (WatchEvent::Applied(mk("c")), "nothing"),
            (WatchEvent::InitDone, "x/b,x/c"),
            (WatchEvent::Applied(mk("d")), "+x/d"),
            (WatchEvent::Deleted(ServiceName::new("x", "b")), "-x/b"),
        ] {
            assert_eq!(names(lister.take(seen)), want);
        }
    }
}

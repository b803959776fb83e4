//! Where the replicas of the controller are, as the cluster tells: addresses from EndpointSlices of
//! their Service, and the authority of their certificates from a ConfigMap.
//!
//! Not here: which replica is used (`controlplane`), what is asked of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use crate::client::Client;
use crate::policy_inputs::slim;
use crate::watch::{Keyed, Selection, WatchEvent, watch_in};

/// Service of the controller.
pub const SERVICE: &str = "antrea";
/// ConfigMap with the authority of its certificate, under `ca.crt`.
pub const CA_MAP: &str = "antrea-ca";

/// One replica's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it serves.
    pub address: SocketAddr,
    /// Whether it said that it is ready.
    pub ready: bool,
}

/// The replicas, and whom their certificates are signed by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replicas {
    /// All addresses, in order.
    pub endpoints: Vec<Endpoint>,
    /// Authorities, PEM; none while nobody published one.
    pub ca_pem: Option<String>,
}

/// Name in the certificates of the controller of an installation.
pub fn server_name(namespace: &str) -> String {
    format!("{SERVICE}.{namespace}.svc")
}

/// Follows the replicas of the controller of an installation; tells each state that differs from
/// the one before, from when everything was read once.
pub fn follow(
    client: &Client,
    namespace: &str,
) -> impl Stream<Item = Replicas> + Send + Unpin + 'static {
    let labels = format!("kubernetes.io/service-name={SERVICE}");
    let selection = Selection { labels, ..Selection::default() };
    let slices = watch_in(client, namespace, selection, Slice::into_view).map(Told::Slices);
    let selection = Selection { fields: format!("metadata.name={CA_MAP}"), ..Selection::default() };
    let maps = watch_in(client, namespace, selection, CaMap::into_view).map(Told::Ca);
    let told = futures::stream::select(slices, maps);
    let state = (told, State::default());
    futures::stream::unfold(state, |(mut told, mut state)| async move {
        loop {
            let changed = match told.next().await? {
                Told::Slices(event) => state.slices.take(event),
                Told::Ca(event) => state.maps.take(event),
            };
            if !changed || !state.slices.complete || !state.maps.complete {
                continue;
            }
            let replicas = state.replicas();
            if state.told.as_ref() != Some(&replicas) {
                state.told = Some(replicas.clone());
                return Some((replicas, (told, state)));
            }
        }
    })
    .boxed()
}

enum Told {
    Slices(WatchEvent<SliceView>),
    Ca(WatchEvent<CaView>),
}

#[derive(Default)]
struct State {
    slices: Known<SliceView>,
    maps: Known<CaView>,
    told: Option<Replicas>,
}

impl State {
    fn replicas(&self) -> Replicas {
        let all = self.slices.objects.values().flat_map(|slice| slice.endpoints.iter().copied());
        let mut endpoints: Vec<Endpoint> = all.collect();
        endpoints.sort_by_key(|endpoint| (endpoint.address, !endpoint.ready));
        endpoints.dedup_by_key(|endpoint| endpoint.address);
        let ca_pem = self.maps.objects.values().find_map(|map| map.ca_pem.clone());
        Replicas { endpoints, ca_pem }
    }
}

/// Objects by name.
struct Known<V> {
    objects: BTreeMap<String, V>,
    listing: BTreeMap<String, V>,
    complete: bool,
    lists: bool,
}

impl<V> Default for Known<V> {
    fn default() -> Self {
        let (objects, listing) = (BTreeMap::new(), BTreeMap::new());
        Self { objects, listing, complete: false, lists: false }
    }
}

impl<V: Keyed<Key = String>> Known<V> {
    /// Takes an event; says whether anything may have changed.
    fn take(&mut self, event: WatchEvent<V>) -> bool {
        match event {
            WatchEvent::Init => {
                self.lists = true;
                self.listing.clear();
                false
            }
            WatchEvent::Applied(object) if self.lists => {
                self.listing.insert(object.key(), object);
                false
            }
            WatchEvent::Applied(object) => {
                self.objects.insert(object.key(), object);
                true
            }
            WatchEvent::Deleted(name) => {
                self.listing.remove(&name);
                self.objects.remove(&name).is_some()
            }
            WatchEvent::InitDone => {
                self.objects = std::mem::take(&mut self.listing);
                (self.complete, self.lists) = (true, false);
                true
            }
            WatchEvent::Failed(error) => {
                tracing::debug!(error, "watch the controller's replicas");
                false
            }
        }
    }
}

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::discovery::v1::EndpointSlice)]
struct Slice {
    #[serde(default, deserialize_with = "slim")]
    metadata: ObjectMeta,
    #[serde(default)]
    endpoints: Option<Vec<SliceEndpoint>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Clone, Debug, Deserialize)]
struct SliceEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Conditions {
    #[serde(default)]
    ready: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct Port {
    #[serde(default)]
    port: Option<u16>,
    #[serde(default)]
    protocol: Option<String>,
}

#[derive(Clone, Debug)]
struct SliceView {
    name: String,
    endpoints: Vec<Endpoint>,
}

impl Keyed for SliceView {
    type Key = String;

    fn key(&self) -> String {
        self.name.clone()
    }
}

impl Slice {
    fn into_view(self) -> SliceView {
        let is_tcp = |port: &&Port| port.protocol.as_deref().is_none_or(|word| word == "TCP");
        let port = self.ports.iter().flatten().find(is_tcp).and_then(|port| port.port);
        let all = self.endpoints.into_iter().flatten().flat_map(|endpoint| {
            // A server that does not say is ready.
            let ready = endpoint.conditions.ready != Some(false);
            let addresses = endpoint.addresses.into_iter();
            addresses.filter_map(move |text| {
                let ip: IpAddr = text.parse().ok()?;
                Some(Endpoint { address: SocketAddr::new(ip, port?), ready })
            })
        });
        SliceView { endpoints: all.collect(), name: self.metadata.name.unwrap_or_default() }
    }
}

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::ConfigMap)]
struct CaMap {
    #[serde(default, deserialize_with = "slim")]
    metadata: ObjectMeta,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug)]
struct CaView {
    name: String,
    ca_pem: Option<String>,
}

impl Keyed for CaView {
    type Key = String;

    fn key(&self) -> String {
        self.name.clone()
    }
}

impl CaMap {
    fn into_view(self) -> CaView {
        let ca_pem = self.data.and_then(|mut data| data.remove("ca.crt"));
        let ca_pem = ca_pem.filter(|pem| !pem.is_empty());
        CaView { ca_pem, name: self.metadata.name.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(value: serde_json::Value) -> Vec<(String, bool)> {
        let slice: Slice = serde_json::from_value(value).unwrap();
        let endpoints = slice.into_view().endpoints.into_iter();
        endpoints.map(|one| (one.address.to_string(), one.ready)).collect()
    }

    #[test]
    fn slices_tell_addresses_and_readiness() {
        let ready = |text: &str, ready| (text.to_owned(), ready);
        for (value, want) in [
            (
                json!({"metadata": {"name": "a"}, "ports": [{"port": 7, "protocol": "TCP"}],
                    "endpoints": [
                        {"addresses": ["10.0.0.1"], "conditions": {"ready": false}},
                        {"addresses": ["10.0.0.2"]}, {"addresses": ["fd00::1", "nonsense"]}]}),
                vec![
                    ready("10.0.0.1:7", false),
                    ready("10.0.0.2:7", true),
                    ready("[fd00::1]:7", true),
                ],
            ),
            (json!({"metadata": {"name": "a"}, "endpoints": [{"addresses": ["1.2.3.4"]}]}), vec![]),
            (json!({"metadata": {"name": "a"}, "endpoints": null, "ports": null}), vec![]),
        ] {
            assert_eq!(slice(value.clone()), want, "{value}");
        }
    }

    #[test]
    fn what_a_list_does_not_name_is_gone() {
        let view = |name: &str| CaView { name: name.into(), ca_pem: Some(name.into()) };
        let mut known = Known::default();
        for event in [
            WatchEvent::Init,
            WatchEvent::Applied(view("a")),
            WatchEvent::Applied(view("b")),
            WatchEvent::InitDone,
            WatchEvent::Applied(view("c")),
            WatchEvent::Deleted("a".to_owned()),
        ] {
            known.take(event);
        }
        let names = |known: &Known<CaView>| known.objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&known), ["b", "c"]);
        known.take(WatchEvent::Init);
        known.take(WatchEvent::Applied(view("c")));
        assert_eq!(names(&known), ["b", "c"], "kept until the list is complete");
        assert!(known.take(WatchEvent::InitDone));
        assert_eq!(names(&known), ["c"]);
    }
}

//! Watches of Services and EndpointSlices, with only the fields that a proxy needs.
//!
//! What cannot be read is left out and told in the log: an address that is none, a protocol that
//! nobody knows. Not here: what follows (`services`).

mod kept;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use apis::service::{
    EndpointSlice, IngressMode, LoadBalancerMode, Service, ServiceName, ServicePort,
    ServiceProtocol, ServiceType, SliceEndpoint, SliceName, SlicePort, TrafficPolicy,
};
use futures::Stream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};

use crate::client::Client;
use crate::watch::{Keyed, Selection, WatchEvent, watch as watch_kind};

pub use kept::{service_from_json, service_to_json, slice_from_json, slice_to_json};

/// Label of Services that another proxy is meant to serve, and its name.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label of what is headless.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Label of a slice: the Service whose servers it lists.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Annotation that chooses how answers go back to clients of a load balancer.
const LOAD_BALANCER_MODE: &str = "service.antrea.io/load-balancer-mode";
/// Seconds for which a client stays with its endpoint when the Service does not say.
const AFFINITY_SECONDS: u32 = 10_800;

/// What a watch of Services saw.
pub type ServiceEvent = WatchEvent<Service>;
/// What a watch of EndpointSlices saw.
pub type SliceEvent = WatchEvent<EndpointSlice>;

impl Keyed for Service {
    type Key = ServiceName;

    fn key(&self) -> ServiceName {
        self.name.clone()
    }
}

impl Keyed for EndpointSlice {
    type Key = SliceName;

    fn key(&self) -> SliceName {
        self.name.clone()
    }
}

/// Watches the Services that the proxy of this name serves; the one without a name serves those
/// that name none.
pub fn watch(
    client: &Client,
    proxy_name: &str,
) -> impl Stream<Item = ServiceEvent> + Send + Unpin + 'static {
    watch_kind(client, selection(proxy_name), ServiceObject::into_view)
}

/// Watches the EndpointSlices of these Services.
pub fn watch_slices(
    client: &Client,
    proxy_name: &str,
) -> impl Stream<Item = SliceEvent> + Send + Unpin + 'static {
    watch_kind(client, selection(proxy_name), SliceObject::into_view)
}

fn selection(proxy_name: &str) -> Selection {
    let proxy = match proxy_name {
        "" => format!("!{PROXY_NAME}"),
        name => format!("{PROXY_NAME}={name}"),
    };
    Selection { labels: format!("!{HEADLESS},{proxy}"), ..Selection::default() }
}

/// Metadata with the labels and annotations that are read here.
fn slim<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Slim {
        namespace: Option<String>,
        name: Option<String>,
        resource_version: Option<String>,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
    }
    let mut slim = Slim::deserialize(from)?;
    slim.labels.retain(|key, _| key == SERVICE_NAME);
    slim.annotations.retain(|key, _| key == LOAD_BALANCER_MODE);
    Ok(ObjectMeta {
        namespace: slim.namespace,
        name: slim.name,
        resource_version: slim.resource_version,
        labels: Some(slim.labels),
        annotations: Some(slim.annotations),
        ..ObjectMeta::default()
    })
}

fn text(field: Option<String>) -> Arc<str> {
    field.unwrap_or_default().into()
}

/// Reads what can be read, and tells of the rest.
fn read<T: std::str::FromStr>(of: &dyn std::fmt::Display, what: &str, text: &str) -> Option<T> {
    let value = text.trim().parse().ok();
    if value.is_none() {
        tracing::warn!(object = %of, "{what}: {text:?} cannot be read: left out");
    }
    value
}

fn policy(word: Option<&str>) -> TrafficPolicy {
    if word == Some("Local") { TrafficPolicy::Local } else { TrafficPolicy::Cluster }
}

fn port_number(number: Option<i32>) -> Option<u16> {
    number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number != 0)
}

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Service)]
struct ServiceObject {
    #[serde(default, deserialize_with = "slim")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Option<Vec<String>>,
    #[serde(rename = "externalIPs")]
    external_ips: Option<Vec<String>>,
    load_balancer_source_ranges: Option<Vec<String>>,
    ports: Option<Vec<Port>>,
    session_affinity: Option<String>,
    session_affinity_config: Option<AffinityConfig>,
    internal_traffic_policy: Option<String>,
    external_traffic_policy: Option<String>,
    health_check_node_port: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<i32>,
    node_port: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: Option<ClientIp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClientIp {
    timeout_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    load_balancer: Option<LoadBalancer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    ingress: Option<Vec<Ingress>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ingress {
    ip: Option<String>,
    ip_mode: Option<String>,
}

impl ServiceObject {
    fn into_view(self) -> Service {
        let Self { metadata, spec, status } = self;
        let name = ServiceName { namespace: text(metadata.namespace), name: text(metadata.name) };
        let addresses = |what: &str, texts: Vec<String>| -> Vec<IpAddr> {
            let there = texts.iter().filter(|text| !matches!(text.as_str(), "" | "None"));
            there.filter_map(|text| read(&name, what, text)).collect()
        };
        let cluster_ips = match spec.cluster_ips {
            Some(all) if !all.is_empty() => all,
            _ => spec.cluster_ip.into_iter().collect(),
        };
        let ingress = status.load_balancer.and_then(|balancer| balancer.ingress);
        let ingress = ingress.into_iter().flatten().filter_map(|ingress| {
            let mode = match ingress.ip_mode.as_deref() {
                Some("Proxy") => IngressMode::Proxy,
                _ => IngressMode::Vip,
            };
            let ip = ingress.ip.filter(|ip| !ip.is_empty())?;
            Some((read(&name, "address of the load balancer", &ip)?, mode))
        });
        let ranges = spec.load_balancer_source_ranges.into_iter().flatten();
        let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
            let config = spec.session_affinity_config.and_then(|config| config.client_ip);
            config.and_then(|config| config.timeout_seconds).unwrap_or(AFFINITY_SECONDS)
        });
        let mode = metadata.annotations.and_then(|mut all| all.remove(LOAD_BALANCER_MODE));
        let mode = mode.and_then(|word| match word.to_ascii_lowercase().as_str() {
            "nat" => Some(LoadBalancerMode::Nat),
            "dsr" => Some(LoadBalancerMode::Dsr),
            _ => {
                tracing::warn!(object = %name, "{LOAD_BALANCER_MODE}: {word:?} is not one of nat, dsr");
                None
            }
        });
        Service {
            kind: match spec.kind.as_deref() {
                Some("NodePort") => ServiceType::NodePort,
                Some("LoadBalancer") => ServiceType::LoadBalancer,
                Some("ExternalName") => ServiceType::ExternalName,
                _ => ServiceType::ClusterIp,
            },
            cluster_ips: addresses("clusterIPs", cluster_ips),
            external_ips: addresses("externalIPs", spec.external_ips.unwrap_or_default()),
            ingress: ingress.collect(),
            source_ranges: ranges
                .filter_map(|range| read(&name, "loadBalancerSourceRanges", &range))
                .collect(),
            ports: spec
                .ports
                .into_iter()
                .flatten()
                .filter_map(|port| service_port(&name, port))
                .collect(),
            affinity,
            internal_policy: policy(spec.internal_traffic_policy.as_deref()),
            external_policy: policy(spec.external_traffic_policy.as_deref()),
            health_check_node_port: port_number(spec.health_check_node_port),
            load_balancer_mode: mode,
            name,
        }
    }
}

fn service_port(service: &ServiceName, port: Port) -> Option<ServicePort> {
    let Some(protocol) = ServiceProtocol::parse(port.protocol.as_deref()) else {
        tracing::warn!(object = %service, "protocol {:?} is unknown", port.protocol);
        return None;
    };
    let number = port_number(port.port)?;
    let node_port = port_number(port.node_port);
    Some(ServicePort { name: text(port.name), protocol, port: number, node_port })
}

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::discovery::v1::EndpointSlice)]
#[serde(rename_all = "camelCase")]
struct SliceObject {
    #[serde(default, deserialize_with = "slim")]
    metadata: ObjectMeta,
    #[serde(default)]
    address_type: Option<String>,
    #[serde(default)]
    endpoints: Option<Vec<EndpointObject>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EndpointObject {
    addresses: Vec<String>,
    conditions: Option<Conditions>,
    node_name: Option<String>,
    hints: Option<Hints>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Hints {
    for_zones: Option<Vec<Hint>>,
    for_nodes: Option<Vec<Hint>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Hint {
    name: String,
}

/// Texts that most servers of a slice share, each kept once.
#[derive(Default)]
struct Shared {
    texts: Vec<Arc<str>>,
    lists: Vec<Arc<[Arc<str>]>>,
}

impl Shared {
    fn text(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.texts.iter().find(|known| ***known == text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.push(new.clone());
        new
    }

    fn list(&mut self, hints: Option<Vec<Hint>>) -> Arc<[Arc<str>]> {
        let names = hints.into_iter().flatten().map(|hint| self.text(hint.name));
        let list: Vec<_> = names.collect();
        if let Some(known) = self.lists.iter().find(|known| ***known == *list) {
            return known.clone();
        }
        let new: Arc<[Arc<str>]> = list.into();
        self.lists.push(new.clone());
        new
    }
}

impl SliceObject {
    fn into_view(self) -> EndpointSlice {
        let name =
            SliceName { namespace: text(self.metadata.namespace), name: text(self.metadata.name) };
        let service = self.metadata.labels.and_then(|mut labels| labels.remove(SERVICE_NAME));
        let mut shared = Shared::default();
        let has_addresses = self.address_type.as_deref() != Some("FQDN");
        let endpoints = self.endpoints.into_iter().flatten().filter(|_| has_addresses);
        let endpoints = endpoints.filter_map(|endpoint| {
            let Conditions { ready, serving, terminating } =
                endpoint.conditions.unwrap_or_default();
            let hints = endpoint.hints.unwrap_or_default();
            // One server has one address; further ones mean nothing (API documentation).
            let ip = read(&name.name, "address of an endpoint", endpoint.addresses.first()?)?;
            Some(SliceEndpoint {
                ip,
                // What is not said holds, except that the server is about to end.
                ready: ready != Some(false),
                serving: serving.or(ready) != Some(false),
                terminating: terminating == Some(true),
                node: endpoint.node_name.map(|name| shared.text(name)),
                for_zones: shared.list(hints.for_zones),
                for_nodes: shared.list(hints.for_nodes),
            })
        });
        let endpoints = endpoints.collect();
        let ports = self.ports.into_iter().flatten().filter_map(|port| {
            Some(SlicePort {
                protocol: ServiceProtocol::parse(port.protocol.as_deref())?,
                port: port_number(port.port)?,
                name: text(port.name),
            })
        });
        let service = service.filter(|name| !name.is_empty()).map(Into::into);
        EndpointSlice { ports: ports.collect(), endpoints, service, name }
    }
}

#[cfg(test)]
mod tests;

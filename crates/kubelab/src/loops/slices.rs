//! EndpointSlices of Services that select Pods.
//!
//! One set of slices for each family of a Service's addresses and each set of target ports, at most
//! a hundred endpoints in a slice. An endpoint stays in the slice that has it, so that a change
//! rewrites what it concerns only. Slices of other makers are left alone. Those of a Service that
//! goes are collected with it (`garbage`).
//!
//! Not here: hints in proportion to the capacity of zones (`service.kubernetes.io/topology-mode`).

use std::collections::{BTreeMap, BTreeSet};

use apiserver::api::Api;
use apiserver::meta;
use apiserver::store::{Stored, Tx, key, prefix};
use serde_json::{Map, Value, json};

use crate::kinds::{NODES, POD, each, text};

const SERVICES: &str = "services";
const SLICES: &str = "discovery.k8s.io/endpointslices";
const OWNER: &str = "kubernetes.io/service-name";
const MAKER: &str = "endpointslice.kubernetes.io/managed-by";
const OURS: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Most endpoints of a slice.
const MOST: usize = 100;

/// Which versions were looked at.
#[derive(Default)]
pub(super) struct Slices {
    seen: BTreeMap<&'static str, u64>,
}

impl Slices {
    /// One look at all Services, if anything that concerns them changed.
    pub(super) fn step(&mut self, api: &Api) {
        let mut changed = false;
        for collection in [SERVICES, POD, NODES, SLICES] {
            let version = *api.store.subscribe(collection).borrow();
            changed |= self.seen.insert(collection, version) != Some(version);
        }
        let (_, services) = api.store.list(SERVICES, "");
        if !changed || !services.iter().any(|service| selects(service.value())) {
            return;
        }
        let (_, nodes) = api.store.list(NODES, "");
        let zones = nodes.iter().map(Stored::value).map(|node| {
            let zone = text(&node["metadata"]["labels"], "topology.kubernetes.io/zone");
            (meta::name(node), zone)
        });
        let zones: BTreeMap<&str, &str> = zones.collect();
        for service in services.iter().filter(|service| selects(service.value())) {
            let within = prefix(meta::namespace(service.value()));
            let (_, pods) = api.store.list(POD, &within);
            let (_, slices) = api.store.list(SLICES, &within);
            let wanted = wanted(service.value(), pods.iter().map(Stored::value), &zones);
            let existing = slices.iter().map(Stored::value);
            let changes = changes(service.value(), wanted, existing);
            if !changes.is_empty() {
                api.store.write(|tx| carry_out(tx, service.value(), changes));
            }
        }
    }
}

/// Whether its slices are ours to make.
fn selects(service: &Value) -> bool {
    let spec = &service["spec"];
    let has_selector = spec["selector"].as_object().is_some_and(|labels| !labels.is_empty());
    has_selector && text(spec, "type") != "ExternalName" && !meta::is_deleting(service)
}

/// Slices that hold the same ports of the same family.
type Kind = (String, Value);

/// What the slices should hold; the ports are put as text in order, for they have none.
fn wanted<'a>(
    service: &Value,
    pods: impl Iterator<Item = &'a Value>,
    zones: &BTreeMap<&str, &str>,
) -> BTreeMap<(String, String), (Value, Vec<Value>)> {
    let spec = &service["spec"];
    let mut wanted: BTreeMap<_, (Value, Vec<Value>)> = BTreeMap::new();
    for pod in pods.filter(|pod| is_selected(spec, pod)) {
        let status = &pod["status"];
        if matches!(text(status, "phase"), "Failed" | "Succeeded") {
            continue;
        }
        for family in each(spec, "ipFamilies").filter_map(Value::as_str) {
            let mut addresses = each(status, "podIPs").map(|address| text(address, "ip"));
            let address = addresses.find(|ip| ip.contains(':') == (family == "IPv6"));
            let Some(address) = address.filter(|ip| !ip.is_empty()) else { continue };
            let ports = ports(spec, pod);
            let kind = (family.to_owned(), ports.to_string());
            let entry = wanted.entry(kind).or_insert_with(|| (ports, Vec::new()));
            entry.1.push(endpoint(service, pod, address, zones));
        }
    }
    wanted
}

fn is_selected(spec: &Value, pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    spec["selector"].as_object().into_iter().flatten().all(|(name, value)| labels[name] == *value)
}

/// The ports that a Pod has of those that a Service names; one that it has not is left out.
fn ports(spec: &Value, pod: &Value) -> Value {
    each(spec, "ports")
        .filter_map(|port| {
            let number = match &port["targetPort"] {
                Value::String(name) => each(&pod["spec"], "containers")
                    .flat_map(|container| each(container, "ports"))
                    .find(|own| own["name"] == **name && own["protocol"] == port["protocol"])
                    .map(|own| own["containerPort"].clone())?,
                number => number.clone(),
            };
            let name = text(port, "name");
            let mut own = json!({ "name": name, "port": number, "protocol": port["protocol"] });
            meta::set_part(&mut own, "appProtocol", port["appProtocol"].clone());
            Some(own)
        })
        .collect()
}

fn endpoint(service: &Value, pod: &Value, address: &str, zones: &BTreeMap<&str, &str>) -> Value {
    let spec = &service["spec"];
    let conditions = &mut each(&pod["status"], "conditions");
    let serving = conditions.any(|own| own["type"] == "Ready" && own["status"] == "True");
    let terminating = meta::is_deleting(pod);
    let ready = spec["publishNotReadyAddresses"] == true || (serving && !terminating);
    let mut endpoint = json!({
        "addresses": [address],
        "conditions": { "ready": ready, "serving": serving, "terminating": terminating },
        "targetRef": {
            "kind": "Pod", "namespace": meta::namespace(pod), "name": meta::name(pod),
            "uid": meta::uid(pod),
        },
    });
    let node = text(&pod["spec"], "nodeName");
    let zone = zones.get(node).copied().unwrap_or_default();
    let hostname = text(&pod["spec"], "hostname");
    let named = text(&pod["spec"], "subdomain") == meta::name(service);
    for (field, value) in
        [("nodeName", node), ("zone", zone), ("hostname", if named { hostname } else { "" })]
    {
        if !value.is_empty() {
            endpoint[field] = json!(value);
        }
    }
    if ready && let Some(hints) = hints(text(spec, "trafficDistribution"), node, zone) {
        endpoint["hints"] = hints;
    }
    endpoint
}

/// For whom an endpoint is meant, by its Service's `trafficDistribution`.
fn hints(distribution: &str, node: &str, zone: &str) -> Option<Value> {
    let mut hints = Map::new();
    let near = matches!(distribution, "PreferClose" | "PreferSameZone" | "PreferSameNode");
    if near && !zone.is_empty() {
        hints.insert("forZones".into(), json!([{ "name": zone }]));
    }
    if distribution == "PreferSameNode" && !node.is_empty() {
        hints.insert("forNodes".into(), json!([{ "name": node }]));
    }
    (!hints.is_empty()).then_some(Value::Object(hints))
}

/// One slice to write or to remove.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Create(Kind, Vec<Value>),
    Update(String, Value, Vec<Value>),
    Delete { name: String, family: String },
}

fn delete(slice: &Value) -> Change {
    let family = text(slice, "addressType").to_owned();
    Change::Delete { name: meta::name(slice).to_owned(), family }
}

/// What makes the existing slices of a Service those that are wanted.
fn changes<'a>(
    service: &Value,
    wanted: BTreeMap<(String, String), (Value, Vec<Value>)>,
    existing: impl Iterator<Item = &'a Value>,
) -> Vec<Change> {
    let ours = |slice: &&Value| {
        let labels = &slice["metadata"]["labels"];
        labels[OWNER] == meta::name(service) && labels[MAKER] == OURS && !meta::is_deleting(slice)
    };
    let mut by_kind: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
    for slice in existing.filter(ours) {
        let kind = (text(slice, "addressType").to_owned(), slice["ports"].to_string());
        by_kind.entry(kind).or_default().push(slice);
    }
    let mut changes = Vec::new();
    let mut families: BTreeSet<String> = wanted.keys().map(|(family, _)| family.clone()).collect();
    for ((family, text), (ports, endpoints)) in wanted {
        let slices = by_kind.remove(&(family.clone(), text)).unwrap_or_default();
        let kept = place(&mut changes, service, &slices, endpoints);
        let rest = kept.chunks(MOST).map(<[Value]>::to_vec);
        changes.extend(rest.map(|chunk| Change::Create((family.clone(), ports.clone()), chunk)));
    }
    // A family without endpoints has one empty slice, so that whoever looks knows it was looked at.
    for family in each(&service["spec"], "ipFamilies").filter_map(Value::as_str) {
        if families.insert(family.to_owned()) {
            let empty = by_kind.remove(&(family.to_owned(), Value::Null.to_string()));
            match empty.as_deref() {
                Some([slice, ..]) => {
                    if labels_differ(service, slice) {
                        let name = meta::name(slice).to_owned();
                        changes.push(Change::Update(name, Value::Null, Vec::new()));
                    }
                }
                _ => changes.push(Change::Create((family.to_owned(), Value::Null), Vec::new())),
            }
        }
    }
    changes.extend(by_kind.into_values().flatten().map(delete));
    reuse(changes)
}

/// Fills slices that would go instead of making others of their family.
fn reuse(changes: Vec<Change>) -> Vec<Change> {
    let is_delete = |change: &Change| matches!(change, Change::Delete { .. });
    let (mut gone, mut changes): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_delete);
    for change in &mut changes {
        let Change::Create((family, ports), endpoints) = change else { continue };
        let same =
            |change: &Change| matches!(change, Change::Delete { family: own, .. } if own == family);
        let Some(at) = gone.iter().position(same) else { continue };
        if let Change::Delete { name, .. } = gone.remove(at) {
            *change = Change::Update(name, ports.take(), std::mem::take(endpoints));
        }
    }
    changes.extend(gone);
    changes
}

/// Leaves endpoints where they are and fills slices up; gives those that found no place.
fn place(
    changes: &mut Vec<Change>,
    service: &Value,
    slices: &[&Value],
    endpoints: Vec<Value>,
) -> Vec<Value> {
    let identity = |endpoint: &Value| endpoint["targetRef"]["uid"].to_string();
    let mut rest: BTreeMap<String, Value> =
        endpoints.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
    let mut contents: Vec<(&Value, Vec<Value>)> = Vec::new();
    for slice in slices {
        let kept = each(slice, "endpoints").filter_map(|old| rest.remove(&identity(old)));
        contents.push((slice, kept.collect()));
    }
    let mut rest: Vec<Value> = rest.into_values().collect();
    for (slice, mut endpoints) in contents {
        let room = MOST.saturating_sub(endpoints.len()).min(rest.len());
        endpoints.extend(rest.drain(..room));
        if endpoints.is_empty() {
            changes.push(delete(slice));
        } else if slice["endpoints"] != json!(endpoints) || labels_differ(service, slice) {
            let name = meta::name(slice).to_owned();
            changes.push(Change::Update(name, slice["ports"].clone(), endpoints));
        }
    }
    rest
}

/// The labels of a Service's slices: its own, and whose they are.
fn labels(service: &Value) -> Value {
    let mut labels = service["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(OWNER.into(), json!(meta::name(service)));
    labels.insert(MAKER.into(), json!(OURS));
    labels.remove(HEADLESS);
    if service["spec"]["clusterIP"] == "None" {
        labels.insert(HEADLESS.into(), json!(""));
    }
    Value::Object(labels)
}

fn labels_differ(service: &Value, slice: &Value) -> bool {
    slice["metadata"]["labels"] != labels(service)
}

fn carry_out(tx: &mut Tx<'_>, service: &Value, changes: Vec<Change>) {
    let namespace = meta::namespace(service);
    let current = tx.get(SERVICES, &key(namespace, meta::name(service)));
    if current.is_none_or(|current| current.value() != service) {
        return; // It is looked at again.
    }
    let list = |endpoints: Vec<Value>| {
        if endpoints.is_empty() { Value::Null } else { Value::Array(endpoints) }
    };
    for change in changes {
        match change {
            Change::Create((family, ports), endpoints) => {
                let start = format!("{}-", meta::name(service));
                let name = format!("{start}{}", apiserver::objects::random_suffix());
                let owner = json!([{
                    "apiVersion": "v1", "kind": "Service", "name": meta::name(service),
                    "uid": meta::uid(service), "controller": true, "blockOwnerDeletion": true,
                }]);
                let slice = json!({
                    "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
                    "metadata": {
                        "name": name, "generateName": start, "namespace": namespace,
                        "uid": uuid::Uuid::new_v4().to_string(), "generation": 1,
                        "creationTimestamp": meta::now(), "labels": labels(service),
                        "ownerReferences": owner,
                    },
                    "addressType": family, "endpoints": list(endpoints), "ports": ports,
                });
                tx.put(SLICES, &key(namespace, &name), slice);
            }
            Change::Update(name, ports, endpoints) => {
                let Some(current) = tx.get(SLICES, &key(namespace, &name)) else { continue };
                let mut slice = current.value().clone();
                slice["endpoints"] = list(endpoints);
                slice["ports"] = ports;
                let generation = slice["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
                meta::set(&mut slice, "generation", json!(generation));
                meta::set(&mut slice, "labels", labels(service));
                tx.put(SLICES, &key(namespace, &name), slice);
            }
            Change::Delete { name, .. } => {
                tx.remove(SLICES, &key(namespace, &name));
            }
        }
    }
}

#[cfg(test)]
mod tests;

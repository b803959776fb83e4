//! Where a Service's servers are, for requests that the API server makes itself.

use std::net::{IpAddr, SocketAddr};

use apiserver::store::{Store, key};
use serde_json::Value;

use crate::kinds::{each, text};

/// Where to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Ready endpoints, in random order.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The Service's address and port, as it stands in `Host`.
    pub(crate) host: String,
}

/// Why a Service cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// There is no such Service.
    Service,
    /// It has no such port.
    Port,
    /// It has no slices.
    Slices,
    /// None of its endpoints is ready.
    Ready,
}

/// Finds the ready endpoints of a Service's port.
pub(crate) fn find(
    store: &Store,
    namespace: &str,
    name: &str,
    port: i64,
) -> Result<Found, Missing> {
    let service = store.get("services", &key(namespace, name)).ok_or(Missing::Service)?;
    let spec = &service.value()["spec"];
    let own = each(spec, "ports").find(|own| own["port"] == port).ok_or(Missing::Port)?;
    let port_name = text(own, "name");
    let prefix = apiserver::store::prefix(namespace);
    let (_, slices) = store.list("discovery.k8s.io/endpointslices", &prefix);
    let mut any = false;
    let mut ready = Vec::new();
    for slice in slices.iter().map(apiserver::store::Stored::value) {
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != name {
            continue;
        }
        any = true;
        let target = each(slice, "ports").find(|port| text(port, "name") == port_name);
        let Some(target) = target.and_then(|port| port["port"].as_u64()) else { continue };
        let Ok(target) = u16::try_from(target) else { continue };
        for endpoint in each(slice, "endpoints") {
            if endpoint["conditions"]["ready"] == false {
                continue;
            }
            let addresses = each(endpoint, "addresses").filter_map(Value::as_str);
            ready.extend(
                addresses
                    .filter_map(|address| address.parse::<IpAddr>().ok())
                    .map(|address| SocketAddr::new(address, target)),
            );
        }
    }
    if !any {
        return Err(Missing::Slices);
    }
    if ready.is_empty() {
        return Err(Missing::Ready);
    }
    ready.sort_by_cached_key(|_| rand::random::<u32>());
    let cluster_ip = text(spec, "clusterIP").parse::<IpAddr>().ok();
    let host = cluster_ip.map_or_else(
        || format!("{name}.{namespace}.svc:{port}"),
        |ip| SocketAddr::new(ip, u16::try_from(port).unwrap_or(0)).to_string(),
    );
    Ok(Found { addresses: ready, host })
}

//! Services and slices as text to be kept, and back: objects of Kubernetes with the fields that are
//! read here.

use std::net::IpAddr;

use apis::service::{
    EndpointSlice, IngressMode, LoadBalancerMode, Service, ServiceType, SliceEndpoint,
    TrafficPolicy,
};
use serde_json::{Value, json};

use super::{LOAD_BALANCER_MODE, SERVICE_NAME, ServiceObject, SliceObject};

/// A Service as an object.
pub fn service_to_json(service: &Service) -> Value {
    let policy = |policy| match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    };
    let texts = |ips: &[IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut metadata = json!({"namespace": *service.name.namespace, "name": *service.name.name});
    if let Some(mode) = service.load_balancer_mode {
        let mode = match mode {
            LoadBalancerMode::Nat => "nat",
            LoadBalancerMode::Dsr => "dsr",
        };
        metadata["annotations"] = json!({ LOAD_BALANCER_MODE: mode });
    }
    let kind = match service.kind {
        ServiceType::ClusterIp => "ClusterIP",
        ServiceType::NodePort => "NodePort",
        ServiceType::LoadBalancer => "LoadBalancer",
        ServiceType::ExternalName => "ExternalName",
    };
    let ports = service.ports.iter().map(|port| {
        json!({"name": *port.name, "protocol": port.protocol.as_str(), "port": port.port,
            "nodePort": port.node_port})
    });
    let ranges = service.source_ranges.iter().map(ToString::to_string);
    let mut spec = json!({
        "type": kind,
        "clusterIPs": texts(&service.cluster_ips),
        "externalIPs": texts(&service.external_ips),
        "loadBalancerSourceRanges": ranges.collect::<Vec<_>>(),
        "ports": ports.collect::<Vec<_>>(),
        "internalTrafficPolicy": policy(service.internal_policy),
        "externalTrafficPolicy": policy(service.external_policy),
        "healthCheckNodePort": service.health_check_node_port,
    });
    if let Some(seconds) = service.affinity {
        spec["sessionAffinity"] = json!("ClientIP");
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    }
    let ingress = service.ingress.iter().map(|(ip, mode)| {
        let mode = match mode {
            IngressMode::Vip => "VIP",
            IngressMode::Proxy => "Proxy",
        };
        json!({"ip": ip.to_string(), "ipMode": mode})
    });
    let status = json!({"loadBalancer": {"ingress": ingress.collect::<Vec<_>>()}});
    json!({"metadata": metadata, "spec": spec, "status": status})
}

/// The Service that an object is.
///
/// # Errors
/// When it is none.
pub fn service_from_json(object: Value) -> Result<Service, serde_json::Error> {
    Ok(serde_json::from_value::<ServiceObject>(object)?.into_view())
}

/// A slice as an object.
pub fn slice_to_json(slice: &EndpointSlice) -> Value {
    let hints = |names: &[std::sync::Arc<str>]| {
        names.iter().map(|name| json!({ "name": **name })).collect::<Vec<_>>()
    };
    let endpoint = |one: &SliceEndpoint| {
        json!({
            "addresses": [one.ip.to_string()],
            "conditions": {"ready": one.ready, "serving": one.serving,
                "terminating": one.terminating},
            "nodeName": one.node.as_deref(),
            "hints": {"forZones": hints(&one.for_zones), "forNodes": hints(&one.for_nodes)},
        })
    };
    let ports = slice.ports.iter().map(
        |port| json!({"name": *port.name, "protocol": port.protocol.as_str(), "port": port.port}),
    );
    json!({
        "metadata": {"namespace": *slice.name.namespace, "name": *slice.name.name,
            "labels": {SERVICE_NAME: slice.service.as_deref().unwrap_or_default()}},
        "ports": ports.collect::<Vec<_>>(),
        "endpoints": slice.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

/// The slice that an object is.
///
/// # Errors
/// When it is none.
pub fn slice_from_json(object: Value) -> Result<EndpointSlice, serde_json::Error> {
    Ok(serde_json::from_value::<SliceObject>(object)?.into_view())
}

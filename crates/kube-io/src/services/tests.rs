use serde_json::{Value, json};

use super::*;

fn service(value: Value) -> Service {
    serde_json::from_value::<ServiceObject>(value).unwrap().into_view()
}

fn slice(value: Value) -> EndpointSlice {
    serde_json::from_value::<SliceObject>(value).unwrap().into_view()
}

#[test]
fn a_service_is_read_with_all_its_addresses() {
    let read = service(json!({
        "metadata": {"namespace": "x", "name": "web",
            "annotations": {LOAD_BALANCER_MODE: "DSR", "more": "of it"}},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
            "externalIPs": ["192.0.2.1", "nonsense"],
            "loadBalancerSourceRanges": ["192.0.2.0/24", " 2001:db8::/32 ", "everybody"],
            "ports": [
                {"name": "http", "port": 80, "nodePort": 30080, "targetPort": "web"},
                {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 0},
                {"name": "new", "port": 1, "protocol": "QUIC"}, {"name": "none"}],
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}},
            "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Cluster",
            "healthCheckNodePort": 31000},
        "status": {"loadBalancer": {"ingress": [
            {"ip": "198.51.100.1"}, {"ip": "198.51.100.2", "ipMode": "Proxy"}, {"hostname": "lb"}]}},
    }));
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(read.name, ServiceName::new("x", "web"));
    assert_eq!(read.kind, ServiceType::LoadBalancer);
    assert_eq!(read.cluster_ips, [ip("10.96.0.1"), ip("fd00::1")]);
    assert_eq!(read.external_ips, [ip("192.0.2.1")]);
    assert_eq!(
        read.ingress,
        [(ip("198.51.100.1"), IngressMode::Vip), (ip("198.51.100.2"), IngressMode::Proxy)]
    );
    assert_eq!(read.source_ranges.len(), 2);
    assert_eq!(
        read.ports,
        [
            ServicePort { name: "http".into(), port: 80, node_port: Some(30080), ..<_>::default() },
            ServicePort {
                name: "dns".into(),
                port: 53,
                protocol: ServiceProtocol::Udp,
                node_port: None,
            },
        ]
    );
    assert_eq!(read.affinity, Some(7));
    assert_eq!(
        (read.external_policy, read.internal_policy),
        (TrafficPolicy::Local, TrafficPolicy::Cluster)
    );
    assert_eq!(read.health_check_node_port, Some(31000));
    assert_eq!(read.load_balancer_mode, Some(LoadBalancerMode::Dsr));
    assert_eq!(service_from_json(service_to_json(&read)).unwrap(), read, "kept and read back");
}

#[test]
fn what_a_service_does_not_say_has_its_default() {
    let named = |spec: Value| service(json!({"metadata": {"name": "a"}, "spec": spec}));
    let headless = named(json!({"clusterIP": "None", "clusterIPs": ["None"]}));
    assert_eq!(headless.cluster_ips, [] as [IpAddr; 0]);
    let sticky = named(json!({"sessionAffinity": "ClientIP", "clusterIP": "10.96.0.9"}));
    assert_eq!(sticky.affinity, Some(10_800));
    assert_eq!(sticky.cluster_ips.len(), 1, "an old object has clusterIP only");
    let bare = service(json!({"metadata": {"name": "a"}}));
    assert_eq!(bare.name, ServiceName::new("", "a"));
    assert_eq!((bare.affinity, bare.kind), (None, ServiceType::ClusterIp));
    for read in [headless, sticky, bare] {
        assert_eq!(service_from_json(service_to_json(&read)).unwrap(), read, "kept and read back");
    }
}

#[test]
fn a_slice_is_read_with_conditions_and_hints() {
    let read = slice(json!({
        "metadata": {"namespace": "x", "name": "web-1", "labels": {SERVICE_NAME: "web", "a": "b"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "", "port": null}],
        "endpoints": [
            {"addresses": ["10.0.0.1", "10.0.0.9"], "nodeName": "n1", "zone": "a",
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "hints": {"forZones": [{"name": "a"}], "forNodes": [{"name": "n1"}]}},
            {"addresses": ["10.0.0.2"], "nodeName": "n1",
                "conditions": {"ready": false, "serving": true, "terminating": true},
                "hints": {"forZones": [{"name": "a"}]}},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.4"]},
            {"addresses": ["nonsense"]},
            {"addresses": []},
        ],
    }));
    assert_eq!(read.service.as_deref(), Some("web"));
    assert_eq!(read.ports.len(), 1);
    let seen: Vec<_> = read
        .endpoints
        .iter()
        .map(|one| (one.ip.to_string(), one.ready, one.serving, one.terminating))
        .collect();
    let want = |ip: &str, ready, serving, terminating| (ip.to_owned(), ready, serving, terminating);
    assert_eq!(
        seen,
        [
            want("10.0.0.1", true, true, false),
            want("10.0.0.2", false, true, true),
            want("10.0.0.3", false, false, false),
            want("10.0.0.4", true, true, false),
        ]
    );
    let [first, second, third, _] = &read.endpoints[..] else { panic!() };
    assert_eq!(first.node.as_deref(), Some("n1"));
    assert!(Arc::ptr_eq(&first.for_zones, &second.for_zones), "kept once");
    assert!(third.for_nodes.is_empty() && third.node.is_none());
    assert_eq!(slice_from_json(slice_to_json(&read)).unwrap(), read, "kept and read back");
}

#[test]
fn what_is_no_address_or_nobodys_is_harmless() {
    let names = slice(json!({"metadata": {"name": "a"}, "addressType": "FQDN",
        "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": null}));
    assert_eq!(slice_from_json(slice_to_json(&names)).unwrap(), names, "kept and read back");
    assert_eq!((names.endpoints.len(), names.service), (0, None));
    let empty = slice(json!({"metadata": {"name": "a"}, "endpoints": null}));
    assert_eq!(empty.endpoints, []);
}

#[test]
fn the_selection_leaves_out_what_is_headless_or_anothers() {
    let labels = |name: &str| selection(name).labels;
    assert_eq!(
        labels(""),
        "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"
    );
    assert_eq!(
        labels("ours"),
        "!service.kubernetes.io/headless,service.kubernetes.io/service-proxy-name=ours"
    );
}

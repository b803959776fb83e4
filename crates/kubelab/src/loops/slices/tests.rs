use super::*;

fn mk_service(spec: Value) -> Value {
    let mut service = json!({
        "metadata": { "name": "web", "namespace": "default", "labels": { "team": "a" } },
        "spec": {
            "selector": { "app": "web" }, "ipFamilies": ["IPv4"],
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" }],
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    service
}

fn mk_pod(name: &str, ips: &[&str], ready: bool) -> Value {
    let ips: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "labels": { "app": "web" },
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{ "ports": [
                { "name": "web", "containerPort": 9090, "protocol": "TCP" },
            ] }],
        },
        "status": {
            "phase": "Running", "podIPs": ips,
            "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
        },
    })
}

/// The slices that come of `slices`, as they are stored but for names and owners.
fn settle(service: &Value, pods: &[Value], slices: &[Value]) -> Vec<Value> {
    let zones = BTreeMap::from([("node-1", "zone-a")]);
    let mut slices = slices.to_vec();
    let changes = changes(service, wanted(service, pods.iter(), &zones), slices.clone().iter());
    for change in changes {
        let at = |name: &str, slices: &[Value]| {
            slices.iter().position(|slice| meta::name(slice) == name).unwrap()
        };
        match change {
            Change::Create((family, ports), endpoints) => {
                let name = format!("slice-{}", slices.len());
                slices.push(json!({
                    "metadata": { "name": name, "labels": labels(service) },
                    "addressType": family, "ports": ports, "endpoints": endpoints,
                }));
            }
            Change::Update(name, ports, endpoints) => {
                let at = at(&name, &slices);
                slices[at]["metadata"]["labels"] = labels(service);
                slices[at]["ports"] = ports;
                slices[at]["endpoints"] = json!(endpoints);
            }
            Change::Delete { name, .. } => {
                let at = at(&name, &slices);
                slices.remove(at);
            }
        }
    }
    let again = super::changes(service, wanted(service, pods.iter(), &zones), slices.iter());
    assert_eq!(again, [], "a second look finds nothing to do");
    slices
}

/// `family port address(conditions) ...` of each slice.
fn words(slices: &[Value]) -> Vec<String> {
    let word = |endpoint: &Value| {
        let holds = |name: &str| endpoint["conditions"][name] == true;
        let letters = [("ready", 'r'), ("serving", 's'), ("terminating", 't')];
        let letters = letters.into_iter().filter(|(name, _)| holds(name)).map(|(_, letter)| letter);
        format!(" {}/{}", endpoint["addresses"][0].as_str().unwrap(), letters.collect::<String>())
    };
    let line = |slice: &Value| {
        let endpoints: String = each(slice, "endpoints").map(word).collect();
        format!("{} {}{endpoints}", text(slice, "addressType"), slice["ports"][0]["port"])
    };
    slices.iter().map(line).collect()
}

#[test]
fn endpoints_are_what_pods_say() {
    let mut leaving = mk_pod("leaving", &["10.0.0.3"], true);
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut done = mk_pod("done", &["10.0.0.4"], false);
    done["status"]["phase"] = json!("Succeeded");
    let mut other = mk_pod("other", &["10.0.0.5"], true);
    other["metadata"]["labels"] = json!({ "app": "db" });
    let pods = [
        mk_pod("a", &["10.0.0.1", "fd00::1"], true),
        mk_pod("b", &["10.0.0.2"], false),
        leaving,
        done,
        other,
        mk_pod("no-address-yet", &[], false),
    ];
    let dual = json!(["IPv6", "IPv4"]);
    for (name, spec, want) in [
        ("conditions", json!({}), vec!["IPv4 8080 10.0.0.1/rs 10.0.0.2/ 10.0.0.3/st"]),
        (
            "not ready ones are published",
            json!({ "publishNotReadyAddresses": true }),
            vec!["IPv4 8080 10.0.0.1/rs 10.0.0.2/r 10.0.0.3/rst"],
        ),
        (
            "a slice for each family",
            json!({ "ipFamilies": dual }),
            vec!["IPv4 8080 10.0.0.1/rs 10.0.0.2/ 10.0.0.3/st", "IPv6 8080 fd00::1/rs"],
        ),
        (
            "a port by its name",
            json!({ "ports": [{ "port": 80, "targetPort": "web", "protocol": "TCP" }] }),
            vec!["IPv4 9090 10.0.0.1/rs 10.0.0.2/ 10.0.0.3/st"],
        ),
        ("nobody", json!({ "selector": { "app": "none" } }), vec!["IPv4 null"]),
    ] {
        assert_eq!(words(&settle(&mk_service(spec), &pods, &[])), want, "{name}");
    }
}

#[test]
fn pods_that_give_a_name_to_different_ports_are_in_different_slices() {
    let mut second = mk_pod("b", &["10.0.0.2"], true);
    second["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(9191);
    let ports = json!({ "ports": [{ "port": 80, "targetPort": "web", "protocol": "TCP" }] });
    let slices = settle(&mk_service(ports), &[mk_pod("a", &["10.0.0.1"], true), second], &[]);
    assert_eq!(words(&slices), ["IPv4 9090 10.0.0.1/rs", "IPv4 9191 10.0.0.2/rs"]);
}

#[test]
fn the_first_endpoints_fill_the_slice_that_told_of_none() {
    let service = mk_service(json!({}));
    let empty = settle(&service, &[], &[]);
    let pods = [mk_pod("a", &["10.0.0.1"], true)];
    let filled = settle(&service, &pods, &empty);
    assert_eq!(words(&filled), ["IPv4 8080 10.0.0.1/rs"]);
    assert_eq!(meta::name(&filled[0]), meta::name(&empty[0]));
    assert_eq!(settle(&service, &[], &filled), empty);
}

#[test]
fn endpoints_stay_in_the_slices_that_have_them() {
    let service = mk_service(json!({}));
    let mk =
        |n: usize| mk_pod(&format!("p{n:03}"), &[&format!("10.0.{}.{}", n / 250, n % 250)], true);
    let pods: Vec<Value> = (0..250).map(mk).collect();
    let before = settle(&service, &pods, &[]);
    let n = |slices: &[Value]| -> Vec<usize> {
        slices.iter().map(|slice| each(slice, "endpoints").count()).collect()
    };
    assert_eq!(n(&before), [100, 100, 50]);
    // Two go and one comes: it takes a place that is free.
    let mut pods: Vec<Value> = pods.into_iter().skip(2).collect();
    pods.push(mk(250));
    let after = settle(&service, &pods, &before);
    assert_eq!(n(&after), [99, 100, 50]);
    assert_eq!(after[1..], before[1..]);
    // A slice that nobody is in goes.
    let few: Vec<Value> = pods.split_off(100);
    assert_eq!(n(&settle(&service, &few, &after)), [1, 98, 50]);
}

#[test]
fn endpoints_are_meant_for_those_who_are_near() {
    let pods = [mk_pod("a", &["10.0.0.1"], true), mk_pod("b", &["10.0.0.2"], false)];
    for (distribution, want) in [
        ("", Value::Null),
        ("PreferClose", json!({ "forZones": [{ "name": "zone-a" }] })),
        ("PreferSameZone", json!({ "forZones": [{ "name": "zone-a" }] })),
        (
            "PreferSameNode",
            json!({ "forZones": [{ "name": "zone-a" }], "forNodes": [{ "name": "node-1" }] }),
        ),
    ] {
        let service = mk_service(json!({ "trafficDistribution": distribution }));
        let slices = settle(&service, &pods, &[]);
        assert_eq!(slices[0]["endpoints"][0]["hints"], want, "{distribution}");
        assert_eq!(slices[0]["endpoints"][1]["hints"], Value::Null, "one that is not ready");
    }
}

#[test]
fn slices_of_others_and_labels() {
    let mut service = mk_service(json!({ "clusterIP": "None" }));
    let foreign = json!({
        "metadata": { "name": "by-hand", "labels": { OWNER: "web" } },
        "addressType": "IPv4", "ports": [], "endpoints": [{ "addresses": ["192.0.2.1"] }],
    });
    let slices = settle(&service, &[], std::slice::from_ref(&foreign));
    assert_eq!(slices[0], foreign);
    let own = json!({ "team": "a", OWNER: "web", MAKER: OURS, HEADLESS: "" });
    assert_eq!(slices[1]["metadata"]["labels"], own);
    service["metadata"]["labels"] = json!({ "team": "b" });
    let slices = settle(&service, &[], &slices);
    assert_eq!(slices[1]["metadata"]["labels"]["team"], "b");
    assert!(!selects(&mk_service(json!({ "selector": {} }))));
    assert!(!selects(&mk_service(json!({ "type": "ExternalName" }))));
}

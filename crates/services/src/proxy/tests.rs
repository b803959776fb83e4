use std::time::{Duration, Instant};

use apis::service::{IngressMode, LoadBalancerMode, ServiceProtocol, ServiceType, TrafficPolicy};
use pipeline::Families;
use pipeline::service::{Place, Target};

use super::*;
use crate::Skip;
use crate::testing::*;

fn mk_proxy(config: Config, services: Vec<Service>, slices: Vec<EndpointSlice>) -> Proxy {
    let mut proxy = Proxy::new(config);
    proxy.step(mk_node());
    proxy.step([Event::Services(services), Event::Slices(slices)]);
    proxy
}

/// What a port does, one line for each frontend: `address:port -> servers`.
fn shown(plan: &PortPlan) -> Vec<String> {
    let servers = |target: Target| match target {
        Target::Reject => "reject".to_owned(),
        Target::Drop => "drop".to_owned(),
        Target::Group(id) => {
            let group = plan.groups.iter().find(|group| group.id == id).unwrap();
            assert!(!group.endpoints.is_empty());
            let all = group.endpoints.iter().map(|one| format!("{}:{}", one.ip, one.port));
            all.collect::<Vec<_>>().join(" ")
        }
    };
    let line = |frontend: &Frontend| {
        let address = match frontend.address {
            FrontendAddress::Ip(ip) => ip.to_string(),
            FrontendAddress::NodePort { ipv6: false } => "node".to_owned(),
            FrontendAddress::NodePort { ipv6: true } => "node6".to_owned(),
        };
        let mut line = format!("{address}:{} -> {}", frontend.port, servers(frontend.target));
        if let Some(target) = frontend.local_clients {
            line += &format!("; from here {}", servers(target));
        }
        if let Some(seconds) = frontend.affinity {
            line += &format!("; stays {seconds}");
        }
        if !frontend.source_ranges.is_empty() {
            line += &format!("; for {:?}", frontend.source_ranges);
        }
        if let Some(target) = frontend.dsr {
            line += &format!("; directly {}", servers(target));
        }
        line
    };
    plan.frontends.iter().map(line).collect()
}

#[track_caller]
fn check(name: &str, proxy: &Proxy, port: &str, want: &[&str]) {
    let plans: Vec<_> = proxy.ports().filter(|(key, _)| key.to_string() == port).collect();
    let seen = plans.first().map_or(Vec::new(), |(_, plan)| shown(plan));
    assert_eq!(seen, want, "{name}");
}

#[track_caller]
fn check_one(name: &str, service: Service, servers: &[&str], want: &[&str]) {
    let port = format!("{}:http", service.name);
    let slice = mk_slice(&service.name.name, "s", servers);
    let proxy = mk_proxy(mk_config(), vec![service], vec![slice]);
    check(name, &proxy, &port, want);
}

#[test]
fn addresses_in_the_cluster() {
    let web = || mk_service("web", &["10.96.0.1"]);
    check_one(
        "two servers",
        web(),
        &["10.1.1.7", "10.1.0.7"],
        &["10.96.0.1:80 -> 10.1.0.7:8080 10.1.1.7:8080"],
    );
    check_one("none", web(), &[], &["10.96.0.1:80 -> reject"]);
    check_one("none that answers", web(), &["10.1.0.7/no"], &["10.96.0.1:80 -> reject"]);
    check_one("all end", web(), &["10.1.0.7/lasts"], &["10.96.0.1:80 -> 10.1.0.7:8080"]);
    check_one(
        "both families",
        mk_service("web", &["10.96.0.1", "fd00::9"]),
        &["10.1.0.7", "fd00:1::7", "fd00:2::7"],
        &["10.96.0.1:80 -> 10.1.0.7:8080", "fd00::9:80 -> fd00:1::7:8080 fd00:2::7:8080"],
    );
    check_one(
        "a family without servers",
        mk_service("web", &["10.96.0.1", "fd00::9"]),
        &["10.1.0.7"],
        &["10.96.0.1:80 -> 10.1.0.7:8080", "fd00::9:80 -> reject"],
    );
    check_one("headless", mk_service("web", &[]), &["10.1.0.7"], &[]);
    let name = Service { kind: ServiceType::ExternalName, ..web() };
    check_one("a name only", name, &["10.1.0.7"], &[]);
    let sticky = Service { affinity: Some(86_400), ..web() };
    check_one("sticky", sticky, &["10.1.0.7"], &["10.96.0.1:80 -> 10.1.0.7:8080; stays 65535"]);
}

#[test]
fn traffic_that_stays_on_the_node() {
    let local =
        || Service { internal_policy: TrafficPolicy::Local, ..mk_service("web", &["10.96.0.1"]) };
    check_one("ours only", local(), &["10.1.0.7", "10.1.1.7"], &["10.96.0.1:80 -> 10.1.0.7:8080"]);
    // Somebody serves, but not here: kube-proxy drops such packets.
    check_one("others only", local(), &["10.1.1.7"], &["10.96.0.1:80 -> drop"]);
    check_one("nobody", local(), &[], &["10.96.0.1:80 -> reject"]);
    check_one(
        "ours ends",
        local(),
        &["10.1.0.7/lasts", "10.1.1.7"],
        &["10.96.0.1:80 -> 10.1.0.7:8080"],
    );
    // A program of a node has the node's address.
    check_one(
        "the node's own program",
        local(),
        &["172.30.0.1@us", "172.30.0.2@near"],
        &["10.96.0.1:80 -> 172.30.0.1:8080"],
    );
    check_one("another node's", local(), &["172.30.0.2@near"], &["10.96.0.1:80 -> drop"]);
    let outside = Service {
        external_policy: TrafficPolicy::Local,
        ..mk_balanced("web", &["10.96.0.1", "fd00::9"])
    };
    let all = "172.30.0.1:8080 172.30.0.2:8080";
    check_one(
        "the node's own program, from outside",
        outside,
        &["172.30.0.1@us", "172.30.0.2@near", "fd00:ac::2@near"],
        &[
            &format!("10.96.0.1:80 -> {all}"),
            &format!("node:30080 -> 172.30.0.1:8080; from here {all}"),
            &format!("198.51.100.1:80 -> 172.30.0.1:8080; from here {all}"),
            "fd00::9:80 -> fd00:ac::2:8080",
            "node6:30080 -> drop; from here fd00:ac::2:8080",
        ],
    );
}

#[test]
fn addresses_for_the_outside() {
    let web = || mk_balanced("web", &["10.96.0.1"]);
    let servers = ["10.1.0.7", "10.1.1.7"];
    let all = "10.1.0.7:8080 10.1.1.7:8080";
    check_one(
        "any server",
        Service { external_ips: vec![ip("192.0.2.1")], ..web() },
        &servers,
        &[
            &format!("10.96.0.1:80 -> {all}"),
            &format!("node:30080 -> {all}"),
            &format!("198.51.100.1:80 -> {all}"),
            &format!("192.0.2.1:80 -> {all}"),
        ],
    );
    let local = || Service { external_policy: TrafficPolicy::Local, ..web() };
    check_one(
        "ours; who is here may have any",
        local(),
        &servers,
        &[
            &format!("10.96.0.1:80 -> {all}"),
            &format!("node:30080 -> 10.1.0.7:8080; from here {all}"),
            &format!("198.51.100.1:80 -> 10.1.0.7:8080; from here {all}"),
        ],
    );
    check_one(
        "none of ours",
        local(),
        &["10.1.1.7"],
        &[
            "10.96.0.1:80 -> 10.1.1.7:8080",
            "node:30080 -> drop; from here 10.1.1.7:8080",
            "198.51.100.1:80 -> drop; from here 10.1.1.7:8080",
        ],
    );
    check_one(
        "nobody",
        local(),
        &[],
        &["10.96.0.1:80 -> reject", "node:30080 -> reject", "198.51.100.1:80 -> reject"],
    );
    let proxied = Service { ingress: vec![(ip("198.51.100.1"), IngressMode::Proxy)], ..web() };
    check_one(
        "an address that is the balancer's business",
        proxied,
        &["10.1.0.7"],
        &["10.96.0.1:80 -> 10.1.0.7:8080", "node:30080 -> 10.1.0.7:8080"],
    );
    let ranges = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    check_one(
        "for some sources, at the balancer's address only",
        Service { source_ranges: ranges, ..web() },
        &["10.1.0.7"],
        &[
            "10.96.0.1:80 -> 10.1.0.7:8080",
            "node:30080 -> 10.1.0.7:8080",
            "198.51.100.1:80 -> 10.1.0.7:8080; for [192.0.2.0/24]",
        ],
    );
    let unbalanced = Service { kind: ServiceType::NodePort, ..web() };
    check_one(
        "what was a load balancer's once",
        unbalanced,
        &["10.1.0.7"],
        &["10.96.0.1:80 -> 10.1.0.7:8080", "node:30080 -> 10.1.0.7:8080"],
    );
}

#[test]
fn what_is_configured_decides_what_is_served() {
    let service = || Service {
        external_ips: vec![ip("192.0.2.1")],
        ..mk_balanced("web", &["10.96.0.1", "fd00::9"])
    };
    let to = "10.1.0.7:8080";
    let (cluster, node, lb, external) = (
        format!("10.96.0.1:80 -> {to}"),
        format!("node:30080 -> {to}"),
        format!("198.51.100.1:80 -> {to}"),
        format!("192.0.2.1:80 -> {to}"),
    );
    let four = |proxy_all| Config { proxy_all, ..Config::new("us", Families::V4) };
    let skip = |text: &str| Config { skip: vec![Skip::parse(text).unwrap()], ..four(true) };
    let no_lb = Config { proxy_load_balancer_ips: false, ..four(true) };
    let pods_only: &[&str] = &[&cluster, &lb];
    let all: &[&str] = &[&cluster, &node, &lb, &external];
    let without: &[&str] = &[&cluster, &node, &external];
    for (name, config, want) in [
        ("Pods only", four(false), pods_only),
        ("everybody, in one family", four(true), all),
        ("without balancers' addresses", no_lb, without),
        ("skipped by name", skip("x/web"), &[]),
        ("skipped by address", skip("fd00::9"), &[]),
        ("another is skipped", skip("x/other"), all),
    ] {
        let slice = mk_slice("web", "s", &["10.1.0.7"]);
        let proxy = mk_proxy(config, vec![service()], vec![slice]);
        check(name, &proxy, "x/web:http", want);
    }
}

#[test]
fn answers_that_go_back_directly() {
    let servers = ["10.1.0.7", "10.1.1.7"];
    let all = "10.1.0.7:8080 10.1.1.7:8080";
    let direct = format!("198.51.100.1:80 -> {all}; directly 10.1.0.7:8080");
    let usual = format!("198.51.100.1:80 -> {all}");
    let (nat, dsr) = (LoadBalancerMode::Nat, LoadBalancerMode::Dsr);
    for (name, configured, said, want) in [
        ("by default", Some(dsr), None, &direct),
        ("asked for", Some(nat), Some(dsr), &direct),
        ("not asked for", Some(nat), None, &usual),
        ("asked not to", Some(dsr), Some(nat), &usual),
        ("cannot", None, Some(dsr), &usual),
    ] {
        let config = Config { load_balancer_mode: configured, ..mk_config() };
        let service = Service { load_balancer_mode: said, ..mk_balanced("web", &["10.96.0.1"]) };
        let proxy = mk_proxy(config, vec![service], vec![mk_slice("web", "s", &servers)]);
        let want =
            [&format!("10.96.0.1:80 -> {all}"), &format!("node:30080 -> {all}"), want.as_str()];
        check(name, &proxy, "x/web:http", &want.map(AsRef::as_ref));
    }
}

#[test]
fn a_node_without_servers_sends_on_what_is_answered_directly() {
    let config = Config { load_balancer_mode: Some(LoadBalancerMode::Dsr), ..mk_config() };
    let service = mk_balanced("web", &["10.96.0.1"]);
    let proxy = mk_proxy(config, vec![service], vec![mk_slice("web", "s", &["10.1.1.7"])]);
    let to = "10.1.1.7:8080";
    let want = [
        format!("10.96.0.1:80 -> {to}"),
        format!("node:30080 -> {to}"),
        format!("198.51.100.1:80 -> {to}; directly drop"),
    ];
    check("none here", &proxy, "x/web:http", &want.each_ref().map(String::as_str));
}

#[test]
fn ports_are_matched_by_name_and_protocol() {
    let (tcp, udp) = (ServiceProtocol::Tcp, ServiceProtocol::Udp);
    let ports = vec![
        mk_port("dns", udp, 53, None),
        mk_port("dns-tcp", tcp, 53, None),
        mk_port("gone", tcp, 9, None),
    ];
    let service = Service { ports, ..mk_service("dns", &["10.96.0.10"]) };
    // Named target ports resolve to other numbers in other slices.
    let slices = vec![
        mk_slice_of("dns", "a", &[("dns", udp, 5353), ("dns-tcp", tcp, 5354)], &["10.1.0.7"]),
        mk_slice_of("dns", "b", &[("dns", udp, 53), ("dns", tcp, 1)], &["10.1.1.7"]),
        mk_slice_of("other", "c", &[("dns", udp, 53)], &["10.1.1.8"]),
    ];
    let proxy = mk_proxy(mk_config(), vec![service], slices);
    check("udp", &proxy, "x/dns:dns", &["10.96.0.10:53 -> 10.1.0.7:5353 10.1.1.7:53"]);
    check("tcp", &proxy, "x/dns:dns-tcp", &["10.96.0.10:53 -> 10.1.0.7:5354"]);
    check("nobody's", &proxy, "x/dns:gone", &["10.96.0.10:9 -> reject"]);
}

#[test]
fn a_server_in_two_slices_is_one() {
    for servers in [["10.1.0.7/lasts", "10.1.0.7"], ["10.1.0.7", "10.1.0.7/no"]] {
        let slices =
            ["a", "b"].iter().zip(servers).map(|(name, one)| mk_slice("web", name, &[one]));
        let service = mk_service("web", &["10.96.0.1"]);
        let proxy = mk_proxy(mk_config(), vec![service], slices.collect());
        check("one", &proxy, "x/web:http", &["10.96.0.1:80 -> 10.1.0.7:8080"]);
    }
}

#[test]
fn nothing_follows_before_both_lists() {
    let service = mk_service("web", &["10.96.0.1"]);
    for slices_first in [false, true] {
        let mut lists = [
            Event::Services(vec![service.clone()]),
            Event::Slices(vec![mk_slice("web", "s", &["10.1.0.7"])]),
        ];
        if slices_first {
            lists.reverse();
        }
        let [first, second] = lists;
        let mut proxy = Proxy::new(mk_config());
        assert_eq!(proxy.step(mk_node()), Changes::default());
        assert_eq!(proxy.step([first]), Changes::default());
        assert!(!proxy.is_synced());
        let changes = proxy.step([second]);
        assert!(proxy.is_synced());
        assert_eq!((changes.ports.len(), changes.endpoints.len(), changes.host), (1, 1, true));
        assert!(changes.stale.is_empty(), "nothing is known of what was before");
    }
}

#[test]
fn a_shared_server_goes_with_its_last_service() {
    let services = vec![mk_service("one", &["10.96.0.1"]), mk_service("two", &["10.96.0.2"])];
    let slices = vec![mk_slice("one", "s1", &["10.1.0.7"]), mk_slice("two", "s2", &["10.1.0.7"])];
    let mut proxy = mk_proxy(mk_config(), services, slices);
    assert_eq!(proxy.endpoints().count(), 1);
    let gone = |name: &str| Event::ServiceGone(ServiceName::new("x", name));
    assert_eq!(proxy.step([gone("one")]).endpoints, []);
    let changes = proxy.step([gone("two")]);
    let [(endpoint, Presence::Gone)] = &changes.endpoints[..] else { panic!("{changes:?}") };
    assert_eq!((endpoint.ip, endpoint.place), (ip("10.1.0.7"), Place::LocalPod));
    assert_eq!(proxy.ports().count(), 0);
}

#[test]
fn a_server_moves_when_its_prefix_becomes_known() {
    let slices = vec![mk_slice("web", "s", &["10.1.5.7"]), mk_slice("other", "t", &["10.1.1.1"])];
    let services = vec![mk_service("web", &["10.96.0.1"]), mk_service("other", &["10.96.0.2"])];
    let mut proxy = mk_proxy(mk_config(), services, slices);
    let nets = |text: &str| -> Vec<IpNet> { text.split(' ').map(|t| t.parse().unwrap()).collect() };
    let changes = proxy.step([Event::PodCidrs {
        ours: nets("10.1.0.0/24 fd00:1::/64"),
        others: nets("10.1.1.0/24 10.1.5.0/24 fd00:2::/64"),
    }]);
    assert_eq!(changes.n_computed, 1);
    let moved: Vec<_> = changes.endpoints.iter().map(|(one, how)| (one.place, *how)).collect();
    assert_eq!(moved.len(), 2);
    assert!(moved.contains(&(Place::HostNetwork, Presence::Gone)));
    assert!(moved.contains(&(Place::RemotePod, Presence::There)));
}

#[test]
fn an_address_that_two_want_goes_to_its_own_service() {
    let victim = mk_service("victim", &["10.96.0.1"]);
    let thief = Service {
        external_ips: vec![ip("10.96.0.1"), ip("192.0.2.1")],
        ..mk_service("a-thief", &["10.96.0.2"])
    };
    let slices =
        vec![mk_slice("victim", "s", &["10.1.0.7"]), mk_slice("a-thief", "t", &["10.1.0.8"])];
    let mut proxy = mk_proxy(mk_config(), vec![], slices);
    let changes = proxy.step([Event::Service(thief)]);
    assert_eq!(changes.conflicts, []);
    let own = "10.96.0.2:80 -> 10.1.0.8:8080";
    let external = "192.0.2.1:80 -> 10.1.0.8:8080";
    let stolen = "10.96.0.1:80 -> 10.1.0.8:8080";
    check("nobody else wants it", &proxy, "x/a-thief:http", &[own, stolen, external]);
    let changes = proxy.step([Event::Service(victim)]);
    assert_eq!(changes.conflicts.len(), 1);
    check("its own", &proxy, "x/victim:http", &["10.96.0.1:80 -> 10.1.0.7:8080"]);
    check("not the other's", &proxy, "x/a-thief:http", &[own, external]);
    proxy.step([Event::ServiceGone(ServiceName::new("x", "victim"))]);
    check("again", &proxy, "x/a-thief:http", &[own, stolen, external]);
}

#[test]
fn load_balancers_hear_how_many_ready_servers_are_here() {
    let service = |policy, port| Service {
        external_policy: policy,
        health_check_node_port: port,
        ..mk_balanced("web", &["10.96.0.1"])
    };
    let (local, cluster) = (TrafficPolicy::Local, TrafficPolicy::Cluster);
    for (name, service, servers, want) in [
        ("ours", service(local, Some(31000)), &["10.1.0.7", "10.1.1.7"][..], Some(1)),
        ("one in two slices", service(local, Some(31000)), &["10.1.0.7", "10.1.0.7"], Some(1)),
        ("about to end", service(local, Some(31000)), &["10.1.0.7/lasts"], Some(0)),
        ("nobody asks", service(local, None), &["10.1.0.7"], None),
        ("any node does", service(cluster, Some(31000)), &["10.1.0.7"], None),
    ] {
        let proxy = mk_proxy(mk_config(), vec![service], vec![mk_slice("web", "s", servers)]);
        let seen: Vec<_> = proxy.health_checks().map(|(_, check)| check).collect();
        let want = want.map(|n_local| HealthCheck { port: 31000, n_local });
        assert_eq!(seen, Vec::from_iter(want), "{name}");
    }
}

#[test]
fn the_host_is_told_what_to_send_here() {
    let service = Service {
        external_ips: vec![ip("192.0.2.1")],
        ..mk_balanced("web", &["10.96.0.1", "fd00::9"])
    };
    let mut proxy = mk_proxy(mk_config(), vec![service], vec![]);
    let host = proxy.host();
    let node_ports = [(Protocol::Tcp, 30080, false), (Protocol::Tcp, 30080, true)];
    assert_eq!(host.node_ports, node_ports.into());
    assert_eq!(host.cluster_ips, [ip("10.96.0.1"), ip("fd00::9")].into());
    assert_eq!(host.external_ips, [ip("192.0.2.1"), ip("198.51.100.1")].into());
    let changes = proxy.step([Event::Slice(mk_slice("web", "s", &["10.1.0.7"]))]);
    assert!(!changes.host, "servers are not the host's business");
    let changes = proxy.step([Event::ServiceGone(ServiceName::new("x", "web"))]);
    assert!(changes.host);
    assert_eq!(proxy.host(), HostWants::default());
}

#[test]
fn udp_connections_to_what_is_gone_are_forgotten() {
    let udp = ServiceProtocol::Udp;
    let service = Service {
        ports: vec![mk_port("dns", udp, 53, Some(30053))],
        kind: ServiceType::NodePort,
        ..mk_service("dns", &["10.96.0.10"])
    };
    let slice =
        |servers: &[&str]| Event::Slice(mk_slice_of("dns", "s", &[("dns", udp, 5353)], servers));
    let mut proxy = mk_proxy(mk_config(), vec![], vec![]);
    let at = |address, port, server| Stale { address, port, server };
    let fronts = [
        (FrontendAddress::Ip(ip("10.96.0.10")), 53),
        (FrontendAddress::NodePort { ipv6: false }, 30053),
    ];
    let both = |server: Option<&str>| -> BTreeSet<Stale> {
        let server = server.map(|text| (ip(text), 5353));
        fronts.iter().map(|(address, port)| at(*address, *port, server)).collect()
    };
    // Packets sent before went somewhere else.
    assert_eq!(proxy.step([Event::Service(service)]).stale, both(None), "new");
    assert_eq!(proxy.step([slice(&["10.1.0.7"])]).stale, both(None), "the first server");
    assert_eq!(proxy.step([slice(&["10.1.0.7", "10.1.0.8"])]).stale, BTreeSet::new(), "one more");
    assert_eq!(proxy.step([slice(&["10.1.0.8"])]).stale, both(Some("10.1.0.7")), "one gone");
    let ends = proxy.step([slice(&["10.1.0.8/lasts", "10.1.0.9"])]).stale;
    assert_eq!(ends, both(Some("10.1.0.8")), "one replaced");
    assert_eq!(proxy.step([slice(&[])]).stale, both(Some("10.1.0.9")), "the last gone");
    let gone = proxy.step([Event::ServiceGone(ServiceName::new("x", "dns"))]);
    assert_eq!(gone.stale, both(None), "all gone");
    // TCP notices by itself.
    let service = mk_service("web", &["10.96.0.1"]);
    let changes =
        proxy.step([Event::Service(service), Event::Slice(mk_slice("web", "w", &["10.1.0.7"]))]);
    assert!(changes.stale.is_empty());
}

#[test]
fn udp_connections_to_what_went_while_nobody_looked_are_forgotten() {
    let udp = ServiceProtocol::Udp;
    let services = ["dns", "other", "gone"].map(|name| Service {
        ports: vec![mk_port("dns", udp, 53, None)],
        ..mk_service(name, &[&format!("10.96.0.{}", name.len())])
    });
    let slice = |of: &str, servers: &[&str]| mk_slice_of(of, of, &[("dns", udp, 5353)], servers);
    let [dns, other, gone] = services.clone();
    let old = [slice("dns", &["10.1.0.7", "10.1.0.8"]), slice("gone", &["10.1.0.7"])];
    let before = mk_proxy(mk_config(), vec![dns.clone(), gone], old.into());
    let new = [slice("dns", &["10.1.0.8"]), slice("other", &["10.1.0.7"])];
    let after = mk_proxy(mk_config(), vec![dns, other], new.into());
    let at = |last: u8, server| Stale {
        address: FrontendAddress::Ip(ip(&format!("10.96.0.{last}"))),
        port: 53,
        server,
    };
    let want = [at(3, Some((ip("10.1.0.7"), 5353))), at(4, None)];
    assert_eq!(after.stale_since(&before), want.into());
    assert_eq!(after.stale_since(&after), BTreeSet::new());
    assert_eq!(after.stale_since(&mk_proxy(mk_config(), vec![], vec![])), BTreeSet::new());
}

#[test]
fn a_group_keeps_its_number_while_its_servers_change() {
    let service = mk_service("web", &["10.96.0.1"]);
    let slice = |servers: &[&str]| Event::Slice(mk_slice("web", "s", servers));
    let mut proxy = mk_proxy(mk_config(), vec![service], vec![mk_slice("web", "s", &["10.1.0.7"])]);
    let number = |proxy: &Proxy| -> Vec<u32> {
        proxy.ports().flat_map(|(_, plan)| &plan.groups).map(|group| group.id.0).collect()
    };
    let before = number(&proxy);
    assert_eq!(before.len(), 1);
    proxy.step([slice(&["10.1.0.8"])]);
    assert_eq!(number(&proxy), before);
    proxy.step([slice(&[])]);
    assert_eq!(number(&proxy), [0; 0], "a group without servers is none");
    proxy.step([slice(&["10.1.0.7"])]);
    assert_eq!(number(&proxy), before);
}

/// A cluster as large as it is to be, from cold; then one change.
#[test]
fn thousands_of_services_take_no_time() {
    let address = |n: usize| {
        IpAddr::from([10, 96, u8::try_from(n / 250).unwrap(), u8::try_from(n % 250).unwrap()])
    };
    let services: Vec<Service> = (0..5000)
        .map(|n| {
            let mut service = mk_service(&format!("service-{n}"), &[]);
            service.cluster_ips = vec![address(n)];
            service
        })
        .collect();
    let slices: Vec<EndpointSlice> = (0..5000)
        .map(|n| {
            let servers: Vec<String> =
                (0..5).map(|k| format!("10.1.{}.{}", k % 2, n % 250)).collect();
            let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
            let mut slice = mk_slice(&format!("service-{n}"), &format!("s-{n}"), &servers[..2]);
            slice.ports[0].port = u16::try_from(1000 + n).unwrap();
            slice
        })
        .collect();
    let mut proxy = Proxy::new(mk_config());
    proxy.step(mk_node());
    let started = Instant::now();
    let changes = proxy.step([Event::Services(services), Event::Slices(slices)]);
    let took = started.elapsed();
    assert_eq!((changes.n_computed, changes.ports.len()), (5000, 5000));
    assert!(took < Duration::from_secs(4), "unoptimized, on a busy machine: {took:?}");
    let mut slice = mk_slice("service-7", "s-7", &["10.1.0.99"]);
    slice.ports[0].port = 9999;
    let changes = proxy.step([Event::Slice(slice.clone())]);
    assert_eq!((changes.n_computed, changes.ports.len()), (1, 1));
    assert_eq!(proxy.step([Event::Slice(slice)]).n_computed, 0, "the same again");
}

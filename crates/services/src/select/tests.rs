use super::*;

/// A server by words: `name:state@node zone=a,b node=n`, where the state is `ready`, `lasts` (about
/// to end, answering), `ends` (about to end, silent) or `no`. We are on node `us`, in zone `a`.
fn mk_endpoint(n: usize, text: &str) -> SliceEndpoint {
    let mut words = text.split(' ');
    let (state, node) = words.next().unwrap().split_once('@').unwrap();
    let list = |words: &str| -> Arc<[Arc<str>]> { words.split(',').map(Arc::from).collect() };
    let (mut for_zones, mut for_nodes) = (Arc::from([]), Arc::from([]));
    for word in words {
        match word.split_once('=').unwrap() {
            ("zone", zones) => for_zones = list(zones),
            (_, nodes) => for_nodes = list(nodes),
        }
    }
    SliceEndpoint {
        ip: IpAddr::from([10, 0, 0, u8::try_from(n).unwrap()]),
        ready: state == "ready",
        serving: matches!(state, "ready" | "lasts"),
        terminating: matches!(state, "lasts" | "ends"),
        node: Some(node.into()),
        for_zones,
        for_nodes,
    }
}

#[track_caller]
fn check(name: &str, node_hints: bool, servers: &[&str], cluster: &[usize], local: &[usize]) {
    let endpoints: Vec<_> =
        servers.iter().enumerate().map(|(n, text)| mk_endpoint(n, text)).collect();
    let candidates: Vec<_> = endpoints
        .iter()
        .map(|endpoint| Candidate {
            port: 80,
            local: endpoint.node.as_deref() == Some("us"),
            endpoint,
        })
        .collect();
    let topology = Topology { node: "us".into(), zone: Some("a".into()), node_hints };
    let both = Uses { cluster: true, local: true };
    let selected = select(&candidates, both, &topology);
    let numbers = |all: &[(IpAddr, u16)]| -> Vec<usize> {
        all.iter().map(|at| endpoints.iter().position(|one| one.ip == at.0).unwrap()).collect()
    };
    assert_eq!(numbers(&selected.cluster), cluster, "{name}: cluster");
    assert_eq!(numbers(&selected.local), local, "{name}: local");
    let counts = |text: &str| text.starts_with("ready") || text.starts_with("lasts");
    assert_eq!(selected.any, servers.iter().any(|text| counts(text)), "{name}: any");
    let none = select(&candidates, Uses { cluster: false, local: false }, &topology);
    assert!(none.cluster.is_empty() && none.local.is_empty(), "{name}: what is not asked for");
}

#[test]
fn ready_ones_first_then_those_that_last() {
    check("nobody", false, &[], &[], &[]);
    check("nobody who answers", false, &["no@us", "ends@us"], &[], &[]);
    check("ready", false, &["ready@us", "ready@other"], &[0, 1], &[0]);
    check("one not ready", false, &["no@us", "ready@other"], &[1], &[]);
    check("ready beats lasting", false, &["ready@us", "lasts@us"], &[0], &[0]);
    check("all are ending", false, &["lasts@us", "lasts@other", "ends@us"], &[0, 1], &[0]);
    // The local ones end; others are ready. Local traffic goes on to ours, until they are gone.
    check("ours end", false, &["lasts@us", "ready@other"], &[1], &[0]);
    check("others end", false, &["ready@us", "lasts@other"], &[0], &[0]);
    check("neither is ready", false, &["lasts@us", "lasts@other"], &[0, 1], &[0]);
}

#[test]
fn zones_are_followed_where_all_have_hints() {
    let two = ["ready@us zone=a", "ready@other zone=b"];
    check("our zone", false, &two, &[0], &[0]);
    check("for several", false, &["ready@us zone=b", "ready@other zone=a,b"], &[1], &[0]);
    check("one without", false, &["ready@us zone=a", "ready@other"], &[0, 1], &[0]);
    check("none for us", false, &["ready@us zone=c", "ready@other zone=b"], &[0, 1], &[0]);
    check("what is not ready has no say", false, &["ready@us zone=a", "no@other"], &[0], &[0]);
    check(
        "what lasts is taken whatever its hints",
        false,
        &["lasts@us zone=b", "lasts@other zone=a"],
        &[0, 1],
        &[0],
    );
}

#[test]
fn nodes_are_followed_before_zones_if_at_all() {
    let servers =
        ["ready@us zone=a node=us", "ready@near zone=a node=near", "ready@far zone=b node=far"];
    check("our node", true, &servers, &[0], &[0]);
    check("nodes do not count", false, &servers, &[0, 1], &[0]);
    let elsewhere = ["ready@near zone=a node=near", "ready@far zone=b node=far"];
    check("none on our node: our zone", true, &elsewhere, &[0], &[]);
    let some = ["ready@us zone=a node=us", "ready@near zone=a"];
    check("not all name nodes", true, &some, &[0, 1], &[0]);
}

#[test]
fn a_node_without_a_zone_takes_all() {
    let endpoint = mk_endpoint(1, "ready@us zone=a");
    let topology = Topology { node: "us".into(), zone: None, node_hints: true };
    let candidate = Candidate { port: 1, local: true, endpoint: &endpoint };
    let selected = select(&[candidate], Uses { cluster: true, local: false }, &topology);
    assert_eq!(selected.cluster.len(), 1);
}

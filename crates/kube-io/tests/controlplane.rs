//! The agent's streams of policies and groups, against the serving half of our own API.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod controlplane {
    pub(crate) mod fake;
    pub(crate) mod relay;
}

use std::sync::Arc;
use std::time::Duration;

use apis::controlplane::{
    AddressGroup, AddressGroupPatch, GroupMember, NetworkPolicy, NetworkPolicyNodeStatus,
    NetworkPolicyStatus,
};
use apiserver::pki::Authority;
use apiserver::source::Epoch;
use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_io::controlplane::{Controlplane, Event, Route};
use kube_io::{Client, ClientOptions};
use kubelab::testing::TestServer;
use serde_json::json;

use controlplane::fake::{Fake, Served};
use controlplane::relay::Relay;

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn mk_group(name: &str, last: u8) -> AddressGroup {
    let member = GroupMember { ips: vec![[10, 0, 0, last].into()], ..GroupMember::default() };
    AddressGroup { metadata: named(name), group_members: vec![member] }
}

fn mk_patch(name: &str, last: u8) -> AddressGroupPatch {
    let group = mk_group(name, last);
    AddressGroupPatch {
        metadata: group.metadata,
        added_group_members: group.group_members,
        removed_group_members: Vec::new(),
    }
}

async fn next<T>(stream: &mut (impl Stream<Item = T> + Unpin)) -> T {
    let event = tokio::time::timeout(Duration::from_secs(20), stream.next()).await;
    event.expect("an event in time").expect("streams do not end")
}

type GroupEvent = Event<AddressGroup, AddressGroupPatch>;

/// The next event that is no failure and no bookmark, as a short text.
async fn told(stream: &mut (impl Stream<Item = GroupEvent> + Unpin)) -> String {
    let ip = |members: &[GroupMember]| members[0].ips[0].to_string();
    let name = |meta: &ObjectMeta| meta.name.clone().unwrap();
    let mut failures = 0;
    loop {
        return match next(stream).await {
            Event::Bookmark { .. } => continue,
            Event::Failed(why) => {
                failures += 1;
                assert!(failures < 50, "{why}");
                continue;
            }
            Event::Replaced { objects, .. } => {
                let all: Vec<String> = objects.iter().map(|o| name(&o.metadata)).collect();
                format!("replaced {}", all.join(","))
            }
            Event::Added(group) => {
                format!("added {} {}", name(&group.metadata), ip(&group.group_members))
            }
            Event::Modified(patch) => {
                format!("modified {} {}", name(&patch.metadata), ip(&patch.added_group_members))
            }
            Event::Deleted(name) => format!("deleted {name}"),
        };
    }
}

struct World {
    served: Served,
    relay: Relay,
    agent: Controlplane,
}

async fn mk_world() -> World {
    let served = Served::start().await;
    let relay = Relay::start(served.address).await;
    let client = served.client(relay.address).await;
    let agent = Controlplane::new(&client, &Route::ApiServer, "n1").unwrap();
    World { served, relay, agent }
}

#[tokio::test]
async fn a_stream_tells_all_there_is_and_then_what_changes() {
    let World { served, agent, relay: _relay } = mk_world().await;
    let groups = &served.address_groups;
    groups.put(mk_group("a", 1), None);
    groups.put(mk_group("b", 1), None);
    let mut stream = agent.address_groups();
    assert_eq!(told(&mut stream).await, "replaced a,b");
    groups.put(mk_group("c", 3), None);
    groups.put(mk_group("a", 4), Some(mk_patch("a", 4)));
    groups.remove("b");
    for want in ["added c 10.0.0.3", "modified a 10.0.0.4", "deleted b"] {
        assert_eq!(told(&mut stream).await, want);
    }
    groups.reach(&[("pods", "17")]);
    let bookmark = loop {
        if let Event::Bookmark { as_of } = next(&mut stream).await {
            break as_of;
        }
    };
    assert_eq!(bookmark["pods"], "17");
    assert_eq!(groups.nodes_asked(), ["n1"]);
}

#[tokio::test]
async fn a_stream_goes_on_where_it_broke_off() {
    let World { served, relay, agent } = mk_world().await;
    let groups = &served.address_groups;
    groups.put(mk_group("a", 1), None);
    let mut stream = agent.address_groups();
    assert_eq!(told(&mut stream).await, "replaced a");
    groups.put(mk_group("b", 2), None);
    assert_eq!(told(&mut stream).await, "added b 10.0.0.2");
    relay.cut().await;
    assert!(matches!(next(&mut stream).await, Event::Failed(_)));
    groups.put(mk_group("a", 5), Some(mk_patch("a", 5)));
    groups.remove("b");
    relay.mend();
    assert_eq!(told(&mut stream).await, "modified a 10.0.0.5");
    assert_eq!(told(&mut stream).await, "deleted b");
}

#[tokio::test]
async fn what_cannot_be_continued_begins_again() {
    let World { served, relay, agent } = mk_world().await;
    let groups = &served.address_groups;
    groups.put(mk_group("a", 1), None);
    let mut stream = agent.address_groups();
    assert_eq!(told(&mut stream).await, "replaced a");
    relay.cut().await;
    for last in 0..20 {
        groups.put(mk_group("b", last), None); // More than the window holds.
    }
    groups.remove("a");
    relay.mend();
    assert_eq!(told(&mut stream).await, "replaced b");
    // Another replica answers: its versions mean something else.
    relay.cut().await;
    groups.become_another(Epoch::random());
    relay.mend();
    assert_eq!(told(&mut stream).await, "replaced b");
    groups.put(mk_group("c", 1), None);
    assert_eq!(told(&mut stream).await, "added c 10.0.0.1");
}

#[tokio::test]
async fn a_replica_that_lags_is_not_believed() {
    let World { served, relay, agent } = mk_world().await;
    let groups = &served.address_groups;
    groups.reach(&[("pods", "100")]);
    groups.put(mk_group("a", 1), None);
    let mut stream = agent.address_groups();
    assert_eq!(told(&mut stream).await, "replaced a");
    relay.cut().await;
    groups.become_another(Epoch::random());
    groups.reach(&[("pods", "99")]);
    groups.remove("a");
    relay.mend();
    let lag = loop {
        match next(&mut stream).await {
            Event::Failed(why) if why.contains("behind") => break why,
            Event::Failed(_) | Event::Bookmark { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(lag.starts_with("watch addressgroups: "), "{lag}");
    groups.reach(&[("pods", "101")]);
    assert_eq!(told(&mut stream).await, "replaced ");
}

#[tokio::test]
async fn all_streams_and_reports_share_one_connection() {
    let World { served, relay, agent } = mk_world().await;
    served.policies.put(NetworkPolicy { metadata: named("p"), ..NetworkPolicy::default() }, None);
    let (mut policies, mut groups, mut applied) =
        (agent.network_policies(), agent.address_groups(), agent.applied_to_groups());
    let Event::Replaced { objects, .. } = next(&mut policies).await else { panic!() };
    assert_eq!(objects[0].metadata.name.as_deref(), Some("p"));
    assert_eq!(told(&mut groups).await, "replaced ");
    assert!(matches!(next(&mut applied).await, Event::Replaced { .. }));

    let node = NetworkPolicyNodeStatus {
        node_name: "n1".to_owned(),
        generation: 3,
        ..NetworkPolicyNodeStatus::default()
    };
    let mut status = NetworkPolicyStatus { metadata: named("p"), nodes: vec![node] };
    agent.report(&status).await.unwrap();
    let seen = served.reports();
    assert_eq!((seen.len(), seen[0]["nodes"][0]["nodeName"].as_str()), (1, Some("n1")));
    assert_eq!(seen[0]["kind"], "NetworkPolicyStatus");
    assert_eq!(relay.accepted(), 1);
    status.metadata = named("refused");
    let error = agent.report(&status).await.unwrap_err();
    assert!(error.is_forbidden(), "{}", error.chain());
}

#[tokio::test]
async fn the_way_may_lead_straight_to_the_controllers_service() {
    let served = Served::start().await;
    served.address_groups.put(mk_group("a", 1), None);
    let client = served.client_of_nobody().await;
    let route = Route::Direct {
        url: format!("https://{}", served.address),
        server_name: "antrea.kube-system.svc".to_owned(),
        ca_pem: served.ca_pem(),
    };
    let agent = Controlplane::new(&client, &route, "n1").unwrap();
    assert_eq!(told(&mut agent.address_groups()).await, "replaced a");
    let wrong = Route::Direct {
        url: format!("https://{}", served.address),
        server_name: "other.kube-system.svc".to_owned(),
        ca_pem: served.ca_pem(),
    };
    let agent = Controlplane::new(&client, &wrong, "n1").unwrap();
    assert!(matches!(next(&mut agent.address_groups()).await, Event::Failed(_)));
}

/// A cluster with replicas, each behind a relay, and an agent that has to find them.
struct Cluster {
    server: TestServer,
    replicas: Vec<(Served, Relay)>,
    agent: Controlplane,
}

impl Cluster {
    /// Replicas that are ready, or not.
    async fn start(ready: &[bool]) -> Self {
        let server = kubelab::testing::start().await.unwrap();
        let rbac = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");
        server.server.apply_yaml(&std::fs::read_to_string(rbac).unwrap()).unwrap();
        let authority = Arc::new(Authority::create("antrea-ca").unwrap());
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "antrea-ca", "namespace": "kube-system"},
            "data": {"ca.crt": authority.cert_pem()}});
        server.server.apply_yaml(&map.to_string()).unwrap();
        let mut replicas = Vec::new();
        for (n, ready) in ready.iter().enumerate() {
            let served = Served::start_for(Arc::clone(&authority)).await;
            let relay = Relay::start(served.address).await;
            let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": format!("antrea-{n}"), "namespace": "kube-system",
                    "labels": {"kubernetes.io/service-name": "antrea"}},
                "addressType": "IPv4",
                "ports": [{"name": "", "port": relay.address.port(), "protocol": "TCP"}],
                "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}]});
            server.server.apply_yaml(&slice.to_string()).unwrap();
            replicas.push((served, relay));
        }
        let path = server.dir().join("agent.kubeconfig");
        let text = server.server.kubeconfig_for(&server.url, "kube-system", "antrea-agent");
        std::fs::write(&path, text.unwrap()).unwrap();
        let options = ClientOptions::new("test", "v0");
        let client = Client::from_kubeconfig(&path, &options).await.unwrap();
        let route = Route::Replicas { namespace: "kube-system".to_owned() };
        let agent = Controlplane::new(&client, &route, "n1").unwrap();
        Self { server, replicas, agent }
    }

    fn put(&self, name: &str) {
        for (served, _) in &self.replicas {
            served.address_groups.put(mk_group(name, 1), None);
        }
    }
}

#[tokio::test]
async fn another_replica_takes_over_where_one_fails() {
    let cluster = Cluster::start(&[true, true, true]).await;
    cluster.put("a");
    let mut stream = cluster.agent.address_groups();
    assert_eq!(told(&mut stream).await, "replaced a");
    let used = || -> Vec<usize> {
        let relays = cluster.replicas.iter().enumerate();
        relays.filter(|(_, (_, relay))| relay.accepted() > 0).map(|(n, _)| n).collect()
    };
    let first = used();
    assert_eq!(first.len(), 1, "one is enough");
    cluster.replicas[first[0]].1.cut().await;
    cluster.put("b");
    assert_eq!(told(&mut stream).await, "replaced a,b");
    let status = NetworkPolicyStatus { metadata: named("p"), nodes: Vec::new() };
    cluster.agent.report(&status).await.unwrap();
    let second: Vec<usize> = used().into_iter().filter(|n| *n != first[0]).collect();
    assert_eq!(second.len(), 1, "streams and reports go the same way");
    cluster.replicas[second[0]].1.cut().await;
    cluster.put("c");
    assert_eq!(told(&mut stream).await, "replaced a,b,c");
    // All are gone; one comes back.
    for (_, relay) in &cluster.replicas {
        relay.cut().await;
    }
    cluster.put("d");
    cluster.replicas[first[0]].1.mend();
    assert_eq!(told(&mut stream).await, "replaced a,b,c,d");
    drop(cluster.server);
}

#[tokio::test]
async fn a_replica_that_has_read_less_is_passed_over() {
    let cluster = Cluster::start(&[true, false]).await;
    let [(ahead, relay), (behind, _)] = &cluster.replicas[..] else { panic!() };
    ahead.address_groups.reach(&[("as-of.controlplane.antrea.io/pods", "100")]);
    behind.address_groups.reach(&[
        ("as-of.controlplane.antrea.io/pods", "80"),
        ("up-to.controlplane.antrea.io/pods", "99"),
    ]);
    ahead.address_groups.put(mk_group("new", 1), None);
    behind.address_groups.put(mk_group("old", 1), None);
    let mut stream = cluster.agent.address_groups();
    assert_eq!(told(&mut stream).await, "replaced new");
    relay.cut().await;
    loop {
        match next(&mut stream).await {
            Event::Failed(why) if why.contains("behind") => break,
            Event::Failed(_) | Event::Bookmark { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    // Its last change is older, but it has read on: the last change of all was a deletion.
    behind.address_groups.reach(&[
        ("as-of.controlplane.antrea.io/pods", "80"),
        ("up-to.controlplane.antrea.io/pods", "100"),
    ]);
    assert_eq!(told(&mut stream).await, "replaced old");
}

/// Keeps the fake honest: it is used by all tests above.
#[test]
fn a_fake_source_has_a_window() {
    let fake: std::sync::Arc<Fake<AddressGroup, AddressGroupPatch>> = Fake::new();
    for last in 0..20 {
        fake.put(mk_group("a", last), None);
    }
    assert_eq!(fake.window(), 8);
}

//! The controller computes policy on a lab cluster and serves it through the API server.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not inside #[test] functions")]

#[path = "cluster/world.rs"]
mod world;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use antrea_controller::CertificateTerms;
use antrea_runtime::CancellationToken;
use apis::controlplane::{
    NetworkPolicyNodeStatus, NetworkPolicyReference, NetworkPolicyStats, NetworkPolicyStatus,
    NodeStatsSummary, PolicyType, RuleTrafficStats, TrafficStats,
};
use futures::StreamExt;
use hyper::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_io::controlplane::{Controlplane, Event, Route};
use serde_json::{Value, json};
use world::{Controller, World};

const SOON: Duration = Duration::from_secs(60);
const API: &str = "/apis/controlplane.antrea.io/v1beta2";
const ACNP: &str = "/apis/crd.antrea.io/v1beta1/clusternetworkpolicies";

const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  nodeName: n1
  containers: [{name: c, image: echo, ports: [{name: http, containerPort: 80}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec:
  nodeName: n1
  containers: [{name: c, image: echo}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {}}]
    ports: [{port: http}]
---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: strict}
spec:
  priority: 5
  tier: securityops
  appliedTo: [{namespaceSelector: {matchLabels: {team: a}}}]
  ingress:
  - action: Drop
    name: no-ssh
    ports: [{protocol: TCP, port: 22}]
    from: [{podSelector: {matchLabels: {app: db}}}]
---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterGroup
metadata: {name: webs}
spec: {podSelector: {matchLabels: {app: web}}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Group
metadata: {name: all, namespace: shop}
spec: {podSelector: {}}
"#;

/// A cluster with policy kinds, and controllers whose API is registered.
async fn mk_world(n: usize) -> (World, Vec<Controller>) {
    let world = World::start().await;
    world.add_node("n1").await;
    world.add_policy_kinds().await;
    let controllers: Vec<Controller> =
        (0..n).map(|n| Controller::spawn(&world, &format!("ctl-{n}"), "")).collect();
    let ports: Vec<u16> = controllers.iter().map(|controller| controller.port).collect();
    world.register(&ports).await;
    world
        .eventually(SOON, "the API is available", async || {
            world.get(&format!("{API}/networkpolicies")).await["items"].is_array()
        })
        .await;
    (world, controllers)
}

/// Applies once the webhooks are trusted.
async fn apply(world: &World, text: &str) {
    world
        .eventually(SOON, "the webhooks are trusted", async || world.try_apply(text).await.is_ok())
        .await;
}

async fn list(world: &World, plural: &str, more: &str) -> Vec<Value> {
    let list = world.get(&format!("{API}/{plural}{more}")).await;
    list["items"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_reach_whoever_may_read_them() {
    let (world, _controllers) = mk_world(1).await;
    world
        .eventually(SOON, "the tiers of the system are made", async || {
            let tiers = world.get("/apis/crd.antrea.io/v1beta1/tiers").await;
            tiers["items"].as_array().is_some_and(|all| all.len() == 6)
        })
        .await;
    apply(&world, OBJECTS).await;
    world
        .eventually(SOON, "both policies are served", async || {
            list(&world, "networkpolicies", "").await.len() == 2
        })
        .await;
    let policies = list(&world, "networkpolicies", "").await;
    let acnp = policies.iter().find(|one| one["tierPriority"] == 100).unwrap();
    assert_eq!(acnp["rules"][0]["name"], "no-ssh");
    assert_eq!(acnp["sourceRef"]["name"], "strict");
    assert!(acnp["metadata"]["resourceVersion"].is_string());
    let on = |node: &str| format!("?fieldSelector=nodeName%3D{node}");
    assert_eq!(list(&world, "appliedtogroups", &on("n1")).await.len(), 2);
    assert_eq!(list(&world, "networkpolicies", &on("nowhere")).await.len(), 0);
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let path = format!("{API}/networkpolicies");
    let table = world.send(Method::GET, &path, &accept, &Value::Null).await.json();
    assert_eq!((&table["kind"], table["rows"].as_array().unwrap().len()), (&json!("Table"), 2));
    world
        .eventually(SOON, "the policy's status is written", async || {
            let policy = world.get(&format!("{ACNP}/strict")).await;
            policy["status"]["phase"] == "Realizing"
                && policy["status"]["desiredNodesRealized"] == 1
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_refuse_with_field_and_reason_and_fill_in() {
    let (world, _controllers) = mk_world(1).await;
    let policy = |name: &str, tier: &str, rule: &str| {
        format!(
            "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {{name: {name}}}\n\
             spec: {{priority: 5{tier}, appliedTo: [{{podSelector: {{}}}}], ingress: [{rule}]}}\n"
        )
    };
    apply(&world, &policy("good", "", "{action: Drop}")).await;
    let good = world.get(&format!("{ACNP}/good")).await;
    assert_eq!(good["spec"]["tier"], "application");
    let name = good["spec"]["ingress"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("ingress-drop-"), "{name}");
    for (text, want) in [
        (policy("bad", ", tier: nowhere", "{action: Drop}"), "spec.tier: there is no tier"),
        (
            policy(
                "bad",
                ", egress: [{action: Drop, toServices: [{name: a, namespace: b}], ports: [{port: 1}]}]",
                "",
            ),
            "spec.egress[0].toServices",
        ),
        (
            policy("bad", "", "{action: Drop, ports: [{port: web, endPort: 9}]}"),
            "spec.ingress[0].ports[0].endPort",
        ),
        (
            "apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: mine}\n\
             spec: {priority: 252}\n"
                .to_owned(),
            "spec.priority: 252 is reserved",
        ),
    ] {
        let refusal = world.try_apply(&text).await.expect_err(want);
        assert!(refusal.contains(want), "{refusal}");
    }
    let surprising = json!({"apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "early"}, "spec": {"priority": 5, "appliedTo": [{"group": "later"}]}});
    let headers = [("content-type", "application/json")];
    let answer = world.send(Method::POST, ACNP, &headers, &surprising).await;
    assert_eq!(answer.code, 201, "{:?}", answer.body);
    let warning = answer.headers.get("warning").unwrap().to_str().unwrap();
    assert!(warning.contains("there is no group"), "{warning}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_about_policies_and_groups_are_answered() {
    let (world, _controllers) = mk_world(1).await;
    apply(&world, OBJECTS).await;
    world.pod_runs("shop", "web", "10.0.0.1").await;
    world.pod_runs("shop", "db", "10.0.0.2").await;
    world
        .eventually(SOON, "both Pods are members", async || {
            let path = format!("{API}/namespaces/shop/groupmembers/all");
            world.get(&path).await["totalMembers"] == 2
        })
        .await;
    let page = world.get(&format!("{API}/namespaces/shop/groupmembers/all?page=2&limit=1")).await;
    assert_eq!((&page["totalPages"], &page["currentPage"]), (&json!(2), &json!(2)));
    assert_eq!((&page["kind"], &page["metadata"]["name"]), (&json!("GroupMembers"), &json!("all")));
    let only = page["effectiveMembers"].as_array().unwrap();
    assert_eq!((only.len(), &only[0]["pod"]["namespace"]), (1, &json!("shop")));
    let members = world.get(&format!("{API}/clustergroupmembers/webs")).await;
    assert_eq!(members["effectiveMembers"][0]["pod"]["name"], "web");
    assert!(world.get(&format!("{API}/clustergroupmembers/nowhere")).await.is_null());

    let groups = world.get(&format!("{API}/namespaces/shop/groupassociations/web")).await;
    let webs = world.get("/apis/crd.antrea.io/v1beta1/clustergroups/webs").await;
    let all = groups["associatedGroups"].as_array().unwrap();
    assert_eq!(all.len(), 2, "{groups}");
    assert_eq!(all[0], json!({"name": "webs", "uid": webs["metadata"]["uid"]}));
    assert_eq!((&all[1]["namespace"], &all[1]["name"]), (&json!("shop"), &json!("all")));
    let groups = world.get(&format!("{API}/ipgroupassociations/10.0.0.2")).await;
    assert_eq!(groups["associatedGroups"].as_array().unwrap().len(), 1, "{groups}");
    assert!(world.get(&format!("{API}/ipgroupassociations/nonsense")).await.is_null());

    let ask = async |from: &str, to: &str| {
        let pod = |name: &str| json!({"pod": {"namespace": "shop", "name": name}});
        let question = json!({"apiVersion": "controlplane.antrea.io/v1beta2",
            "kind": "NetworkPolicyEvaluation",
            "request": {"source": pod(from), "destination": pod(to)}});
        world.post(&format!("{API}/networkpolicyevaluation"), &question).await
    };
    let (code, answer) = ask("db", "web").await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(answer["response"]["networkPolicy"]["name"], "strict", "{answer}");
    assert_eq!(answer["response"]["rule"]["action"], "Drop");
    let (_, answer) = ask("web", "db").await;
    assert!(answer["response"].is_null(), "{answer}");
    let (code, answer) = ask("web", "nobody").await;
    assert_eq!(code, 400);
    assert!(answer["message"].as_str().unwrap().contains("request.destination.pod"), "{answer}");

    for path in ["clustergroups/webs", "namespaces/shop/groups/all"] {
        world
            .eventually(SOON, "the group says that its members are known", async || {
                let group = world.get(&format!("/apis/crd.antrea.io/v1beta1/{path}")).await;
                let condition = &group["status"]["conditions"][0];
                condition["type"] == "GroupMembersComputed" && condition["status"] == "True"
            })
            .await;
    }
}

/// What the agent of a Node tells of a policy.
async fn report_of(world: &World, policy: &str, node: &str) -> NetworkPolicyStatus {
    let policy = world.get(&format!("{ACNP}/{policy}")).await;
    let uid = policy["metadata"]["uid"].as_str().unwrap().to_owned();
    let generation = policy["metadata"]["generation"].as_i64().unwrap();
    NetworkPolicyStatus {
        metadata: ObjectMeta { name: Some(uid), ..ObjectMeta::default() },
        nodes: vec![NetworkPolicyNodeStatus {
            node_name: node.to_owned(),
            generation,
            ..NetworkPolicyNodeStatus::default()
        }],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_agents_tell_a_follower_reaches_the_object() {
    let (world, controllers) = mk_world(2).await;
    apply(&world, OBJECTS).await;
    world.eventually(SOON, "somebody leads", async || world.holder().await.is_some()).await;
    let leader = world.holder().await.unwrap();
    let follower = controllers.iter().find(|one| !leader.starts_with(&one.name)).unwrap();
    let ca = world.get("/api/v1/namespaces/kube-system/configmaps/antrea-ca").await;
    let route = Route::Direct {
        url: format!("https://127.0.0.1:{}", follower.port),
        server_name: "antrea.kube-system.svc".to_owned(),
        ca_pem: ca["data"]["ca.crt"].as_str().unwrap().to_owned(),
    };
    let agent = Controlplane::new(&world.agent("n1").await, &route, "n1").unwrap();
    let report = report_of(&world, "strict", "n1").await;
    world
        .eventually(SOON, "the follower takes the report", async || {
            agent.report(&report).await.is_ok()
        })
        .await;
    let mut of_other = report.clone();
    of_other.nodes[0].node_name = "n2".to_owned();
    assert!(agent.report(&of_other).await.unwrap_err().is_forbidden());
    world
        .eventually(SOON, "the leader writes it down", async || {
            world.get(&format!("{ACNP}/strict")).await["status"]["phase"] == "Realized"
        })
        .await;
}

const STATS: &str = "/apis/stats.antrea.io/v1alpha1";

/// What a Node tells of the traffic that a policy met.
async fn traffic_of(world: &World, path: &str, node: &str, packets: i64) -> NodeStatsSummary {
    let policy = world.get(path).await;
    let text = |field: &str| policy["metadata"][field].as_str().unwrap_or_default().to_owned();
    let traffic_stats = TrafficStats { packets, bytes: packets * 60, sessions: packets };
    let rule = RuleTrafficStats { name: "no-ssh".to_owned(), traffic_stats };
    let cluster = policy["kind"] == "ClusterNetworkPolicy";
    let stats = vec![NetworkPolicyStats {
        network_policy: NetworkPolicyReference {
            type_: match cluster {
                true => PolicyType::AntreaClusterNetworkPolicy,
                false => PolicyType::K8sNetworkPolicy,
            },
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
        },
        traffic_stats,
        rule_traffic_stats: if cluster { vec![rule] } else { Vec::new() },
    }];
    let metadata = ObjectMeta { name: Some(node.to_owned()), ..ObjectMeta::default() };
    let mut summary = NodeStatsSummary { metadata, ..NodeStatsSummary::default() };
    match cluster {
        true => summary.antrea_cluster_network_policies = stats,
        false => summary.network_policies = stats,
    }
    summary
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_told_to_any_replica_is_summed_by_all_and_outlives_one() {
    let (world, mut controllers) = mk_world(2).await;
    world.add_node("n2").await;
    apply(&world, OBJECTS).await;
    let ca = world.get("/api/v1/namespaces/kube-system/configmaps/antrea-ca").await;
    let ca_pem = ca["data"]["ca.crt"].as_str().unwrap().to_owned();
    let route = |port: u16| Route::Direct {
        url: format!("https://127.0.0.1:{port}"),
        server_name: "antrea.kube-system.svc".to_owned(),
        ca_pem: ca_pem.clone(),
    };
    let k8s = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/web";
    let acnp = format!("{ACNP}/strict");
    // Each Node tells another replica.
    for (node, port, packets) in [("n1", controllers[0].port, 5), ("n2", controllers[1].port, 7)] {
        let agent = Controlplane::new(&world.agent(node).await, &route(port), node).unwrap();
        for path in [k8s, &acnp] {
            let told = traffic_of(&world, path, node, packets).await;
            world
                .eventually(SOON, "the replica takes it", async || {
                    agent.report_traffic(&told).await.is_ok()
                })
                .await;
            let of_other = traffic_of(&world, path, "n9", packets).await;
            assert!(agent.report_traffic(&of_other).await.unwrap_err().is_forbidden());
        }
    }
    // Asked again and again the API server asks both.
    let both = async |path: &str| {
        let mut wrong = 0;
        for _ in 0..10 {
            let object = world.get(&format!("{STATS}/{path}")).await;
            let traffic = &object["trafficStats"];
            if *traffic != json!({"packets": 12, "bytes": 720, "sessions": 12}) {
                wrong += 1;
            }
        }
        wrong == 0
    };
    for path in ["namespaces/shop/networkpolicystats/web", "antreaclusternetworkpolicystats/strict"]
    {
        world.eventually(SOON, "every replica knows the sum", async || both(path).await).await;
    }
    controllers.remove(0).kill();
    let shown =
        async || world.get(&format!("{STATS}/antreaclusternetworkpolicystats/strict")).await;
    world
        .eventually(SOON, "the other one answers", async || {
            shown().await["trafficStats"].is_object()
        })
        .await;
    let object = shown().await;
    assert_eq!(object["trafficStats"]["packets"], 12, "{object}");
    assert_eq!(object["ruleTrafficStats"][0]["name"], "no-ssh", "{object}");
    let policy = world.get(&acnp).await;
    let made = |object: &Value| object["metadata"]["creationTimestamp"].clone();
    assert_eq!(made(&object), made(&policy));
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let path = format!("{STATS}/networkpolicystats");
    let table = world.send(Method::GET, &path, &accept, &Value::Null).await.json();
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Name", "Sessions", "Packets", "Bytes", "Created At"]);
    let cells = &table["rows"][0]["cells"];
    assert_eq!((&cells[0], &cells[1], &cells[3]), (&json!("web"), &json!(12), &json!(720)));
    assert_eq!(table["rows"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_gate_whoever_asks_for_statistics_is_told_so() {
    let world = World::start().await;
    world.add_node("n1").await;
    world.add_policy_kinds().await;
    let gate = "featureGates: {NetworkPolicyStats: false}\n";
    let controller = Controller::spawn(&world, "ctl", gate);
    world.register(&[controller.port]).await;
    let path = format!("{STATS}/networkpolicystats");
    world
        .eventually(SOON, "the controller answers", async || {
            let answer = world.send(Method::GET, &path, &[], &Value::Null).await;
            answer.code == 400 && answer.json()["message"] == "feature NetworkPolicyStats disabled"
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_renewed_and_everybody_follows() {
    let world = World::start().await;
    world.add_node("n1").await;
    world.add_policy_kinds().await;
    let stop = CancellationToken::new();
    let mut settings = world.settings("ctl", "");
    // Each certificate is to be replaced as soon as it is there.
    settings.certificates = CertificateTerms {
        days: 2,
        renew_before: Duration::from_secs(30 * 24 * 3600),
        settle: Duration::from_secs(1),
        look_again: Duration::from_millis(100),
    };
    world.register(&[settings.api_addr.port()]).await;
    let run = tokio::spawn(antrea_controller::run(settings, stop.clone()));
    let path = format!("{API}/networkpolicies");
    world
        .eventually(SOON, "the API is available", async || {
            world.get(&path).await["items"].is_array()
        })
        .await;
    let shown = async || {
        let secret = "/api/v1/namespaces/kube-system/secrets/antrea-controller-tls";
        world.get(secret).await["data"]["tls.crt"].as_str().map(str::to_owned)
    };
    let client = world.agent("n1").await;
    let route = Route::Replicas { namespace: "kube-system".to_owned() };
    let agent = Controlplane::new(&client, &route, "n1").unwrap();
    let mut stream = agent.network_policies();
    let first = tokio::time::timeout(SOON, async {
        while !matches!(stream.next().await, Some(Event::Replaced { .. })) {}
    });
    first.await.unwrap();
    let seen = RefCell::new(BTreeSet::new());
    world
        .eventually(SOON, "certificates are replaced", async || {
            let answer = world.send(Method::GET, &path, &[], &Value::Null).await;
            assert_eq!(answer.code, 200, "while certificates change: {:?}", answer.body);
            let shown = shown().await;
            seen.borrow_mut().extend(shown);
            seen.borrow().len() >= 4
        })
        .await;
    apply(&world, OBJECTS).await;
    let report = report_of(&world, "strict", "n1").await;
    world.eventually(SOON, "an agent reports", async || agent.report(&report).await.is_ok()).await;
    let told = tokio::time::timeout(SOON, async {
        while !matches!(stream.next().await, Some(Event::Added(_) | Event::Replaced { .. })) {}
    });
    told.await.unwrap();
    stop.cancel();
    run.await.unwrap().unwrap();
}

//! Every function against the lab's API server, over TLS, with the rights that `deploy/` gives.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not inside #[test] functions")]

#[path = "api/world.rs"]
mod world;

use std::time::Duration;

use jiff::Timestamp;
use kube_io::apis::AntreaAgentInfo;
use kube_io::apis::agent_info::{AgentCondition, AgentConditionType};
use kube_io::apis::common::{ConditionStatus, ObjectReference};
use kube_io::apply::{self, Outcome};
use kube_io::events::{self, Event, EventKind};
use kube_io::lease::{self, ApiStore, Elector, Lease, Terms};
use kube_io::nodes::{self, NodeCondition, NodeEvent, NodeRegistration};
use kube_io::pods::{self, PodEvent, PodStatus};
use kube_io::service_accounts::{self, TokenRequest};
use kube_io::{Client, agent_info};
use world::{Cut, World, next};

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default}\n\
                   spec: {containers: [{name: c, image: echo}]}\n";

fn mk_registration(name: &str) -> NodeRegistration {
    NodeRegistration {
        name: name.into(),
        labels: [("kubernetes.io/hostname".to_owned(), name.to_owned())].into(),
        internal_addresses: vec!["172.30.0.1".parse().unwrap()],
        capacity: [("pods".to_owned(), "110".to_owned())].into(),
        node_info: [("kubeletVersion".to_owned(), "v1.36.0".to_owned())].into(),
        kubelet_port: Some(10250),
        ..NodeRegistration::default()
    }
}

async fn register(client: &Client, name: &str) -> nodes::NodeView {
    nodes::register(client, &mk_registration(name)).await.unwrap()
}

#[tokio::test]
async fn a_node_registers_reports_and_goes() {
    let world = World::start().await;
    let client = world.admin().await;
    let made = register(&client, "n1").await;
    assert_eq!(made.addresses(), ["172.30.0.1".parse::<std::net::IpAddr>().unwrap()]);
    let again = register(&client, "n1").await;
    assert_eq!(again.uid, made.uid, "registering twice keeps the Node");

    let now = Timestamp::now();
    let condition = |type_: &str, status| NodeCondition {
        type_: type_.into(),
        status,
        reason: "Test".into(),
        message: String::new(),
        last_transition: now,
    };
    let ready = condition("Ready", ConditionStatus::True);
    nodes::heartbeat(&client, "n1", &[ready], now).await.unwrap();
    let network = condition("NetworkUnavailable", ConditionStatus::False);
    nodes::set_condition(&client, "n1", &network).await.unwrap();
    let node = nodes::get(&client, "n1").await.unwrap();
    assert!(node.ready && !node.network_unavailable, "conditions do not displace each other");
    lease::renew_node(&client, "n1", &node.uid).await.unwrap();
    lease::renew_node(&client, "n1", &node.uid).await.unwrap();

    nodes::delete(&client, "n1").await.unwrap();
    nodes::delete(&client, "n1").await.unwrap();
    assert!(nodes::get(&client, "n1").await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn pod_cidrs_are_written_once_and_only_to_the_node_that_was_seen() {
    let world = World::start().await;
    let client = world.admin().await;
    let seen = register(&client, "n1").await;
    let cidrs = ["10.0.1.0/24".parse().unwrap(), "fd00:1::/64".parse().unwrap()];
    nodes::set_condition(
        &client,
        "n1",
        &NodeCondition {
            type_: "Ready".into(),
            status: ConditionStatus::True,
            reason: "Test".into(),
            message: String::new(),
            last_transition: Timestamp::now(),
        },
    )
    .await
    .unwrap();
    let stale = nodes::patch_pod_cidrs(&client, &seen, &cidrs).await.unwrap_err();
    assert!(stale.is_conflict(), "{}", stale.chain());
    let fresh = nodes::get(&client, "n1").await.unwrap();
    let node = nodes::patch_pod_cidrs(&client, &fresh, &cidrs).await.unwrap();
    assert_eq!(node.pod_cidrs, cidrs);
    let (all, version) = nodes::list(&client).await.unwrap();
    assert_eq!(all[0].pod_cidrs, cidrs);
    assert!(!version.is_empty());
}

#[tokio::test]
async fn a_watch_that_was_cut_goes_on_where_it_broke_off() {
    let world = World::start().await;
    let (client, direct) = (world.admin_through_proxy().await, world.admin().await);
    register(&direct, "n1").await;
    let mut watch = nodes::watch(&client);
    assert!(matches!(next(&mut watch).await, NodeEvent::Init));
    assert!(matches!(next(&mut watch).await, NodeEvent::Applied(node) if node.name == "n1"));
    assert!(matches!(next(&mut watch).await, NodeEvent::InitDone));

    world.proxy.set(Cut::Yes);
    assert!(matches!(next(&mut watch).await, NodeEvent::Failed(_)));
    nodes::delete(&direct, "n1").await.unwrap();
    register(&direct, "n2").await;
    world.proxy.set(Cut::No);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        match next(&mut watch).await {
            NodeEvent::Failed(_) => {}
            NodeEvent::Deleted(name) => seen.push(format!("-{name}")),
            NodeEvent::Applied(node) => {
                if !seen.contains(&format!("+{}", node.name)) {
                    seen.push(format!("+{}", node.name));
                }
            }
            other => panic!("not listed again: {other:?}"),
        }
    }
    assert_eq!(seen, ["-n1", "+n2"]);
}

#[tokio::test]
async fn a_watch_that_missed_too_much_lists_again() {
    let world = World::with_window(8).await;
    let (client, direct) = (world.admin_through_proxy().await, world.admin().await);
    register(&direct, "n1").await;
    let mut watch = nodes::watch(&client);
    while !matches!(next(&mut watch).await, NodeEvent::InitDone) {}
    world.proxy.set(Cut::Yes);
    nodes::delete(&direct, "n1").await.unwrap();
    for n in 0..20 {
        register(&direct, &format!("m{n}")).await;
    }
    world.proxy.set(Cut::No);
    while !matches!(next(&mut watch).await, NodeEvent::Init) {}
    let mut names = Vec::new();
    loop {
        match next(&mut watch).await {
            NodeEvent::Applied(node) => names.push(node.name),
            NodeEvent::InitDone => break,
            other => panic!("{other:?} in a list"),
        }
    }
    assert_eq!(names.len(), 20);
    assert!(!names.contains(&"n1".to_owned()));
}

#[tokio::test]
async fn a_pod_is_placed_runs_and_ends() {
    let world = World::start().await;
    world.apply_deploy().await;
    let admin = world.admin().await;
    let kubelet = world.service_account("lab-kubelet").await;
    let scheduler = world.service_account("lab-scheduler").await;
    let mut unscheduled = pods::watch_unscheduled(&scheduler);
    let mut on_node = pods::watch_node(&kubelet, "n1");
    while !matches!(next(&mut unscheduled).await, PodEvent::InitDone) {}
    while !matches!(next(&mut on_node).await, PodEvent::InitDone) {}
    apply::manifests(&admin, POD).await.unwrap();

    let pod = match next(&mut unscheduled).await {
        PodEvent::Applied(pod) => pod,
        other => panic!("{other:?}"),
    };
    let key = pod.pod_key();
    pods::set_unschedulable(&scheduler, &key, "no Node").await.unwrap();
    register(&kubelet, "n1").await;
    pods::bind(&scheduler, &key, "n1").await.unwrap();
    assert!(pods::bind(&scheduler, &key, "n2").await.unwrap_err().is_conflict());
    loop {
        match next(&mut unscheduled).await {
            PodEvent::Deleted(gone) => break assert_eq!(gone, key),
            PodEvent::Applied(_) => {}
            other => panic!("{other:?}"),
        }
    }

    let placed = match next(&mut on_node).await {
        PodEvent::Applied(pod) => pod,
        other => panic!("{other:?}"),
    };
    assert_eq!(placed.spec.node_name.as_deref(), Some("n1"));
    let status = PodStatus {
        phase: Some("Running".into()),
        pod_ips: vec!["10.0.1.2".parse().unwrap()],
        start_time: Some(Timestamp::now()),
        ..PodStatus::default()
    };
    let running = pods::patch_status(&kubelet, &key, &status).await.unwrap();
    assert_eq!(running.pod_ips.len(), 1);
    let mut stranger = key.clone();
    stranger.uid = "00000000-0000-0000-0000-000000000000".into();
    let error = pods::patch_status(&kubelet, &stranger, &status).await.unwrap_err();
    assert!(error.is_conflict(), "{}", error.chain());

    pods::delete(&admin, &key).await.unwrap();
    loop {
        match next(&mut on_node).await {
            PodEvent::Applied(pod) if pod.deleting => break,
            PodEvent::Applied(_) => {}
            other => panic!("{other:?}"),
        }
    }
    pods::delete_now(&kubelet, &key).await.unwrap();
    loop {
        match next(&mut on_node).await {
            PodEvent::Deleted(gone) => break assert_eq!(gone, key),
            PodEvent::Applied(_) => {}
            other => panic!("{other:?}"),
        }
    }
    pods::delete_now(&kubelet, &key).await.unwrap();
    assert!(pods::list(&admin).await.unwrap().0.is_empty());
}

#[tokio::test]
async fn an_agent_reports_with_its_own_rights_and_no_others() {
    let world = World::start().await;
    world.apply_deploy().await;
    let agent = world.service_account("antrea-agent").await;
    let controller = world.service_account("antrea-controller").await;
    let report = |pods, at| AntreaAgentInfo {
        local_pod_num: pods,
        agent_conditions: vec![AgentCondition::new(
            AgentConditionType::AgentHealthy,
            ConditionStatus::True,
            at,
        )],
        ..AntreaAgentInfo::named("n1")
    };
    let at = Timestamp::now();
    agent_info::upsert(&agent, &report(1, at)).await.unwrap();
    let version = |info: &AntreaAgentInfo| info.metadata.resource_version.clone();
    let first = agent_info::get(&agent, "n1").await.unwrap();
    agent_info::upsert(&agent, &report(1, at)).await.unwrap();
    assert_eq!(version(&agent_info::get(&agent, "n1").await.unwrap()), version(&first));
    agent_info::upsert(&agent, &report(2, at)).await.unwrap();
    assert_eq!(agent_info::get(&agent, "n1").await.unwrap().local_pod_num, 2);

    let refused = agent_info::delete(&agent, "n1").await.unwrap_err();
    assert!(refused.is_forbidden(), "{}", refused.chain());
    let refused = pods::list(&agent).await.unwrap_err();
    assert!(refused.is_forbidden(), "{}", refused.chain());
    assert_eq!(agent_info::list(&controller).await.unwrap().len(), 1);
    agent_info::delete(&controller, "n1").await.unwrap();
    agent_info::delete(&controller, "n1").await.unwrap();
}

#[tokio::test]
async fn events_tokens_and_leases() {
    let world = World::start().await;
    world.apply_deploy().await;
    let controller = world.service_account("antrea-controller").await;
    let admin = world.admin().await;
    let node = register(&admin, "n1").await;
    let event = Event {
        regarding: ObjectReference { uid: Some(node.uid), ..ObjectReference::node("n1") },
        kind: EventKind::Warning,
        reason: "CIDRNotAvailable".into(),
        message: "no prefix is left".into(),
        component: "antrea-controller".into(),
        instance: String::new(),
    };
    events::post(&controller, &event, Timestamp::now()).await.unwrap();
    events::post(&controller, &event, Timestamp::now()).await.unwrap();

    let request = TokenRequest { expiration_seconds: Some(3600), ..TokenRequest::default() };
    let token = service_accounts::request_token(&admin, "kube-system", "antrea-agent", &request);
    let token = token.await.unwrap();
    assert_eq!(token.token.split('.').count(), 3);
    assert!(token.expires.unwrap() > Timestamp::now());

    let terms = Terms {
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(200),
    };
    let start = |identity| {
        let store = ApiStore::new(&controller, "kube-system", "antrea-controller");
        Elector::start(store, Lease::new("kube-system", "antrea-controller"), identity, terms)
    };
    let leads = async |elector: &Elector| {
        let mut leadership = elector.leadership();
        let waited = leadership.wait_for(kube_io::lease::Leadership::is_leader);
        tokio::time::timeout(Duration::from_secs(10), waited).await.unwrap().unwrap();
    };
    let first = start("a");
    leads(&first).await;
    let second = start("b");
    first.release().await;
    leads(&second).await;
    second.release().await;
}

#[tokio::test]
async fn manifests_are_made_changed_and_left_alone() {
    let world = World::start().await;
    let admin = world.admin().await;
    let outcomes = async |text: &str| -> Vec<Outcome> {
        apply::manifests(&admin, text).await.unwrap().iter().map(|one| one.outcome).collect()
    };
    let config = |value: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c, namespace: default}}\n\
             data: {{a: {value}}}\n"
        )
    };
    assert_eq!(outcomes(&config("one")).await, [Outcome::Created]);
    assert_eq!(outcomes(&config("one")).await, [Outcome::Unchanged]);
    assert_eq!(outcomes(&config("two")).await, [Outcome::Configured]);
    // What the manifest named before and does not name now goes.
    let other = config("two").replace("a: two", "b: two");
    assert_eq!(outcomes(&other).await, [Outcome::Configured]);
    assert_eq!(outcomes(&other).await, [Outcome::Unchanged]);
    assert_eq!(outcomes(&config("two")).await, [Outcome::Configured]);
    let unknown = "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: a}\n";
    let error = apply::manifests(&admin, unknown).await.unwrap_err();
    assert_eq!(error.to_string(), "the server has no kind Thing in example.org/v1");
    world.apply_deploy().await;
    world.apply_deploy().await;
}

//! Controllers on a lab cluster, with the rights that `deploy/` gives them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not inside #[test] functions")]

#[path = "cluster/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use antrea_runtime::CancellationToken;
use ipnet::IpNet;
use kube_io::apis::AntreaAgentInfo;
use kube_io::{agent_info, nodes};
use world::{Controller, World};

/// As long as the longest Lease plus the retries of whoever takes over, on a loaded machine.
const FAILOVER: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(20);

const V4: &str = "nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: [10.10.0.0/16]}\n";

fn all_given(names: &[String], nodes: &[nodes::NodeView]) -> bool {
    names
        .iter()
        .all(|name| nodes.iter().any(|node| node.name == *name && !node.pod_cidrs.is_empty()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_and_no_prefix_is_given_twice() {
    let world = World::start().await;
    let admin = world.admin().await;
    let mut controllers =
        [Controller::spawn(&world, "ctl-a", V4), Controller::spawn(&world, "ctl-b", V4)];
    let first: Vec<String> = (0..20).map(|n| format!("first-{n}")).collect();
    for name in &first {
        world.add_node(name).await;
    }
    world
        .eventually(SOON, "the first Nodes have prefixes", async || {
            all_given(&first, &nodes::list(&admin).await.unwrap().0)
        })
        .await;
    let leader = world.holder().await.expect("somebody leads");
    let killed = controllers.iter().position(|one| leader.starts_with(&one.name)).unwrap();
    assert_eq!(world.reporting_pod().await.as_deref(), Some(controllers[killed].name.as_str()));

    controllers[killed].kill();
    let second: Vec<String> = (0..20).map(|n| format!("second-{n}")).collect();
    for name in &second {
        world.add_node(name).await;
    }
    world
        .eventually(FAILOVER, "the second Nodes have prefixes", async || {
            all_given(&second, &nodes::list(&admin).await.unwrap().0)
        })
        .await;
    let (all, _) = nodes::list(&admin).await.unwrap();
    let given: BTreeSet<IpNet> = all.iter().flat_map(|node| node.pod_cidrs.clone()).collect();
    assert_eq!(given.len(), 40, "one prefix each, none twice");
    let other = controllers[1 - killed].name.clone();
    world
        .eventually(SOON, "the other one reports", async || {
            world.reporting_pod().await.as_deref() == Some(other.as_str())
        })
        .await;

    assert!(controllers[1 - killed].terminate(SOON), "a signal ends it cleanly");
    assert_eq!(world.holder().await, None, "the Lease is given up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_get_prefixes_of_each_family() {
    for (config, want) in [
        (V4, vec!["10.10.0.0/24", "10.10.1.0/24"]),
        (
            "nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: ['fd10::/56']}\n",
            vec!["fd10::/64", "fd10:0:0:1::/64"],
        ),
        (
            "nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: [10.10.0.0/16, 'fd10::/56'],\n  \
             nodeCIDRMaskSizeIPv4: 26, serviceCIDR: 10.10.0.0/24}\n",
            vec!["10.10.1.0/26,fd10::/64", "10.10.1.64/26,fd10:0:0:1::/64"],
        ),
    ] {
        let world = World::start().await;
        let admin = world.admin().await;
        let stop = CancellationToken::new();
        let run = tokio::spawn(antrea_controller::run(world.settings("ctl", config), stop.clone()));
        world.add_node("n1").await;
        world.add_node("n2").await;
        let given = async || -> BTreeSet<String> {
            let (all, _) = nodes::list(&admin).await.unwrap();
            let cidrs = all.into_iter().map(|node| node.pod_cidrs).filter(|all| !all.is_empty());
            cidrs
                .map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
                .collect()
        };
        let want: BTreeSet<String> = want.into_iter().map(str::to_owned).collect();
        world.eventually(SOON, config, async || given().await.len() == 2).await;
        assert_eq!(given().await, want, "{config}");
        stop.cancel();
        run.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_pool_is_told_and_freed_prefixes_are_given_on() {
    let world = World::start().await;
    let admin = world.admin().await;
    let stop = CancellationToken::new();
    let config = "nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: [10.10.0.0/24]}\n";
    let run = tokio::spawn(antrea_controller::run(world.settings("ctl", config), stop.clone()));
    world.add_node("n1").await;
    let cidrs = async |name: &str| nodes::get(&admin, name).await.unwrap().pod_cidrs;
    world.eventually(SOON, "n1 has it", async || !cidrs("n1").await.is_empty()).await;
    agent_info::upsert(&admin, &AntreaAgentInfo::named("n1")).await.unwrap();
    world.add_node("n2").await;
    world
        .eventually(SOON, "an Event tells", async || {
            let events = world.get("/api/v1/events").await;
            let mut names = events["items"].as_array().into_iter().flatten();
            names.any(|event| {
                event["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("n2."))
            })
        })
        .await;
    assert!(cidrs("n2").await.is_empty());
    nodes::delete(&admin, "n1").await.unwrap();
    world.eventually(SOON, "n2 has it", async || !cidrs("n2").await.is_empty()).await;
    world
        .eventually(SOON, "the report of n1 is gone", async || {
            agent_info::list(&admin).await.unwrap().is_empty()
        })
        .await;
    stop.cancel();
    run.await.unwrap().unwrap();
}

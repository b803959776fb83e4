//! The scheduler, as a client with its own token.

use kubelab::scheduler::{self, SchedulerOptions};
use kubelab::testing;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::util::{create, create_node, eventually, get, mk_pod};

#[tokio::test]
async fn pods_are_spread_over_ready_nodes() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(scheduler::run(
        SchedulerOptions {
            server: served.url.clone(),
            ca_pem: served.server.ca_pem().to_owned(),
            token: served.server.token_for("kube-system", "kube-scheduler").unwrap(),
        },
        stop.clone(),
    ));
    let pods = "/api/v1/namespaces/default/pods";
    create(&client, pods, mk_pod("p0", "")).await;
    eventually("a reason why p0 is pending", || async {
        let pod = get(&client, &format!("{pods}/p0")).await?;
        (pod["status"]["conditions"][0]["reason"] == "Unschedulable").then_some(())
    })
    .await;
    eventually("an Event says why p0 is pending", || async {
        let list = get(&client, "/api/v1/namespaces/default/events").await?;
        let told = |event: &serde_json::Value| {
            event["reason"] == "FailedScheduling"
                && event["involvedObject"]["name"] == "p0"
                && event["message"] == "no nodes available to schedule pods"
        };
        list["items"].as_array()?.iter().any(told).then_some(())
    })
    .await;
    create_node(&client, "node-1").await;
    create_node(&client, "node-2").await;
    create(&client, "/api/v1/nodes", json!({ "metadata": { "name": "node-3" } })).await;
    // What one Pod is told shows that the scheduler has seen all nodes.
    let mut picky = mk_pod("picky", "");
    picky["spec"]["nodeSelector"] = json!({ "host": "x" });
    create(&client, pods, picky).await;
    eventually("picky is told what its nodes lack", || async {
        let pod = get(&client, &format!("{pods}/picky")).await?;
        let condition = &pod["status"]["conditions"][0];
        let message = condition["message"].as_str()?;
        (condition["type"] == "PodScheduled"
            && condition["status"] == "False"
            && message.starts_with("0/3 nodes are available: "))
        .then_some(())
    })
    .await;
    for index in 1..4 {
        create(&client, pods, mk_pod(&format!("p{index}"), "")).await;
    }
    let mut nodes = eventually("all Pods are bound", || async {
        let list = get(&client, pods).await?;
        let items = list["items"].as_array()?;
        let names: Vec<String> = items
            .iter()
            .filter_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
            .collect();
        (names.len() == 4).then_some(names)
    })
    .await;
    nodes.sort();
    assert_eq!(nodes, ["node-1", "node-1", "node-2", "node-2"]);
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn pods_of_nodes_that_do_not_exist_are_collected() {
    let served = testing::start_with(|options| {
        options.node_grace = std::time::Duration::from_millis(200);
    })
    .await
    .unwrap();
    let client = served.admin_client().unwrap();
    create_node(&client, "node-1").await;
    let pods = "/api/v1/namespaces/default/pods";
    create(&client, pods, mk_pod("here", "node-1")).await;
    create(&client, pods, mk_pod("astray", "nowhere")).await;
    eventually("the Pod of no Node is gone", || async {
        let list = get(&client, pods).await?;
        let names: Vec<&str> = list["items"]
            .as_array()?
            .iter()
            .filter_map(|p| p["metadata"]["name"].as_str())
            .collect();
        (names == ["here"]).then_some(())
    })
    .await;
}

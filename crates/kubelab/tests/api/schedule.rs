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
    create_node(&client, "node-1").await;
    create_node(&client, "node-2").await;
    create(&client, "/api/v1/nodes", json!({ "metadata": { "name": "node-3" } })).await;
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

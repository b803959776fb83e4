//! kube-rs, the client library of our programs, works against the server.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config};
use kubelab::testing::{self, TestServer};
use serde_json::json;

async fn start() -> (TestServer, Client) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let served = testing::start().await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&served.admin_kubeconfig().unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    (served, Client::try_from(config).unwrap())
}

fn mk_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some(BTreeMap::from([("k".to_owned(), "v".to_owned())]));
    map
}

#[tokio::test]
async fn create_list_patch_watch_and_delete() {
    let (_served, client) = start().await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &mk_map(name)).await.unwrap();
    }
    let page = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(page.items.len(), 2);
    let token = page.metadata.continue_.unwrap();
    let rest = maps.list(&ListParams::default().limit(9).continue_token(&token)).await.unwrap();
    assert_eq!(rest.items.len(), 2, "c and the authority");

    let params = WatchParams::default().fields("metadata.name=a");
    let version = rest.metadata.resource_version.unwrap();
    let mut events = maps.watch(&params, &version).await.unwrap().boxed();
    let patch = Patch::Merge(json!({ "data": { "k": "w" } }));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let modified = events.try_next().await.unwrap().unwrap();
    assert!(
        matches!(modified, WatchEvent::Modified(map) if map.data.as_ref().unwrap()["k"] == "w")
    );
    assert!(matches!(events.try_next().await.unwrap().unwrap(), WatchEvent::Deleted(_)));
    let missing = maps.get("a").await.unwrap_err();
    assert!(matches!(missing, kube::Error::Api(status) if status.code == 404));

    let nodes: Api<Node> = Api::all(client);
    let mut node = Node::default();
    node.metadata.name = Some("n".to_owned());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let patch = Patch::Strategic(json!({
        "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }] },
    }));
    let node = nodes.patch_status("n", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(node.status.unwrap().addresses.unwrap()[0].address, "192.0.2.1");
    let apply = Patch::Apply(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "labels": { "l": "v" } },
    }));
    let node = nodes.patch("n", &PatchParams::apply("test"), &apply).await.unwrap();
    assert_eq!(node.metadata.labels.unwrap()["l"], "v");
}

/// Reflectors start with a list, or with a watch that sends what exists.
#[tokio::test]
async fn watchers_see_every_object_with_both_ways_to_start() {
    let (_served, client) = start().await;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "example.test/app:1" }] },
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut objects = watcher(pods.clone(), config).applied_objects().boxed();
        let first = tokio::time::timeout(Duration::from_secs(5), objects.try_next()).await;
        let first = first.unwrap().unwrap().unwrap();
        assert_eq!(first.metadata.name.as_deref(), Some("p"));
        let grown = Patch::Merge(json!({ "metadata": { "labels": { "l": first.metadata.uid } } }));
        pods.patch("p", &PatchParams::default(), &grown).await.unwrap();
        let next = tokio::time::timeout(Duration::from_secs(5), objects.try_next()).await;
        assert!(next.unwrap().unwrap().unwrap().metadata.labels.is_some());
        let bare = Patch::Merge(json!({ "metadata": { "labels": null } }));
        pods.patch("p", &PatchParams::default(), &bare).await.unwrap();
    }
}

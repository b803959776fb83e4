//! Watches: order, selectors, initial events, expiry.

use std::time::Duration;

use hyper::Method;
use kubelab::client::{Client, Lines};
use kubelab::testing::{self, TestServer};
use serde_json::{Value, json};

use crate::util::{create, get, mk_config_map, send};

const MAPS: &str = "/api/v1/namespaces/wat/configmaps";

async fn start() -> (TestServer, Client, String) {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    create(&client, "/api/v1/namespaces", json!({ "metadata": { "name": "wat" } })).await;
    create(&client, MAPS, mk_config_map("pre", json!({}))).await;
    let version = get(&client, MAPS).await.unwrap()["metadata"]["resourceVersion"].clone();
    (served, client, version.as_str().unwrap().to_owned())
}

/// Creates w1 {a: 1}, sets data, a: 2, a: 1, deletes it.
async fn change(client: &Client) {
    create(client, MAPS, mk_config_map("w1", json!({ "a": "1" }))).await;
    let w1 = format!("{MAPS}/w1");
    for patch in [
        json!({ "data": { "k": "v" } }),
        json!({ "metadata": { "labels": { "a": "2" } } }),
        json!({ "metadata": { "labels": { "a": "1" } } }),
    ] {
        assert_eq!(send(client, Method::PATCH, &w1, &patch).await.code, 200);
    }
    assert_eq!(send(client, Method::DELETE, &w1, &Value::Null).await.code, 200);
}

async fn watch(client: &Client, query: &str) -> Lines {
    client.watch(&format!("{MAPS}?watch=1&{query}"), "application/json").await.unwrap()
}

/// An event in short: type, name, label a, number of data keys.
fn short(event: &Value) -> String {
    let object = &event["object"];
    let name = object["metadata"]["name"].as_str().unwrap_or("-");
    let label = object["metadata"]["labels"]["a"].as_str().unwrap_or("-");
    let n_data = object["data"].as_object().map_or(0, |data| data.len());
    format!("{} {name} {label} {n_data}", event["type"].as_str().unwrap_or("?"))
}

async fn read(lines: &mut Lines, count: usize) -> Vec<Value> {
    let mut events = Vec::new();
    while events.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(5), lines.next()).await;
        match next.unwrap().unwrap() {
            Some(event) => events.push(event),
            None => break,
        }
    }
    events
}

#[track_caller]
fn check(events: &[Value], want: &[&str]) {
    let got: Vec<String> = events.iter().map(short).collect();
    assert_eq!(got, want);
}

const ALL: [&str; 5] =
    ["ADDED w1 1 0", "MODIFIED w1 1 1", "MODIFIED w1 2 1", "MODIFIED w1 1 1", "DELETED w1 1 1"];
const SELECTED: [&str; 5] =
    ["ADDED w1 1 0", "MODIFIED w1 1 1", "DELETED w1 1 1", "ADDED w1 1 1", "DELETED w1 1 1"];

#[tokio::test]
async fn changes_are_seen_in_order_live_and_afterwards() {
    let (_served, client, version) = start().await;
    let from = format!("resourceVersion={version}");
    let mut live = watch(&client, &from).await;
    let mut selecting = watch(&client, &format!("{from}&labelSelector=a%3D1")).await;
    change(&client).await;
    let events = read(&mut live, 5).await;
    check(&events, &ALL);
    let versions: Vec<u64> = events
        .iter()
        .map(|e| e["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    let selected = read(&mut selecting, 5).await;
    check(&selected, &SELECTED);
    // What left the selection carries the version at which it left.
    assert_eq!(
        selected[2]["object"]["metadata"]["resourceVersion"],
        events[2]["object"]["metadata"]["resourceVersion"]
    );
    for (query, want) in [
        (from.clone(), &ALL[..]),
        (format!("{from}&labelSelector=a%3D1"), &SELECTED[..]),
        (format!("{from}&fieldSelector=metadata.name%3Dw1"), &ALL[..]),
        (format!("{from}&fieldSelector=metadata.name%3Dabsent"), &[][..]),
        ("fieldSelector=metadata.name%3Dw1".to_owned(), &[][..]),
        ("fieldSelector=metadata.name%3Dpre".to_owned(), &["ADDED pre - 0"][..]),
        ("resourceVersion=9000000000000000".to_owned(), &[][..]),
    ] {
        let mut lines = watch(&client, &format!("{query}&timeoutSeconds=1")).await;
        check(&read(&mut lines, 9).await, want);
    }
}

#[tokio::test]
async fn initial_events_end_with_a_marked_bookmark() {
    let (_served, client, _) = start().await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = watch(&client, query).await;
    let events = read(&mut lines, 3).await;
    check(&events, &["ADDED kube-root-ca.crt - 1", "ADDED pre - 0", "BOOKMARK - - 0"]);
    let metadata = &events[2]["object"]["metadata"];
    assert_eq!(metadata["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    assert!(metadata["resourceVersion"].is_string());
    change(&client).await;
    check(&read(&mut lines, 5).await, &ALL);
    let query = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0\
                 &timeoutSeconds=1";
    let mut lines = watch(&client, query).await;
    check(&read(&mut lines, 9).await, &[]);
    for (query, code) in [
        ("sendInitialEvents=true", 422),
        ("resourceVersion=5&resourceVersionMatch=Exact", 422),
        ("resourceVersion=x", 400),
        ("labelSelector=a%20in", 400),
        ("unheardOf=1", 400),
    ] {
        let path = format!("{MAPS}?watch=1&{query}");
        assert_eq!(client.send(Method::GET, &path, &[], "").await.unwrap().code, code, "{query}");
    }
}

#[tokio::test]
async fn a_quiet_watch_gets_a_bookmark_before_its_end() {
    let (_served, client, version) = start().await;
    let query = format!("resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=3");
    let mut lines = watch(&client, &query).await;
    check(&read(&mut lines, 9).await, &["BOOKMARK - - 0"]);
}

#[tokio::test]
async fn other_forms_of_events() {
    let (_served, client, version) = start().await;
    change(&client).await;
    let path = format!("{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=1");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut lines = client.watch(&path, accept).await.unwrap();
    let events = read(&mut lines, 9).await;
    assert_eq!(events.len(), 5);
    assert!(events[0]["object"]["columnDefinitions"].is_array());
    assert!(events[1]["object"]["columnDefinitions"].is_null());
    assert_eq!(events[4]["object"]["rows"][0]["cells"][1], 1);
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let mut lines = client.watch(&path, accept).await.unwrap();
    let events = read(&mut lines, 9).await;
    assert_eq!(events[4]["object"]["kind"], "PartialObjectMetadata");
    let path = format!(
        "/api/v1/watch/namespaces/wat/configmaps?resourceVersion={version}&timeoutSeconds=1"
    );
    let mut lines = client.watch(&path, "application/json").await.unwrap();
    check(&read(&mut lines, 9).await, &ALL);
}

#[tokio::test]
async fn a_finalizer_delays_the_end_and_its_removal_is_no_change() {
    let (_served, client, _) = start().await;
    let mut map = mk_config_map("fin", json!({}));
    map["metadata"]["finalizers"] = json!(["example.test/f"]);
    create(&client, MAPS, map).await;
    let mut lines = watch(&client, "fieldSelector=metadata.name%3Dfin").await;
    let fin = format!("{MAPS}/fin");
    send(&client, Method::DELETE, &fin, &Value::Null).await;
    send(&client, Method::PATCH, &fin, &json!({ "metadata": { "finalizers": null } })).await;
    check(&read(&mut lines, 3).await, &["ADDED fin - 0", "MODIFIED fin - 0", "DELETED fin - 0"]);
}

#[tokio::test]
async fn versions_outside_of_the_window_are_gone() {
    let served = testing::start_with(|options| options.watch_window = 4).await.unwrap();
    let client = served.admin_client().unwrap();
    create(&client, "/api/v1/namespaces", json!({ "metadata": { "name": "wat" } })).await;
    let token = {
        for index in 0..3 {
            create(&client, MAPS, mk_config_map(&format!("c{index}"), json!({}))).await;
        }
        let page = get(&client, &format!("{MAPS}?limit=2")).await.unwrap();
        page["metadata"]["continue"].as_str().unwrap().to_owned()
    };
    for index in 3..9 {
        create(&client, MAPS, mk_config_map(&format!("c{index}"), json!({}))).await;
    }
    let mut lines = watch(&client, "resourceVersion=5&timeoutSeconds=1").await;
    let events = read(&mut lines, 9).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["type"], "ERROR");
    assert_eq!(events[0]["object"]["code"], 410);
    assert_eq!(events[0]["object"]["reason"], "Expired");

    let list = |query: String| {
        let client = client.clone();
        async move { client.send(Method::GET, &format!("{MAPS}?{query}"), &[], "").await.unwrap() }
    };
    let exact = list("resourceVersion=5&resourceVersionMatch=Exact".to_owned()).await;
    assert_eq!((exact.code, exact.json()["reason"].as_str()), (410, Some("Expired")));
    let newer = list("resourceVersion=5&resourceVersionMatch=NotOlderThan".to_owned()).await;
    assert_eq!(newer.code, 200);

    let expired = list(format!("limit=2&continue={token}")).await;
    assert_eq!(expired.code, 410);
    let fresh = expired.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let page = list(format!("limit=2&continue={fresh}")).await.json();
    let names: Vec<_> =
        page["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["c2", "c3"]);
}

#[tokio::test]
async fn a_stopping_server_ends_its_watches() {
    let (served, client, _) = start().await;
    let mut lines = watch(&client, "resourceVersion=0").await;
    read(&mut lines, 2).await;
    let ended = tokio::spawn(async move { read(&mut lines, 1).await });
    drop(served);
    assert!(ended.await.unwrap().is_empty());
}

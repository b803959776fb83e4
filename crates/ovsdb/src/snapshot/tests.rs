use proptest::prelude::*;
use serde_json::json;

use super::*;

const BRIDGE: &str = "00000000-0000-0000-0000-00000000000b";
const PORT: &str = "00000000-0000-0000-0000-0000000000aa";
const INTERFACE: &str = "00000000-0000-0000-0000-0000000000ff";

fn mk_initial() -> Json {
    json!({
        "Bridge": {BRIDGE: {"initial": {
            "name": "br-int", "datapath_type": "netdev", "fail_mode": "secure",
            "ports": ["uuid", PORT], "external_ids": ["map", [["a", "1"]]],
            "flow_tables": ["map", [[3, ["uuid", INTERFACE]]]],
        }}},
        "Port": {PORT: {"initial": {"name": "p1", "interfaces": ["uuid", INTERFACE], "tag": 5}}},
        "Interface": {INTERFACE: {"initial": {"name": "p1", "ofport": 7}}},
        "Mirror": {BRIDGE: {"initial": {"anything": "goes"}}},
    })
}

fn mk_snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.apply(TableUpdates::from_json(&mk_initial()).unwrap()).unwrap();
    snapshot
}

#[test]
fn rows_are_typed_and_linked() {
    let snapshot = mk_snapshot();
    let view = snapshot.port_view("p1").unwrap();
    assert_eq!(view.bridge, "br-int");
    assert_eq!(view.port.tag, Some(5));
    assert_eq!(view.interface.valid_ofport(), Some(7));
    assert_eq!(snapshot.ports_of("br-int").count(), 1);
    assert_eq!(snapshot.ports_of("br-x").count(), 0);
    assert!(snapshot.port_view("p2").is_none());
}

#[test]
fn modifications_are_differences() {
    let mut snapshot = mk_snapshot();
    let other = "00000000-0000-0000-0000-0000000000ab";
    let update = json!({
        "Bridge": {BRIDGE: {"modify": {
            "ports": ["set", [["uuid", other]]],
            "external_ids": ["map", [["a", "2"], ["b", "3"]]],
            "fail_mode": ["set", []],
        }}},
        "Interface": {INTERFACE: {"modify": {"ofport": -1, "error": "no such device"}}},
        "Port": {other: {"insert": {"name": "p2"}}, PORT: {"delete": null}},
    });
    snapshot.apply(TableUpdates::from_json(&update).unwrap()).unwrap();
    let (_, bridge) = snapshot.bridge("br-int").unwrap();
    assert_eq!(bridge.ports.len(), 2);
    assert_eq!(bridge.external_ids["a"], "2");
    assert_eq!(bridge.external_ids["b"], "3");
    assert_eq!(bridge.fail_mode, None);
    assert_eq!(bridge.datapath_type, "netdev");
    let (_, interface) = snapshot.interface("p1").unwrap();
    assert_eq!(interface.valid_ofport(), None);
    assert_eq!(interface.error.as_deref(), Some("no such device"));
    assert!(snapshot.port("p1").is_none());
    assert!(snapshot.port("p2").is_some());
}

#[test]
fn an_update_of_an_unknown_row_is_an_error() {
    let mut snapshot = Snapshot::default();
    let update = json!({"Port": {PORT: {"modify": {"name": "x"}}}});
    let error = snapshot.apply(TableUpdates::from_json(&update).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), format!("update of unknown row {PORT} of Port"));
}

#[test]
fn a_misfit_names_table_and_column() {
    let update = json!({"Port": {PORT: {"insert": {"tag": "five"}}}});
    let error = Snapshot::default().apply(TableUpdates::from_json(&update).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), format!("Port.tag of {PORT}"));
}

#[test]
fn notifications_of_other_monitors_are_left_alone() {
    let read = |method: &str, params: Json| {
        TableUpdates::from_notification(method, &params, "mine").map(|u| u.is_some())
    };
    assert_eq!(read("update2", json!(["mine", {}])), Ok(true));
    assert_eq!(read("update3", json!(["mine", "txn", {}])), Ok(true));
    assert_eq!(read("update2", json!(["other", {}])), Ok(false));
    assert!(read("update2", json!(["mine"])).is_err());
    assert!(read("update2", json!(7)).is_err());
}

proptest! {
    /// Whatever byte of an update is changed: it is applied or refused, it never panics.
    #[test]
    fn a_damaged_update_is_applied_or_refused(at in 0usize..600, byte in any::<u8>()) {
        let mut text = mk_initial().to_string().into_bytes();
        let at = at % text.len();
        text[at] = byte;
        if let Ok(json) = serde_json::from_slice::<Json>(&text)
            && let Ok(updates) = TableUpdates::from_json(&json)
        {
            // Either outcome is right; only a panic would not be.
            let _ = mk_snapshot().apply(updates);
        }
    }
}

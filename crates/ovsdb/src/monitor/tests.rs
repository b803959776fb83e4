use serde_json::json;

use super::*;

const ROW: &str = "00000000-0000-0000-0000-0000000000aa";
const OTHER: &str = "00000000-0000-0000-0000-0000000000ab";
const FIRST: &str = "11111111-0000-0000-0000-000000000001";
const SECOND: &str = "11111111-0000-0000-0000-000000000002";

fn names(monitor: &Monitor) -> Vec<String> {
    monitor.rows().ports.values().map(|port| port.name.clone()).collect()
}

#[test]
fn what_was_missed_is_applied_and_what_is_not_known_is_replaced() {
    let mut monitor = Monitor::new("m");
    let (method, params) = monitor.request();
    assert_eq!((method, &params[3]), ("monitor_cond_since", &json!(Uuid::nil().to_string())));
    let rows = json!({"Port": {ROW: {"initial": {"name": "a"}}}});
    assert_eq!(monitor.reply(Ok(json!([false, FIRST, rows]))), Ok(Established::Anew));
    let update = json!(["m", SECOND, {"Port": {OTHER: {"insert": {"name": "b"}}}}]);
    assert_eq!(monitor.notification("update3", &update), Ok(true));
    assert_eq!(names(&monitor), ["a", "b"]);

    // A new connection: the server knows the transaction.
    assert_eq!(monitor.request().1[3], json!(SECOND));
    let missed = json!({"Port": {ROW: {"modify": {"name": "c"}}, OTHER: {"delete": null}}});
    assert_eq!(monitor.reply(Ok(json!([true, FIRST, missed]))), Ok(Established::Resumed));
    assert_eq!(names(&monitor), ["c"]);

    // Another one: it does not.
    assert_eq!(monitor.request().1[3], json!(FIRST));
    let rows = json!({"Port": {OTHER: {"initial": {"name": "d"}}}});
    assert_eq!(monitor.reply(Ok(json!([false, SECOND, rows]))), Ok(Established::Anew));
    assert_eq!(names(&monitor), ["d"]);
}

#[test]
fn older_servers_are_asked_in_older_ways() {
    for error in [json!("unknown method"), json!({"error": "unknown method", "details": "x"})] {
        let mut monitor =
            Monitor::new("m").filter(Table::Port, RowFilter::Any(vec![Condition::equal("tag", 5)]));
        let (_, params) = monitor.request();
        assert_eq!(params[2]["Port"][0]["where"], json!([["tag", "==", 5]]));
        assert_eq!(monitor.reply(Err(error.clone())), Ok(Established::AskAgain));
        assert_eq!(monitor.request().0, "monitor_cond");
        assert_eq!(monitor.reply(Err(error.clone())), Ok(Established::AskAgain));
        let (method, params) = monitor.request();
        assert_eq!((method, params[2]["Port"][0].get("where")), ("monitor", None));
        let rows = json!({"Port": {ROW: {"new": {"name": "a"}}, OTHER: {"new": {"name": "b"}}}});
        assert_eq!(monitor.reply(Ok(rows)), Ok(Established::Anew));
        let update = json!(["m", {"Port": {
            ROW: {"old": {"name": "a"}, "new": {"name": "c"}}, OTHER: {"old": {"name": "b"}},
        }}]);
        assert_eq!(monitor.notification("update", &update), Ok(true));
        assert_eq!(names(&monitor), ["c"]);
        assert_eq!(monitor.change(Table::Port, RowFilter::None), None);
        assert_eq!(monitor.reply(Err(error.clone())), Err(MonitorError::Refused(error)));
    }
}

#[test]
fn a_change_of_filters_that_was_not_answered_begins_anew() {
    let mut monitor = Monitor::new("m");
    let _ = monitor.request();
    monitor.reply(Ok(json!([false, FIRST, {}]))).unwrap();
    let (method, params) = monitor.change(Table::Port, RowFilter::None).unwrap();
    assert_eq!(method, "monitor_cond_change");
    assert_eq!(params, json!(["m", "m", {"Port": [{"where": [false]}]}]));
    assert_eq!(monitor.request().1[3], json!(Uuid::nil().to_string()));
    monitor.reply(Ok(json!([false, FIRST, {}]))).unwrap();
    let (_, params) = monitor.change(Table::Port, RowFilter::All).unwrap();
    assert_eq!(params[2], json!({"Port": [{"where": [true]}]}));
    monitor.changed(Ok(json!({}))).unwrap();
    assert_eq!(monitor.request().1[3], json!(FIRST));
}

#[test]
fn after_nonsense_all_rows_are_asked_for() {
    let mut monitor = Monitor::new("m");
    for reply in [json!({}), json!([false, FIRST]), json!([1, FIRST, {}]), json!([true, 7, {}])] {
        assert!(monitor.reply(Ok(reply.clone())).is_err(), "{reply}");
    }
    monitor.reply(Ok(json!([false, FIRST, {}]))).unwrap();
    let unknown = json!(["m", SECOND, {"Port": {ROW: {"modify": {"name": "x"}}}}]);
    assert!(monitor.notification("update3", &unknown).is_err());
    assert_eq!(monitor.last_transaction(), None);
    assert_eq!(monitor.notification("update3", &json!(["other", FIRST, {}])), Ok(false));
    assert_eq!(monitor.notification("locked", &json!(["x"])), Ok(false));
}

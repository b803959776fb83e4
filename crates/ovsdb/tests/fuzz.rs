//! Damaged messages: nothing panics, and values that are understood are written and understood
//! again as the same. `FUZZ_EXECS` makes the run longer.
#![allow(missing_docs, clippy::unwrap_used)]

use ovsdb::{
    Incoming, LockEvent, Monitor, Snapshot, Splitter, TableUpdates, Value, lock_reply,
    parse_results, response,
};
use serde_json::Value as Json;
use testkit::fuzz::{Campaign, Outcome};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus");

/// Every value that a message may hold, however deep.
fn check_values(json: &Json) {
    if let Ok(value) = Value::from_json(json) {
        // A real number that is whole, or of more digits than a number keeps, has another text.
        let again = value.to_json();
        let same = Value::from_json(&again).unwrap();
        assert_eq!(same.to_json(), again);
    }
    match json {
        Json::Array(items) => items.iter().for_each(check_values),
        Json::Object(object) => object.values().for_each(check_values),
        _ => {}
    }
}

fn take_in(incoming: Incoming, monitors: &mut [Monitor; 2]) -> bool {
    match incoming {
        Incoming::Response { id, result } => {
            assert_eq!(
                Incoming::from_json(response(&id.0.into(), result.clone())),
                Ok(Incoming::Response { id, result: result.clone() })
            );
            let mut read = false;
            for monitor in monitors {
                read |= monitor.reply(result.clone()).is_ok();
            }
            let Ok(result) = result else { return read };
            check_values(&result);
            read |= parse_results(3, &result).is_ok() | lock_reply(&result).is_ok();
            if let Ok(updates) = TableUpdates::from_json(&result) {
                let mut rows = Snapshot::default();
                let _ = rows.apply(updates);
            }
            read
        }
        Incoming::Notification { method, params } => {
            check_values(&params);
            let locked = LockEvent::from_notification(&method, &params);
            let updated = monitors.iter_mut().map(|m| m.notification(&method, &params).is_ok());
            // Each has to take it in: no short cut.
            updated.fold(locked.is_ok(), |all, one| all & one)
        }
        Incoming::Request { params, .. } => {
            check_values(&params);
            true
        }
    }
}

#[test]
fn fuzz_decode() {
    // One that asks for everything anew, one that has asked in the oldest way, over all inputs.
    let mut old = Monitor::new("m");
    for _ in 0..2 {
        old.reply(Err("unknown method".into())).unwrap();
    }
    let mut monitors = [Monitor::new("m"), old];
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ",",
        ":",
        "null",
        "true",
        "-1",
        "1e999",
        "0.1",
        "18446744073709551615",
        "[\"set\",[",
        "[\"map\",[[",
        "[\"uuid\",\"",
        "\"insert\":{",
        "\"modify\":{",
        "\"old\":",
        "\"error\":",
        "\\ud800",
        "é",
        "{\"a\":[[[[[[[[",
    ];
    let campaign = Campaign::from_dir("ovsdb decode", CORPUS).dictionary(pieces);
    let report = campaign.run(|bytes| {
        let mut splitter = Splitter::with_max(1 << 20);
        let mut read = false;
        for piece in bytes.chunks(97) {
            splitter.push(piece);
            while let Ok(Some(json)) = splitter.next_message() {
                if let Ok(incoming) = Incoming::from_json(json) {
                    read |= take_in(incoming, &mut monitors);
                }
            }
        }
        if read { Outcome::Accepted } else { Outcome::Refused }
    });
    assert!(report.accepted > report.executions / 20, "{report:?}");
}

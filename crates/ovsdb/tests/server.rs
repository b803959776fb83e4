//! What a real ovsdb-server makes of our requests.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/client.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]
mod client;

use std::collections::BTreeMap;
use std::time::Duration;

use client::Client;
use ovsdb::{
    Atom, Condition, ErrorKind, Established, Function, LockEvent, LockMethod, Monitor,
    MonitorMethod, Mutation, Mutator, OpResult, Operation, Row, RowFilter, Table, TransactError,
    Until, Uuid, Value, lock_reply,
};
use serde_json::{Value as Json, json};
use testkit::ovsdb::{OvsdbServer, Storage};

/// A bridge with its own port and these ports beside it; the row everything hangs on is made.
fn mk_bridge(client: &mut Client, ports: &[&str]) {
    let mut operations = Vec::new();
    let mut names = Vec::new();
    for (n, name) in std::iter::once(&"br0").chain(ports).enumerate() {
        operations.extend(mk_port(n, name));
        names.push(Atom::NamedUuid(format!("port{n}")));
    }
    let bridge = Row::new().with("name", "br0").with("ports", Value::Set(names));
    operations.push(Operation::insert(Table::Bridge, "bridge", bridge));
    operations.push(Operation::insert(
        Table::OpenVSwitch,
        "root",
        Row::new().with("bridges", Atom::NamedUuid("bridge".to_owned())),
    ));
    client.transact(&operations).unwrap();
}

fn mk_port(n: usize, name: &str) -> [Operation; 2] {
    let interface = Atom::NamedUuid(format!("interface{n}"));
    [
        Operation::insert(
            Table::Interface,
            &format!("interface{n}"),
            Row::new().with("name", name),
        ),
        Operation::insert(
            Table::Port,
            &format!("port{n}"),
            Row::new().with("name", name).with("interfaces", interface),
        ),
    ]
}

fn add_port(client: &mut Client, name: &str) {
    let mut operations = mk_port(0, name).to_vec();
    operations.push(Operation::Mutate {
        table: Table::Bridge,
        conditions: vec![Condition::equal("name", "br0")],
        mutations: vec![Mutation::insert("ports", Atom::NamedUuid("port0".to_owned()))],
    });
    client.transact(&operations).unwrap();
}

fn update(table: Table, name: &str, row: Row) -> Operation {
    Operation::Update { table, conditions: vec![Condition::equal("name", name)], row }
}

fn port_names(monitor: &Monitor) -> Vec<String> {
    let mut names: Vec<_> = monitor.rows().ports.values().map(|port| port.name.clone()).collect();
    names.sort();
    names
}

#[track_caller]
fn refused(result: Result<Vec<OpResult>, TransactError>) -> (Option<usize>, ErrorKind) {
    match result {
        Err(TransactError::Refused(failure)) => (failure.operation, failure.kind()),
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn every_mutator_changes_sets_and_maps_as_it_says() {
    let server = OvsdbServer::start(Storage::Standalone);
    let mut client = Client::connect(&server);
    mk_bridge(&mut client, &["p1"]);
    let mut monitor = Monitor::new("m");
    client.establish(&mut monitor);
    let set = |numbers: &[i64]| Value::from(numbers.to_vec());
    let map = |pairs: &[(&str, &str)]| {
        Value::Map(pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    };
    let keys = |keys: &[&str]| Value::from(keys.to_vec());
    let mut seen = Vec::new();
    for (column, mutator, value, want) in [
        ("trunks", Mutator::Insert, set(&[10, 20, 31]), json!([10, 20, 31])),
        ("trunks", Mutator::Insert, Value::from(20), json!([10, 20, 31])),
        ("trunks", Mutator::Delete, set(&[31, 99]), json!([10, 20])),
        ("trunks", Mutator::Add, Value::from(5), json!([15, 25])),
        ("trunks", Mutator::Subtract, Value::from(1), json!([14, 24])),
        ("trunks", Mutator::Multiply, Value::from(3), json!([42, 72])),
        ("trunks", Mutator::Divide, Value::from(2), json!([21, 36])),
        ("trunks", Mutator::Remainder, Value::from(20), json!([1, 16])),
        (
            "external_ids",
            Mutator::Insert,
            map(&[("a", "1"), ("b", "2"), ("c", "3")]),
            json!({"a": "1", "b": "2", "c": "3"}),
        ),
        // Keys that are there keep their value.
        (
            "external_ids",
            Mutator::Insert,
            map(&[("a", "9"), ("d", "4")]),
            json!({"a": "1", "b": "2", "c": "3", "d": "4"}),
        ),
        // Keys whatever their value, and pairs only with it.
        ("external_ids", Mutator::Delete, keys(&["a", "x"]), json!({"b": "2", "c": "3", "d": "4"})),
        (
            "external_ids",
            Mutator::Delete,
            map(&[("b", "2"), ("c", "9")]),
            json!({"c": "3", "d": "4"}),
        ),
    ] {
        let mutation = Mutation::new(column, mutator, value);
        let operation = Operation::Mutate {
            table: Table::Port,
            conditions: vec![Condition::equal("name", "p1")],
            mutations: vec![mutation.clone()],
        };
        assert_eq!(client.transact(&[operation]).unwrap(), [OpResult::Count(1)]);
        seen.push(mutator.as_str());
        // What the monitor makes of the differences is what the database has.
        let as_json = |monitor: &Monitor| -> Json {
            let (_, port) = monitor.rows().port("p1").unwrap();
            match column {
                "trunks" => port.trunks.iter().copied().collect(),
                _ => json!(port.external_ids),
            }
        };
        client.follow(&mut monitor, |monitor| as_json(monitor) == want);
        let select = Operation::Select {
            table: Table::Port,
            conditions: vec![Condition::equal("name", "p1")],
            columns: vec![column.to_owned()],
        };
        let [OpResult::Rows(rows)] = &client.transact(&[select]).unwrap()[..] else { panic!() };
        let have = Value::from_json(&rows[0][column]).unwrap();
        let n = have.pairs().map_or_else(|| have.atoms().unwrap().len(), <[_]>::len);
        assert_eq!(n, want.as_array().map_or_else(|| want.as_object().unwrap().len(), Vec::len));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), Mutator::ALL.len(), "{seen:?}");
    // A scalar, and the errors of arithmetic.
    let count = |mutator, by: i64| Operation::Mutate {
        table: Table::OpenVSwitch,
        conditions: vec![],
        mutations: vec![Mutation::new("next_cfg", mutator, by)],
    };
    client.transact(&[count(Mutator::Add, 7)]).unwrap();
    assert_eq!(
        refused(client.transact(&[count(Mutator::Divide, 0)])),
        (Some(0), ErrorKind::Domain)
    );
    let too_much = [count(Mutator::Multiply, i64::MAX), count(Mutator::Multiply, 2)];
    assert_eq!(refused(client.transact(&too_much)).1, ErrorKind::Range);
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn conditions_select_and_waits_hold_back() {
    let server = OvsdbServer::start(Storage::Standalone);
    let mut client = Client::connect(&server);
    mk_bridge(&mut client, &["p1", "p2"]);
    let tag = |tag: i64| Row::new().with("tag", tag).with("trunks", vec![tag, 100]);
    client
        .transact(&[update(Table::Port, "p1", tag(1)), update(Table::Port, "p2", tag(2))])
        .unwrap();
    for (function, value, want) in [
        (Function::Equal, Value::from(1), 1),
        (Function::NotEqual, Value::from(1), 2),
        (Function::Includes, Value::from(vec![2]), 1),
        (Function::Excludes, Value::from(vec![2]), 2),
        (Function::Less, Value::from(2), 1),
        (Function::LessOrEqual, Value::from(2), 2),
        (Function::Greater, Value::from(1), 1),
        (Function::GreaterOrEqual, Value::from(1), 2),
    ] {
        let select = Operation::Select {
            table: Table::Port,
            conditions: vec![Condition::new("tag", function, value)],
            columns: vec!["name".to_owned()],
        };
        let [OpResult::Rows(rows)] = &client.transact(&[select]).unwrap()[..] else { panic!() };
        assert_eq!(rows.len(), want, "{function:?}");
    }

    let wait = |tag: i64, until, timeout| Operation::Wait {
        table: Table::Port,
        conditions: vec![Condition::equal("name", "p1")],
        columns: vec!["tag".to_owned()],
        timeout,
        until,
        rows: vec![Row::new().with("tag", tag)],
    };
    let now = Some(Duration::ZERO);
    client.transact(&[wait(1, Until::Equal, now), wait(2, Until::NotEqual, now)]).unwrap();
    let result = client.transact(&[Operation::Comment("x".into()), wait(2, Until::Equal, now)]);
    assert_eq!(refused(result), (Some(1), ErrorKind::TimedOut));
    let short = Some(Duration::from_millis(20));
    assert_eq!(refused(client.transact(&[wait(2, Until::Equal, short)])).1, ErrorKind::TimedOut);
    // One without an end is answered when somebody else makes it true.
    let mut params = vec![json!(ovsdb::DATABASE)];
    params.push(wait(2, Until::Equal, None).to_json());
    let waiting = client.send("transact", &Json::from(params));
    let mut other = Client::connect(&server);
    other.transact(&[update(Table::Port, "p1", tag(2))]).unwrap();
    assert_eq!(client.answer(waiting), Ok(json!([{}])));
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn refusals_have_their_kinds() {
    let server = OvsdbServer::start(Storage::Standalone);
    let mut client = Client::connect(&server);
    mk_bridge(&mut client, &["p1"]);
    let bad_column = update(Table::Port, "p1", Row::new().with("gadget", 1));
    let twice = [
        mk_port(0, "p1").to_vec(),
        vec![Operation::Mutate {
            table: Table::Bridge,
            conditions: vec![],
            mutations: vec![Mutation::insert("ports", Atom::NamedUuid("port0".to_owned()))],
        }],
    ]
    .concat();
    let dangling = update(Table::Port, "p1", Row::new().with("interfaces", Uuid::from_u128(7)));
    let same_name = [mk_port(0, "p8"), mk_port(0, "p9")].concat();
    for (operations, want) in [
        (vec![Operation::Abort], ErrorKind::Aborted),
        (vec![bad_column], ErrorKind::Syntax),
        (twice, ErrorKind::ConstraintViolation),
        (vec![dangling], ErrorKind::ReferentialIntegrity),
        (same_name, ErrorKind::DuplicateUuidName),
        (vec![Operation::Assert { lock: "l".into() }], ErrorKind::NotOwner),
    ] {
        assert_eq!(refused(client.transact(&operations)).1, want, "{operations:?}");
    }
    client.transact(&[Operation::Comment("kept".into()), Operation::CommitDurable]).unwrap();
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn a_lock_is_waited_for_stolen_and_given_back() {
    let server = OvsdbServer::start(Storage::Standalone);
    let (mut one, mut two) = (Client::connect(&server), Client::connect(&server));
    mk_bridge(&mut one, &[]);
    let ask = |client: &mut Client, what: LockMethod| {
        let (method, params) = what.request("antrea");
        client.call(method, &params).unwrap()
    };
    let assert = || Operation::Assert { lock: "antrea".into() };
    let event = |client: &mut Client| {
        let (method, params) = client.told();
        LockEvent::from_notification(&method, &params).unwrap().unwrap()
    };
    assert_eq!(lock_reply(&ask(&mut one, LockMethod::Lock)), Ok(true));
    assert_eq!(lock_reply(&ask(&mut two, LockMethod::Lock)), Ok(false));
    one.transact(&[assert()]).unwrap();
    assert_eq!(refused(two.transact(&[assert()])).1, ErrorKind::NotOwner);
    // Given back, it goes to the one who waits.
    ask(&mut one, LockMethod::Unlock);
    assert_eq!(event(&mut two), LockEvent::Locked("antrea".into()));
    two.transact(&[assert()]).unwrap();
    // Stolen.
    assert_eq!(lock_reply(&ask(&mut one, LockMethod::Steal)), Ok(true));
    assert_eq!(event(&mut two), LockEvent::Stolen("antrea".into()));
    assert_eq!(refused(two.transact(&[assert()])).1, ErrorKind::NotOwner);
    // With its connection it goes to the one it was stolen from, who still waits.
    drop(one);
    assert_eq!(event(&mut two), LockEvent::Locked("antrea".into()));
    two.transact(&[assert()]).unwrap();
}

/// What a monitor that lost its connection has afterwards: the same rows, by what was missed only
/// or from the beginning.
fn reconnect(storage: Storage, restarted: bool, want: Established) {
    let mut server = OvsdbServer::start(storage);
    let mut client = Client::connect(&server);
    mk_bridge(&mut client, &["p1", "p2"]);
    // A server remembers transactions only as far as they are smaller than what is there.
    let notes: Vec<(String, String)> =
        (0..500).map(|n| (format!("note-{n}"), n.to_string())).collect();
    let notes = notes.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let note = Operation::set_pairs(Table::OpenVSwitch, vec![], "external_ids", notes);
    client.transact(&[note]).unwrap();
    let mut monitor = Monitor::new("m");
    let mut watcher = Client::connect(&server);
    assert_eq!(watcher.establish(&mut monitor), Established::Anew);
    assert_eq!(monitor.method(), MonitorMethod::Since);
    assert_eq!(port_names(&monitor), ["br0", "p1", "p2"]);
    add_port(&mut client, "p3");
    watcher.follow(&mut monitor, |monitor| monitor.rows().port("p3").is_some());
    drop(watcher);

    // Missed: one comes, one goes, one changes.
    add_port(&mut client, "p4");
    let (gone, _) = monitor.rows().port("p1").unwrap();
    let remove = Operation::Mutate {
        table: Table::Bridge,
        conditions: vec![],
        mutations: vec![Mutation::delete("ports", gone)],
    };
    client.transact(&[remove, update(Table::Port, "p2", Row::new().with("tag", 5))]).unwrap();
    if restarted {
        server.restart();
    }
    let mut watcher = Client::connect(&server);
    assert_eq!(watcher.establish(&mut monitor), want);
    assert_eq!(port_names(&monitor), ["br0", "p2", "p3", "p4"]);
    assert_eq!(monitor.rows().port("p2").unwrap().1.tag, Some(5));
    assert_eq!(monitor.rows().interfaces.len(), 4);

    // And it goes on from there.
    let mut client = Client::connect(&server);
    add_port(&mut client, "p5");
    watcher.follow(&mut monitor, |monitor| monitor.rows().port("p5").is_some());
    let mut fresh = Monitor::new("m");
    Client::connect(&server).establish(&mut fresh);
    assert_eq!(monitor.rows(), fresh.rows());
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn a_server_that_knows_the_last_transaction_tells_what_was_missed() {
    reconnect(Storage::Clustered, false, Established::Resumed);
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn a_restarted_server_of_a_cluster_still_tells_what_was_missed() {
    reconnect(Storage::Clustered, true, Established::Resumed);
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn a_server_that_does_not_know_the_transaction_tells_everything() {
    reconnect(Storage::Standalone, false, Established::Anew);
    reconnect(Storage::Standalone, true, Established::Anew);
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn filters_choose_rows_and_can_be_changed() {
    let server = OvsdbServer::start(Storage::Standalone);
    let mut client = Client::connect(&server);
    mk_bridge(&mut client, &["p1", "p2", "p3"]);
    let named = |names: &[&str]| {
        RowFilter::Any(names.iter().map(|name| Condition::equal("name", *name)).collect())
    };
    let mut monitor = Monitor::new("m").filter(Table::Port, named(&["p1"]));
    let mut watcher = Client::connect(&server);
    watcher.establish(&mut monitor);
    assert_eq!(port_names(&monitor), ["p1"]);
    assert_eq!(monitor.rows().interfaces.len(), 4);
    for (filter, want) in [
        (named(&["p1", "p3"]), vec!["p1", "p3"]),
        (named(&["p2"]), vec!["p2"]),
        (RowFilter::None, vec![]),
        (RowFilter::All, vec!["br0", "p1", "p2", "p3"]),
        (named(&[]), vec![]),
    ] {
        let (method, params) = monitor.change(Table::Port, filter).unwrap();
        let result = watcher.call(method, &params);
        monitor.changed(result).unwrap();
        watcher.follow(&mut monitor, |monitor| port_names(monitor) == want);
    }
    // The filter holds on the next connection too.
    let mut watcher = Client::connect(&server);
    watcher.establish(&mut monitor);
    assert_eq!(port_names(&monitor), Vec::<String>::new());
    let (method, params) = monitor.cancel();
    assert_eq!(watcher.call(method, &params), Ok(json!({})));
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn an_unknown_method_and_the_oldest_monitor_are_as_expected() {
    let server = OvsdbServer::start(Storage::Standalone);
    let mut client = Client::connect(&server);
    mk_bridge(&mut client, &["p1"]);
    // This server knows every method; what it says of one that it does not leads on to the next.
    let error = client.call("monitor_cond_of_the_future", &json!([])).unwrap_err();
    let mut monitor = Monitor::new("old");
    for _ in 0..2 {
        assert_eq!(monitor.reply(Err(error.clone())), Ok(Established::AskAgain), "{error}");
    }
    assert_eq!(monitor.method(), MonitorMethod::Plain);
    client.establish(&mut monitor);
    let mut best = Monitor::new("best");
    Client::connect(&server).establish(&mut best);
    assert_eq!(monitor.rows(), best.rows());
    let mut other = Client::connect(&server);
    other.transact(&[update(Table::Port, "p1", Row::new().with("tag", 5))]).unwrap();
    client.follow(&mut monitor, |monitor| monitor.rows().port("p1").unwrap().1.tag == Some(5));
    add_port(&mut other, "p2");
    client.follow(&mut monitor, |monitor| monitor.rows().ports_of("br0").count() == 3);
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn results_of_some_megabytes_come_in_many_reads() {
    let server = OvsdbServer::start(Storage::Standalone);
    let mut client = Client::connect(&server);
    let names: Vec<String> = (0..3000).map(|n| format!("port-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    mk_bridge(&mut client, &names);
    let notes: BTreeMap<String, String> =
        (0..5).map(|n| (format!("note-{n}"), "\"{[é\\".repeat(20))).collect();
    let note = Operation::Update {
        table: Table::Port,
        conditions: vec![],
        row: Row::new().with("external_ids", &notes),
    };
    assert_eq!(client.transact(&[note]).unwrap(), [OpResult::Count(3001)]);
    let before = client.n_reads;
    let mut monitor = Monitor::new("m");
    client.establish(&mut monitor);
    assert!(client.n_reads - before > 200, "{} reads", client.n_reads - before);
    assert_eq!(monitor.rows().ports.len(), 3001);
    assert!(monitor.rows().ports.values().all(|port| port.external_ids == notes));
    let select =
        Operation::Select { table: Table::Port, conditions: vec![], columns: vec!["name".into()] };
    let [OpResult::Rows(rows)] = &client.transact(&[select]).unwrap()[..] else { panic!() };
    assert_eq!(rows.len(), 3001);
}

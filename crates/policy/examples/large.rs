//! Computes the policies of a large cluster and prints how long that takes and what it needs.
//!
//! `cargo run --release -p policy --example large -- small|one [NAMESPACES]`: 25,000 namespaces with 4
//! Pods and 3 policies each, or one namespace where each of 10,000 policies selects all of 10,000
//! Pods.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::time::{Duration, Instant};

use k8s_openapi::api::networking::v1::NetworkPolicy;
use policy::index::{NamespaceInput, PodInput};
use policy::store::{AsOf, Reader, Store};
use policy::translate::{Event, ObjectKind};
use serde_json::json;

const NODES: usize = 1000;

fn mk_pod(namespace: &str, n: usize, label: usize) -> Event {
    let address = u32::try_from(n).unwrap() + 0x0a00_0000;
    Event::Pod(PodInput {
        namespace: namespace.to_owned(),
        name: format!("web-{label}-6d4cf56db6-{n:06x}"),
        labels: vec![
            ("app".to_owned(), format!("{namespace}-{label}")),
            ("pod-template-hash".to_owned(), "6d4cf56db6".to_owned()),
        ],
        service_account: "default".to_owned(),
        // Spread without order, and the same in each run.
        node: format!("node-{:04}", n.wrapping_mul(7919) % NODES),
        ips: vec![std::net::Ipv4Addr::from(address).into()],
        ..PodInput::default()
    })
}

fn mk_policy(namespace: &str, n: usize, spec: serde_json::Value) -> Event {
    let policy: NetworkPolicy = serde_json::from_value(json!({
        "metadata": {"namespace": namespace, "name": format!("policy-{n}"), "generation": 1,
            "uid": format!("{:08x}-0000-4000-8000-{n:012x}", n ^ 0x5a5a_5a5a)},
        "spec": spec,
    }))
    .unwrap();
    Event::K8sPolicy(Box::new(policy))
}

/// Events of one kind, made one by one so that they take no room.
type Events = Box<dyn Iterator<Item = Event>>;

struct Load {
    namespaces: Events,
    pods: Events,
    policies: Events,
}

fn mk_namespace(name: String) -> Event {
    Event::Namespace(NamespaceInput { name, ..NamespaceInput::default() })
}

fn small(n_namespaces: usize) -> Load {
    let name = |n: usize| format!("namespace-{n:05}");
    let pod = move |n: usize| mk_pod(&name(n / 4), n, n / 2 % 2);
    let policy = move |n: usize| {
        let (name, types) = (name(n / 3), json!(["Ingress", "Egress"]));
        let spec = if n.is_multiple_of(3) {
            json!({"podSelector": {}, "policyTypes": types})
        } else {
            let app = json!({"matchLabels": {"app": format!("{name}-{}", n % 3 - 1)}});
            let peers = json!([{"podSelector": app}]);
            json!({"podSelector": app, "policyTypes": types,
                "ingress": [{"from": peers}], "egress": [{"to": peers}]})
        };
        mk_policy(&name, n, spec)
    };
    Load {
        namespaces: Box::new((0..n_namespaces).map(move |n| mk_namespace(name(n)))),
        pods: Box::new((0..4 * n_namespaces).map(pod)),
        policies: Box::new((0..3 * n_namespaces).map(policy)),
    }
}

fn one() -> Load {
    let peers = json!([{"podSelector": {}}]);
    let spec = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers}], "egress": [{"to": peers}]});
    Load {
        namespaces: Box::new(std::iter::once(mk_namespace("namespace".to_owned()))),
        pods: Box::new((0..10_000).map(|n| mk_pod("namespace", n, 0))),
        policies: Box::new((0..10_000).map(move |n| mk_policy("namespace", n, spec.clone()))),
    }
}

/// Resident memory now and at most so far, in MB.
fn resident() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// Applies events; making them does not count.
fn apply(what: &str, store: &mut Store, events: Events) -> Duration {
    let mut took = Duration::ZERO;
    for event in events {
        let start = Instant::now();
        store.apply(event);
        took += start.elapsed();
    }
    tell(what, took);
    took
}

fn tell(what: &str, took: Duration) {
    let (now, peak) = resident();
    println!("{what:<44} {:>9.3} ms   RSS {now} MB, peak {peak} MB", took.as_secs_f64() * 1e3);
}

fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    let took = start.elapsed();
    tell(what, took);
    (result, took)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let load = match args.next().as_deref() {
        Some("one") => one(),
        Some("small") | None => small(args.next().map_or(25_000, |n| n.parse().unwrap())),
        Some(other) => panic!("{other:?} is neither small nor one"),
    };
    println!("{:<44} {:>12}   RSS {} MB", "start", "", resident().0);
    let mut store = Store::new(4096);
    let a = apply("namespaces", &mut store, load.namespaces);
    let b = apply("index Pods", &mut store, load.pods);
    let c = apply("translate policies", &mut store, load.policies);
    let (committed, d) = timed("spans and members", || store.commit_first(AsOf::default()));
    let computed = a + b + c + d;
    println!("{} objects", committed.n_changes);

    let kinds = [ObjectKind::NetworkPolicy, ObjectKind::AppliedToGroup, ObjectKind::AddressGroup];
    let (bytes, _) = timed("first lists of all Nodes, encoded", || {
        let mut bytes = 0;
        for n in 0..NODES {
            let node = store.engine().index().find_node(&format!("node-{n:04}"));
            let reader = node.map_or(Reader::Stranger, Reader::Node);
            for kind in kinds {
                let items = store.list(kind, reader);
                bytes += items.iter().map(|item| item.protobuf(1).len()).sum::<usize>();
            }
        }
        bytes
    });
    println!("{} MB in lists", bytes >> 20);

    let mut worst = Duration::ZERO;
    let mut total = Duration::ZERO;
    let n_steps = 1000;
    for n in 0..n_steps {
        let start = Instant::now();
        let pod = match n % 2 {
            0 => mk_pod("namespace-00000", 0, 1),
            _ => mk_pod("namespace-00000", 0, 0),
        };
        let Event::Pod(mut pod) = pod else { unreachable!("a Pod was made") };
        pod.name = "web-0-6d4cf56db6-000000".to_owned();
        store.apply(Event::Pod(pod));
        store.commit(AsOf::default());
        let took = start.elapsed();
        worst = worst.max(took);
        total += took;
    }
    let change = json!({ "meanMs": millis(total / n_steps), "maxMs": millis(worst) });
    let all = json!({ "indexAndTranslateMs": millis(computed), "peakMb": resident().1 });
    let figures = json!([
        { "name": "policies of the whole cluster", "values": all },
        { "name": format!("a Pod's labels change, {n_steps} times"), "values": change },
    ]);
    println!("{figures}");
}

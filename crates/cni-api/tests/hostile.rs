//! Bytes from outside: whatever comes, decoders answer and do not panic, and what they accept
//! survives being written and read again.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test")]

use cni_api::{Attachment, CniResult, NetConf, PodArgs, SpecVersion};
use proptest::prelude::*;
use serde_json::{Map, Value};

fn json() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "cniVersion",
        "name",
        "type",
        "mtu",
        "ipam",
        "dns",
        "prevResult",
        "ips",
        "ip4",
        "ip6",
        "address",
        "interface",
        "interfaces",
        "gateway",
        "routes",
        "dst",
        "gw",
        "sandbox",
        "mac",
        "cni.dev/valid-attachments",
        "containerID",
        "ifname",
        "dataDir",
        "nameservers",
    ]);
    let text = prop::sample::select(vec![
        "",
        "0.1.0",
        "0.3.0",
        "1.1.0",
        "9.9.9",
        "host-local",
        "10.0.0.5/24",
        "10.0.0.1",
        "::/0",
        "fd00::1",
        "fd00::5/64",
        "\u{0}",
        "eth0",
        "c1",
        "/",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Eighths read back exactly; serde_json may be one bit off with arbitrary doubles.
        any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        text.prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|pairs| {
                let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), value));
                Value::Object(pairs.collect::<Map<_, _>>())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = NetConf::parse(&bytes);
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let _ = PodArgs::parse(text);
            let _ = Attachment::new(text, text);
            let _ = text.parse::<SpecVersion>();
        }
    }

    #[test]
    fn configurations_never_panic_and_survive(value in json()) {
        let bytes = serde_json::to_vec(&value).unwrap();
        if let Ok((conf, _)) = NetConf::parse(&bytes) {
            let _ = conf.previous();
            let again = serde_json::to_vec(&conf).unwrap();
            prop_assert_eq!(NetConf::parse(&again).unwrap().0, conf);
        }
    }

    #[test]
    fn results_never_panic_and_survive_in_the_newest_form(value in json()) {
        for version in SpecVersion::ALL {
            if let Ok(result) = CniResult::from_value(&value, version) {
                for form in SpecVersion::ALL {
                    let _ = result.to_value(form);
                }
                let newest = result.to_value(SpecVersion::LATEST);
                let again = CniResult::from_value(&newest, SpecVersion::LATEST).unwrap();
                prop_assert_eq!(again, result);
            }
        }
    }
}

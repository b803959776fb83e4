//! Byte vectors written by hand from the published numbers, properties, and hostile input.

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta, Status, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::controlplane::*;

/// `field 2 wire 2, length, ...` as a person would write it.
fn bytes(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn mk_named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}

#[track_caller]
fn check_vector<T: WireObject + std::fmt::Debug>(object: &T, raw: &[u8]) {
    let encoded = encode(object);
    assert_eq!(Envelope::parse(&encoded).unwrap().raw, raw);
    assert_eq!(decode::<T>(&encoded).as_ref(), Ok(object));
}

#[test]
fn the_envelope_byte_by_byte() {
    let object = NetworkPolicyStatus { metadata: mk_named("p"), nodes: Vec::new() };
    let want = bytes(&[
        b"k8s\0",
        &[0x0a, 0x36], // typeMeta, 54 bytes
        &[0x0a, 0x1d],
        b"controlplane.antrea.io/v1beta2",
        &[0x12, 0x13],
        b"NetworkPolicyStatus",
        &[0x12, 0x05, 0x0a, 0x03, 0x0a, 0x01, b'p'], // raw: metadata { name }
        &[0x1a, 0x00, 0x22, 0x00],
    ]);
    // The two lengths that people count wrongly, counted by the machine.
    let mut want = want;
    want[5] = 2 + 30 + 2 + 19;
    want[7] = 30;
    assert_eq!(encode(&object), want);
}

#[test]
fn a_group_member_byte_by_byte() {
    let member = GroupMember {
        pod: Some(ObjectName { name: "a".into(), namespace: "n".into() }),
        ips: vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()],
        ports: vec![NamedPort { port: 300, name: "w".into(), protocol: Protocol::Udp }],
        ..GroupMember::default()
    };
    let raw = bytes(&[
        &[0x12, 44],
        &[0x0a, 6, 0x0a, 1, b'a', 0x12, 1, b'n'],
        &[0x1a, 4, 10, 0, 0, 7],
        &[0x1a, 16, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
        &[0x22, 11, 0x08, 0xac, 0x02, 0x12, 1, b'w', 0x1a, 3, b'U', b'D', b'P'],
    ]);
    let mut raw = raw;
    raw[1] = u8::try_from(raw.len() - 2).unwrap();
    let group = AddressGroup { metadata: ObjectMeta::default(), group_members: vec![member] };
    check_vector(&group, &raw);
}

#[test]
fn a_rule_byte_by_byte() {
    let mut rule = NetworkPolicyRule::new(Direction::Out);
    rule.priority = -1;
    rule.action = Some(RuleAction::Drop);
    rule.services = vec![
        Service {
            protocol: Some(Protocol::Tcp),
            port: Some(IntOrString::Int(80)),
            ..Service::default()
        },
        Service {
            port: Some(IntOrString::String("web".into())),
            icmp_code: Some(0),
            ..Service::default()
        },
    ];
    rule.to.ip_blocks = vec![IpBlock { cidr: "10.0.0.0/8".parse().unwrap(), except: Vec::new() }];
    let policy = NetworkPolicy {
        rules: vec![rule],
        priority: Some(5.5),
        tier_priority: Some(0),
        ..NetworkPolicy::default()
    };
    let peer = [0x12, 10, 0x0a, 8, 0x0a, 4, 10, 0, 0, 0, 0x10, 8];
    let first = [0x22, 9, 0x0a, 3, b'T', b'C', b'P', 0x12, 2, 0x10, 80];
    let second = [0x22, 11, 0x12, 7, 0x08, 1, 0x1a, 3, b'w', b'e', b'b', 0x28, 0];
    let rule = bytes(&[
        &[0x0a, 3],
        b"Out",
        &[0x1a, 12],
        &peer,
        &first,
        &second,
        &[0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0x32, 4],
        b"Drop",
    ]);
    let raw = bytes(&[
        &[0x12, u8::try_from(rule.len()).unwrap()],
        &rule,
        &[0x21, 0, 0, 0, 0, 0, 0, 0x16, 0x40], // 5.5
        &[0x28, 0],
    ]);
    check_vector(&policy, &raw);
}

#[test]
fn metadata_byte_by_byte() {
    let metadata = ObjectMeta {
        name: Some("a".into()),
        resource_version: Some("7".into()),
        generation: Some(2),
        creation_timestamp: Some(Time(Timestamp::new(1, 2).unwrap())),
        labels: Some([("k".to_owned(), "v".to_owned())].into()),
        ..ObjectMeta::default()
    };
    let raw = [
        0x0a, 24, 0x0a, 1, b'a', 0x32, 1, b'7', 0x38, 2, 0x42, 4, 0x08, 1, 0x10, 2, 0x5a, 6, 0x0a,
        1, b'k', 0x12, 1, b'v',
    ];
    let mut raw = raw.to_vec();
    raw[1] = u8::try_from(raw.len() - 2).unwrap();
    check_vector(&AppliedToGroup { metadata, group_members: Vec::new() }, &raw);
}

#[test]
fn a_watch_event_carries_an_enveloped_object() {
    let object = encode(&AddressGroup { metadata: mk_named("g"), group_members: Vec::new() });
    let event = WatchEvent { type_: "BOOKMARK", object: &object };
    let encoded = event.encode();
    assert_eq!(&encoded[..11], b"\x0a\x08BOOKMARK\x12");
    assert_eq!(WatchEvent::decode(&encoded), Ok(event));
}

#[test]
fn a_status_survives() {
    let status = Status {
        status: Some("Failure".into()),
        message: Some("too old".into()),
        reason: Some("Expired".into()),
        code: Some(410),
        ..Status::default()
    };
    assert_eq!(decode_status(&encode_status(&status)), Ok(status));
}

#[test]
fn what_is_wrong_is_named() {
    let group = AddressGroup { metadata: mk_named("g"), group_members: Vec::new() };
    let error = decode::<NetworkPolicy>(&encode(&group)).unwrap_err();
    assert!(error.to_string().contains("expected controlplane.antrea.io/v1beta2 NetworkPolicy"));
    assert_eq!(decode::<AddressGroup>(b"{}"), Err(DecodeError::Magic));
    // A network without its address must not become all of them, nor a rule without its direction
    // one of the other direction.
    for (raw, message) in [
        (&[0x12_u8, 4, 0x1a, 2, 0x12, 0][..], "IpBlock"),
        (&[0x12, 3, 0x4a, 1, b'n'], "NetworkPolicyRule"),
    ] {
        let encoded = enveloped(API_VERSION, "NetworkPolicy", |out| out.raw(raw));
        let error = decode::<NetworkPolicy>(&encoded).unwrap_err();
        assert_eq!(error, DecodeError::Missing { message, field: 1 });
    }
}

fn mk_text() -> impl Strategy<Value = String> {
    "[a-z0-9./-]{0,12}"
}

fn mk_meta() -> impl Strategy<Value = ObjectMeta> {
    (
        option::of(mk_text()),
        option::of(mk_text()),
        option::of(any::<i64>()),
        // JSON has whole seconds; a vector above has the rest.
        option::of(-1_000_000_000_i64..4_000_000_000),
        option::of(btree_map(mk_text(), mk_text(), 1..4)),
        option::of(vec(mk_text(), 1..3)),
    )
        .prop_map(|(name, namespace, generation, time, labels, finalizers)| ObjectMeta {
            name,
            namespace,
            generation,
            creation_timestamp: time.map(|s| Time(Timestamp::from_second(s).unwrap())),
            labels,
            finalizers,
            ..ObjectMeta::default()
        })
}

fn mk_member() -> impl Strategy<Value = GroupMember> {
    let name = || {
        option::of(
            (mk_text(), mk_text()).prop_map(|(name, namespace)| ObjectName { name, namespace }),
        )
    };
    let port = (any::<i32>(), mk_text(), mk_text()).prop_map(|(port, name, word)| NamedPort {
        port,
        name,
        protocol: word.as_str().into(),
    });
    (
        name(),
        name(),
        vec(any::<std::net::IpAddr>(), 0..3),
        vec(port, 0..3),
        option::of(mk_text()),
        name(),
    )
        .prop_map(|(pod, external_entity, ips, ports, node, service)| GroupMember {
            pod,
            external_entity,
            ips: ips.into_iter().map(|ip| ip.to_canonical()).collect(),
            ports,
            node: node.map(|name| NodeReference { name }),
            service,
        })
}

fn mk_net() -> impl Strategy<Value = IpNet> {
    (any::<std::net::IpAddr>(), 0_u8..=128).prop_map(|(addr, length)| {
        let addr = addr.to_canonical();
        IpNet::new(addr, length.min(if addr.is_ipv4() { 32 } else { 128 })).unwrap()
    })
}

fn mk_service() -> impl Strategy<Value = Service> {
    let port = prop_oneof![
        any::<i32>().prop_map(IntOrString::Int),
        mk_text().prop_map(IntOrString::String)
    ];
    let number = || option::of(any::<i32>());
    (
        option::of(mk_text()),
        option::of(port),
        number(),
        number(),
        number(),
        number(),
        mk_text(),
        number(),
    )
        .prop_map(
            |(word, port, end_port, icmp_type, icmp_code, igmp_type, group_address, src_port)| {
                Service {
                    protocol: word.map(|word| word.as_str().into()),
                    port,
                    end_port,
                    icmp_type,
                    icmp_code,
                    igmp_type,
                    group_address,
                    src_port,
                    src_end_port: end_port,
                }
            },
        )
}

fn mk_rule() -> impl Strategy<Value = NetworkPolicyRule> {
    let block = (mk_net(), vec(mk_net(), 0..3)).prop_map(|(cidr, except)| IpBlock { cidr, except });
    let peer =
        (vec(mk_text(), 0..3), vec(block, 0..3), vec(mk_text(), 0..2), vec(any::<u32>(), 0..3))
            .prop_map(|(address_groups, ip_blocks, fqdns, label_identities)| NetworkPolicyPeer {
                address_groups,
                ip_blocks,
                fqdns,
                to_services: Vec::new(),
                label_identities,
            });
    let direction = prop_oneof![Just(Direction::In), Just(Direction::Out)];
    (
        direction,
        peer,
        vec(mk_service(), 0..3),
        any::<i32>(),
        option::of(mk_text()),
        any::<bool>(),
        mk_text(),
    )
        .prop_map(|(direction, peer, services, priority, action, enable_logging, name)| {
            let mut rule = NetworkPolicyRule::new(direction);
            match direction {
                Direction::In => rule.from = peer,
                Direction::Out => rule.to = peer,
            }
            rule.services = services;
            rule.priority = priority;
            rule.action = action.map(|word| word.as_str().into());
            rule.enable_logging = enable_logging;
            rule.log_label.clone_from(&name);
            rule.name = name;
            rule
        })
}

fn mk_policy() -> impl Strategy<Value = NetworkPolicy> {
    (
        mk_meta(),
        vec(mk_rule(), 0..4),
        vec(mk_text(), 0..3),
        option::of((1_i32..640_000).prop_map(|n| f64::from(n) / 64.0)),
        option::of(any::<i32>()),
        mk_text(),
    )
        .prop_map(|(metadata, rules, applied_to_groups, priority, tier_priority, word)| {
            NetworkPolicy {
                metadata,
                rules,
                applied_to_groups,
                priority,
                tier_priority,
                source_ref: Some(NetworkPolicyReference {
                    type_: word.as_str().into(),
                    namespace: word.clone(),
                    name: word.clone(),
                    uid: word,
                }),
            }
        })
}

fn through_json<T: Object>(object: &T) -> T {
    let text = serde_json::to_string(&Typed::new(object)).unwrap();
    serde_json::from_str(&text).unwrap()
}

proptest! {
    #[test]
    fn policies_survive(policy in mk_policy()) {
        let encoded = encode(&policy);
        prop_assert_eq!(decode::<NetworkPolicy>(&encoded).unwrap(), policy.clone());
        prop_assert_eq!(through_json(&policy), policy);
    }

    #[test]
    fn groups_and_lists_survive(items in vec((mk_meta(), vec(mk_member(), 0..5)), 0..4)) {
        let items: Vec<_> = items
            .into_iter()
            .map(|(metadata, group_members)| AddressGroup { metadata, group_members })
            .collect();
        for group in &items {
            prop_assert_eq!(&decode::<AddressGroup>(&encode(group)).unwrap(), group);
            prop_assert_eq!(&through_json(group), group);
        }
        let metadata = ListMeta { resource_version: Some("9".into()), ..ListMeta::default() };
        let list = List { metadata, items };
        prop_assert_eq!(decode_list::<AddressGroup>(&encode_list(&list)).unwrap(), list);
    }

    #[test]
    fn a_cut_object_is_an_error_or_a_smaller_object(policy in mk_policy(), at in 0_usize..4000) {
        let encoded = encode(&policy);
        let cut = &encoded[..at.min(encoded.len().saturating_sub(1))];
        let _ = decode::<NetworkPolicy>(cut);
        let _ = WatchEvent::decode(cut);
    }

    #[test]
    fn any_bytes_at_all(noise in vec(any::<u8>(), 0..200)) {
        let encoded = enveloped(API_VERSION, "NetworkPolicy", |out| out.raw(&noise));
        let _ = decode::<NetworkPolicy>(&encoded);
        let encoded = enveloped(API_VERSION, "AddressGroup", |out| out.raw(&noise));
        let _ = decode::<AddressGroup>(&encoded);
        let _ = Envelope::parse(&noise);
        let _ = WatchEvent::decode(&noise);
    }
}

//! What is written is read back, and no bytes make the decoder panic.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/vectors.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test takes the vectors it needs")]
mod vectors;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use openflow::action::{LearnFlags, NatRange};
use openflow::field::Format;
use openflow::message::{
    FlowCounters, FlowDump, FlowMod, FlowModCommand, FlowStats, GroupMod, MultipartBody,
    MultipartReply, PacketIn, PacketInReason,
};
use openflow::{
    Action, ConjId, Cookie, Ct, CtZone, EncodeError, Field, Flow, FlowFlags, Group, GroupId, Learn,
    LearnSource, LearnSpec, Match, Message, Nat, NatDirection, OfPort, Resubmit, Subfield, TableId,
    Xid,
};
use proptest::prelude::*;
use proptest::sample::select;

/// Protocols to start a match with.
const BASES: &[&str] = &[
    "",
    "ip",
    "ipv6",
    "arp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "tcp6",
    "udp6",
    "sctp6",
    "icmp6",
    "icmp6,icmp_type=135",
    "icmp6,icmp_type=136",
    "ct_state=+new+trk,tcp",
    "ct_state=+trk-inv,udp6",
    "dl_vlan=5",
    "dl_type=0x88cc",
];

/// What `ovs-ofctl` can write: the bits of a fragment that have no name are left out.
fn arb_match() -> impl Strategy<Value = Match> {
    let fields: Vec<Field> = Field::all().filter(|f| *f != Field::IpFrag).collect();
    let field = (select(fields), any::<u128>(), any::<u128>(), any::<bool>());
    (select(BASES), prop::collection::vec(field, 0..8)).prop_map(|(base, fields)| {
        let mut matching: Match = base.parse().unwrap();
        for (field, value, mask, exact) in fields {
            // Ports beyond those a switch has are numbers of OpenFlow 1.0 in text.
            let port = matches!(field, Field::InPort | Field::ActsetOutput);
            let value = if port { value & 0x7fff } else { value };
            let mask = if exact || !field.info().maskable { u128::MAX } else { mask };
            let mut wider = matching.clone();
            wider.set_masked(field, value, mask);
            let flow = FlowMod::add(Flow::new(TableId(0), 0, wider.clone()));
            if wider.check().is_ok() && Message::FlowMod(flow).encode(Xid(0)).is_ok() {
                matching = wider;
            }
        }
        matching
    })
}

fn arb_subfield() -> impl Strategy<Value = Subfield> {
    // Text has no form for some bits of a port or of a fragment's kind.
    let is_name = |field: &Field| {
        matches!(field.info().format, Format::Port | Format::Frag | Format::PacketType)
    };
    let fields: Vec<Field> = Field::all().filter(|field| !is_name(field)).collect();
    (select(fields), any::<u16>(), any::<u16>()).prop_map(|(field, a, b)| {
        let bits = Subfield::whole(field).n_bits;
        let (a, b) = (a % bits, b % bits);
        Subfield::new(field, a.min(b), a.max(b))
    })
}

/// A subfield of a register with so many bits.
fn register(n_bits: u16, at: u16) -> Subfield {
    let first = at % (129 - n_bits);
    Subfield::new(Field::XxReg(1), first, first + n_bits - 1)
}

fn arb_learn() -> impl Strategy<Value = Action> {
    let spec =
        (arb_subfield(), any::<u128>(), any::<u16>(), 0u8..5).prop_map(|(dst, value, at, kind)| {
            let value = LearnSource::Value(dst.extract(value));
            let field = LearnSource::Field(register(dst.n_bits, at));
            match kind {
                // The text of a VLAN's number is a match of twelve bits, which `learn` has no form for.
                0 if dst.field != Field::VlanVid => LearnSpec::Match { dst, src: value },
                0 | 1 => LearnSpec::Match { dst, src: field },
                2 => LearnSpec::Load { dst, src: value },
                3 => LearnSpec::Load { dst, src: field },
                _ => LearnSpec::Output(register(32, at)),
            }
        });
    let numbers = (any::<[u16; 5]>(), any::<u8>(), any::<u64>(), any::<u32>(), 0u16..4);
    (prop::collection::vec(spec, 0..6), numbers).prop_map(
        |(specs, ([idle, hard, fin_idle, fin_hard, priority], table, cookie, limit, flags))| {
            Action::learn(Learn {
                idle_timeout: idle,
                hard_timeout: hard,
                fin_idle_timeout: fin_idle,
                fin_hard_timeout: fin_hard,
                priority,
                cookie: Cookie(cookie),
                flags: LearnFlags::from_bits_truncate(flags),
                table: TableId(table),
                limit: limit % 3,
                result_dst: (limit % 2 == 0).then_some(Subfield::reg_bit(3, 5)),
                specs,
            })
        },
    )
}

fn arb_nat() -> impl Strategy<Value = Nat> {
    let address = prop_oneof![
        any::<[u32; 2]>().prop_map(|[a, b]| [Ipv4Addr::from(a), Ipv4Addr::from(b)].map(IpAddr::V4)),
        any::<[u128; 2]>()
            .prop_map(|[a, b]| [Ipv6Addr::from(a), Ipv6Addr::from(b)].map(IpAddr::V6)),
    ];
    let flags = any::<[bool; 6]>();
    (address, any::<[u16; 2]>(), flags).prop_map(
        |([a, b], [p, q], [src, range, ports, x, y, z])| {
            let direction = Some(if src { NatDirection::Src } else { NatDirection::Dst });
            Nat {
                direction,
                addresses: Some(NatRange { first: a, last: range.then_some(b) }),
                ports: ports.then_some(NatRange { first: p, last: range.then_some(q) }),
                persistent: x,
                hash: y,
                random: z,
            }
        },
    )
}

fn arb_ct() -> impl Strategy<Value = Action> {
    let nat = prop_oneof![Just(None), Just(Some(Nat::default())), arb_nat().prop_map(Some)];
    let table = prop::option::of((0u8..255).prop_map(TableId));
    (nat, any::<u16>(), table, any::<[bool; 4]>(), any::<u32>()).prop_map(
        |(nat, zone, table, [reg, commit, force, exec], mark)| {
            let commit = commit || nat.is_some_and(|nat| nat.direction.is_some());
            let mut ct = Ct::zone(zone);
            if reg {
                ct.zone = CtZone::Field(register(16, zone));
            }
            ct.commit = commit;
            ct.force = force && commit;
            ct.table = table;
            ct.nat = nat;
            if exec && commit {
                ct.exec.push(Action::set_field_masked(Field::CtMark, mark.into(), 0xff0f));
                ct.exec.push(Action::Move {
                    src: Subfield::reg(0, 0, 3),
                    dst: Subfield::new(Field::CtLabel, 32, 35),
                });
            }
            Action::ct(ct)
        },
    )
}

fn arb_action() -> impl Strategy<Value = Action> {
    let samples: Vec<Action> = vectors::flows()
        .iter()
        .flat_map(|text| text.parse::<Flow>().unwrap().normalize().actions)
        .filter(|action| {
            !matches!(
                action,
                Action::ClearActions
                    | Action::WriteActions(_)
                    | Action::WriteMetadata { .. }
                    | Action::GotoTable(_)
                    | Action::Conjunction { .. }
            )
        })
        .collect();
    let load = (arb_subfield(), any::<u128>()).prop_map(|(dst, value)| Action::load(dst, value));
    let moved = (arb_subfield(), any::<u16>())
        .prop_map(|(src, at)| Action::Move { src, dst: register(src.n_bits, at) });
    let port = any::<u32>().prop_map(OfPort).prop_filter("a port of its own", |port| {
        *port != OfPort::CONTROLLER && !(0xff00..0x10000).contains(&port.0) && port.0 < 0xffff_ff00
    });
    let resubmit = (prop::option::of(0u32..0xff00), prop::option::of(0u8..255), any::<bool>())
        .prop_map(|(port, table, ct)| {
            Action::Resubmit(Resubmit { in_port: port.map(OfPort), table: table.map(TableId), ct })
        });
    prop_oneof![
        select(samples),
        load,
        moved,
        port.prop_map(Action::Output),
        resubmit,
        arb_ct(),
        arb_learn(),
        any::<u32>().prop_map(|id| Action::Group(GroupId(id))),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|b| Action::Note(b).normalize()),
        prop::collection::vec(any::<u16>(), 1..9).prop_map(Action::DecTtlIds),
    ]
}

fn arb_actions() -> impl Strategy<Value = Vec<Action>> {
    let conjunctions = prop::collection::vec((any::<u32>(), 1u8..=3), 1..9).prop_map(|all| {
        all.into_iter().map(|(id, k)| Action::conjunction(ConjId(id), k, 3)).collect()
    });
    let plain = (prop::collection::vec(arb_action(), 0..6), prop::option::of(any::<u8>()))
        .prop_map(|(mut actions, table)| {
            actions.extend(table.map(|table| Action::GotoTable(TableId(table))));
            actions
        });
    prop_oneof![1 => conjunctions, 5 => plain]
}

fn arb_flow() -> impl Strategy<Value = Flow> {
    let numbers = (any::<[u16; 4]>(), any::<u8>(), any::<u64>(), 0u16..32);
    (arb_match(), arb_actions(), numbers).prop_map(
        |(matching, actions, ([priority, idle, hard, importance], table, cookie, flags))| Flow {
            table: TableId(table),
            priority,
            cookie: Cookie(cookie),
            matching,
            actions,
            idle_timeout: idle,
            hard_timeout: hard,
            flags: FlowFlags::from_bits_truncate(flags),
            importance,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flows_survive_the_wire(flow in arb_flow(), packets in any::<u64>()) {
        let message = Message::FlowMod(FlowMod::new(FlowModCommand::Modify, flow.clone()));
        let bytes = message.encode(Xid(5)).unwrap();
        prop_assert_eq!(Message::decode(&bytes).unwrap(), (Xid(5), message));

        let counters = FlowCounters {
            duration: Duration::from_millis(packets >> 40),
            packets: Some(packets),
            ..FlowCounters::default()
        };
        let flows = vec![FlowStats { flow: flow.clone(), counters }, FlowStats { flow, counters }];
        let body = MultipartBody::Flows(FlowDump { flows, undecoded: Vec::new() });
        let message = Message::MultipartReply(MultipartReply { more: true, body });
        let bytes = message.encode(Xid(5)).unwrap();
        prop_assert_eq!(Message::decode(&bytes).unwrap(), (Xid(5), message));
    }

    #[test]
    fn flows_survive_their_text(flow in arb_flow()) {
        let text = flow.to_string();
        match text.parse::<Flow>() {
            Ok(again) => prop_assert_eq!(again, flow, "{}", text),
            Err(error) => prop_assert!(false, "{}: {}", text, error),
        }
    }

    #[test]
    fn groups_survive_wire_and_text(
        buckets in prop::collection::vec((prop::collection::vec(arb_action(), 0..4), 1u16..9), 0..5)
    ) {
        let group = buckets.into_iter().fold(Group::select(GroupId(9)), |group, (actions, weight)| {
            group.bucket(weight, actions)
        });
        let message = Message::GroupMod(GroupMod::Add(group.clone()));
        let bytes = message.encode(Xid(5)).unwrap();
        prop_assert_eq!(Message::decode(&bytes).unwrap(), (Xid(5), message));
        let text = group.to_string();
        prop_assert_eq!(text.parse::<Group>().unwrap(), group, "{}", text);
    }

    #[test]
    fn random_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::decode(&bytes);
        for kind in 0..40 {
            let mut message = vec![6, kind, 0, 0, 0, 0, 0, 1];
            message.extend(&bytes);
            let len = u16::try_from(message.len()).unwrap();
            message[2..4].copy_from_slice(&len.to_be_bytes());
            let _ = Message::decode(&message);
        }
    }

    #[test]
    fn random_text_is_refused_or_read(text in "\\PC{0,60}") {
        let _ = text.parse::<Flow>();
        let _ = text.parse::<Group>();
        let _ = openflow::text::parse_actions(&text);
    }
}

fn messages() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut add = |message: Message| all.push(message.encode(Xid(1)).unwrap().to_vec());
    for text in vectors::flows() {
        let flow: Flow = text.parse().unwrap();
        add(Message::FlowMod(FlowMod::add(flow.clone())));
        let counters = FlowCounters::default();
        let flows = vec![FlowStats { flow: flow.clone(), counters }, FlowStats { flow, counters }];
        let body = MultipartBody::Flows(FlowDump { flows, undecoded: Vec::new() });
        add(Message::MultipartReply(MultipartReply { more: false, body }));
    }
    for text in vectors::GROUPS {
        let group: Group = text.parse().unwrap();
        add(Message::GroupMod(GroupMod::Add(group.clone())));
        let body = MultipartBody::Groups(vec![group].into());
        add(Message::MultipartReply(MultipartReply { more: false, body }));
    }
    add(Message::PacketIn(PacketIn {
        data: vec![1; 60].into(),
        full_len: 100,
        table: TableId(7),
        cookie: Cookie(8),
        reason: PacketInReason::Action,
        metadata: Match::new().in_port(OfPort(9)),
        userdata: vec![1, 2].into(),
        continuation: Some(vec![5; 20].into()),
    }));
    all
}

#[test]
fn every_beginning_of_a_message_is_refused() {
    for bytes in messages() {
        for len in 0..bytes.len() {
            assert!(Message::decode(&bytes[..len]).is_err());
            // With a header that fits, too, nothing panics.
            let mut short = bytes[..len].to_vec();
            if len >= 4 {
                short[2..4].copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
                let _ = Message::decode(&short);
            }
        }
    }
}

fn conjunctions(n: u32) -> Flow {
    let matching = Match::new().ip().nw_src(Ipv4Addr::new(10, 0, 0, 1));
    Flow::new(TableId(1), 5, matching)
        .actions((0..n).map(|id| Action::conjunction(ConjId(id), 1, 2)))
}

#[test]
fn lengths_never_wrap() {
    let encode = |n| {
        let mut out = vec![1, 2, 3];
        let add = FlowModCommand::Add;
        let done = openflow::message::encode_flow(&mut out, Xid(1), add, &conjunctions(n));
        (done, out)
    };
    let most = Flow::max_conjunctions(&conjunctions(0).matching);
    assert_eq!(most, 4087);
    for n in [1, 4000, 4087] {
        let (done, out) = encode(n);
        assert_eq!(done, Ok(()), "{n}");
        let (_, message) = Message::decode(&out[3..]).unwrap();
        assert_eq!(message, Message::FlowMod(FlowMod::add(conjunctions(n))));
    }
    for n in [4088, 4091, 4095, 4096, 4097, 4200, 8200, 70_000] {
        let (done, out) = encode(n);
        assert!(matches!(done, Err(EncodeError::TooLong { .. })), "{n}: {done:?}");
        assert_eq!(out, [1, 2, 3], "nothing is left of a message that is too long");
    }
    let note = Flow::new(TableId(1), 5, Match::new()).action(Action::Note(vec![0; 70_000]));
    assert!(Message::FlowMod(FlowMod::add(note)).encode(Xid(1)).is_err());
}

#[test]
fn deep_nesting_is_refused() {
    let nested = (0..100).fold(Action::Exit, |inner, _| Action::Clone(vec![inner]));
    let flow = Flow::new(TableId(1), 5, Match::new()).action(nested);
    let text = flow.to_string();
    assert!(text.parse::<Flow>().is_err());
    let bytes = Message::FlowMod(FlowMod::add(flow)).encode(Xid(1)).unwrap();
    assert!(Message::decode(&bytes).is_err());
}

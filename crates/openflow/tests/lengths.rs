//! No length of 16 bits ever wraps: what is too long is refused, what is not is read back.
#![allow(missing_docs, clippy::unwrap_used)]

use bytes::Bytes;
use openflow::message::{
    BundleAdd, BundleFlags, BundleId, ErrorCode, ErrorMessage, FlowCounters, FlowDump, FlowMod,
    FlowStats, GroupMod, GroupStats, MeterMod, MeterStats, MultipartBody, MultipartReply,
    PacketCount, PacketIn, PacketInReason, PacketOut, PortDesc, TableFeatures, TableProperty,
    TableStats,
};
use openflow::{
    Action, Band, BandKind, Bucket, BucketId, ConjId, Controller, Cookie, Ct, EncodeError, Field,
    Flow, Group, GroupId, GroupType, Learn, LearnSource, LearnSpec, MacAddr, Match, Message, Meter,
    MeterFlags, MeterId, OfPort, SelectionMethod, Subfield, TableId, Xid,
};
use proptest::prelude::*;

fn flow(actions: Vec<Action>) -> Message {
    Message::FlowMod(FlowMod::add(Flow::new(TableId(1), 5, Match::new().ip()).actions(actions)))
}

fn reply(body: MultipartBody) -> Message {
    Message::MultipartReply(MultipartReply { more: false, body })
}

fn bytes(n: usize) -> Bytes {
    vec![7; n].into()
}

fn conjunctions(n: usize) -> Vec<Action> {
    (0..u32::try_from(n).unwrap()).map(|id| Action::conjunction(ConjId(id), 1, 2)).collect()
}

fn outputs(n: usize) -> Vec<Action> {
    vec![Action::Output(OfPort(3)); n]
}

fn buckets(n: usize, actions: usize) -> Vec<Bucket> {
    let empty = Group::select(GroupId(1)).bucket(100, outputs(actions)).buckets.remove(0);
    let ids = 0..u32::try_from(n).unwrap();
    ids.map(|id| Bucket { id: BucketId(id), ..empty.clone() }).collect()
}

fn group(n: usize, actions: usize) -> Group {
    Group { buckets: buckets(n, actions), ..Group::select(GroupId(1)) }
}

fn meter(n: usize) -> Meter {
    let band = Band { rate: 1, burst: 0, kind: BandKind::Drop };
    Meter { id: MeterId(1), flags: MeterFlags::KBPS, bands: vec![band; n] }
}

fn packet_in(data: usize, userdata: usize, continuation: usize) -> PacketIn {
    PacketIn {
        data: bytes(data),
        full_len: 1,
        table: TableId(7),
        cookie: Cookie(8),
        reason: PacketInReason::Action,
        metadata: Match::new().in_port(OfPort(9)),
        userdata: bytes(userdata),
        continuation: Some(bytes(continuation)),
    }
}

fn stats(flow: Flow) -> FlowStats {
    FlowStats { flow, counters: FlowCounters { packets: Some(1), ..FlowCounters::default() } }
}

/// Messages that grow with a number, by what grows in them.
type Growing = (&'static str, fn(usize) -> Message);

const GROWING: &[Growing] = &[
    ("actions of a flow", |n| flow(outputs(n))),
    ("conjunctions of a flow", |n| flow(conjunctions(n))),
    ("a note", |n| flow(vec![Action::Note(vec![1; n]).normalize()])),
    ("userdata", |n| {
        flow(vec![Action::controller(Controller {
            userdata: vec![1; n.max(1)],
            ..Controller::default()
        })])
    }),
    ("cloned actions", |n| flow(vec![Action::Clone(outputs(n))])),
    ("written actions", |n| flow(vec![Action::WriteActions(outputs(n))])),
    ("ct exec", |n| {
        let mark = Action::set_field(Field::CtMark, 1);
        flow(vec![Action::ct(Ct { exec: vec![mark; n], ..Ct::zone(1).commit() })])
    }),
    ("nested three times", |n| {
        flow(vec![Action::Clone(vec![Action::Clone(vec![Action::Clone(outputs(n))])])])
    }),
    ("learn specs", |n| {
        let dst = Subfield::reg(1, 0, 31);
        let spec = LearnSpec::Load { dst, src: LearnSource::Value(7) };
        flow(vec![Action::learn(Learn { specs: vec![spec; n], ..Learn::new(TableId(2), 5) })])
    }),
    ("controllers of dec_ttl", |n| flow(vec![Action::DecTtlIds(vec![5; n.max(1)])])),
    ("a flow in a bundle", |n| {
        let message = Box::new(flow(outputs(n)));
        let flags = BundleFlags::ATOMIC;
        Message::BundleAdd(BundleAdd { bundle: BundleId(1), flags, message })
    }),
    ("actions of a bucket", |n| Message::GroupMod(GroupMod::Add(group(1, n)))),
    ("buckets of a group", |n| Message::GroupMod(GroupMod::Add(group(n, 1)))),
    ("buckets without actions", |n| Message::GroupMod(GroupMod::Modify(group(n, 0)))),
    ("buckets to insert", |n| {
        Message::GroupMod(GroupMod::InsertBuckets {
            group: GroupId(1),
            group_type: GroupType::Select,
            after: BucketId::LAST,
            buckets: buckets(n, 1),
        })
    }),
    ("a group in a bundle", |n| {
        let message = Box::new(Message::GroupMod(GroupMod::Add(group(n, 1))));
        let flags = BundleFlags::ATOMIC;
        Message::BundleAdd(BundleAdd { bundle: BundleId(1), flags, message })
    }),
    ("fields of a selection method", |n| {
        let name = "hash".to_owned();
        let selection = SelectionMethod { name, param: 0, fields: vec![Field::Ipv4Src; n] };
        Message::GroupMod(GroupMod::Add(Group { selection: Some(selection), ..group(1, 1) }))
    }),
    ("bands of a meter", |n| Message::MeterMod(MeterMod::Add(meter(n)))),
    ("data of a packet-out", |n| {
        Message::PacketOut(PacketOut::new(OfPort(1), bytes(n), outputs(1)))
    }),
    ("actions of a packet-out", |n| {
        Message::PacketOut(PacketOut::new(OfPort(1), bytes(1), outputs(n)))
    }),
    ("data of a packet-in", |n| Message::PacketIn(packet_in(n, 1, 1))),
    ("userdata of a packet-in", |n| Message::PacketIn(packet_in(2, n, 1))),
    ("a continuation", |n| Message::Resume(packet_in(2, 1, n))),
    ("an echo", |n| Message::EchoRequest(bytes(n))),
    ("data of an error", |n| {
        Message::Error(ErrorMessage { code: ErrorCode::TABLE_FULL, data: bytes(n) })
    }),
    ("an unknown message", |n| Message::Other { kind: 17, body: bytes(n) }),
    ("flows of a dump", |n| {
        let flows = vec![stats(Flow::new(TableId(1), 5, Match::new().ip())); n];
        reply(MultipartBody::Flows(FlowDump { flows, undecoded: Vec::new() }))
    }),
    ("actions of a flow of a dump", |n| {
        let flows = vec![stats(Flow::new(TableId(1), 5, Match::new().ip()).actions(outputs(n)))];
        reply(MultipartBody::Flows(FlowDump { flows, undecoded: Vec::new() }))
    }),
    ("groups of a dump", |n| reply(MultipartBody::Groups(vec![group(2, 1); n].into()))),
    ("buckets of a group of a dump", |n| reply(MultipartBody::Groups(vec![group(n, 1)].into()))),
    ("bands of a meter of a dump", |n| reply(MultipartBody::Meters(vec![meter(n)].into()))),
    ("meters of a dump", |n| reply(MultipartBody::Meters(vec![meter(1); n].into()))),
    ("ports of a dump", |n| {
        let desc = PortDesc {
            port: OfPort(5),
            mac: MacAddr([0, 0, 0, 0, 0, 5]),
            name: "web".into(),
            config: openflow::message::PortConfig::empty(),
            state: openflow::message::PortState::LIVE,
            speed_kbps: Some(7),
        };
        reply(MultipartBody::Ports(vec![desc; n]))
    }),
    ("statistics of buckets", |n| {
        let duration = std::time::Duration::from_secs(1);
        let (group, total) = (GroupId(1), PacketCount::default());
        let buckets = vec![PacketCount { packets: 1, bytes: 2 }; n];
        reply(MultipartBody::GroupStats(vec![GroupStats {
            group,
            ref_count: 1,
            total,
            duration,
            buckets,
        }]))
    }),
    ("statistics of bands", |n| {
        let duration = std::time::Duration::from_secs(1);
        let (meter, total) = (MeterId(1), PacketCount::default());
        let bands = vec![PacketCount { packets: 1, bytes: 2 }; n];
        reply(MultipartBody::MeterStats(vec![MeterStats {
            meter,
            ref_count: 1,
            total,
            duration,
            bands,
        }]))
    }),
    ("statistics of tables", |n| {
        let stats = TableStats { table: TableId(1), active: 1, lookups: 2, matched: 3 };
        reply(MultipartBody::TableStats(vec![stats; n]))
    }),
    ("a property of a table", |n| {
        reply(MultipartBody::TableFeatures(vec![TableFeatures {
            table: TableId(1),
            command: 0,
            features: 0,
            name: "t".into(),
            metadata_match: 0,
            metadata_write: 0,
            capabilities: 0,
            max_entries: 0,
            properties: vec![TableProperty { kind: 8, body: bytes(n) }],
        }]))
    }),
];

/// Whether the message can be written; if so, it is read back as it was.
#[track_caller]
fn written(what: &str, n: usize, message: &Message) -> bool {
    let mut out = vec![1, 2, 3];
    match message.encode_into(Xid(7), &mut out) {
        Ok(()) => {
            let bytes = &out[3..];
            assert!(bytes.len() <= 65535, "{n} {what}: {} bytes", bytes.len());
            let len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
            assert_eq!(len, bytes.len(), "{n} {what}");
            let again = Message::decode(bytes).unwrap();
            assert!(again == (Xid(7), message.clone()), "{n} {what}: read back as another");
            true
        }
        Err(EncodeError::TooLong { len, max, .. }) => {
            assert!(len > max, "{n} {what}");
            assert_eq!(out, [1, 2, 3], "{n} {what}: nothing is left of it");
            false
        }
        Err(error) => panic!("{n} {what}: {error}"),
    }
}

#[test]
fn every_part_that_grows_has_one_border() {
    for (what, grow) in GROWING {
        // Fits, and does not.
        let (mut fits, mut too_long) = (1, 70_000);
        assert!(written(what, fits, &grow(fits)), "one {what}");
        assert!(!written(what, too_long, &grow(too_long)), "70,000 {what}");
        while too_long - fits > 1 {
            let n = fits.midpoint(too_long);
            if written(what, n, &grow(n)) { fits = n } else { too_long = n }
        }
        for n in fits.saturating_sub(3)..fits + 5 {
            assert_eq!(written(what, n, &grow(n)), n <= fits, "{n} {what}, border {fits}");
        }
        // Where a length that wraps would be small again.
        for n in [too_long * 2, 4097, 65_536, 65_537] {
            assert_eq!(written(what, n, &grow(n)), n <= fits, "{n} {what}, border {fits}");
        }
        if *what == "conjunctions of a flow" {
            assert_eq!(fits, Flow::max_conjunctions(&Match::new().ip()));
            assert_eq!(fits, 4088);
            let longer = Match::new().ip().nw_src(std::net::Ipv4Addr::LOCALHOST);
            assert_eq!(Flow::max_conjunctions(&longer), 4087);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    /// Several things that share the room of one message.
    #[test]
    fn what_is_written_near_the_border_is_read_back(
        total in 64_800usize..66_000,
        share in 0usize..=100,
        nested in 0usize..4,
    ) {
        let first = total * share / 100;
        let second = total - first;
        let mut inner = vec![Action::Note(vec![1; first]).normalize()];
        inner.extend(outputs(second / 16));
        let actions = (0..nested).fold(inner, |inner, _| vec![Action::Clone(inner)]);
        written("actions", total, &flow(actions.clone()));
        let out = PacketOut::new(OfPort(1), bytes(second), vec![Action::Note(vec![1; first]).normalize()]);
        written("packet-out", total, &Message::PacketOut(out));
        written("packet-in", total, &Message::PacketIn(packet_in(first, second / 2, second / 2)));
        let mut group = group(second / 32, 1);
        let empty = buckets(1, 0).remove(0);
        group.buckets.push(Bucket { id: BucketId(70_000), ..empty });
        group.buckets[0].actions = vec![Action::Note(vec![1; first]).normalize()];
        let fits = group.check_len().is_ok();
        let whole = written("group", total, &Message::GroupMod(GroupMod::Add(group)));
        prop_assert_eq!(fits, whole);
        let meter = Message::MeterMod(MeterMod::Add(meter(total / 16)));
        written("meter", total, &meter);
    }
}

/// A switch gets all groups in bundles.
#[test]
fn a_group_that_can_be_written_has_room_in_a_bundle() {
    for actions in 0..4 {
        for n in (1..4095).rev() {
            let add = Message::GroupMod(GroupMod::Add(group(n, actions)));
            if !written("buckets", n, &add) {
                continue;
            }
            let (bundle, flags) = (BundleId(1), BundleFlags::ATOMIC);
            let message = Message::BundleAdd(BundleAdd { bundle, flags, message: Box::new(add) });
            assert!(
                written("buckets in a bundle", n, &message),
                "{n} buckets of {actions} actions"
            );
            break;
        }
    }
}

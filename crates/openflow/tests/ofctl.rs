//! What this crate writes and reads, judged by the installed `ovs-ofctl`.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/messages.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test takes the messages it needs")]
mod messages;
#[path = "common/vectors.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test takes the vectors it needs")]
mod vectors;

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use openflow::message::{
    Aggregate, AsyncConfig, BundleAdd, BundleControl, BundleControlType, BundleFlags, BundleId,
    ControllerRole, ErrorCode, ErrorMessage, Features, FlowCounters, FlowDump, FlowFilter, FlowMod,
    FlowModCommand, FlowRemoved, FlowRemovedReason, FlowStats, GroupMod, Hello, MeterMod,
    MultipartBody, MultipartReply, MultipartRequest, PacketIn, PacketInFormat, PacketOut,
    PortConfig, PortDesc, PortReason, PortState, PortStatus, Role, SwitchConfig,
};
use openflow::{
    Action, Band, BandKind, BucketId, Cookie, Flow, Group, GroupId, GroupType, MacAddr, Match,
    Message, Meter, MeterFlags, MeterId, OfPort, TableId, Xid,
};

fn ofctl(args: &[&str]) -> String {
    let output = Command::new("ovs-ofctl").arg("-O").arg("OpenFlow15").args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ovs-ofctl {args:?}: {text}{errors}");
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut all, byte| {
        write!(all, "{byte:02x}").unwrap();
        all
    })
}

/// The bytes of a dump like `00000010  06 0e 00 88-00 ...  |....|`.
fn undump(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let Some((offset, rest)) = line.split_once("  ") else { continue };
        if offset.len() != 8 || !offset.bytes().all(|b| b.is_ascii_hexdigit()) {
            continue;
        }
        let digits = rest.split('|').next().unwrap();
        let pairs = digits.split([' ', '-']).filter(|pair| !pair.is_empty());
        bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
    }
    bytes
}

/// What `ovs-ofctl` prints for a message, without its first words.
fn printed(message: &Message) -> String {
    let bytes = message.encode(Xid(1)).unwrap();
    let text = ofctl(&["ofp-print", &hex(&bytes)]);
    let text = text.trim_end().trim_end_matches("OpenFlow message is empty").trim_end();
    assert!(!text.contains("decode error"), "{message:?}\n{text}");
    text.replace(" (OF1.5) (xid=0x1):", ":")
}

#[track_caller]
fn check(message: Message, want: &str) {
    assert_eq!(printed(&message), want, "{message:?}");
    let bytes = message.encode(Xid(7)).unwrap();
    assert_eq!(Message::decode(&bytes), Ok((Xid(7), message)));
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn flows_are_encoded_as_ovs_ofctl_encodes_them() {
    let mut differences = String::new();
    for text in vectors::flows() {
        let ours: Flow = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let ours = Message::FlowMod(FlowMod::add(ours)).encode(Xid(1)).unwrap();
        let theirs = undump(&ofctl(&["-mmmmm", "parse-flow", &text]));
        if ours != theirs {
            writeln!(differences, "{text}\n ours   {}\n theirs {}", hex(&ours), hex(&theirs))
                .unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// What `dump-flows --no-stats` would print for a flow.
fn dumped(flow: &Flow) -> String {
    let counters = FlowCounters {
        duration: Duration::from_secs(77),
        idle: Some(Duration::ZERO),
        packets: Some(0),
        bytes: Some(0),
    };
    let flows = vec![FlowStats { flow: flow.clone(), counters }];
    let body = MultipartBody::Flows(FlowDump { flows, undecoded: Vec::new() });
    let text = printed(&Message::MultipartReply(MultipartReply { more: false, body }));
    text.replace("OFPST_FLOW reply:\n ", "")
        .replace("cookie=0x0, ", "")
        .replace("duration=77s, ", "")
        .replace("n_packets=0, n_bytes=0, ", "")
        .replace("idle_age=0, ", "")
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn flows_are_printed_as_ovs_ofctl_prints_them() {
    let mut differences = String::new();
    for text in vectors::flows() {
        let flow: Flow = text.parse().unwrap();
        let flow = flow.normalize();
        let (ours, theirs) = (flow.to_string(), dumped(&flow));
        if ours != theirs {
            writeln!(differences, "{text}\n ours   {ours}\n theirs {theirs}").unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn groups_are_printed_as_ovs_ofctl_prints_them() {
    for text in vectors::GROUPS {
        let group: Group = text.parse().unwrap();
        assert_eq!(group.to_string(), *text);
        let body = MultipartBody::Groups(vec![group.clone()].into());
        let reply = Message::MultipartReply(MultipartReply { more: false, body });
        assert_eq!(printed(&reply), format!("OFPST_GROUP_DESC reply:\n {text}"));
        let add = Message::GroupMod(GroupMod::Add(group.clone()));
        let theirs = undump(&ofctl(&["-mmmmm", "parse-group", text]));
        assert_eq!(hex(&add.encode(Xid(1)).unwrap()), hex(&theirs), "{text}");
        let add = printed(&add);
        assert_eq!(add, format!("OFPT_GROUP_MOD:\n ADD {text}"));
        let modify = printed(&Message::GroupMod(GroupMod::Modify(group)));
        assert_eq!(modify, format!("OFPT_GROUP_MOD:\n MOD {text}"));
    }
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn changes_of_groups_and_meters_are_printed_as_ovs_ofctl_prints_them() {
    for change in messages::group_mods() {
        let text = change.to_string();
        assert_eq!(printed(&Message::GroupMod(change)), format!("OFPT_GROUP_MOD:\n {text}"));
    }
    for change in messages::meter_mods() {
        let text = change.to_string();
        assert_eq!(printed(&Message::MeterMod(change)), format!("OFPT_METER_MOD: {text}"));
    }
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn every_message_is_understood_by_ovs_ofctl() {
    for message in messages::all() {
        let text = printed(&message);
        let what = text.split([':', ' ', '(']).next().unwrap();
        assert!(["OFPT_", "OFPST_", "NXT_"].iter().any(|p| what.starts_with(p)), "{text}");
    }
}

/// How messages that are not wanted are listed.
const OFF: &str = "     PORT_STATUS: (off)\n    FLOW_REMOVED: (off)\n     ROLE_STATUS: (off)\n    \
                   TABLE_STATUS: (off)\n  REQUESTFORWARD: (off)";

#[test]
#[ignore = "needs openvswitch: make test"]
fn connection_messages_are_what_ovs_ofctl_reads() {
    check(Message::Hello(Hello::openflow15()), "OFPT_HELLO:\n version bitmap: 0x06");
    check(Message::EchoRequest(bytes::Bytes::new()), "OFPT_ECHO_REQUEST: 0 bytes of payload");
    check(Message::EchoReply(bytes::Bytes::new()), "OFPT_ECHO_REPLY: 0 bytes of payload");
    check(Message::FeaturesRequest, "OFPT_FEATURES_REQUEST:");
    check(
        Message::FeaturesReply(Features {
            datapath_id: 0xd675_022b_ef40,
            n_buffers: 0,
            n_tables: 254,
            auxiliary_id: 0,
            capabilities: 0x4f,
        }),
        "OFPT_FEATURES_REPLY: dpid:0000d675022bef40\nn_tables:254, n_buffers:0\n\
         capabilities: FLOW_STATS TABLE_STATS PORT_STATS GROUP_STATS QUEUE_STATS",
    );
    check(Message::BarrierRequest, "OFPT_BARRIER_REQUEST:");
    check(Message::BarrierReply, "OFPT_BARRIER_REPLY:");
    check(Message::GetConfigRequest, "OFPT_GET_CONFIG_REQUEST:");
    let config = SwitchConfig { flags: 0, miss_send_len: 65535 };
    check(Message::SetConfig(config), "OFPT_SET_CONFIG: frags=normal miss_send_len=65535");
    check(
        Message::GetConfigReply(config),
        "OFPT_GET_CONFIG_REPLY: frags=normal miss_send_len=65535",
    );
    check(
        Message::RoleRequest(ControllerRole { role: Role::Equal, generation_id: 0 }),
        "OFPT_ROLE_REQUEST: role=equal generation_id=0",
    );
    check(
        Message::RoleReply(ControllerRole { role: Role::Master, generation_id: 3 }),
        "OFPT_ROLE_REPLY: role=primary generation_id=3",
    );
    check(
        Message::SetPacketInFormat(PacketInFormat::Nxt2),
        "NXT_SET_PACKET_IN_FORMAT: format=nxt_packet_in2",
    );
    check(Message::SetControllerId(32776), "NXT_SET_CONTROLLER_ID: id=32776");
    check(
        Message::SetAsync(AsyncConfig::packet_ins_only()),
        &format!(
            "OFPT_SET_ASYNC:\n primary:\n       PACKET_IN: no_match action invalid_ttl action_set \
             group packet_out\n{OFF}\n\n secondary:\n       PACKET_IN: (off)\n{OFF}"
        ),
    );
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn errors_have_the_names_that_ovs_gives_them() {
    let mut named = 0;
    for error_type in 0..19 {
        for code in 0..22 {
            named += check_error(ErrorCode::new(error_type, code));
        }
    }
    for code in 0..48 {
        let nicira = ErrorCode { error_type: 0xffff, code, experimenter: Some(0x2320) };
        named += check_error(nicira);
    }
    assert!(named > 150, "{named} names");
}

/// 1 when both know a name.
fn check_error(code: ErrorCode) -> usize {
    let request = Message::BarrierRequest.encode(Xid(9)).unwrap();
    let message = Message::Error(ErrorMessage { code, data: request });
    let bytes = message.encode(Xid(1)).unwrap();
    assert_eq!(Message::decode(&bytes), Ok((Xid(1), message)));
    let text = ofctl(&["ofp-print", &hex(&bytes)]);
    let theirs = text.lines().next().unwrap().split("(xid=0x1): ").nth(1).unwrap_or("");
    let theirs =
        theirs.starts_with("OFP").then_some(theirs).or(theirs.starts_with("NX").then_some(theirs));
    assert_eq!(code.name(), theirs, "{code:?}");
    usize::from(theirs.is_some())
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn changes_are_what_ovs_ofctl_reads() {
    let flow =
        || -> Flow { "table=3,priority=5,cookie=0x1,ip,actions=goto_table:9".parse().unwrap() };
    let select = |command, want: &str| {
        let flow_mod = FlowMod::new(command, flow());
        check(Message::FlowMod(flow_mod), want);
    };
    let rest = "table:3 priority=5,ip cookie:0x1 actions=goto_table:9";
    select(FlowModCommand::Add, &format!("OFPT_FLOW_MOD: ADD {rest}"));
    select(FlowModCommand::Modify, "OFPT_FLOW_MOD: MOD table:3 priority=5,ip actions=goto_table:9");
    select(
        FlowModCommand::ModifyStrict,
        "OFPT_FLOW_MOD: MOD_STRICT table:3 priority=5,ip actions=goto_table:9",
    );
    let mut delete = FlowMod::delete_strict(Flow { actions: Vec::new(), ..flow() });
    check(
        Message::FlowMod(delete.clone()),
        "OFPT_FLOW_MOD: DEL_STRICT table:3 priority=5,ip actions=drop",
    );
    delete.command = FlowModCommand::Delete;
    delete.out_port = OfPort(4);
    delete.out_group = GroupId(5);
    delete.cookie_mask = Cookie(u64::MAX);
    check(
        Message::FlowMod(delete),
        "OFPT_FLOW_MOD: DEL table:3 priority=5,ip cookie:0x1/0xffffffffffffffff out_port:4 \
         actions=drop",
    );
    check(
        Message::GroupMod(GroupMod::Delete(GroupId(4))),
        "OFPT_GROUP_MOD:\n DEL group_id=4,type=all",
    );
    check(
        Message::GroupMod(GroupMod::Delete(GroupId::ALL)),
        "OFPT_GROUP_MOD:\n DEL group_id=4294967292,type=all",
    );
    let group = Group::select(GroupId(4)).bucket(7, vec![Action::resubmit(TableId(9))]);
    check(
        Message::GroupMod(GroupMod::InsertBuckets {
            group: GroupId(4),
            group_type: GroupType::Select,
            after: BucketId::LAST,
            buckets: group.buckets,
        }),
        "OFPT_GROUP_MOD:\n INSERT_BUCKET command_bucket_id:last,group_id=4,\
         bucket=bucket_id:0,weight:7,actions=resubmit(,9)",
    );
    check(
        Message::GroupMod(GroupMod::RemoveBucket {
            group: GroupId(4),
            group_type: GroupType::Select,
            bucket: BucketId(3),
        }),
        "OFPT_GROUP_MOD:\n REMOVE_BUCKET command_bucket_id:3,group_id=4",
    );
    check(
        Message::GroupMod(GroupMod::AddOrModify(Group::all(GroupId(4)))),
        "OFPT_GROUP_MOD:\n ADD_OR_MOD group_id=4,type=all",
    );
    let meter = Meter::packets_per_second(MeterId(256), 100, 200);
    let text = meter.to_string();
    assert_eq!(text, "meter=256 pktps burst stats bands=\ntype=drop rate=100 burst_size=200");
    check(Message::MeterMod(MeterMod::Add(meter.clone())), &format!("OFPT_METER_MOD: ADD {text}"));
    let remark = Meter {
        flags: MeterFlags::KBPS,
        bands: vec![Band { rate: 9, burst: 0, kind: BandKind::DscpRemark { prec_level: 2 } }],
        ..meter
    };
    let text = remark.to_string();
    assert_eq!(text, "meter=256 kbps bands=\ntype=dscp_remark rate=9 prec_level=2");
    check(Message::MeterMod(MeterMod::Modify(remark)), &format!("OFPT_METER_MOD: MOD {text}"));
    check(
        Message::MeterMod(MeterMod::Delete(MeterId(256))),
        "OFPT_METER_MOD: DEL meter=256 bands=",
    );
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn bundles_are_what_ovs_ofctl_reads() {
    let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;
    for (kind, name) in [
        (BundleControlType::OpenRequest, "OPEN_REQUEST"),
        (BundleControlType::OpenReply, "OPEN_REPLY"),
        (BundleControlType::CloseRequest, "CLOSE_REQUEST"),
        (BundleControlType::CloseReply, "CLOSE_REPLY"),
        (BundleControlType::CommitRequest, "COMMIT_REQUEST"),
        (BundleControlType::CommitReply, "COMMIT_REPLY"),
        (BundleControlType::DiscardRequest, "DISCARD_REQUEST"),
        (BundleControlType::DiscardReply, "DISCARD_REPLY"),
    ] {
        check(
            Message::BundleControl(BundleControl { bundle: BundleId(7), kind, flags }),
            &format!("OFPT_BUNDLE_CONTROL:\n bundle_id=0x7 type={name} flags=atomic ordered"),
        );
    }
    let flow: Flow = "table=3,priority=5,ip,actions=drop".parse().unwrap();
    let add = BundleAdd {
        bundle: BundleId(7),
        flags,
        message: Box::new(Message::FlowMod(FlowMod::add(flow.clone()))),
    };
    let message = Message::BundleAdd(add);
    check(
        message.clone(),
        "OFPT_BUNDLE_ADD_MESSAGE:\n bundle_id=0x7 flags=atomic ordered\n\
         OFPT_FLOW_MOD: ADD table:3 priority=5,ip actions=drop",
    );
    let mut quick = Vec::new();
    let add = FlowModCommand::Add;
    openflow::message::encode_bundled_flow(&mut quick, Xid(1), BundleId(7), flags, add, &flow)
        .unwrap();
    assert_eq!(message.encode(Xid(1)).unwrap(), quick);
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn lists_are_what_ovs_ofctl_reads() {
    let request = |request, want: &str| check(Message::MultipartRequest(request), want);
    request(MultipartRequest::Flows(FlowFilter::all()), "OFPST_FLOW request:");
    let by_cookie = FlowFilter {
        table: TableId(4),
        ..FlowFilter::by_cookie(Cookie(0xa17e << 48), Cookie(0xffff << 48))
    };
    request(MultipartRequest::Flows(by_cookie), "OFPST_FLOW request: table=4");
    request(MultipartRequest::Aggregate(FlowFilter::all()), "OFPST_AGGREGATE request:");
    request(MultipartRequest::Ports(OfPort::ANY), "OFPST_PORT_DESC request: port=ANY");
    request(MultipartRequest::Groups(GroupId::ALL), "OFPST_GROUP_DESC request: group_id=ALL");
    request(MultipartRequest::Meters(MeterId::ALL), "OFPST_METER_CONFIG request: meter=all");

    let reply = |body, want: &str| {
        check(Message::MultipartReply(MultipartReply { more: false, body }), want);
    };
    reply(
        MultipartBody::Aggregate(Aggregate { packets: 1, bytes: 2, flows: 3 }),
        "OFPST_AGGREGATE reply: packet_count=1 byte_count=2 flow_count=3",
    );
    reply(
        MultipartBody::Meters(vec![Meter::packets_per_second(MeterId(1), 100, 200)].into()),
        "OFPST_METER_CONFIG reply:\nmeter=1 pktps burst stats bands=\n\
         type=drop rate=100 burst_size=200",
    );
    let desc = PortDesc {
        port: OfPort(5),
        mac: MacAddr([0, 0, 0, 0, 0, 5]),
        name: "web-1".into(),
        config: PortConfig::PORT_DOWN,
        state: PortState::LINK_DOWN,
        speed_kbps: Some(10_000_000),
    };
    reply(
        MultipartBody::Ports(vec![desc.clone()]),
        "OFPST_PORT_DESC reply:\n 5(web-1): addr:00:00:00:00:00:05\n     config:     PORT_DOWN\n     \
         state:      LINK_DOWN\n     speed: 10000 Mbps now, 0 Mbps max",
    );
    check(
        Message::PortStatus(PortStatus { reason: PortReason::Add, desc }),
        "OFPT_PORT_STATUS: ADD: 5(web-1): addr:00:00:00:00:00:05\n     config:     PORT_DOWN\n     \
         state:      LINK_DOWN\n     speed: 10000 Mbps now, 0 Mbps max",
    );
    check(
        Message::FlowRemoved(FlowRemoved {
            table: TableId(4),
            priority: 5,
            cookie: Cookie(6),
            matching: Match::new().ip(),
            reason: FlowRemovedReason::IdleTimeout,
            idle_timeout: 7,
            hard_timeout: 8,
            counters: FlowCounters {
                duration: Duration::from_secs(9),
                idle: None,
                packets: Some(10),
                bytes: Some(11),
            },
        }),
        "OFPT_FLOW_REMOVED: priority=5,ip reason=idle table_id=4 cookie:0x6 duration9s idle7 hard8 \
         pkts10 bytes11",
    );
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn statistics_are_what_ovs_ofctl_reads() {
    for (kind, request, reply) in [
        (
            "TableStats",
            "OFPST_TABLE request:",
            "OFPST_TABLE reply:\n\
             \x20 table 0:\n\
             \x20   active=1, lookup=2, matched=3\n\
             \n\
             \x20 table 1:\n\
             \x20   active=4, lookup=5, matched=6",
        ),
        (
            "TableFeatures",
            "OFPST_TABLE_FEATURES request:",
            "OFPST_TABLE_FEATURES reply:\n\
             \x20 table 7 (\"Output\"):\n\
             \x20   metadata: match=0xffffffffffffffff write=0xffffffffffffffff\n\
             \x20   eviction: not supported\n\
             \x20   vacancy events: not supported\n\
             \x20   max_entries=1000000\n\
             \x20   instructions (table miss and others):\n\
             \x20     next tables: 8-9\n\
             \x20     instructions: apply_actions goto_table\n\
             \x20     Write-Actions features:\n\
             \x20     Apply-Actions features:\n\
             \x20       actions: output\n\
             \x20       supported on Set-Field: eth_src\n\
             \x20   matching:\n\
             \x20     exact match or wildcard: in_port_oxm",
        ),
        (
            "PortStats",
            "OFPST_PORT request: port_no=ANY",
            "OFPST_PORT reply: 1 ports\n\
             \x20 port  5: rx pkts=1, bytes=3, drop=5, errs=7, frame=9, over=10, crc=11\n\
             \x20          tx pkts=2, bytes=4, drop=6, errs=8, coll=12\n\
             \x20          duration=1.500s",
        ),
        (
            "GroupStats",
            "OFPST_GROUP request: group_id=ALL",
            "OFPST_GROUP reply:\n\
             \x20group_id=4,duration=1.500s,ref_count=1,packet_count=2,byte_count=3,bucket0:packet_count=4,byte_count=5,bucket1:packet_count=6,byte_count=7",
        ),
        (
            "GroupFeatures",
            "OFPST_GROUP_FEATURES request:",
            "OFPST_GROUP_FEATURES reply:\n\
             \x20Group table:\n\
             \x20   Types:  0xf\n\
             \x20   Capabilities:  0x5\n\
             \x20   all group:\n\
             \x20      max_groups=0x1\n\
             \x20      actions: output\n\
             \x20   select group:\n\
             \x20      max_groups=0x2\n\
             \x20      actions: output\n\
             \x20   indirect group:\n\
             \x20      max_groups=0x3\n\
             \x20      actions: output\n\
             \x20   fast failover group:\n\
             \x20      max_groups=0x4\n\
             \x20      actions: output",
        ),
        (
            "MeterStats",
            "OFPST_METER request: meter=all",
            "OFPST_METER reply:\n\
             meter:256 flow_count:1 packet_in_count:2 byte_in_count:3 duration:1.500s bands:\n\
             0: packet_count:4 byte_count:5",
        ),
        (
            "MeterFeatures",
            "OFPST_METER_FEATURES request:",
            "OFPST_METER_FEATURES reply:\n\
             max_meter:262144 max_bands:8 max_color:0\n\
             band_types: drop\n\
             capabilities: kbps pktps burst stats",
        ),
    ] {
        let named = |debug: String| debug.split(['(', ' ']).next() == Some(kind);
        let asked = messages::requests().into_iter().find(|r| named(format!("{r:?}"))).unwrap();
        check(Message::MultipartRequest(asked), request);
        let body = messages::bodies().into_iter().find(|b| named(format!("{b:?}"))).unwrap();
        check(Message::MultipartReply(MultipartReply { more: false, body }), reply);
    }
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn packets_are_what_ovs_ofctl_reads() {
    let packet = PacketIn {
        data: bytes::Bytes::from_static(&[0xff; 60]),
        full_len: 100,
        table: TableId(7),
        cookie: Cookie(8),
        reason: openflow::message::PacketInReason::NoMatch,
        metadata: Match::new().in_port(OfPort(9)).with(openflow::Field::Reg(0), 5),
        userdata: bytes::Bytes::from_static(&[1, 2]),
        continuation: None,
    };
    let text = printed(&Message::PacketIn(packet.clone()));
    let want = "NXT_PACKET_IN2: table_id=7 cookie=0x8 total_len=100 reg0=0x5,in_port=9 \
                (via no_match) data_len=60 (unbuffered) (***total_len != data_len***)\n userdata=01.02\n";
    assert!(text.starts_with(want), "{text}");
    let bytes = Message::PacketIn(packet.clone()).encode(Xid(1)).unwrap();
    assert_eq!(Message::decode(&bytes), Ok((Xid(1), Message::PacketIn(packet))));

    let out = PacketOut::new(
        OfPort::CONTROLLER,
        vec![0xff; 60],
        vec![Action::load(openflow::Subfield::reg_bit(0, 13), 1), Action::Output(OfPort::TABLE)],
    );
    let text = printed(&Message::PacketOut(out.clone()));
    let want = "OFPT_PACKET_OUT: in_port=CONTROLLER actions=set_field:0x2000/0x2000->reg0,TABLE \
                data_len=60\n";
    assert!(text.starts_with(want), "{text}");
    let bytes = Message::PacketOut(out.clone()).encode(Xid(1)).unwrap();
    assert_eq!(Message::decode(&bytes), Ok((Xid(1), Message::PacketOut(out))));
}

//! One message, or more, of every kind.

use std::time::Duration;

use bytes::Bytes;
use openflow::message::{
    Aggregate, AsyncConfig, BundleAdd, BundleControl, BundleControlType, BundleFlags, BundleId,
    ControllerRole, ErrorCode, ErrorMessage, EthernetStats, Features, FlowCounters, FlowDump,
    FlowFilter, FlowMod, FlowModCommand, FlowRemoved, FlowRemovedReason, FlowStats,
    GroupCapabilities, GroupFeatures, GroupMod, GroupStats, Hello, MeterFeatures, MeterMod,
    MeterStats, MultipartBody, MultipartReply, MultipartRequest, PacketCount, PacketIn,
    PacketInFormat, PacketInReason, PacketOut, PortConfig, PortDesc, PortMod, PortReason,
    PortState, PortStats, PortStatus, Role, RoleReason, RoleStatus, SwitchConfig, TableFeatures,
    TableProperty, TableStats,
};
use openflow::{
    Action, Band, BandKind, BucketId, Cookie, Flow, Group, GroupId, GroupType, MacAddr, Match,
    Message, Meter, MeterFlags, MeterId, OfPort, TableId, Xid,
};

use super::vectors;

const FLAGS: BundleFlags = BundleFlags::ATOMIC.union(BundleFlags::ORDERED);

/// Messages of every kind; those about flows and groups with all the vectors.
pub fn all() -> Vec<Message> {
    let mut all = control();
    all.extend(group_mods().into_iter().map(Message::GroupMod));
    all.extend(meter_mods().into_iter().map(Message::MeterMod));
    all.extend(packets());
    all.extend(requests().into_iter().map(Message::MultipartRequest));
    all.extend(bodies().into_iter().map(reply));
    for text in vectors::flows() {
        let flow: Flow = text.parse().unwrap();
        all.push(Message::FlowMod(FlowMod::add(flow.clone())));
        let counters = FlowCounters {
            duration: Duration::from_millis(1500),
            idle: Some(Duration::from_secs(1)),
            packets: Some(3),
            bytes: Some(4),
        };
        let flows = vec![FlowStats { flow: flow.clone(), counters }, FlowStats { flow, counters }];
        all.push(reply(MultipartBody::Flows(FlowDump { flows, undecoded: Vec::new() })));
    }
    all
}

fn reply(body: MultipartBody) -> Message {
    Message::MultipartReply(MultipartReply { more: false, body })
}

fn control() -> Vec<Message> {
    let config = SwitchConfig { flags: 0, miss_send_len: 0xffff };
    let mut asked = AsyncConfig::packet_ins_only();
    asked.role_status_master = Some(7);
    let request = Message::BarrierRequest.encode(Xid(9)).unwrap();
    let mut all = vec![
        Message::Hello(Hello::openflow15()),
        Message::Hello(Hello { version: 6, versions: Vec::new() }),
        Message::Error(ErrorMessage { code: ErrorCode::BAD_OUT_GROUP, data: request.clone() }),
        Message::Error(ErrorMessage {
            code: ErrorCode { error_type: 0xffff, code: 15, experimenter: Some(0x2320) },
            data: request,
        }),
        Message::EchoRequest(Bytes::from_static(b"hello")),
        Message::EchoReply(Bytes::from_static(b"hello")),
        Message::FeaturesRequest,
        Message::FeaturesReply(Features {
            datapath_id: 0xd675_022b_ef40,
            n_buffers: 0,
            n_tables: 254,
            auxiliary_id: 0,
            capabilities: 0x4f,
        }),
        Message::GetConfigRequest,
        Message::GetConfigReply(config),
        Message::SetConfig(config),
        Message::BarrierRequest,
        Message::BarrierReply,
        Message::PortStatus(PortStatus { reason: PortReason::Modify, desc: port_desc() }),
        Message::PortMod(PortMod {
            port: OfPort(5),
            mac: MacAddr([0, 0, 0, 0, 0, 5]),
            config: PortConfig::NO_RECV,
            mask: PortConfig::NO_RECV | PortConfig::PORT_DOWN,
        }),
        Message::RoleRequest(ControllerRole { role: Role::Slave, generation_id: 4 }),
        Message::RoleReply(ControllerRole { role: Role::Master, generation_id: 3 }),
        Message::RoleStatus(RoleStatus {
            role: Role::Slave,
            reason: RoleReason::MasterRequest,
            generation_id: 5,
        }),
        Message::GetAsyncRequest,
        Message::GetAsyncReply(asked),
        Message::SetAsync(AsyncConfig::flow_removed_only()),
        Message::SetPacketInFormat(PacketInFormat::Nxt2),
        Message::SetControllerId(32776),
        // A table-mod, which this crate does not know.
        Message::Other { kind: 17, body: Bytes::from_static(&[4, 0, 0, 0, 0, 0, 0, 0]) },
        Message::FlowRemoved(FlowRemoved {
            table: TableId(4),
            priority: 5,
            cookie: Cookie(6),
            matching: Match::new().ip(),
            reason: FlowRemovedReason::HardTimeout,
            idle_timeout: 7,
            hard_timeout: 8,
            counters: FlowCounters {
                duration: Duration::from_secs(9),
                idle: None,
                packets: Some(10),
                bytes: Some(11),
            },
        }),
    ];
    for kind in [BundleControlType::OpenRequest, BundleControlType::CommitReply] {
        all.push(Message::BundleControl(BundleControl { bundle: BundleId(7), kind, flags: FLAGS }));
    }
    let flow: Flow = "table=3,priority=5,ip,actions=drop".parse().unwrap();
    for command in [
        FlowModCommand::Add,
        FlowModCommand::Modify,
        FlowModCommand::ModifyStrict,
        FlowModCommand::Delete,
        FlowModCommand::DeleteStrict,
    ] {
        let message = Box::new(Message::FlowMod(FlowMod::new(command, flow.clone())));
        all.push(Message::BundleAdd(BundleAdd { bundle: BundleId(7), flags: FLAGS, message }));
    }
    let by_cookie = FlowMod::delete_by_cookie(TableId::ALL, Cookie(5), Cookie(u64::MAX));
    all.push(Message::FlowMod(by_cookie));
    all
}

fn port_desc() -> PortDesc {
    PortDesc {
        port: OfPort(5),
        mac: MacAddr([0, 0, 0, 0, 0, 5]),
        name: "web-1".into(),
        config: PortConfig::PORT_DOWN,
        state: PortState::LINK_DOWN,
        speed_kbps: Some(10_000_000),
    }
}

/// A change of groups of every kind.
pub fn group_mods() -> Vec<GroupMod> {
    let groups: Vec<Group> = vectors::GROUPS.iter().map(|text| text.parse().unwrap()).collect();
    let select = Group::select(GroupId(4)).bucket(7, vec![Action::resubmit(TableId(9))]);
    let all = Group::all(GroupId(4)).bucket(0, vec![Action::Output(OfPort(3))]);
    let mut mods: Vec<GroupMod> = groups.iter().cloned().map(GroupMod::Add).collect();
    mods.push(GroupMod::Modify(groups[0].clone()));
    mods.push(GroupMod::AddOrModify(groups[4].clone()));
    mods.push(GroupMod::Delete(GroupId(4)));
    for (group, after) in [(select, BucketId::LAST), (all, BucketId::FIRST)] {
        mods.push(GroupMod::InsertBuckets {
            group: group.id,
            group_type: group.group_type,
            after,
            buckets: group.buckets,
        });
    }
    for bucket in [BucketId(3), BucketId::ALL, BucketId::FIRST] {
        let group_type = GroupType::All;
        mods.push(GroupMod::RemoveBucket { group: GroupId(4), group_type, bucket });
    }
    mods
}

/// A change of meters of every kind.
pub fn meter_mods() -> Vec<MeterMod> {
    let mut mods = meters().into_iter().map(MeterMod::Add).collect::<Vec<_>>();
    mods.push(MeterMod::Modify(Meter::packets_per_second(MeterId(256), 100, 200)));
    mods.push(MeterMod::Delete(MeterId(256)));
    mods.push(MeterMod::Delete(MeterId::ALL));
    mods
}

/// Meters of every kind.
pub fn meters() -> Vec<Meter> {
    vec![
        Meter::packets_per_second(MeterId(256), 100, 200),
        Meter::kbit_per_second(MeterId(1), 1000, 2000),
        Meter {
            id: MeterId(3),
            flags: MeterFlags::KBPS,
            bands: vec![
                Band { rate: 9, burst: 0, kind: BandKind::DscpRemark { prec_level: 2 } },
                Band { rate: 90, burst: 0, kind: BandKind::Drop },
            ],
        },
    ]
}

fn packets() -> Vec<Message> {
    let packet = PacketIn {
        data: Bytes::from_static(&[0xff; 60]),
        full_len: 60,
        table: TableId(7),
        cookie: Cookie(8),
        reason: PacketInReason::Action,
        metadata: Match::new().in_port(OfPort(9)).with(openflow::Field::Reg(0), 5),
        userdata: Bytes::from_static(&[1, 2]),
        continuation: None,
    };
    let cut = PacketIn { full_len: 100, userdata: Bytes::new(), ..packet.clone() };
    let actions =
        vec![Action::load(openflow::Subfield::reg_bit(0, 13), 1), Action::Output(OfPort::TABLE)];
    let out = PacketOut::new(OfPort::CONTROLLER, vec![0xff; 60], actions);
    vec![
        Message::PacketIn(packet.clone()),
        Message::PacketIn(cut),
        Message::Resume(packet),
        Message::PacketOut(out),
    ]
}

/// A request for every list.
pub fn requests() -> Vec<MultipartRequest> {
    vec![
        MultipartRequest::Flows(FlowFilter {
            table: TableId(4),
            matching: Match::new().ip(),
            ..FlowFilter::by_cookie(Cookie(0xa17e << 48), Cookie(0xffff << 48))
        }),
        MultipartRequest::Aggregate(FlowFilter::all()),
        MultipartRequest::Ports(OfPort::ANY),
        MultipartRequest::Groups(GroupId::ALL),
        MultipartRequest::Meters(MeterId::ALL),
        MultipartRequest::TableStats,
        MultipartRequest::TableFeatures,
        MultipartRequest::PortStats(OfPort::ANY),
        MultipartRequest::GroupStats(GroupId::ALL),
        MultipartRequest::GroupFeatures,
        MultipartRequest::MeterStats(MeterId::ALL),
        MultipartRequest::MeterFeatures,
    ]
}

/// An answer of every kind, flows left out.
pub fn bodies() -> Vec<MultipartBody> {
    let count = |packets, bytes| PacketCount { packets, bytes };
    let duration = Duration::from_millis(1500);
    let property =
        |kind, body: &'static [u8]| TableProperty { kind, body: Bytes::from_static(body) };
    let groups: Vec<Group> = vectors::GROUPS.iter().map(|text| text.parse().unwrap()).collect();
    vec![
        MultipartBody::Aggregate(Aggregate { packets: 1, bytes: 2, flows: 3 }),
        MultipartBody::Ports(vec![port_desc()]),
        MultipartBody::Groups(groups.into()),
        MultipartBody::Meters(meters().into()),
        MultipartBody::TableStats(vec![
            TableStats { table: TableId(0), active: 1, lookups: 2, matched: 3 },
            TableStats { table: TableId(1), active: 4, lookups: 5, matched: 6 },
        ]),
        MultipartBody::TableFeatures(vec![TableFeatures {
            table: TableId(7),
            command: 0,
            features: 0,
            name: "Output".into(),
            metadata_match: u64::MAX,
            metadata_write: u64::MAX,
            capabilities: 0,
            max_entries: 1_000_000,
            properties: vec![
                property(TableProperty::INSTRUCTIONS, &[0, 4, 0, 4, 0, 1, 0, 4]),
                property(TableProperty::NEXT_TABLES, &[8, 9]),
                property(TableProperty::WRITE_ACTIONS, &[]),
                property(TableProperty::APPLY_ACTIONS, &[0, 0, 0, 4]),
                property(TableProperty::WRITE_SET_FIELD, &[]),
                property(TableProperty::APPLY_SET_FIELD, &[0x80, 0, 8, 6]),
                property(TableProperty::MATCH, &[0x80, 0, 0, 4]),
                property(TableProperty::WILDCARDS, &[0x80, 0, 0, 4]),
            ],
        }]),
        MultipartBody::PortStats(vec![PortStats {
            port: OfPort(5),
            duration,
            rx_packets: 1,
            tx_packets: 2,
            rx_bytes: 3,
            tx_bytes: 4,
            rx_dropped: 5,
            tx_dropped: 6,
            rx_errors: 7,
            tx_errors: 8,
            ethernet: Some(EthernetStats {
                rx_frame_errors: 9,
                rx_over_errors: 10,
                rx_crc_errors: 11,
                collisions: 12,
            }),
        }]),
        MultipartBody::GroupStats(vec![GroupStats {
            group: GroupId(4),
            ref_count: 1,
            total: count(2, 3),
            duration,
            buckets: vec![count(4, 5), count(6, 7)],
        }]),
        MultipartBody::GroupFeatures(GroupFeatures {
            types: 15,
            capabilities: GroupCapabilities::SELECT_WEIGHT | GroupCapabilities::CHAINING,
            max_groups: [1, 2, 3, 4],
            actions: [1, 1, 1, 1],
        }),
        MultipartBody::MeterStats(vec![MeterStats {
            meter: MeterId(256),
            ref_count: 1,
            total: count(2, 3),
            duration,
            bands: vec![count(4, 5)],
        }]),
        MultipartBody::MeterFeatures(MeterFeatures {
            max_meters: 262_144,
            band_types: 2,
            capabilities: 15,
            max_bands: 8,
            max_color: 0,
        }),
        // A description of the switch, which this crate does not know.
        MultipartBody::Other { kind: 0, body: Bytes::from_static(&[0; 1056]) },
    ]
}

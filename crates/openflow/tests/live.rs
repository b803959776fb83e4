//! What a real switch takes and gives back.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/connection.rs"]
#[allow(unreachable_pub, reason = "it is no crate")]
mod connection;
#[path = "common/vectors.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test takes the vectors it needs")]
mod vectors;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use connection::{Connection, with_switch};
use openflow::message::{
    AsyncConfig, BundleControl, BundleControlType, BundleFlags, BundleId, ControllerRole,
    FlowFilter, FlowMod, FlowModCommand, GroupMod, MeterMod, MultipartBody, MultipartRequest,
    PacketInFormat, PacketOut, PortConfig, PortMod, Role, RoleReason, SwitchConfig,
    encode_bundled_flow, encode_bundled_group,
};
use openflow::{
    Action, Controller, Cookie, EncodeError, Flow, FlowFlags, Group, GroupId, Match, Message,
    Meter, MeterId, OfPort, TableId, Xid,
};

/// The vectors a switch can hold: not those with fields only the datapath sets, each with a table
/// of its own choosing so that none replaces another.
fn holdable() -> Vec<Flow> {
    let mut flows = Vec::new();
    for text in vectors::flows() {
        if vectors::OF_THE_DATAPATH.contains(&text.as_str()) {
            continue;
        }
        let mut flow: Flow = text.parse().unwrap();
        flow.flags.remove(FlowFlags::CHECK_OVERLAP | FlowFlags::RESET_COUNTS);
        let refers = |action: &Action| matches!(action, Action::Meter(_) | Action::Group(_));
        let goes = |action: &Action| matches!(action, Action::Controller(c) if c.meter.is_some());
        if flow.actions.iter().any(|action| refers(action) || goes(action)) {
            continue; // Covered where groups and meters are made.
        }
        flow.priority = u16::try_from(flows.len() + 1).unwrap();
        flow.table = TableId(1);
        flows.push(flow);
    }
    flows
}

#[test]
#[ignore = "needs root: make test"]
fn a_switch_gives_back_the_flows_it_got() {
    with_switch(|ovs| {
        let mut connection = Connection::open(ovs);
        let mut kept = BTreeMap::new();
        let mut refused = Vec::new();
        for flow in holdable() {
            connection.send(&Message::FlowMod(FlowMod::add(flow.clone())));
            let answers = connection.barrier();
            if answers.is_empty() {
                kept.insert(flow.priority, flow.normalize());
            } else {
                refused.push(format!("{flow}: {answers:?}"));
            }
        }
        assert!(refused.is_empty(), "{refused:#?}");
        let seen = connection.flows();
        assert_eq!(seen.len(), kept.len());
        for flow in seen {
            assert_eq!(Some(&flow), kept.get(&flow.priority), "{flow}");
        }
        let mut ours: Vec<String> = kept.values().map(ToString::to_string).collect();
        ours.sort();
        assert_eq!(ours, ovs.flows("br-test"));
    });
}

#[test]
#[ignore = "needs root: make test"]
fn groups_and_meters_come_back_as_they_were_sent() {
    with_switch(|ovs| {
        let mut connection = Connection::open(ovs);
        let mut groups: BTreeMap<GroupId, Group> = BTreeMap::new();
        for text in vectors::GROUPS {
            let group: Group = text.parse().unwrap();
            connection.send(&Message::GroupMod(GroupMod::Add(group.clone())));
            connection.quiet_barrier();
            groups.insert(group.id, group.normalize());
        }
        for part in connection.list(MultipartRequest::Groups(GroupId::ALL)) {
            let MultipartBody::Groups(some) = part else { panic!("{part:?}") };
            assert!(some.undecoded.is_empty(), "{some:?}");
            for group in some.known {
                assert_eq!(groups.remove(&group.id), Some(group));
            }
        }
        assert!(groups.is_empty(), "{groups:?}");

        let meter = Meter::packets_per_second(MeterId(256), 100, 200);
        connection.send(&Message::MeterMod(MeterMod::Add(meter.clone())));
        connection.quiet_barrier();
        let meters = connection.list(MultipartRequest::Meters(MeterId::ALL));
        assert_eq!(meters, [MultipartBody::Meters(vec![meter].into())]);

        for text in [
            "table=1,priority=1,actions=meter:256,group:1",
            "table=1,priority=2,actions=controller(userdata=01,meter_id=256,id=7)",
        ] {
            let flow: Flow = text.parse().unwrap();
            connection.send(&Message::FlowMod(FlowMod::add(flow.clone())));
            connection.quiet_barrier();
            assert!(connection.flows().contains(&flow), "{text}");
        }
        connection.send(&Message::GroupMod(GroupMod::Delete(GroupId(1))));
        connection.quiet_barrier();
        assert_eq!(connection.flows().len(), 1, "a group takes its flows with it");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_bundle_takes_effect_as_a_whole_or_not_at_all() {
    with_switch(|ovs| {
        let mut connection = Connection::open(ovs);
        let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;
        for (bundle, n_flows, bad) in [(BundleId(1), 3000u16, None), (BundleId(2), 100, Some(50))] {
            let control = |kind| Message::BundleControl(BundleControl { bundle, kind, flags });
            // The switch answers without flags.
            let answer = |kind| {
                let flags = BundleFlags::empty();
                Message::BundleControl(BundleControl { bundle, kind, flags })
            };
            connection.send(&control(BundleControlType::OpenRequest));
            let mut bytes = Vec::new();
            let group = Group::all(GroupId(bundle.0)).bucket(0, vec![Action::Output(OfPort(1))]);
            encode_bundled_group(&mut bytes, Xid(99), bundle, flags, &GroupMod::Add(group))
                .unwrap();
            for n in 0..n_flows {
                // A group that does not exist is refused.
                let group = GroupId(if Some(n) == bad { 77 } else { bundle.0 });
                let flow = Flow::new(TableId(bundle.0.try_into().unwrap()), n, Match::new().ip())
                    .cookie(Cookie(5))
                    .action(Action::Group(group));
                let xid = Xid(u32::from(n) + 1000);
                encode_bundled_flow(&mut bytes, xid, bundle, flags, FlowModCommand::Add, &flow)
                    .unwrap();
            }
            connection.stream.write_all(&bytes).unwrap();
            connection.send(&control(BundleControlType::CloseRequest));
            let commit = connection.send(&control(BundleControlType::CommitRequest));
            assert_eq!(connection.receive().1, answer(BundleControlType::OpenReply));
            assert_eq!(connection.receive().1, answer(BundleControlType::CloseReply));
            if let Some(bad) = bad {
                let (xid, Message::Error(error)) = connection.receive() else { panic!("no error") };
                assert_eq!(xid, Xid(u32::from(bad) + 1000), "{error:?}");
                assert_eq!(error.code.to_string(), "OFPBAC_BAD_OUT_GROUP");
                let (xid, Message::Error(error)) = connection.receive() else { panic!("no error") };
                assert_eq!((xid, error.code.to_string()), (commit, "OFPBFC_MSG_FAILED".into()));
            } else {
                let reply = answer(BundleControlType::CommitReply);
                assert_eq!(connection.receive(), (commit, reply));
            }
        }
        assert_eq!(connection.flows().len(), 3000);
        let filter = FlowFilter::by_cookie(Cookie(5), Cookie(u64::MAX));
        let parts = connection.list(MultipartRequest::Aggregate(filter));
        let [MultipartBody::Aggregate(sum)] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!(sum.flows, 3000);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn packets_go_out_and_come_in_with_what_is_attached() {
    with_switch(|ovs| {
        let mut connection = Connection::open(ovs);
        connection.send(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 0xffff }));
        connection.send(&Message::SetPacketInFormat(PacketInFormat::Nxt2));
        connection.send(&Message::SetControllerId(7));
        connection.send(&Message::SetAsync(AsyncConfig::packet_ins_only()));
        // Ethernet, IPv4 and UDP, as short as they can be.
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 99, 0, 53, 0, 8, 0, 0]);
        for pause in [false, true] {
            let matching: Match = "in_port=CONTROLLER,udp,tp_dst=53".parse().unwrap();
            let flow = Flow::new(TableId(0), 5, matching)
                .cookie(Cookie(9))
                .action(Action::load(openflow::Subfield::reg(3, 0, 7), 5))
                .action(Action::controller(Controller {
                    controller_id: 7,
                    userdata: vec![1, 2, 3],
                    pause,
                    ..Controller::default()
                }));
            connection.send(&Message::FlowMod(FlowMod::add(flow)));
            connection.quiet_barrier();
            let table = vec![Action::Output(OfPort::TABLE)];
            let out = PacketOut::new(OfPort::CONTROLLER, frame.clone(), table);
            connection.send(&Message::PacketOut(out));
            let (_, Message::PacketIn(packet)) = connection.receive() else {
                panic!("no packet-in")
            };
            assert_eq!(packet.data, frame);
            assert_eq!(packet.full_len, 42);
            // The switch does not say which flow paused a packet.
            assert_eq!(packet.cookie, Cookie(if pause { 0 } else { 9 }));
            assert_eq!(packet.table, TableId(0));
            assert_eq!(packet.userdata.as_ref(), [1, 2, 3]);
            assert_eq!(packet.in_port(), Some(OfPort::CONTROLLER));
            assert_eq!(packet.metadata.exact(openflow::Field::Reg(3)), Some(5));
            assert_eq!(packet.continuation.is_some(), pause);
            if pause {
                connection.send(&Message::Resume(packet));
                connection.quiet_barrier();
            }
        }
    });
}

#[test]
#[ignore = "needs root: make test"]
fn ports_and_removed_flows_are_told() {
    with_switch(|ovs| {
        let mut connection = Connection::open(ovs);
        connection.send(&Message::FeaturesRequest);
        let (_, Message::FeaturesReply(features)) = connection.receive() else { panic!() };
        assert_eq!(features.n_tables, 254);
        let parts = connection.list(MultipartRequest::Ports(OfPort::ANY));
        let [MultipartBody::Ports(ports)] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!((ports[0].port, ports[0].name.as_str()), (OfPort::LOCAL, "br-test"));

        // A service connection is asked for what it wants to be told.
        connection.send(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 0xffff }));
        let mut all = AsyncConfig::flow_removed_only();
        all.port_status_master = Some(7);
        connection.send(&Message::SetAsync(all));
        connection.quiet_barrier();
        let flow: Flow =
            "table=4,priority=9,cookie=0x3,send_flow_rem,ip,actions=drop".parse().unwrap();
        connection.send(&Message::FlowMod(FlowMod::add(flow.clone())));
        connection.send(&Message::FlowMod(FlowMod::delete_strict(flow.clone())));
        let (_, Message::FlowRemoved(removed)) = connection.receive() else { panic!() };
        assert_eq!((removed.table, removed.priority), (flow.table, flow.priority));
        assert_eq!((removed.cookie, removed.matching), (flow.cookie, flow.matching));
        assert_eq!(removed.reason, openflow::message::FlowRemovedReason::Delete);
        connection.quiet_barrier();

        ovs.vsctl(&[
            "add-port",
            "br-test",
            "p1",
            "--",
            "set",
            "interface",
            "p1",
            "type=internal",
            "ofport_request=5",
        ]);
        let (_, Message::PortStatus(status)) = connection.receive() else { panic!() };
        assert_eq!(status.desc.name, "p1");
        assert_eq!(status.desc.port, OfPort(5));
    });
}

#[test]
#[ignore = "needs root: make test"]
fn statistics_and_abilities_are_told() {
    with_switch(|ovs| {
        let mut connection = Connection::open(ovs);
        let group = Group::select(GroupId(4))
            .bucket(7, vec![Action::Output(OfPort::LOCAL)])
            .bucket(9, vec![]);
        connection.send(&Message::GroupMod(GroupMod::Add(group)));
        let meter = Meter::packets_per_second(MeterId(256), 100, 200);
        connection.send(&Message::MeterMod(MeterMod::Add(meter)));
        let flow: Flow = "table=0,priority=5,udp,actions=meter:256,group:4".parse().unwrap();
        connection.send(&Message::FlowMod(FlowMod::add(flow)));
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 99, 0, 53, 0, 8, 0, 0]);
        let table = vec![Action::Output(OfPort::TABLE)];
        connection.send(&Message::PacketOut(PacketOut::new(OfPort::CONTROLLER, frame, table)));
        connection.quiet_barrier();

        // Counters of the datapath arrive when it is asked again.
        let mut groups = Vec::new();
        testkit::wait_until(Duration::from_secs(10), "the packet is counted", || {
            let all = connection.list(MultipartRequest::GroupStats(GroupId::ALL));
            let [MultipartBody::GroupStats(some)] = all.as_slice() else { panic!("{all:?}") };
            groups.clone_from(some);
            groups.iter().any(|group| group.total.packets == 1)
        });
        assert_eq!((groups.len(), groups[0].group, groups[0].ref_count), (1, GroupId(4), 1));
        assert_eq!(groups[0].buckets.iter().map(|bucket| bucket.packets).sum::<u64>(), 1);

        let all = connection.list(MultipartRequest::MeterStats(MeterId(256)));
        let [MultipartBody::MeterStats(meters)] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((meters[0].meter, meters[0].ref_count), (MeterId(256), 1));
        assert_eq!((meters[0].total.packets, meters[0].bands.len()), (1, 1));

        let all = connection.list(MultipartRequest::TableStats);
        let tables: Vec<_> = all
            .into_iter()
            .flat_map(|part| match part {
                MultipartBody::TableStats(tables) => tables,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(tables.len(), 254);
        assert_eq!((tables[0].active, tables[1].active), (1, 0));

        let all = connection.list(MultipartRequest::PortStats(OfPort::LOCAL));
        let [MultipartBody::PortStats(ports)] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!(ports[0].port, OfPort::LOCAL);
        assert!(ports[0].ethernet.is_some());

        let all = connection.list(MultipartRequest::GroupFeatures);
        let [MultipartBody::GroupFeatures(features)] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((features.types, features.max_groups[1]), (15, 0xffff_ff00));

        let all = connection.list(MultipartRequest::MeterFeatures);
        let [MultipartBody::MeterFeatures(features)] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((features.max_bands, features.capabilities), (8, 15));

        let mut features = Vec::new();
        for part in connection.list(MultipartRequest::TableFeatures) {
            let MultipartBody::TableFeatures(some) = part else { panic!("{part:?}") };
            features.extend(some);
        }
        assert_eq!(features.len(), 254);
        assert!(features[3].leads_to(TableId(4)) && !features[4].leads_to(TableId(3)));
        assert!(features.iter().all(|table| !table.properties.is_empty()));
    });
}

#[test]
#[ignore = "needs root: make test"]
fn buckets_come_and_go_one_by_one() {
    with_switch(|ovs| {
        let mut connection = Connection::open(ovs);
        let mgmt = ovs.mgmt("br-test").display().to_string();
        for (change, want) in [
            ("add group_id=4,type=select,bucket=bucket_id:5,weight:100,output:5", "5"),
            (
                "insert_bucket group_id=4,command_bucket_id=last,bucket=bucket_id:9,weight:9,output:9",
                "5 9",
            ),
            (
                "insert_bucket group_id=4,command_bucket_id=first,bucket=bucket_id:1,weight:1,output:1",
                "1 5 9",
            ),
            (
                "insert_bucket group_id=4,command_bucket_id=5,bucket=bucket_id:7,weight:7,output:7",
                "1 5 7 9",
            ),
            ("remove_bucket group_id=4,command_bucket_id=5", "1 7 9"),
            ("remove_bucket group_id=4,command_bucket_id=last", "1 7"),
            ("remove_bucket group_id=4,command_bucket_id=all", ""),
            ("add_or_mod group_id=4,type=all,bucket=bucket_id:2,output:2", "2"),
            ("modify group_id=4,type=all,bucket=bucket_id:3,output:3", "3"),
        ] {
            connection.send(&Message::GroupMod(change.parse().unwrap()));
            connection.quiet_barrier();
            let all = connection.list(MultipartRequest::Groups(GroupId(4)));
            let [MultipartBody::Groups(groups)] = all.as_slice() else { panic!("{all:?}") };
            let groups = &groups.known;
            let ids: Vec<_> = groups[0].buckets.iter().map(|b| b.id.0.to_string()).collect();
            assert_eq!(ids.join(" "), want, "{change}");
            let theirs = ovs.ofctl(&["dump-groups", &mgmt, "4"]);
            assert_eq!(theirs.lines().nth(1).unwrap().trim(), groups[0].to_string());
        }
        let text = ovs.ofctl(&["dump-meters", &mgmt]);
        assert_eq!(text.lines().count(), 1, "{text}");
        for meter in [
            "meter=1 kbps burst stats bands=type=drop rate=1000 burst_size=2000",
            "meter=2 pktps bands=type=drop rate=7",
        ] {
            let change: MeterMod = format!("add {meter}").parse().unwrap();
            connection.send(&Message::MeterMod(change));
        }
        connection.quiet_barrier();
        let theirs = ovs.ofctl(&["dump-meters", &mgmt]);
        let all = connection.list(MultipartRequest::Meters(MeterId::ALL));
        let [MultipartBody::Meters(meters)] = all.as_slice() else { panic!("{all:?}") };
        for meter in &meters.known {
            assert!(theirs.contains(&meter.to_string()), "{meter} in {theirs}");
        }
    });
}

#[test]
#[ignore = "needs root: make test"]
fn roles_asynchronous_configuration_and_ports_are_taken() {
    with_switch(|ovs| {
        let mut one = Connection::open(ovs);
        one.send(&Message::GetConfigRequest);
        let (_, Message::GetConfigReply(config)) = one.receive() else { panic!() };
        assert_eq!(config.flags, 0);
        one.send(&Message::EchoRequest(bytes::Bytes::from_static(b"x")));
        let (_, Message::EchoReply(data)) = one.receive() else { panic!() };
        assert_eq!(data.as_ref(), b"x");

        let wanted = AsyncConfig { role_status_slave: Some(1), ..AsyncConfig::flow_removed_only() };
        one.send(&Message::SetAsync(wanted));
        one.send(&Message::GetAsyncRequest);
        let (_, Message::GetAsyncReply(have)) = one.receive() else { panic!() };
        assert_eq!(have, wanted);

        let master = |generation_id| {
            Message::RoleRequest(ControllerRole { role: Role::Master, generation_id })
        };
        one.send(&master(1));
        let (_, Message::RoleReply(role)) = one.receive() else { panic!() };
        assert_eq!(role, ControllerRole { role: Role::Master, generation_id: 1 });
        // Another connection takes the role over, and the first is told.
        let mut other = Connection::open(ovs);
        other.send(&master(2));
        let (_, Message::RoleReply(_)) = other.receive() else { panic!() };
        let (_, Message::RoleStatus(status)) = one.receive() else { panic!() };
        assert_eq!((status.role, status.reason), (Role::Slave, RoleReason::MasterRequest));
        // What is older is refused by name.
        one.send(&master(1));
        let (_, Message::Error(error)) = one.receive() else { panic!() };
        assert_eq!(error.code.to_string(), "OFPRRFC_STALE");

        let parts = other.list(MultipartRequest::Ports(OfPort::LOCAL));
        let [MultipartBody::Ports(ports)] = parts.as_slice() else { panic!("{parts:?}") };
        let mask = PortConfig::NO_RECV | PortConfig::NO_FWD;
        let port_mod = PortMod { port: OfPort::LOCAL, mac: ports[0].mac, config: mask, mask };
        other.send(&Message::PortMod(port_mod));
        other.quiet_barrier();
        let parts = other.list(MultipartRequest::Ports(OfPort::LOCAL));
        let [MultipartBody::Ports(ports)] = parts.as_slice() else { panic!("{parts:?}") };
        assert!(ports[0].config.contains(mask), "{ports:?}");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_flow_holds_as_many_conjunctions_as_we_say() {
    with_switch(|ovs| {
        let mut connection = Connection::open(ovs);
        for text in ["", "ct_state=+new+trk,ip,nw_src=10.0.0.1,reg1=5", "ipv6,ipv6_src=1::/64"] {
            let matching: Match = text.parse().unwrap();
            let n = u32::try_from(Flow::max_conjunctions(&matching)).unwrap();
            let flow = |n| {
                Flow::new(TableId(1), 5, matching.clone())
                    .actions((0..n).map(|id| Action::conjunction(openflow::ConjId(id), 1, 2)))
            };
            connection.send(&Message::FlowMod(FlowMod::add(flow(n))));
            connection.quiet_barrier();
            assert!(connection.flows() == [flow(n)], "{n} with {text:?} come back");
            let more = Message::FlowMod(FlowMod::add(flow(n + 1)));
            assert!(matches!(more.encode(Xid(1)), Err(EncodeError::TooLong { .. })));
            connection.send(&Message::FlowMod(FlowMod::delete_strict(flow(0))));
            connection.quiet_barrier();
        }
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_group_holds_as_many_buckets_as_we_say() {
    with_switch(|ovs| {
        let mut connection = Connection::open(ovs);
        let group = |n: u32| {
            let group = Group::select(GroupId(4));
            let buckets = (0..n).map(|id| openflow::Bucket {
                id: openflow::BucketId(id),
                weight: 100,
                watch_port: OfPort::ANY,
                watch_group: GroupId::ANY,
                actions: vec![
                    Action::set_field(openflow::Field::Reg(3), id.into()),
                    Action::resubmit(TableId(4)),
                ],
            });
            Group { buckets: buckets.collect(), ..group }
        };
        let fits = |n: &u32| group(*n).check_len().is_ok();
        let most = (1000..2000).take_while(fits).last().unwrap();
        let add = Message::GroupMod(GroupMod::Add(group(most)));
        connection.send(&add);
        connection.quiet_barrier();
        let parts = connection.list(MultipartRequest::Groups(GroupId(4)));
        assert!(
            parts == [MultipartBody::Groups(vec![group(most)].into())],
            "{most} buckets come back"
        );
        let more = Message::GroupMod(GroupMod::Add(group(most + 1)));
        assert!(matches!(more.encode(Xid(1)), Err(EncodeError::TooLong { .. })));
        // One more by another way: the switch takes it, and can tell the group no more.
        let buckets = group(most + 1).buckets.split_off(usize::try_from(most).unwrap());
        connection.send(&Message::GroupMod(GroupMod::InsertBuckets {
            group: GroupId(4),
            group_type: openflow::GroupType::Select,
            after: openflow::BucketId::LAST,
            buckets,
        }));
        connection.quiet_barrier();
        let request = MultipartRequest::Groups(GroupId(4));
        connection.send(&Message::MultipartRequest(request));
        let told = connection.try_receive();
        let whole = reply_of(vec![group(most + 1)]);
        assert!(told != Some(whole), "the limit is not one any more");
    });
}

fn reply_of(groups: Vec<Group>) -> Message {
    let body = MultipartBody::Groups(groups.into());
    Message::MultipartReply(openflow::message::MultipartReply { more: false, body })
}

#[test]
#[ignore = "needs root: make test"]
fn a_switch_with_things_unknown_to_us_can_still_be_read() {
    with_switch(|ovs| {
        let mgmt = ovs.mgmt("br-test").display().to_string();
        for flow in [
            "table=1,cookie=0x7,mpls,mpls_label=4,actions=drop",
            "table=2,cookie=0x8,ip,actions=multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[0..3])",
            "table=3,cookie=0x9,ip,actions=drop",
        ] {
            ovs.ofctl(&["add-flow", &mgmt, flow]);
        }
        let mut connection = Connection::open(ovs);
        let parts = connection.list(MultipartRequest::Flows(FlowFilter::all()));
        let [MultipartBody::Flows(dump)] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!(dump.flows.len(), 1);
        let mut undecoded: Vec<_> = dump
            .undecoded
            .iter()
            .map(|flow| (flow.cookie, flow.matching.clone(), flow.error.to_string()))
            .collect();
        undecoded.sort();
        assert_eq!(
            undecoded,
            [
                (Cookie(7), None, "unknown match field 0x80004404".to_owned()),
                (Cookie(8), Some(Match::new().ip()), "unknown Nicira action 0xa".to_owned()),
            ]
        );
        let multipath = "multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[0..3])";
        let odd = format!("group_id=5,type=all,bucket=actions={multipath}");
        for group in [&odd, "group_id=6,type=all,bucket=actions=output:1"] {
            ovs.ofctl(&["add-group", &mgmt, group]);
        }
        let parts = connection.list(MultipartRequest::Groups(GroupId::ALL));
        let [MultipartBody::Groups(groups)] = parts.as_slice() else { panic!("{parts:?}") };
        let known: Vec<_> = groups.known.iter().map(|group| group.id).collect();
        let undecoded: Vec<_> =
            groups.undecoded.iter().map(|group| (group.id, group.error.to_string())).collect();
        assert_eq!(known, [GroupId(6)]);
        assert_eq!(undecoded, [(GroupId(5), "unknown Nicira action 0xa".to_owned())]);
    });
}

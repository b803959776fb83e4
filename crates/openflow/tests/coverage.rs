//! Every variant has a vector: what is added to the crate without one makes these tests fail, or
//! not compile.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/messages.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test takes the messages it needs")]
mod messages;
#[path = "common/vectors.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test takes the vectors it needs")]
mod vectors;

use std::collections::BTreeSet;

use openflow::message::{
    GroupMod, MeterMod, MultipartBody, MultipartReply, MultipartRequest, PacketInReason,
};
use openflow::{
    Action, BandKind, CtZone, Field, Flow, GroupType, LearnSource, LearnSpec, Match, Message,
    NatDirection,
};

/// A function that names the variant of a value, and the list of all names. The match is
/// exhaustive, so a new variant has to be put here.
macro_rules! kinds {
    ($function:ident, $all:ident, $type:ident: $($variant:ident),* $(,)?) => {
        fn $function(value: &$type) -> &'static str {
            match value {
                $($type::$variant { .. } => stringify!($variant),)*
            }
        }
        const $all: &[&str] = &[$(stringify!($variant)),*];
    };
}

kinds!(action_kind, ACTIONS, Action:
    Output, OutputReg, OutputController, Controller, SetField, Load, Move, StackPush, StackPop, Ct,
    CtClear, Resubmit, DecTtl, DecTtlIds, Learn, Conjunction, Group, Meter, Note, PushVlan, PopVlan,
    SetQueue, FinTimeout, CheckPktLarger, Clone, Exit, ClearActions, WriteActions, WriteMetadata,
    GotoTable,
);
kinds!(message_kind, MESSAGES, Message:
    Hello, Error, EchoRequest, EchoReply, FeaturesRequest, FeaturesReply, GetConfigRequest,
    GetConfigReply, SetConfig, BarrierRequest, BarrierReply, FlowMod, FlowRemoved, GroupMod,
    MeterMod, PacketIn, PacketOut, Resume, PortStatus, PortMod, RoleRequest, RoleReply, RoleStatus,
    GetAsyncRequest, GetAsyncReply, SetAsync, BundleControl, BundleAdd, MultipartRequest,
    MultipartReply, SetPacketInFormat, SetControllerId, Other,
);
kinds!(request_kind, REQUESTS, MultipartRequest:
    Flows, Aggregate, Ports, Groups, Meters, TableStats, TableFeatures, PortStats, GroupStats,
    GroupFeatures, MeterStats, MeterFeatures,
);
kinds!(body_kind, BODIES, MultipartBody:
    Flows, Aggregate, Ports, Groups, Meters, TableStats, TableFeatures, PortStats, GroupStats,
    GroupFeatures, MeterStats, MeterFeatures, Other,
);
kinds!(group_mod_kind, GROUP_MODS, GroupMod:
    Add, Modify, AddOrModify, Delete, InsertBuckets, RemoveBucket,
);
kinds!(meter_mod_kind, METER_MODS, MeterMod: Add, Modify, Delete);
kinds!(group_type_kind, GROUP_TYPES, GroupType: All, Select, Indirect, FastFailover);
kinds!(band_kind, BANDS, BandKind: Drop, DscpRemark);
kinds!(zone_kind, ZONES, CtZone: Imm, Field);
kinds!(direction_kind, DIRECTIONS, NatDirection: Src, Dst);
kinds!(spec_kind, SPECS, LearnSpec: Match, Load, Output);
kinds!(source_kind, SOURCES, LearnSource: Value, Field);
kinds!(reason_kind, REASONS, PacketInReason:
    NoMatch, Action, InvalidTtl, ActionSet, Group, PacketOut, Other,
);

#[track_caller]
fn check(what: &str, all: &[&str], seen: impl IntoIterator<Item = &'static str>) {
    let seen: BTreeSet<&str> = seen.into_iter().collect();
    let missing: Vec<_> = all.iter().filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "{what} without a vector: {missing:?}");
}

fn flows() -> Vec<Flow> {
    vectors::flows().iter().map(|text| text.parse().unwrap()).collect()
}

/// Every action of the vectors, nested ones too.
fn actions() -> Vec<Action> {
    fn add(all: &mut Vec<Action>, actions: &[Action]) {
        for action in actions {
            all.push(action.clone());
            match action {
                Action::Ct(ct) => add(all, &ct.exec),
                Action::Clone(inner) | Action::WriteActions(inner) => add(all, inner),
                _ => {}
            }
        }
    }
    let mut all = Vec::new();
    flows().iter().for_each(|flow| add(&mut all, &flow.actions));
    all
}

#[test]
fn every_action_has_a_vector() {
    let actions = actions();
    check("actions", ACTIONS, actions.iter().map(action_kind));
    let cts: Vec<_> = actions
        .iter()
        .filter_map(|a| if let Action::Ct(ct) = a { Some(ct) } else { None })
        .collect();
    check("ct zones", ZONES, cts.iter().map(|ct| zone_kind(&ct.zone)));
    let nats: Vec<_> = cts.iter().filter_map(|ct| ct.nat.as_ref()).collect();
    let directions = nats.iter().filter_map(|nat| nat.direction.as_ref());
    check("nat directions", DIRECTIONS, directions.map(direction_kind));
    for (what, there) in [
        ("ct force", cts.iter().any(|ct| ct.force)),
        ("ct alg", cts.iter().any(|ct| ct.alg.is_some())),
        ("nat without direction", nats.iter().any(|nat| nat.direction.is_none())),
        ("nat persistent", nats.iter().any(|nat| nat.persistent)),
        ("nat hash", nats.iter().any(|nat| nat.hash)),
        ("nat random", nats.iter().any(|nat| nat.random)),
        ("nat to ports", nats.iter().any(|nat| nat.ports.is_some())),
        ("nat to IPv6", nats.iter().any(|n| n.addresses.is_some_and(|a| a.first.is_ipv6()))),
    ] {
        assert!(there, "{what} has no vector");
    }
    let specs: Vec<_> = actions
        .iter()
        .filter_map(|a| if let Action::Learn(learn) = a { Some(&learn.specs) } else { None })
        .flatten()
        .collect();
    check("learn specs", SPECS, specs.iter().map(|spec| spec_kind(spec)));
    let sources = specs.iter().filter_map(|spec| match spec {
        LearnSpec::Match { src, .. } | LearnSpec::Load { src, .. } => Some(source_kind(src)),
        LearnSpec::Output(_) => None,
    });
    check("learn sources", SOURCES, sources);
}

#[test]
fn every_field_has_a_vector() {
    let matches: Vec<Match> = flows().into_iter().map(|flow| flow.matching).collect();
    let mut missing = Vec::new();
    for field in Field::all() {
        let name = field.info().name;
        if !matches.iter().any(|matching| matching.get(field).is_some()) {
            missing.push(format!("{name} matched"));
        }
        let masked = |m: &Match| m.get(field).is_some_and(|to| !to.is_exact(field));
        // With one bit there is nothing to mask, and of this one ovs-ofctl does not print the mask.
        let special = field.info().bits == 1 || field == Field::TunGbpFlags;
        let maskable = field.info().maskable && !special;
        if maskable && !matches.iter().any(masked) {
            missing.push(format!("{name} masked"));
        }
    }
    assert!(missing.is_empty(), "without a vector: {missing:?}");
}

/// Fields that no action can set.
const READ_ONLY: &[Field] = &[
    Field::DpHash,
    Field::RecircId,
    Field::ConjId,
    Field::PacketType,
    // By its 16-bit view only.
    Field::InPort,
    Field::ActsetOutput,
    Field::EthType,
    Field::IpFrag,
    Field::IpProto,
    Field::TcpFlags,
    Field::CtState,
    Field::CtZone,
    Field::CtNwSrc,
    Field::CtNwDst,
    Field::CtIpv6Src,
    Field::CtIpv6Dst,
    Field::CtNwProto,
    Field::CtTpSrc,
    Field::CtTpDst,
];

#[test]
fn every_field_that_can_be_set_is_set_in_a_vector() {
    let mut set = BTreeSet::new();
    let mut moved = BTreeSet::new();
    for action in actions() {
        match action.normalize() {
            Action::SetField { field, .. } => drop(set.insert(field)),
            Action::Move { src, dst } => {
                moved.insert(src.field);
                moved.insert(dst.field);
            }
            _ => {}
        }
    }
    let missing: Vec<_> = Field::all()
        .filter(|field| !READ_ONLY.contains(field) && !set.contains(field))
        .map(|field| field.info().name)
        .collect();
    assert!(missing.is_empty(), "not set in a vector: {missing:?}");
    assert!(moved.len() > 10, "{moved:?}");
}

#[test]
fn every_message_has_a_vector() {
    let messages = messages::all();
    check("messages", MESSAGES, messages.iter().map(message_kind));
    let requests = messages.iter().filter_map(|message| match message {
        Message::MultipartRequest(request) => Some(request_kind(request)),
        _ => None,
    });
    check("multipart requests", REQUESTS, requests);
    let bodies = messages.iter().filter_map(|message| match message {
        Message::MultipartReply(MultipartReply { body, .. }) => Some(body_kind(body)),
        _ => None,
    });
    check("multipart replies", BODIES, bodies);
    check("group changes", GROUP_MODS, messages::group_mods().iter().map(group_mod_kind));
    check("meter changes", METER_MODS, messages::meter_mods().iter().map(meter_mod_kind));
    let groups = messages::group_mods().into_iter().filter_map(|change| match change {
        GroupMod::Add(group) => Some(group_type_kind(&group.group_type)),
        _ => None,
    });
    check("group types", GROUP_TYPES, groups);
    let meters = messages::meters();
    let bands = meters.iter().flat_map(|meter| &meter.bands).map(|band| band_kind(&band.kind));
    check("meter bands", BANDS, bands);
    let numbers = (0..=6).map(|n| format!("controller(reason={n},id=7)"));
    let reasons = numbers.map(|text| {
        let actions = openflow::text::parse_actions(&text).unwrap();
        match &actions[..] {
            [Action::Controller(controller)] => reason_kind(&controller.reason),
            _ => panic!("{actions:?}"),
        }
    });
    check("packet-in reasons", REASONS, reasons);
}

#[test]
fn every_message_survives_the_wire() {
    for message in messages::all() {
        let bytes = message.encode(openflow::Xid(7)).unwrap();
        let (xid, again) = Message::decode(&bytes).unwrap();
        assert_eq!(xid, openflow::Xid(7));
        // Text may have given `load` and short notes; they travel in their normal form.
        if again != message {
            assert_eq!(again.encode(xid).unwrap(), bytes, "{message:?}");
        }
    }
}

#[test]
fn changes_of_groups_and_meters_survive_their_text() {
    for change in messages::group_mods() {
        let text = change.to_string();
        assert_eq!(text.parse(), Ok(change), "{text}");
    }
    for change in messages::meter_mods() {
        let text = change.to_string();
        assert_eq!(text.parse(), Ok(change), "{text}");
    }
    for (text, want) in [
        (
            "insert_bucket group_id=4,command_bucket_id=last,bucket=weight:7,actions=output:1,bucket=output:2",
            "INSERT_BUCKET command_bucket_id:last,group_id=4,bucket=bucket_id:0,weight:7,actions=output:1,bucket=bucket_id:1,actions=output:2",
        ),
        (
            "remove_bucket group_id=4,command_bucket_id=all",
            "REMOVE_BUCKET command_bucket_id:all,group_id=4",
        ),
        ("delete group_id=4", "DEL group_id=4,type=all"),
        (
            "modify group_id=4,type=indirect,bucket=output:1",
            "MOD group_id=4,type=indirect,bucket=bucket_id:0,actions=output:1",
        ),
    ] {
        assert_eq!(text.parse::<GroupMod>().unwrap().to_string(), want);
    }
    for text in [
        "insert_bucket group_id=4,bucket=output:1",
        "remove_bucket group_id=4,command_bucket_id=3,bucket=output:1",
        "frobnicate group_id=4",
        "add group_id=4,type=all,command_bucket_id=3",
        "delete",
    ] {
        assert!(text.parse::<GroupMod>().is_err(), "{text}");
    }
}

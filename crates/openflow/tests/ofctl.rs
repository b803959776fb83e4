//! What this crate writes and reads, judged by the installed `ovs-ofctl`.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

#[path = "common/vectors.rs"]
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
    for text in vectors::flows() {
        let ours: Flow = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let ours = Message::FlowMod(FlowMod::add(ours)).encode(Xid(1)).unwrap();
        let theirs = undump(&ofctl(&["-mmmmm", "parse-flow", &text]));
        assert_eq!(hex(&ours), hex(&theirs), "{text}");
    }
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
    for text in vectors::flows() {
        let flow: Flow = text.parse().unwrap();
        let flow = flow.normalize();
        assert_eq!(flow.to_string(), dumped(&flow), "{text}");
    }
}

#[test]
#[ignore = "needs openvswitch: make test"]
fn groups_are_printed_as_ovs_ofctl_prints_them() {
    for text in vectors::GROUPS {
        let group: Group = text.parse().unwrap();
        assert_eq!(group.to_string(), *text);
        let body = MultipartBody::Groups(vec![group.clone()]);
        let reply = Message::MultipartReply(MultipartReply { more: false, body });
        assert_eq!(printed(&reply), format!("OFPST_GROUP_DESC reply:\n {text}"));
        let add = printed(&Message::GroupMod(GroupMod::Add(group.clone())));
        assert_eq!(add, format!("OFPT_GROUP_MOD:\n ADD {text}"));
        let modify = printed(&Message::GroupMod(GroupMod::Modify(group)));
        assert_eq!(modify, format!("OFPT_GROUP_MOD:\n MOD {text}"));
    }
}

//! Damaged messages and texts: nothing panics, and what is understood is written and understood
//! again as the same.
//!
//! The corpus is every vector of these tests, as bytes and as text; `UPDATE_GOLDEN=1` writes it
//! anew. `FUZZ_EXECS` makes the runs longer.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/messages.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test takes the messages it needs")]
mod messages;
#[path = "common/vectors.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test takes the vectors it needs")]
mod vectors;

use std::fmt::{Debug, Display};
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use openflow::message::{FlowMod, GroupMod, MeterMod};
use openflow::text::{ActionList, parse_actions};
use openflow::{EncodeError, Flow, Framer, Group, Match, Message, Meter, Subfield, Xid};
use testkit::fuzz::{Campaign, Outcome, Random, hex};

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name)
}

/// The text of the corpus, one input a line.
fn texts() -> Vec<String> {
    let mut texts = vectors::flows();
    texts.extend(vectors::GROUPS.iter().map(|text| (*text).to_owned()));
    texts.extend(messages::group_mods().iter().map(ToString::to_string));
    texts.extend(messages::meters().iter().map(|meter| meter.to_string().replace('\n', " ")));
    texts.extend(messages::meter_mods().iter().map(|meter| meter.to_string().replace('\n', " ")));
    texts
}

#[test]
fn the_corpus_holds_every_vector() {
    let bytes: String = messages::all()
        .iter()
        .map(|message| hex(&message.encode(Xid(1)).unwrap()) + "\n")
        .collect();
    let texts: String = texts().iter().map(|text| format!("{text}\n")).collect();
    for (path, want) in
        [(corpus("messages/vectors.hex"), bytes), (corpus("text/vectors.txt"), texts)]
    {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &want).unwrap();
        }
        let have = fs::read_to_string(&path).unwrap_or_default();
        assert!(have == want, "{} is not as UPDATE_GOLDEN=1 writes it", path.display());
    }
}

/// Puts version and length right, mostly, so that what is behind the header is reached.
fn repair(bytes: &mut [u8], random: &mut Random) {
    if random.below(8) == 0 || bytes.len() < 8 {
        return;
    }
    bytes[0] = 6;
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
}

/// Whether a message that was read may have no form of its own: what is shorter in another form
/// than in ours, and what OpenFlow 1.5 cannot say.
fn may_be_unwritable(error: &EncodeError) -> bool {
    match error {
        EncodeError::TooLong { .. } => true,
        EncodeError::Inexpressible { what, .. } => {
            matches!(*what, "flow dump" | "group dump" | "meter dump" | "VLAN priority")
        }
        EncodeError::Match(_) => false,
    }
}

fn decode(bytes: &[u8]) -> Outcome {
    let mut framer = Framer::new();
    framer.push(bytes);
    while let Ok(Some(message)) = framer.next_message() {
        assert!(message.len() >= 8);
    }
    let Ok((xid, message)) = Message::decode(bytes) else { return Outcome::Refused };
    match message.encode(xid) {
        Ok(again) => assert_eq!(Message::decode(&again), Ok((xid, message))),
        Err(error) => assert!(may_be_unwritable(&error), "{error}: {message:?}"),
    }
    Outcome::Accepted
}

#[test]
fn fuzz_decode() {
    let report = Campaign::from_dir("openflow decode", corpus("messages"))
        .run_repaired(|bytes, random| repair(bytes, random), decode);
    assert!(report.accepted > report.executions / 10, "{report:?}");
}

/// A text that is understood has a form of its own, which means the same.
fn round_trip<T: FromStr + Display + PartialEq + Debug>(text: &str) -> bool {
    let Ok(value) = text.parse::<T>() else { return false };
    let again = value.to_string();
    match again.parse::<T>() {
        Ok(same) => assert_eq!(same, value, "{again}"),
        Err(_) => panic!("{again:?} is not read again"),
    }
    true
}

fn read_text(bytes: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(bytes);
    let text = text.as_ref();
    let mut read = round_trip::<Flow>(text);
    read |= round_trip::<Group>(text) | round_trip::<GroupMod>(text);
    read |= round_trip::<Meter>(text) | round_trip::<MeterMod>(text);
    let (head, tail) = text.split_once("actions=").unwrap_or((text, text));
    read |= round_trip::<Match>(head) | round_trip::<Subfield>(tail);
    if let Ok(actions) = parse_actions(tail) {
        let again = ActionList(&actions).to_string();
        assert_eq!(parse_actions(&again), Ok(actions), "{again}");
        read = true;
    }
    if let Ok(flow) = text.parse::<Flow>() {
        let message = Message::FlowMod(FlowMod::add(flow));
        if let Ok(bytes) = message.encode(Xid(1)) {
            assert!(Message::decode(&bytes).is_ok(), "{message:?} is not read again");
        }
    }
    if read { Outcome::Accepted } else { Outcome::Refused }
}

#[test]
fn fuzz_text() {
    let pieces = [
        "(",
        ")",
        "[",
        "]",
        ",",
        "=",
        ":",
        "/",
        "-",
        "->",
        "..",
        "0x",
        "0",
        "1",
        "65535",
        " ",
        "é",
        "actions=",
        "bucket=",
        "ct(",
        "learn(",
        "clone(",
        "exec(",
        "reg0",
        "NXM_NX_REG1[0..3]",
        "load:",
        "drop",
        "ffffffffffffffffffffffffffffffff",
        "255.255.255.255",
        "::1",
    ];
    let report =
        Campaign::from_dir("openflow text", corpus("text")).dictionary(pieces).run(read_text);
    assert!(report.accepted > report.executions / 20, "{report:?}");
}

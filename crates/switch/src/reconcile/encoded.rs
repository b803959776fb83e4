//! Flows as the bytes of the flow-mod that adds them.
//!
//! A hundred thousand flows are kept, so each is kept as small as it gets: its message without what
//! is the same in every one (OpenFlow 1.5 section 7.3.4.2). The message, with what is left out in
//! brackets, and where the rest of it is kept:
//!
//! ```text
//! [0 header (8)]          24 table (1): 8         28 hard timeout (2): 11   [36 out_port (4)]
//!  8 cookie (8): 0       [25 command (1)]         30 priority (2): 13       [40 out_group (4)]
//! [16 cookie mask (8)]    26 idle timeout (2): 9 [32 buffer (4)]            44 flags (2): 15
//!                                                                           46 importance (2): 17
//! 48 match: type (2), length (2), fields, padding to 8; then instructions: 19
//! ```

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use openflow::message::{FlowMod, Header};
use openflow::{Action, Cookie, EncodeError, Flow, Group, Intent, Message, Meter, TableId, Xid};
use rustc_hash::FxHasher;

use super::types::{Owner, Refusal, RefusalReason};

const TABLE: usize = 8;
const TIMEOUTS: Range<usize> = 9..13;
const PRIORITY: Range<usize> = 13..15;
const FLAGS: Range<usize> = 15..19;
const MATCH: usize = 19;
const FLOW_MOD: u8 = 14;
const ADD: u8 = 0;
const DELETE_STRICT: u8 = 4;
/// No buffer, any port, any group.
const ANY: [u8; 12] = [0xff; 12];

/// A flow, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedFlow {
    pub(super) bytes: Box<[u8]>,
    /// Cookies of the flows that its learn actions make.
    pub(super) learn_cookies: Vec<Cookie>,
}

/// What an owner wants under a key, encoded.
#[derive(Debug, Default)]
pub struct EncodedIntents {
    /// Flows.
    pub(super) flows: Vec<EncodedFlow>,
    /// Groups.
    pub(super) groups: Vec<Group>,
    /// Meters.
    pub(super) meters: Vec<Meter>,
    /// What has no form on the wire.
    pub(super) refused: Vec<Refusal>,
}

impl EncodedIntents {
    /// Encodes what is wanted under a key.
    #[must_use]
    pub fn new(owner: Owner, key: &Arc<str>, intents: Vec<Intent>) -> Self {
        let mut encoded = Self::default();
        encoded.flows.reserve_exact(intents.len());
        for intent in intents {
            match intent {
                Intent::Flow(flow) => match EncodedFlow::try_new(flow) {
                    Ok(flow) => encoded.flows.push(flow),
                    Err(refused) => {
                        let (message, error) = *refused;
                        encoded.refused.push(Refusal {
                            owner,
                            key: Arc::clone(key),
                            intent: flow_text(&message),
                            reason: RefusalReason::Encode(error),
                        });
                    }
                },
                Intent::Group(group) => encoded.groups.push(group.normalize()),
                Intent::Meter(meter) => encoded.meters.push(meter),
            }
        }
        encoded
    }
}

/// The longest message that the one around it in a bundle (16 bytes) leaves room for.
const LONGEST_IN_BUNDLE: usize = u16::MAX as usize - 16;

impl EncodedFlow {
    /// Encodes a flow in the form in which the switch gives it back.
    pub fn new(flow: Flow) -> Result<Self, EncodeError> {
        Self::try_new(flow).map_err(|refused| refused.1)
    }

    /// Gives what could not be encoded back with the reason.
    fn try_new(flow: Flow) -> Result<Self, Box<(Message, EncodeError)>> {
        let flow = flow.normalize();
        let mut learn_cookies = Vec::new();
        collect_learn_cookies(&flow.actions, &mut learn_cookies);
        let message = Message::FlowMod(FlowMod::add(flow));
        match message.encode(Xid(0)) {
            Ok(bytes) if bytes.len() <= LONGEST_IN_BUNDLE => {
                Ok(Self { bytes: kept(&bytes), learn_cookies })
            }
            Ok(bytes) => {
                let (what, len) = ("a flow in a bundle", bytes.len());
                let error = EncodeError::TooLong { what, len, max: LONGEST_IN_BUNDLE };
                Err(Box::new((message, error)))
            }
            Err(error) => Err(Box::new((message, error))),
        }
    }

    /// Whether both are the same flow to the switch: table, priority and match.
    #[must_use]
    pub fn has_key_of(&self, other: &Self) -> bool {
        self.view().same_key(other.view())
    }

    /// Its bytes as a view.
    pub(super) fn view(&self) -> View<'_> {
        View(&self.bytes)
    }
}

/// What is kept of the message that adds a flow.
fn kept(message: &[u8]) -> Box<[u8]> {
    [&message[8..16], &message[24..25], &message[26..32], &message[44..]].concat().into()
}

fn collect_learn_cookies(actions: &[Action], cookies: &mut Vec<Cookie>) {
    for action in actions {
        if let Action::Learn(learn) = action {
            cookies.push(learn.cookie);
        }
    }
}

/// What is kept of an encoded flow. The bytes come from our own encoder, so the places are there.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a>(pub(super) &'a [u8]);

impl<'a> View<'a> {
    pub(super) fn table(self) -> TableId {
        TableId(self.0.get(TABLE).copied().unwrap_or_default())
    }

    pub(super) fn cookie(self) -> Cookie {
        let bytes = self.0.first_chunk::<8>();
        Cookie(bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes)))
    }

    /// Whether it goes away by itself.
    pub(super) fn is_timed(self) -> bool {
        self.0.get(TIMEOUTS).is_some_and(|timeouts| timeouts.iter().any(|byte| *byte != 0))
    }

    fn priority(self) -> &'a [u8] {
        self.0.get(PRIORITY).unwrap_or_default()
    }

    /// The match without padding.
    fn matching(self) -> &'a [u8] {
        let len = self.0.get(MATCH + 2..MATCH + 4).and_then(<[u8]>::first_chunk::<2>);
        let len = len.map_or(0, |len| usize::from(u16::from_be_bytes(*len)));
        self.0.get(MATCH..MATCH + len).unwrap_or_default()
    }

    /// Whether both are the same flow to the switch.
    pub(super) fn same_key(self, other: View<'_>) -> bool {
        self.table() == other.table()
            && self.priority() == other.priority()
            && self.matching() == other.matching()
    }

    /// Hash of what identifies it.
    pub(super) fn key_hash(self) -> u64 {
        let mut hasher = FxHasher::default();
        (self.table(), self.priority(), self.matching()).hash(&mut hasher);
        hasher.finish()
    }

    /// Hash of all of it.
    pub(super) fn content_hash(self) -> u64 {
        let mut hasher = FxHasher::default();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    /// Appends the flow-mod that adds it; its transaction id is 0.
    pub(super) fn write_addition(self, out: &mut Vec<u8>) {
        let start = write_head(out, self.0.get(..8).unwrap_or_default());
        out.push(self.table().0);
        out.push(ADD);
        out.extend_from_slice(self.0.get(TIMEOUTS).unwrap_or_default());
        out.extend_from_slice(self.priority());
        out.extend_from_slice(&ANY);
        out.extend_from_slice(self.0.get(FLAGS).unwrap_or_default());
        out.extend_from_slice(self.0.get(MATCH..).unwrap_or_default());
        write_len(out, start);
    }

    /// Appends the flow-mod that deletes exactly this flow, whatever its cookie is by now; its
    /// transaction id is 0.
    pub(super) fn write_deletion(self, out: &mut Vec<u8>) {
        let start = write_head(out, &[0; 8]);
        out.push(self.table().0);
        out.push(DELETE_STRICT);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(self.priority());
        out.extend_from_slice(&ANY);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(self.matching());
        out.resize(start + (out.len() - start).next_multiple_of(8), 0);
        write_len(out, start);
    }

    /// As text, for people.
    pub(super) fn text(self) -> String {
        let mut message = Vec::new();
        self.write_addition(&mut message);
        match Message::decode(&message) {
            Ok((_, message)) => flow_text(&message),
            Err(_) => "flow".to_owned(),
        }
    }
}

/// Appends header, cookie and cookie mask; returns where the message starts.
fn write_head(out: &mut Vec<u8>, cookie: &[u8]) -> usize {
    let start = out.len();
    out.extend_from_slice(&[Header::VERSION, FLOW_MOD, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(cookie);
    out.extend_from_slice(&[0; 8]);
    start
}

/// Writes the length of the message that starts there and ends `out`.
fn write_len(out: &mut [u8], start: usize) {
    let len = u16::try_from(out.len() - start).expect("it was encoded, so its length fits");
    out[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
}

fn flow_text(message: &Message) -> String {
    match message {
        Message::FlowMod(flow_mod) => flow_mod.flow.to_string(),
        _ => "flow".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use openflow::message::FlowModCommand;

    use super::*;

    #[test]
    fn what_is_taken_has_room_in_a_bundle() {
        let long = |n_actions| {
            let actions =
                vec![
                    Action::Conjunction { id: openflow::ConjId(1), clause: 1, n_clauses: 2 };
                    n_actions
                ];
            EncodedFlow::new(Flow::new(TableId(1), 5, openflow::Match::new()).actions(actions))
        };
        let longest = (4000..4200).rev().find_map(|n| long(n).ok()).unwrap();
        let mut addition = Vec::new();
        longest.view().write_addition(&mut addition);
        assert!(addition.len() <= LONGEST_IN_BUNDLE, "{}", addition.len());
        assert!(addition.len() > LONGEST_IN_BUNDLE - 200, "{}", addition.len());
    }

    #[test]
    fn what_is_left_out_comes_back() {
        let texts = [
            "cookie=0x1,table=3,priority=7,ip,reg1=0x5,nw_src=10.0.0.0/9,actions=drop",
            "table=9,idle_timeout=5,hard_timeout=6,send_flow_rem,importance=2,ipv6,actions=output:1",
            "table=0,priority=0,actions=goto_table:1",
        ];
        let flows = texts.iter().map(|text| text.parse::<Flow>().unwrap());
        for flow in flows.chain(crate::bench::conjunctive_flows(100)) {
            let flow = flow.normalize();
            let encoded = EncodedFlow::new(flow.clone()).unwrap();
            let (mut addition, mut deletion) = (Vec::new(), Vec::new());
            encoded.view().write_addition(&mut addition);
            encoded.view().write_deletion(&mut deletion);
            let whole = Message::FlowMod(FlowMod::add(flow.clone())).encode(Xid(0)).unwrap();
            assert_eq!(addition, whole[..], "{flow}");
            let Ok((_, Message::FlowMod(deletion))) = Message::decode(&deletion) else {
                panic!("{flow}: not deleted by a flow-mod");
            };
            assert_eq!(deletion.command, FlowModCommand::DeleteStrict);
            let identity = |flow: &Flow| (flow.table, flow.priority, flow.matching.clone());
            assert_eq!(identity(&deletion.flow), identity(&flow));
            assert_eq!(encoded.view().is_timed(), flow.idle_timeout + flow.hard_timeout > 0);
            assert_eq!(encoded.view().cookie(), flow.cookie);
        }
    }
}

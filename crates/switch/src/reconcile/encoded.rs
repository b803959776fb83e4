//! Flows as the bytes of the flow-mod that adds them.
//!
//! A hundred thousand flows are kept, so each is kept as small as it gets: its message, ready to be
//! sent. What identifies it is read from fixed places (OpenFlow 1.5 section 7.3.4.2):
//!
//! ```text
//!  0 header (8)          24 table (1)      28 hard timeout (2)   36 out_port (4)
//!  8 cookie (8)          25 command (1)    30 priority (2)       40 out_group (4)
//! 16 cookie mask (8)     26 idle (2)       32 buffer (4)         44 flags (2), importance (2)
//! 48 match: type (2), length (2), fields, padding to 8; then instructions
//! ```

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use openflow::message::FlowMod;
use openflow::{Action, Cookie, EncodeError, Flow, Group, Intent, Message, Meter, TableId, Xid};
use rustc_hash::FxHasher;

use super::types::{Owner, Refusal, RefusalReason};

const TABLE: usize = 24;
const COMMAND: usize = 25;
const TIMEOUTS: std::ops::Range<usize> = 26..30;
const PRIORITY: std::ops::Range<usize> = 30..32;
const MATCH: usize = 48;
const DELETE_STRICT: u8 = 4;

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
            Ok(bytes) => Ok(Self { bytes: bytes[..].into(), learn_cookies }),
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

fn collect_learn_cookies(actions: &[Action], cookies: &mut Vec<Cookie>) {
    for action in actions {
        if let Action::Learn(learn) = action {
            cookies.push(learn.cookie);
        }
    }
}

/// The bytes of an encoded flow. They come from our own encoder, so the places are there.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a>(pub(super) &'a [u8]);

impl<'a> View<'a> {
    pub(super) fn table(self) -> TableId {
        TableId(self.0.get(TABLE).copied().unwrap_or_default())
    }

    pub(super) fn cookie(self) -> Cookie {
        let bytes = self.0.get(8..16).and_then(<[u8]>::first_chunk::<8>);
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

    /// Appends the flow-mod that deletes exactly this flow.
    pub(super) fn write_deletion(self, out: &mut Vec<u8>) {
        let end = (MATCH + self.matching().len().next_multiple_of(8)).min(self.0.len());
        let start = out.len();
        out.extend_from_slice(&self.0[..end]);
        let message = &mut out[start..];
        let len = u16::try_from(end).expect("shorter than the whole message, whose length fits");
        message[2..4].copy_from_slice(&len.to_be_bytes());
        // Whatever its cookie is by now.
        message[8..24].fill(0);
        message[COMMAND] = DELETE_STRICT;
        message[TIMEOUTS].fill(0);
        message[44..48].fill(0);
    }

    /// As text, for people.
    pub(super) fn text(self) -> String {
        match Message::decode(self.0) {
            Ok((_, message)) => flow_text(&message),
            Err(_) => "flow".to_owned(),
        }
    }
}

fn flow_text(message: &Message) -> String {
    match message {
        Message::FlowMod(flow_mod) => flow_mod.flow.to_string(),
        _ => "flow".to_owned(),
    }
}

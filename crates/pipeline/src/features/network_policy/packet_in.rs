//! Packets that policy flows send to the agent, and what they tell.

use openflow::message::PacketIn;
use openflow::{Action, ConjId, Controller, Subfield};

use super::gates::PolicyConfig;
use super::{Direction, Place, Verdict, rules_of};
use crate::fields::{
    EGRESS_RULE_ID, INGRESS_RULE_ID, METER_NETWORK_POLICY, POLICY_CONJ_ID, POLICY_DENY,
    POLICY_DISPOSITION, packet_in,
};

/// Enough for the headers, and for what an answer quotes.
const HEADERS: u16 = 256;

/// Why a packet is sent to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// To be logged.
    Log,
    /// To be answered.
    Reject,
    /// Both.
    LogAndReject,
}

const LOG: u8 = 1;
const REJECT: u8 = 2;

impl Operation {
    const fn bits(self) -> u8 {
        match self {
            Self::Log => LOG,
            Self::Reject => REJECT,
            Self::LogAndReject => LOG | REJECT,
        }
    }
}

/// Sends a copy to the agent; the packet itself goes on.
pub(super) fn to_agent(config: &PolicyConfig, operation: Operation) -> Action {
    Action::controller(Controller {
        max_len: HEADERS,
        controller_id: config.controller_id,
        userdata: vec![packet_in::NETWORK_POLICY, operation.bits()],
        meter: config.packet_in_rate.map(|_| METER_NETWORK_POLICY),
        ..Controller::default()
    })
}

/// What a packet-in of a policy flow tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyPacket {
    /// Which way the rule looks.
    pub direction: Direction,
    /// Which table it is in.
    pub place: Place,
    /// What it said.
    pub verdict: Verdict,
    /// The rule; none where no rule of a Kubernetes policy allowed the packet.
    pub rule: Option<ConjId>,
    /// Whether it is to be logged.
    pub log: bool,
    /// Whether it is to be answered.
    pub reject: bool,
}

/// Whether it is a DNS answer that waits at the agent to be let go on.
#[must_use]
pub fn is_dns_answer(packet: &PacketIn) -> bool {
    packet.userdata.first() == Some(&packet_in::DNS) && packet.continuation.is_some()
}

/// Reads a packet-in; none when no policy flow sent it.
#[must_use]
pub fn read_packet_in(packet: &PacketIn) -> Option<PolicyPacket> {
    let [packet_in::NETWORK_POLICY, operations, ..] = packet.userdata[..] else { return None };
    let (direction, place) = rules_of(packet.table)?;
    let register = |place: Subfield| {
        let value = packet.metadata.get(place.field).map_or(0, |masked| masked.value);
        u32::try_from(place.extract(value)).unwrap_or_default()
    };
    let verdict = match register(POLICY_DISPOSITION) {
        1 => Verdict::Drop,
        2 => Verdict::Reject,
        3 => Verdict::Pass,
        _ => Verdict::Allow,
    };
    let denied = register(POLICY_DENY.place) == POLICY_DENY.value;
    let rule = match (verdict, denied) {
        (Verdict::Drop | Verdict::Reject, true) => Some(register(POLICY_CONJ_ID)),
        (Verdict::Drop | Verdict::Reject, false) => None,
        (Verdict::Allow | Verdict::Pass, _) => Some(register(match direction {
            Direction::Egress => EGRESS_RULE_ID,
            Direction::Ingress => INGRESS_RULE_ID,
        })),
    };
    let rule = rule.filter(|id| *id != 0).map(ConjId);
    let (log, reject) = (operations & LOG != 0, operations & REJECT != 0);
    Some(PolicyPacket { direction, place, verdict, rule, log, reject })
}

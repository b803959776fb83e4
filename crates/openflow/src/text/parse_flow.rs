//! Flows.

use std::str::FromStr;

use super::value::number;
use super::{lexer, parse_action, parse_match};
use crate::error::ParseError;
use crate::flow::{Flow, FlowFlags};
use crate::ids::{Cookie, TableId};
use crate::matching::Match;

/// What a dump tells beside the flow.
const COUNTERS: &[&str] = &["duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

impl FromStr for Flow {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (head, actions) = match text.find("actions=") {
            Some(at) => (&text[..at], &text[at + "actions=".len()..]),
            None => (text, ""),
        };
        let mut flow = Self::new(TableId(0), Self::DEFAULT_PRIORITY, Match::new());
        let mut conditions = Vec::new();
        for item in lexer::items(head)? {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            match name {
                "table" => flow.table = TableId(number(value)?),
                "priority" => flow.priority = number(value)?,
                "cookie" => flow.cookie = Cookie(number(value)?),
                "idle_timeout" => flow.idle_timeout = number(value)?,
                "hard_timeout" => flow.hard_timeout = number(value)?,
                "importance" => flow.importance = number(value)?,
                "send_flow_rem" => flow.flags |= FlowFlags::SEND_FLOW_REM,
                "check_overlap" => flow.flags |= FlowFlags::CHECK_OVERLAP,
                "reset_counts" => flow.flags |= FlowFlags::RESET_COUNTS,
                "no_packet_counts" => flow.flags |= FlowFlags::NO_PACKET_COUNTS,
                "no_byte_counts" => flow.flags |= FlowFlags::NO_BYTE_COUNTS,
                name if COUNTERS.contains(&name) => {}
                _ => conditions.push(item),
            }
        }
        parse_match::from_items(&mut flow.matching, &conditions)?;
        flow.actions = parse_action::actions(actions)?;
        Ok(flow)
    }
}

//! Flows and their keys.

use std::fmt;

use super::format_action::ActionList;
use super::format_match::{Parts, write};
use crate::flow::{Flow, FlowFlags, FlowKey};
use crate::matching::Match;

const FLAGS: &[(FlowFlags, &str)] = &[
    (FlowFlags::SEND_FLOW_REM, "send_flow_rem"),
    (FlowFlags::CHECK_OVERLAP, "check_overlap"),
    (FlowFlags::RESET_COUNTS, "reset_counts"),
    (FlowFlags::NO_PACKET_COUNTS, "no_packet_counts"),
    (FlowFlags::NO_BYTE_COUNTS, "no_byte_counts"),
];

fn write_rule(f: &mut fmt::Formatter<'_>, priority: u16, matching: &Match) -> fmt::Result {
    let mut parts = Parts { f, first: true };
    if priority != Flow::DEFAULT_PRIORITY {
        parts.part(format_args!("priority={priority}"))?;
    }
    write(&mut parts, matching)?;
    if !parts.first {
        f.write_str(" ")?;
    }
    Ok(())
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cookie.0 != 0 {
            write!(f, "cookie={}, ", self.cookie)?;
        }
        write!(f, "table={}, ", self.table)?;
        if self.idle_timeout != 0 {
            write!(f, "idle_timeout={}, ", self.idle_timeout)?;
        }
        if self.hard_timeout != 0 {
            write!(f, "hard_timeout={}, ", self.hard_timeout)?;
        }
        for (flag, name) in FLAGS {
            if self.flags.contains(*flag) {
                write!(f, "{name} ")?;
            }
        }
        if self.importance != 0 {
            write!(f, "importance={}, ", self.importance)?;
        }
        write_rule(f, self.priority, &self.matching)?;
        write!(f, "actions={}", ActionList(&self.actions))
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Parts { f, first: true };
        parts.part(format_args!("table={}", self.table))?;
        if self.priority != Flow::DEFAULT_PRIORITY {
            parts.part(format_args!("priority={}", self.priority))?;
        }
        write(&mut parts, &self.matching)
    }
}

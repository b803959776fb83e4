//! Instructions: how the actions of a flow are grouped on the wire.
//!
//! OpenFlow 1.5.1, section 7.2.5. Plain actions travel in one apply-actions instruction.

use super::action_decode::{self, Depth};
use super::action_encode;
use super::reader::Reader;
use super::writer::{Out, Put};
use crate::action::Action;
use crate::error::{CheckError, DecodeError, EncodeError};
use crate::ids::{MeterId, TableId};

const GOTO_TABLE: u16 = 1;
const WRITE_METADATA: u16 = 2;
const WRITE_ACTIONS: u16 = 3;
const APPLY_ACTIONS: u16 = 4;
const CLEAR_ACTIONS: u16 = 5;
const METER: u16 = 6;

fn is_plain(action: &Action) -> bool {
    !matches!(
        action,
        Action::ClearActions
            | Action::WriteActions(_)
            | Action::WriteMetadata { .. }
            | Action::GotoTable(_)
    )
}

fn rank(action: &Action) -> u8 {
    match action {
        Action::ClearActions => 1,
        Action::WriteActions(_) => 2,
        Action::WriteMetadata { .. } => 3,
        Action::GotoTable(_) => 4,
        _ => 0,
    }
}

/// Appends the instructions that a flow's actions are.
pub(crate) fn put(out: &mut Out, actions: &[Action]) -> Result<(), EncodeError> {
    let n_plain = actions.iter().position(|a| !is_plain(a)).unwrap_or(actions.len());
    let (plain, others) = actions.split_at(n_plain);
    if !plain.is_empty() {
        put_actions(out, APPLY_ACTIONS, plain)?;
    }
    let mut last = 0;
    for action in others {
        let rank = rank(action);
        if rank <= last {
            return Err(EncodeError::Match(CheckError::Action(
                "instructions follow actions, in their order and each once",
            )));
        }
        last = rank;
        match action {
            Action::ClearActions => {
                out.u16(CLEAR_ACTIONS);
                out.u16(8);
                out.u32(0);
            }
            Action::WriteActions(actions) => put_actions(out, WRITE_ACTIONS, actions)?,
            Action::WriteMetadata { value, mask } => {
                out.u16(WRITE_METADATA);
                out.u16(24);
                out.u32(0);
                out.u64(*value);
                out.u64(*mask);
            }
            Action::GotoTable(table) => {
                out.u16(GOTO_TABLE);
                out.u16(8);
                out.u8(table.0);
                out.zeros(3);
            }
            _ => action_encode::put(out, action)?,
        }
    }
    Ok(())
}

fn put_actions(out: &mut Out, kind: u16, actions: &[Action]) -> Result<(), EncodeError> {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    out.u32(0);
    action_encode::put_list(out, actions)?;
    out.patch_len(start, 2, "action list")
}

/// Reads instructions until the reader is empty.
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Vec<Action>, DecodeError> {
    let mut actions = Vec::new();
    // On the wire instructions have any order; a flow's actions have theirs.
    let mut later: [Option<Action>; 4] = [None, None, None, None];
    while !reader.is_empty() {
        let mut part = reader.part(2, 8, "instruction")?;
        let kind = part.u16()?;
        part.skip(2)?;
        match kind {
            APPLY_ACTIONS => {
                part.skip(4)?;
                action_decode::read_into(&mut part, Depth::TOP, &mut actions)?;
            }
            METER => actions.insert(0, Action::Meter(MeterId(part.u32()?))),
            CLEAR_ACTIONS => later[0] = Some(Action::ClearActions),
            WRITE_ACTIONS => {
                part.skip(4)?;
                later[1] =
                    Some(Action::WriteActions(action_decode::read_list(&mut part, Depth::TOP)?));
            }
            WRITE_METADATA => {
                part.skip(4)?;
                later[2] = Some(Action::WriteMetadata { value: part.u64()?, mask: part.u64()? });
            }
            GOTO_TABLE => later[3] = Some(Action::GotoTable(TableId(part.u8()?))),
            _ => return Err(DecodeError::Unknown { what: "instruction", number: kind.into() }),
        }
    }
    actions.extend(later.into_iter().flatten());
    Ok(actions)
}

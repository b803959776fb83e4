//! Rules that hold for a whole list of actions.

use super::Action;
use crate::error::CheckError;
use crate::ids::OfPort;

/// The form that the switch gives back in a dump, for a whole list.
#[must_use]
pub fn normalize(actions: Vec<Action>) -> Vec<Action> {
    actions.into_iter().map(normalize_one).collect()
}

pub(super) fn normalize_one(action: Action) -> Action {
    match action {
        Action::Load { dst, value } => Action::load(dst, value),
        Action::Output(OfPort::CONTROLLER) => Action::OutputController { max_len: u16::MAX },
        Action::Controller(controller) => match controller.plain() {
            Some(max_len) => Action::OutputController { max_len },
            None => Action::Controller(controller),
        },
        Action::Note(mut bytes) => {
            while bytes.len() % 8 != 6 {
                bytes.push(0);
            }
            Action::Note(bytes)
        }
        Action::Ct(mut ct) => {
            ct.exec = normalize(ct.exec);
            Action::Ct(ct)
        }
        Action::Clone(actions) => Action::Clone(normalize(actions)),
        Action::WriteActions(actions) => Action::WriteActions(normalize(actions)),
        other => other,
    }
}

/// Where an instruction may stand: plain actions (0), then these in order.
fn rank(action: &Action) -> u8 {
    match action {
        Action::ClearActions => 1,
        Action::WriteActions(_) => 2,
        Action::WriteMetadata { .. } => 3,
        Action::GotoTable(_) => 4,
        _ => 0,
    }
}

/// Whether the actions can stand in this order and company.
pub fn check(actions: &[Action]) -> Result<(), CheckError> {
    let mut last = 0;
    for action in actions {
        let rank = rank(action);
        if rank < last || (rank != 0 && rank == last) {
            return Err(CheckError::Action(
                "order is actions, clear_actions, write_actions, write_metadata, goto_table, each \
                 instruction once",
            ));
        }
        last = rank;
    }
    let is_conjunction = |a: &&Action| matches!(a, Action::Conjunction { .. });
    let n_conjunctions = actions.iter().filter(is_conjunction).count();
    let others = actions.iter().filter(|a| !matches!(a, Action::Note(_))).count() - n_conjunctions;
    if n_conjunctions > 0 && others > 0 {
        return Err(CheckError::Action("conjunction stands only with conjunctions and notes"));
    }
    for action in actions {
        check_one(action)?;
    }
    Ok(())
}

fn check_one(action: &Action) -> Result<(), CheckError> {
    match action {
        Action::Load { dst, .. }
        | Action::OutputReg(dst)
        | Action::StackPush(dst)
        | Action::StackPop(dst)
        | Action::CheckPktLarger { dst, .. } => dst.check(),
        Action::Move { src, dst } => {
            src.check()?;
            dst.check()?;
            if src.n_bits == dst.n_bits {
                Ok(())
            } else {
                Err(CheckError::Action("a move's source and destination differ in size"))
            }
        }
        Action::Conjunction { clause, n_clauses, .. } => {
            if (2..=64).contains(n_clauses) && (1..=*n_clauses).contains(clause) {
                Ok(())
            } else {
                Err(CheckError::Action("a conjunction has 2 to 64 clauses, numbered from 1"))
            }
        }
        Action::Ct(ct) => {
            if !ct.commit && !ct.exec.is_empty() {
                return Err(CheckError::Action("ct without commit takes no exec"));
            }
            if !ct.commit && ct.nat.as_ref().is_some_and(|nat| nat.direction.is_some()) {
                return Err(CheckError::Action("ct without commit takes no nat(src) or nat(dst)"));
            }
            let to = ct.nat.as_ref().and_then(|nat| nat.addresses);
            if to.is_some_and(|range| range.first.is_unspecified()) {
                return Err(CheckError::Action("nat goes to no unspecified address"));
            }
            if ct.force && !ct.commit {
                return Err(CheckError::Action("ct takes force only with commit"));
            }
            nested(&ct.exec)
        }
        Action::Clone(actions) => nested(actions),
        Action::WriteActions(actions) => nested(actions),
        _ => Ok(()),
    }
}

fn nested(actions: &[Action]) -> Result<(), CheckError> {
    if actions.iter().any(|action| rank(action) != 0) {
        return Err(CheckError::Action("an instruction cannot be nested"));
    }
    actions.iter().try_for_each(check_one)
}

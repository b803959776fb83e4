//! Text as `ovs-ofctl -O OpenFlow15` writes and reads it.
//!
//! Writing follows `dump-flows --no-stats --no-names`: numbers instead of port and table names,
//! the match in the order of OVS, one line without its leading blank. Reading takes that and what
//! people write for `add-flow`: other orders, hexadecimal or decimal numbers, longer names.
//!
//! [`Flow`](crate::Flow), [`Match`](crate::Match), [`Action`](crate::Action),
//! [`Subfield`](crate::Subfield), [`Group`](crate::Group), [`Meter`](crate::Meter) and changes of
//! the latter two have `Display` and can be read; action lists by [`parse_actions`] and
//! [`ActionList`].

mod format_action;
mod format_flow;
mod format_group;
mod format_match;
mod lexer;
mod parse_action;
mod parse_flow;
mod parse_group;
mod parse_match;
mod value;

pub use format_action::ActionList;
pub use parse_action::actions as parse_actions;

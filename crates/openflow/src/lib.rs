//! OpenFlow 1.5 with the Nicira and ONF extensions: wire codec, and the text form that
//! `ovs-ofctl` prints.
//!
//! Pure data: types in, bytes or text out, and back. Opens no socket, keeps no state but the
//! stream [`framer`]. Bytes from a switch are untrusted: every decoder returns an error that names
//! what it did not understand, and none panics.
//!
//! * [`Match`], [`Action`], [`Flow`], [`Group`], [`Meter`]: what a feature wants on the switch.
//! * [`Message`]: what travels on the connection.
//! * [`text`]: `Display` and `FromStr` in the syntax of `ovs-ofctl -O OpenFlow15`.
//!
//! Not here: connections, transaction ids, dump-and-diff (`switch`), table numbers (`pipeline`).

pub mod action;
mod error;
pub mod field;
mod flow;
pub mod framer;
pub mod group;
mod ids;
mod intent;
mod mac;
mod matching;
pub mod message;
pub mod meter;
mod subfield;
pub mod text;
mod wire;

pub use action::{
    Action, Controller, Ct, CtZone, Learn, LearnSource, LearnSpec, Nat, NatDirection, Resubmit,
};
pub use error::{CheckError, DecodeError, EncodeError, ParseError};
pub use field::{CtState, Field, IpFrag};
pub use flow::{Flow, FlowFlags, FlowKey};
pub use framer::Framer;
pub use group::{Bucket, BucketId, Group, GroupType, SelectionMethod};
pub use ids::{ConjId, Cookie, GroupId, MeterId, OfPort, TableId, Xid};
pub use intent::{Intent, IntentKey};
pub use mac::{MacAddr, MacParseError};
pub use matching::{Masked, Match};
pub use message::Message;
pub use meter::{Band, BandKind, Meter, MeterFlags};
pub use subfield::Subfield;

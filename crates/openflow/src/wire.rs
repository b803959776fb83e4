//! Bytes: how messages and their parts are laid out.
//!
//! Encoders append to a `Vec<u8>` and check every length that is written into 16 bits. Decoders
//! read through [`Reader`](reader::Reader) and never index.

pub(crate) mod action_decode;
pub(crate) mod action_encode;
pub(crate) mod asynchronous;
pub(crate) mod controls;
pub(crate) mod ct;
pub(crate) mod dispatch;
pub(crate) mod error_names;
pub(crate) mod flow;
pub(crate) mod group;
pub(crate) mod instruction;
pub(crate) mod learn;
pub(crate) mod meter;
pub(crate) mod multipart;
pub(crate) mod oxm;
pub(crate) mod oxs;
pub(crate) mod packet;
pub(crate) mod port;
pub(crate) mod reader;
pub(crate) mod statistics;
pub(crate) mod writer;

/// Nicira's experimenter number.
pub(crate) const NICIRA: u32 = 0x2320;
/// Netronome's, whose group property OVS uses for selection methods.
pub(crate) const NETRONOME: u32 = 0x154d;

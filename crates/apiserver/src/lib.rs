//! The serving half of a Kubernetes API.
//!
//! Turns HTTPS requests into reads and writes of JSON objects, and answers as Kubernetes' own
//! server does: authentication, authorization, discovery, content negotiation, list and watch,
//! patches, `Status` errors. Which resources exist, their defaults and rules are the caller's
//! ([`resource::Resource`], [`resource::Strategy`]).
//!
//! Not here: the kinds of a lab cluster and its control loops (`kubelab`).

pub mod body;
pub mod names;
pub mod pki;
pub mod server;
pub mod status;
pub mod token;
pub mod user;

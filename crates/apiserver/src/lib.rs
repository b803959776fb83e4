//! The serving half of a Kubernetes API.
//!
//! Turns HTTPS requests into reads and writes of JSON objects, and answers as Kubernetes' own
//! server does: authentication, authorization, discovery, content negotiation, list and watch,
//! patches, `Status` errors. Which resources exist, their defaults and rules are the caller's
//! ([`resource::Resource`], [`resource::Strategy`]).
//!
//! Not here: the kinds of a lab cluster and its control loops (`kubelab`).

pub mod admission;
pub mod aggregation;
pub mod api;
pub mod authn;
pub mod authz;
pub mod body;
pub mod client;
pub mod delegated;
pub mod discovery;
pub mod json_path;
pub mod meta;
pub mod names;
pub mod negotiate;
pub mod objects;
pub mod openapi;
pub mod patch;
pub mod pki;
pub mod protobuf;
pub mod query;
pub mod rbac;
pub mod request_info;
pub mod resource;
pub mod rest;
pub mod schema;
pub mod selector;
pub mod server;
pub mod source;
pub mod status;
pub mod store;
pub mod structural;
pub mod table;
pub mod token;
pub mod trust;
pub mod upstream;
pub mod user;
pub mod watch;
pub mod webhook;

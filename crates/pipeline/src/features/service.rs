//! Sends what is for a Service to one of its endpoints.
//!
//! A packet that opens a connection meets, in this order: what clients with session affinity were
//! given before (SessionAffinity), the address and port it dials ([`Frontend`], in ServiceLB), a
//! select group that chooses an endpoint ([`Group`]), and the endpoint's own flow that translates
//! the destination ([`Endpoint`], in EndpointDNAT). From there on policies and routing see the
//! endpoint. Later packets are translated by connection tracking and meet none of this.
//!
//! Pure: the caller says which frontends, groups and endpoints there are, and gives groups their
//! numbers. Not here: which endpoints a Service has (`services`), how traffic of the host and from
//! outside gets to the bridge (`host`).

mod types;

pub use types::{
    Endpoint, Frontend, FrontendAddress, Group, MAX_GROUP_ID, Place, Protocol, ServiceConfig,
    Target,
};

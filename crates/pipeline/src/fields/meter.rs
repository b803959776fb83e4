//! Meters: 1 to 255 belong to Egress.

use openflow::MeterId;

/// Limits packets that policy rules send to the agent.
pub const METER_NETWORK_POLICY: MeterId = MeterId(256);
/// Limits what Traceflow sends to the agent.
pub const METER_TRACEFLOW: MeterId = MeterId(257);
/// Limits DNS answers sent to the agent.
pub const METER_DNS: MeterId = MeterId(258);
/// Limits what is sent to the agent for Services without endpoints.
pub const METER_SERVICE: MeterId = MeterId(259);

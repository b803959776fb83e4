//! Tests of the whole pipeline: golden flows, properties, and verdicts of a real switch.

mod fixture;
mod golden;
mod live;
mod policy_flows;
mod policy_live;
mod policy_trace;
mod properties;
mod service_affinity;
mod service_flows;
mod service_live;
mod service_ports;
mod switch;
mod trace;

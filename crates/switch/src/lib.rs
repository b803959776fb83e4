//! Drivers of Open vSwitch: OVSDB session, OpenFlow channels, unixctl, and the bridge reconciler.

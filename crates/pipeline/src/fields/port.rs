//! OpenFlow port numbers of our own ports in tests and examples. The agent asks for lower ones of the
//! tunnel and the gateway, and flows go by the numbers that the switch gave.

use openflow::OfPort;

/// The tunnel.
pub const TUNNEL_OFPORT: OfPort = OfPort(32768);
/// The gateway.
pub const GATEWAY_OFPORT: OfPort = OfPort(32769);
/// The uplink, where it is a port of the bridge.
pub const UPLINK_OFPORT: OfPort = OfPort(32770);
/// The host's interface that takes the uplink's place.
pub const HOST_OFPORT: OfPort = OfPort(32771);
/// The first number for Pods.
pub const FIRST_POD_OFPORT: OfPort = OfPort(1);
/// The last number for Pods.
pub const LAST_POD_OFPORT: OfPort = OfPort(32767);

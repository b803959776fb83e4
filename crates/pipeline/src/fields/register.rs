//! What each register bit means, and the values that mean something.

use openflow::{Action, Field, Match, Subfield};

/// A value in a run of register bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegMark {
    /// The bits.
    pub place: Subfield,
    /// The value in them.
    pub value: u32,
}

impl RegMark {
    pub(crate) const fn new(place: Subfield, value: u32) -> Self {
        Self { place, value }
    }

    /// The action that sets it.
    #[must_use]
    pub fn load(self) -> Action {
        Action::load(self.place, self.value.into())
    }

    /// The match with this condition added.
    #[must_use]
    pub fn of(self, matching: Match) -> Match {
        matching.reg(self.place, self.value.into())
    }
}

/// Where the packet came from.
pub const SOURCE: Subfield = Subfield::reg(0, 0, 3);
/// From another node.
pub const FROM_TUNNEL: RegMark = RegMark::new(SOURCE, 1);
/// From the host.
pub const FROM_GATEWAY: RegMark = RegMark::new(SOURCE, 2);
/// From a Pod of this node.
pub const FROM_POD: RegMark = RegMark::new(SOURCE, 3);
/// From the uplink.
pub const FROM_UPLINK: RegMark = RegMark::new(SOURCE, 4);
/// From the bridge's local port.
pub const FROM_BRIDGE: RegMark = RegMark::new(SOURCE, 5);
/// Back from a TrafficControl device.
pub const FROM_TRAFFIC_CONTROL: RegMark = RegMark::new(SOURCE, 6);
/// Back from the layer 7 engine.
pub const FROM_L7: RegMark = RegMark::new(SOURCE, 7);

/// Where the packet goes.
pub const DESTINATION: Subfield = Subfield::reg(0, 4, 7);
/// To another node.
pub const TO_TUNNEL: RegMark = RegMark::new(DESTINATION, 1);
/// To the host.
pub const TO_GATEWAY: RegMark = RegMark::new(DESTINATION, 2);
/// To a Pod of this node.
pub const TO_POD: RegMark = RegMark::new(DESTINATION, 3);
/// To the uplink.
pub const TO_UPLINK: RegMark = RegMark::new(DESTINATION, 4);

/// The packet is routed: its Ethernet addresses are rewritten and its TTL decremented.
pub const REWRITE_MAC: RegMark = RegMark::new(Subfield::reg_bit(0, 9), 1);
/// The packet stays on its link.
pub const KEEP_MAC: RegMark = RegMark::new(Subfield::reg_bit(0, 9), 0);

/// A policy rule denied the packet.
pub const POLICY_DENY: RegMark = RegMark::new(Subfield::reg_bit(0, 10), 1);
/// What the rule said: 0 allow, 1 drop, 2 reject, 3 pass.
pub const POLICY_DISPOSITION: Subfield = Subfield::reg(0, 11, 12);
/// The packet is a rejection made by the agent.
pub const GENERATED_REJECT: RegMark = RegMark::new(Subfield::reg_bit(0, 13), 1);
/// Reserved: the Service has no endpoint.
pub const NO_ENDPOINT: Subfield = Subfield::reg_bit(0, 14);
/// Reserved: a rule under audit would have denied the packet.
pub const AUDIT_DENY: Subfield = Subfield::reg_bit(0, 15);
/// What a new Service connection's source needs; a copy of it becomes
/// [`super::CT_SERVICE_SNAT`] and [`super::CT_HAIRPIN`].
pub const SERVICE_SNAT: Subfield = Subfield::reg(0, 16, 17);
/// The source is translated.
pub const SNAT_NEEDED: RegMark = RegMark::new(SERVICE_SNAT, 1);
/// The source is translated, and the connection leaves where it came in.
pub const HAIRPIN_NEEDED: RegMark = RegMark::new(SERVICE_SNAT, 3);
/// The source is translated on another node.
pub const REMOTE_SNAT: Subfield = Subfield::reg_bit(0, 19);
/// The packet goes to the layer 7 engine (for logs).
pub const L7_REDIRECT: Subfield = Subfield::reg_bit(0, 20);
/// What the last table does.
pub const OUTPUT_MODE: Subfield = Subfield::reg(0, 21, 22);
/// Output to the port in [`TARGET_OFPORT`].
pub const OUTPUT_TO_PORT: RegMark = RegMark::new(OUTPUT_MODE, 1);
/// Output to the controller.
pub const OUTPUT_TO_CONTROLLER: RegMark = RegMark::new(OUTPUT_MODE, 2);
/// The connection's state was looked up for the layer 7 engine.
pub const CT_RESTORED: Subfield = Subfield::reg_bit(0, 23);
/// Why the packet goes to the controller: 1 log, 2 reject, 4 store.
pub const PACKET_IN_OPERATION: Subfield = Subfield::reg(0, 25, 31);

/// Output port.
pub const TARGET_OFPORT: Subfield = Subfield::reg(1, 0, 31);
/// Scratch.
pub const SWAP: Subfield = Subfield::reg(2, 0, 31);
/// Table that decided to send the packet to the controller.
pub const PACKET_IN_TABLE: Subfield = Subfield::reg(2, 0, 7);
/// Which part of a Service's group the packet falls to.
pub const GROUP_PART: Subfield = Subfield::reg(2, 0, 7);
/// Selected endpoint.
pub const ENDPOINT_IP: Subfield = Subfield::reg(3, 0, 31);
/// Denying rule; shares the register.
pub const POLICY_CONJ_ID: Subfield = Subfield::reg(3, 0, 31);
/// Selected endpoint's port.
pub const ENDPOINT_PORT: Subfield = Subfield::reg(4, 0, 15);
/// How far the choice of an endpoint is; 0 before it began.
pub const ENDPOINT_STATE: Subfield = Subfield::reg(4, 16, 18);
/// None is chosen.
pub const ENDPOINT_TO_SELECT: RegMark = RegMark::new(ENDPOINT_STATE, 1);
/// The client was given this one before.
pub const ENDPOINT_REMEMBERED: RegMark = RegMark::new(ENDPOINT_STATE, 2);
/// A group was asked for one.
pub const ENDPOINT_SELECTED: RegMark = RegMark::new(ENDPOINT_STATE, 3);
/// [`ENDPOINT_REMEMBERED`] or [`ENDPOINT_SELECTED`].
pub const ENDPOINT_KNOWN: RegMark = RegMark::new(Subfield::reg_bit(4, 17), 1);
/// To a NodePort address.
pub const TO_NODE_PORT: RegMark = RegMark::new(Subfield::reg_bit(4, 19), 1);
/// From a Pod whose address comes from an IPPool.
pub const FROM_ANTREA_IPAM: Subfield = Subfield::reg_bit(4, 20);
/// To a Service's external address.
pub const TO_EXTERNAL: RegMark = RegMark::new(Subfield::reg_bit(4, 21), 1);
/// 1 mirror, 2 redirect.
pub const TRAFFIC_CONTROL_ACTION: Subfield = Subfield::reg(4, 22, 23);
/// The Service's endpoints are Services.
pub const NESTED_SERVICE: Subfield = Subfield::reg_bit(4, 24);
/// Direct server return.
pub const DSR: RegMark = RegMark::new(Subfield::reg_bit(4, 25), 1);
/// Not [`DSR`].
pub const NO_DSR: RegMark = RegMark::new(Subfield::reg_bit(4, 25), 0);
/// The endpoint is a Pod of another node.
pub const REMOTE_ENDPOINT: RegMark = RegMark::new(Subfield::reg_bit(4, 26), 1);
/// From the host, but not from its own address.
pub const FROM_EXTERNAL: RegMark = RegMark::new(Subfield::reg_bit(4, 27), 1);
/// From this node: a Pod or the host itself.
pub const FROM_LOCAL: RegMark = RegMark::new(Subfield::reg_bit(4, 28), 1);
/// Only the host knows the way to the endpoint.
pub const HOST_ENDPOINT: RegMark = RegMark::new(Subfield::reg_bit(4, 29), 1);
/// To a Service's endpoint, but not through the Service.
pub const DIRECT_TO_ENDPOINT: RegMark = RegMark::new(Subfield::reg_bit(4, 30), 1);
/// The highest bit of the source port of what is [`DIRECT_TO_ENDPOINT`].
pub const SOURCE_PORT_HALF: Subfield = Subfield::reg_bit(4, 31);
/// Egress rule met, for Traceflow and logs.
pub const EGRESS_RULE_ID: Subfield = Subfield::reg(5, 0, 31);
/// Ingress rule met, for Traceflow and logs.
pub const INGRESS_RULE_ID: Subfield = Subfield::reg(6, 0, 31);
/// Group of the Service.
pub const SERVICE_GROUP: Subfield = Subfield::reg(7, 0, 31);
/// VLAN in bridging mode.
pub const VLAN_ID: Subfield = Subfield::reg(8, 0, 11);
/// Kind of conntrack zone in bridging mode: 1 IPv4, 3 IPv6.
pub const CT_ZONE_TYPE: Subfield = Subfield::reg(8, 12, 15);
/// Conntrack zone in bridging mode.
pub const CT_ZONE_FIELD: Subfield = Subfield::reg(8, 0, 15);
/// Port of the TrafficControl device.
pub const TRAFFIC_CONTROL_OFPORT: Subfield = Subfield::reg(9, 0, 31);
/// Selected IPv6 endpoint.
pub const ENDPOINT_IP_V6: Subfield = Subfield::new(Field::XxReg(3), 0, 127);

/// First byte of a packet-in's user data: what the packet is about.
pub mod packet_in {
    /// Traceflow.
    pub const TRACEFLOW: u8 = 0;
    /// A policy's log, reject or store.
    pub const NETWORK_POLICY: u8 = 1;
    /// A DNS answer.
    pub const DNS: u8 = 2;
    /// IGMP.
    pub const IGMP: u8 = 3;
    /// A Service without endpoints.
    pub const NO_ENDPOINT: u8 = 4;
    /// Reserved: a TTL that ran out, to be answered with ICMP time exceeded.
    pub const TTL_EXPIRED: u8 = 5;
}

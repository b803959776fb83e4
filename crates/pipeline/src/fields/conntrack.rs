//! Conntrack zones, marks and labels, and the packet mark.

use openflow::{Field, Subfield};

/// Zone of IPv4 connections; destinations are translated here.
pub const CT_ZONE: u16 = 0xfff0;
/// Zone in which IPv4 sources are translated.
pub const CT_ZONE_SNAT: u16 = 0xfff1;
/// Zone of IPv6 connections; destinations are translated here.
pub const CT_ZONE_V6: u16 = 0xffe6;
/// Zone in which IPv6 sources are translated.
pub const CT_ZONE_SNAT_V6: u16 = 0xffe7;

/// Where the connection's first packet came from; a copy of [`super::SOURCE`]. 0 until the
/// connection has passed all policies.
pub const CT_SOURCE: Subfield = Subfield::new(Field::CtMark, 0, 3);
/// The connection goes to a Service and its destination was translated.
pub const CT_SERVICE: Subfield = Subfield::new(Field::CtMark, 4, 4);
/// The Service connection's source is translated too.
pub const CT_SERVICE_SNAT: Subfield = Subfield::new(Field::CtMark, 5, 5);
/// The connection leaves where it came in.
pub const CT_HAIRPIN: Subfield = Subfield::new(Field::CtMark, 6, 6);
/// [`CT_SERVICE_SNAT`] and [`CT_HAIRPIN`]; a copy of [`super::SERVICE_SNAT`].
pub const CT_SERVICE_SNAT_HAIRPIN: Subfield = Subfield::new(Field::CtMark, 5, 6);
/// The Service connection was opened at a NodePort; a copy of [`super::TO_NODE_PORT`].
pub const CT_NODE_PORT: Subfield = Subfield::new(Field::CtMark, 8, 8);
/// The connection is looked at by the layer 7 engine.
pub const CT_L7: Subfield = Subfield::new(Field::CtMark, 7, 7);

/// Rule that allowed the connection in.
pub const CT_INGRESS_RULE: Subfield = Subfield::new(Field::CtLabel, 0, 31);
/// Rule that allowed the connection out.
pub const CT_EGRESS_RULE: Subfield = Subfield::new(Field::CtLabel, 32, 63);
/// VLAN of the layer 7 rule.
pub const CT_L7_VLAN: Subfield = Subfield::new(Field::CtLabel, 64, 75);
/// Group of the Service that the connection was opened through; a copy of
/// [`super::SERVICE_GROUP`].
pub const CT_SERVICE_GROUP: Subfield = Subfield::new(Field::CtLabel, 96, 127);

/// Number of the Egress address that the host translates the source to.
pub const PKT_MARK_EGRESS: Subfield = Subfield::new(Field::PktMark, 0, 7);
/// A reply to a remote Pod's Egress connection.
pub const PKT_MARK_EGRESS_REPLY: Subfield = Subfield::new(Field::PktMark, 30, 30);
/// The packet was made by the host itself.
pub const PKT_MARK_HOST: Subfield = Subfield::new(Field::PktMark, 31, 31);

//! The fields that a match, a move or a set-field can name.
//!
//! Enum order is the order in which OVS itself puts fields on the wire. Several fields are views
//! of another: `VlanVid` and `VlanPcp` of `VlanTci`, `XReg` and `XxReg` of registers. A
//! [`Match`](crate::Match) keeps the underlying field only, so equal matches compare equal.
//!
//! Not here: MPLS, NSH, tunnel option metadata; a new field is a variant and a line in
//! [`table`](self).

mod flags;
mod table;

pub(crate) use flags::{CT_STATE_NAMES, TCP_FLAG_NAMES, TUN_FLAG_NAMES};
pub use flags::{CtState, IpFrag};
pub(crate) use table::by_number;
pub use table::{FieldInfo, Format, Prereq};

/// A field of a packet, its metadata or the pipeline's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Hash computed by the datapath.
    DpHash,
    /// Recirculation id.
    RecircId,
    /// Id of the conjunction that was met.
    ConjId,
    /// Type of the packet's outermost header.
    PacketType,
    /// Ingress port.
    InPort,
    /// Ingress port as NXM has it, 16 bits: in a match a view of [`Field::InPort`]; what `move`
    /// and `learn` usually name.
    InPort16,
    /// Output port in the action set.
    ActsetOutput,
    /// Ethernet source.
    EthSrc,
    /// Ethernet destination.
    EthDst,
    /// Ethernet type.
    EthType,
    /// 802.1Q tag control information; 0x1000 is "tagged".
    VlanTci,
    /// VLAN id with 0x1000 for "tagged": a view of [`Field::VlanTci`].
    VlanVid,
    /// VLAN priority: a view of [`Field::VlanTci`].
    VlanPcp,
    /// IPv4 source.
    Ipv4Src,
    /// IPv4 destination.
    Ipv4Dst,
    /// IPv6 source.
    Ipv6Src,
    /// IPv6 destination.
    Ipv6Dst,
    /// Fragment kind, see [`IpFrag`].
    IpFrag,
    /// DSCP, 6 bits.
    IpDscp,
    /// ECN, 2 bits.
    IpEcn,
    /// TTL or hop limit.
    IpTtl,
    /// IPv6 flow label.
    Ipv6Label,
    /// IP protocol.
    IpProto,
    /// TCP source port.
    TcpSrc,
    /// TCP destination port.
    TcpDst,
    /// TCP flags.
    TcpFlags,
    /// UDP source port.
    UdpSrc,
    /// UDP destination port.
    UdpDst,
    /// SCTP source port.
    SctpSrc,
    /// SCTP destination port.
    SctpDst,
    /// ICMP type.
    Icmpv4Type,
    /// ICMP code.
    Icmpv4Code,
    /// ICMPv6 type.
    Icmpv6Type,
    /// ICMPv6 code.
    Icmpv6Code,
    /// Flags and reserved bits of neighbour discovery.
    NdReserved,
    /// Target of neighbour solicitation and advertisement.
    NdTarget,
    /// Type of the neighbour discovery option.
    NdOptionsType,
    /// Source link layer address option of a solicitation.
    NdSll,
    /// Target link layer address option of an advertisement.
    NdTll,
    /// ARP operation.
    ArpOp,
    /// ARP sender protocol address.
    ArpSpa,
    /// ARP target protocol address.
    ArpTpa,
    /// ARP sender hardware address.
    ArpSha,
    /// ARP target hardware address.
    ArpTha,
    /// Tunnel key (VNI).
    TunId,
    /// Tunnel flags; bit 0 is `oam`.
    TunFlags,
    /// Outer IPv4 source.
    TunSrc,
    /// Outer IPv4 destination.
    TunDst,
    /// Outer IPv6 source.
    TunIpv6Src,
    /// Outer IPv6 destination.
    TunIpv6Dst,
    /// VXLAN group policy id.
    TunGbpId,
    /// VXLAN group policy flags.
    TunGbpFlags,
    /// 32-bit register 0..=15.
    Reg(u8),
    /// 64-bit register 0..=7: a view of two [`Field::Reg`].
    XReg(u8),
    /// 128-bit register 0..=3: a view of four [`Field::Reg`].
    XxReg(u8),
    /// Packet mark, shared with the kernel on the system datapath.
    PktMark,
    /// Connection state, see [`CtState`].
    CtState,
    /// Connection tracking zone.
    CtZone,
    /// Connection mark.
    CtMark,
    /// Connection label.
    CtLabel,
    /// Original direction's IPv4 source.
    CtNwSrc,
    /// Original direction's IPv4 destination.
    CtNwDst,
    /// Original direction's IPv6 source.
    CtIpv6Src,
    /// Original direction's IPv6 destination.
    CtIpv6Dst,
    /// Original direction's IP protocol.
    CtNwProto,
    /// Original direction's source port.
    CtTpSrc,
    /// Original direction's destination port.
    CtTpDst,
    /// OpenFlow metadata.
    Metadata,
}

impl Field {
    /// Name, wire numbers, width and rules of the field.
    #[must_use]
    pub fn info(self) -> &'static FieldInfo {
        table::info(self)
    }

    /// Every field there is.
    pub fn all() -> impl Iterator<Item = Self> {
        table::all()
    }

    /// The field of this `ovs-ofctl` name (`reg3`, `nw_src`) or of this OXM/NXM name
    /// (`NXM_NX_REG3`, `OXM_OF_IPV4_SRC`).
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        table::by_name(name)
    }
}

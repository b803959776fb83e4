//! The one table of all fields.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::Field;

/// How a field's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Hexadecimal number.
    Hex,
    /// Decimal number.
    Dec,
    /// OpenFlow port, by name when reserved.
    Port,
    /// Ethernet address.
    Eth,
    /// IPv4 address.
    Ipv4,
    /// IPv6 address.
    Ipv6,
    /// Fragment kind.
    Frag,
    /// TCP flags.
    TcpFlags,
    /// Tunnel flags.
    TunFlags,
    /// Connection state.
    CtState,
    /// Namespace and type of a packet.
    PacketType,
}

/// What has to be matched before a field can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prereq {
    /// Nothing.
    None,
    /// A VLAN tag.
    Vlan,
    /// ARP or RARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6.
    Ip,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmp6,
    /// Neighbour solicitation or advertisement.
    Nd,
    /// Neighbour solicitation.
    NdSolicit,
    /// Neighbour advertisement.
    NdAdvert,
    /// A tracked packet.
    Ct,
    /// A tracked IPv4 packet.
    CtIpv4,
    /// A tracked IPv6 packet.
    CtIpv6,
}

/// What is known of a field.
#[derive(Debug)]
pub struct FieldInfo {
    /// The name `ovs-ofctl` uses in `set_field`.
    pub name: &'static str,
    /// Other names `ovs-ofctl` takes.
    pub aliases: &'static [&'static str],
    /// The name in `load`, `move` and `learn`: `NXM_NX_REG0`.
    pub nxm_name: &'static str,
    /// The standard's name beside an NXM one.
    pub oxm_name: &'static [&'static str],
    /// OXM class in OpenFlow 1.5.
    pub class: u16,
    /// Number within the class.
    pub number: u8,
    /// Older class and number with the same meaning.
    pub older: &'static [(u16, u8)],
    /// Significant bits.
    pub bits: u16,
    /// Bytes on the wire.
    pub bytes: u8,
    /// Whether a match may mask it.
    pub maskable: bool,
    /// How its value is written.
    pub format: Format,
    /// What has to be matched first.
    pub prereq: Prereq,
}

const NXM_OF: u16 = 0;
const NXM_NX: u16 = 1;
const ERICOXM_OF: u16 = 0x1000;
const OXM_OF: u16 = 0x8000;
const OXM_OF_PKT_REG: u16 = 0x8001;

macro_rules! maskable {
    (masked) => {
        true
    };
    (exact) => {
        false
    };
}

/// A line: variant, name, aliases, NXM name, OXM name, class and number, older class and number,
/// bits / bytes, whether maskable, format, prerequisite.
macro_rules! fields {
    ($($variant:ident: $name:literal [$($alias:literal),*] $nxm:literal [$($oxm:literal)?]
        $class:ident $number:literal [$($oclass:ident $onumber:literal)?]
        $bits:literal/$bytes:literal $mask:ident $format:ident $prereq:ident;)*) => {
        /// Every field but the registers.
        const SIMPLE: &[Field] = &[$(Field::$variant),*];

        pub(super) fn info(field: Field) -> &'static FieldInfo {
            match field {
                $(Field::$variant => {
                    static INFO: FieldInfo = FieldInfo {
                        name: $name,
                        aliases: &[$($alias),*],
                        nxm_name: $nxm,
                        oxm_name: &[$($oxm)?],
                        class: $class,
                        number: $number,
                        older: &[$(($oclass, $onumber))?],
                        bits: $bits,
                        bytes: $bytes,
                        maskable: maskable!($mask),
                        format: Format::$format,
                        prereq: Prereq::$prereq,
                    };
                    &INFO
                })*
                Field::Reg(n) => &REGS[usize::from(n & 15)],
                Field::XReg(n) => &XREGS[usize::from(n & 7)],
                Field::XxReg(n) => &XXREGS[usize::from(n & 3)],
            }
        }
    };
}

fields! {
    DpHash: "dp_hash" [] "NXM_NX_DP_HASH" [] NXM_NX 35 [] 32/4 masked Hex None;
    RecircId: "recirc_id" [] "NXM_NX_RECIRC_ID" [] NXM_NX 36 [] 32/4 exact Hex None;
    ConjId: "conj_id" [] "NXM_NX_CONJ_ID" [] NXM_NX 37 [] 32/4 exact Dec None;
    PacketType: "packet_type" [] "OXM_OF_PACKET_TYPE" [] OXM_OF 44 [] 32/4 exact PacketType None;
    InPort16: "in_port" [] "NXM_OF_IN_PORT" [] NXM_OF 0 [] 16/2 exact Port None;
    InPort: "in_port_oxm" [] "OXM_OF_IN_PORT" [] OXM_OF 0 [] 32/4 exact Port None;
    ActsetOutput: "actset_output" [] "OXM_OF_ACTSET_OUTPUT" [] OXM_OF 43 [] 32/4 exact Port None;
    EthSrc: "eth_src" ["dl_src"] "NXM_OF_ETH_SRC" ["OXM_OF_ETH_SRC"] OXM_OF 4 [NXM_OF 2] 48/6 masked Eth None;
    EthDst: "eth_dst" ["dl_dst"] "NXM_OF_ETH_DST" ["OXM_OF_ETH_DST"] OXM_OF 3 [NXM_OF 1] 48/6 masked Eth None;
    EthType: "eth_type" ["dl_type"] "NXM_OF_ETH_TYPE" ["OXM_OF_ETH_TYPE"] OXM_OF 5 [NXM_OF 3] 16/2 exact Hex None;
    VlanTci: "vlan_tci" [] "NXM_OF_VLAN_TCI" [] NXM_OF 4 [] 16/2 masked Hex None;
    VlanVid: "vlan_vid" [] "OXM_OF_VLAN_VID" [] OXM_OF 6 [] 13/2 masked Dec None;
    VlanPcp: "vlan_pcp" [] "OXM_OF_VLAN_PCP" [] OXM_OF 7 [] 3/1 exact Dec Vlan;
    Ipv4Src: "ip_src" ["nw_src"] "NXM_OF_IP_SRC" ["OXM_OF_IPV4_SRC"] OXM_OF 11 [NXM_OF 7] 32/4 masked Ipv4 Ipv4;
    Ipv4Dst: "ip_dst" ["nw_dst"] "NXM_OF_IP_DST" ["OXM_OF_IPV4_DST"] OXM_OF 12 [NXM_OF 8] 32/4 masked Ipv4 Ipv4;
    Ipv6Src: "ipv6_src" [] "NXM_NX_IPV6_SRC" ["OXM_OF_IPV6_SRC"] OXM_OF 26 [NXM_NX 19] 128/16 masked Ipv6 Ipv6;
    Ipv6Dst: "ipv6_dst" [] "NXM_NX_IPV6_DST" ["OXM_OF_IPV6_DST"] OXM_OF 27 [NXM_NX 20] 128/16 masked Ipv6 Ipv6;
    IpFrag: "ip_frag" ["nw_frag"] "NXM_NX_IP_FRAG" [] NXM_NX 26 [] 2/1 masked Frag Ip;
    IpDscp: "ip_dscp" [] "OXM_OF_IP_DSCP" [] OXM_OF 8 [] 6/1 exact Dec Ip;
    IpEcn: "nw_ecn" ["ip_ecn"] "NXM_NX_IP_ECN" ["OXM_OF_IP_ECN"] OXM_OF 9 [NXM_NX 28] 2/1 exact Dec Ip;
    IpTtl: "nw_ttl" [] "NXM_NX_IP_TTL" [] NXM_NX 29 [] 8/1 exact Dec Ip;
    Ipv6Label: "ipv6_label" [] "NXM_NX_IPV6_LABEL" ["OXM_OF_IPV6_FLABEL"] OXM_OF 28 [NXM_NX 27] 20/4 masked Hex Ipv6;
    IpProto: "nw_proto" ["ip_proto"] "NXM_OF_IP_PROTO" ["OXM_OF_IP_PROTO"] OXM_OF 10 [NXM_OF 6] 8/1 exact Dec Ip;
    TcpSrc: "tcp_src" [] "NXM_OF_TCP_SRC" ["OXM_OF_TCP_SRC"] OXM_OF 13 [NXM_OF 9] 16/2 masked Dec Tcp;
    TcpDst: "tcp_dst" [] "NXM_OF_TCP_DST" ["OXM_OF_TCP_DST"] OXM_OF 14 [NXM_OF 10] 16/2 masked Dec Tcp;
    TcpFlags: "tcp_flags" [] "NXM_NX_TCP_FLAGS" ["OXM_OF_TCP_FLAGS"] OXM_OF 42 [NXM_NX 34] 12/2 masked TcpFlags Tcp;
    UdpSrc: "udp_src" [] "NXM_OF_UDP_SRC" ["OXM_OF_UDP_SRC"] OXM_OF 15 [NXM_OF 11] 16/2 masked Dec Udp;
    UdpDst: "udp_dst" [] "NXM_OF_UDP_DST" ["OXM_OF_UDP_DST"] OXM_OF 16 [NXM_OF 12] 16/2 masked Dec Udp;
    SctpSrc: "sctp_src" [] "OXM_OF_SCTP_SRC" [] OXM_OF 17 [] 16/2 masked Dec Sctp;
    SctpDst: "sctp_dst" [] "OXM_OF_SCTP_DST" [] OXM_OF 18 [] 16/2 masked Dec Sctp;
    Icmpv4Type: "icmp_type" [] "NXM_OF_ICMP_TYPE" ["OXM_OF_ICMPV4_TYPE"] OXM_OF 19 [NXM_OF 13] 8/1 exact Dec Icmp;
    Icmpv4Code: "icmp_code" [] "NXM_OF_ICMP_CODE" ["OXM_OF_ICMPV4_CODE"] OXM_OF 20 [NXM_OF 14] 8/1 exact Dec Icmp;
    Icmpv6Type: "icmpv6_type" [] "NXM_NX_ICMPV6_TYPE" ["OXM_OF_ICMPV6_TYPE"] OXM_OF 29 [NXM_NX 21] 8/1 exact Dec Icmp6;
    Icmpv6Code: "icmpv6_code" [] "NXM_NX_ICMPV6_CODE" ["OXM_OF_ICMPV6_CODE"] OXM_OF 30 [NXM_NX 22] 8/1 exact Dec Icmp6;
    NdReserved: "nd_reserved" [] "ERICOXM_OF_ICMPV6_ND_RESERVED" [] ERICOXM_OF 1 [] 32/4 exact Dec Nd;
    NdTarget: "nd_target" [] "NXM_NX_ND_TARGET" ["OXM_OF_IPV6_ND_TARGET"] OXM_OF 31 [NXM_NX 23] 128/16 masked Ipv6 Nd;
    NdOptionsType: "nd_options_type" [] "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE" [] ERICOXM_OF 2 [] 8/1 exact Dec Nd;
    NdSll: "nd_sll" [] "NXM_NX_ND_SLL" ["OXM_OF_IPV6_ND_SLL"] OXM_OF 32 [NXM_NX 24] 48/6 masked Eth NdSolicit;
    NdTll: "nd_tll" [] "NXM_NX_ND_TLL" ["OXM_OF_IPV6_ND_TLL"] OXM_OF 33 [NXM_NX 25] 48/6 masked Eth NdAdvert;
    ArpOp: "arp_op" [] "NXM_OF_ARP_OP" ["OXM_OF_ARP_OP"] OXM_OF 21 [NXM_OF 15] 16/2 exact Dec Arp;
    ArpSpa: "arp_spa" [] "NXM_OF_ARP_SPA" ["OXM_OF_ARP_SPA"] OXM_OF 22 [NXM_OF 16] 32/4 masked Ipv4 Arp;
    ArpTpa: "arp_tpa" [] "NXM_OF_ARP_TPA" ["OXM_OF_ARP_TPA"] OXM_OF 23 [NXM_OF 17] 32/4 masked Ipv4 Arp;
    ArpSha: "arp_sha" [] "NXM_NX_ARP_SHA" ["OXM_OF_ARP_SHA"] OXM_OF 24 [NXM_NX 17] 48/6 masked Eth Arp;
    ArpTha: "arp_tha" [] "NXM_NX_ARP_THA" ["OXM_OF_ARP_THA"] OXM_OF 25 [NXM_NX 18] 48/6 masked Eth Arp;
    TunId: "tun_id" ["tunnel_id"] "NXM_NX_TUN_ID" ["OXM_OF_TUNNEL_ID"] OXM_OF 38 [NXM_NX 16] 64/8 masked Hex None;
    TunFlags: "tun_flags" [] "NXM_NX_TUN_FLAGS" [] NXM_NX 104 [] 1/2 masked TunFlags None;
    TunSrc: "tun_src" [] "NXM_NX_TUN_IPV4_SRC" [] NXM_NX 31 [] 32/4 masked Ipv4 None;
    TunDst: "tun_dst" [] "NXM_NX_TUN_IPV4_DST" [] NXM_NX 32 [] 32/4 masked Ipv4 None;
    TunIpv6Src: "tun_ipv6_src" [] "NXM_NX_TUN_IPV6_SRC" [] NXM_NX 109 [] 128/16 masked Ipv6 None;
    TunIpv6Dst: "tun_ipv6_dst" [] "NXM_NX_TUN_IPV6_DST" [] NXM_NX 110 [] 128/16 masked Ipv6 None;
    TunGbpId: "tun_gbp_id" [] "NXM_NX_TUN_GBP_ID" [] NXM_NX 38 [] 16/2 masked Dec None;
    TunGbpFlags: "tun_gbp_flags" [] "NXM_NX_TUN_GBP_FLAGS" [] NXM_NX 39 [] 8/1 masked Hex None;
    PktMark: "pkt_mark" [] "NXM_NX_PKT_MARK" [] NXM_NX 33 [] 32/4 masked Hex None;
    CtState: "ct_state" [] "NXM_NX_CT_STATE" [] NXM_NX 105 [] 8/4 masked CtState None;
    CtZone: "ct_zone" [] "NXM_NX_CT_ZONE" [] NXM_NX 106 [] 16/2 exact Hex None;
    CtMark: "ct_mark" [] "NXM_NX_CT_MARK" [] NXM_NX 107 [] 32/4 masked Hex None;
    CtLabel: "ct_label" [] "NXM_NX_CT_LABEL" [] NXM_NX 108 [] 128/16 masked Hex None;
    CtNwProto: "ct_nw_proto" [] "NXM_NX_CT_NW_PROTO" [] NXM_NX 119 [] 8/1 exact Dec Ct;
    CtNwSrc: "ct_nw_src" [] "NXM_NX_CT_NW_SRC" [] NXM_NX 120 [] 32/4 masked Ipv4 CtIpv4;
    CtNwDst: "ct_nw_dst" [] "NXM_NX_CT_NW_DST" [] NXM_NX 121 [] 32/4 masked Ipv4 CtIpv4;
    CtIpv6Src: "ct_ipv6_src" [] "NXM_NX_CT_IPV6_SRC" [] NXM_NX 122 [] 128/16 masked Ipv6 CtIpv6;
    CtIpv6Dst: "ct_ipv6_dst" [] "NXM_NX_CT_IPV6_DST" [] NXM_NX 123 [] 128/16 masked Ipv6 CtIpv6;
    CtTpSrc: "ct_tp_src" [] "NXM_NX_CT_TP_SRC" [] NXM_NX 124 [] 16/2 masked Dec Ct;
    CtTpDst: "ct_tp_dst" [] "NXM_NX_CT_TP_DST" [] NXM_NX 125 [] 16/2 masked Dec Ct;
    Metadata: "metadata" [] "OXM_OF_METADATA" [] OXM_OF 2 [] 64/8 masked Hex None;
}

const fn register(
    name: &'static str,
    nxm_name: &'static str,
    class: u16,
    number: u8,
    bits: u16,
    bytes: u8,
) -> FieldInfo {
    FieldInfo {
        name,
        aliases: &[],
        nxm_name,
        oxm_name: &[],
        class,
        number,
        older: &[],
        bits,
        bytes,
        maskable: true,
        format: Format::Hex,
        prereq: Prereq::None,
    }
}

macro_rules! registers {
    ($table:ident: $count:literal, $prefix:literal, $nxm:literal, $class:ident + $first:literal, $bits:literal / $bytes:literal, $($n:literal)*) => {
        static $table: [FieldInfo; $count] = [$(register(
            concat!($prefix, $n),
            concat!($nxm, $n),
            $class,
            $first + $n,
            $bits,
            $bytes,
        )),*];
    };
}

registers!(REGS: 16, "reg", "NXM_NX_REG", NXM_NX + 0, 32 / 4, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
registers!(XREGS: 8, "xreg", "OXM_OF_PKT_REG", OXM_OF_PKT_REG + 0, 64 / 8, 0 1 2 3 4 5 6 7);
registers!(XXREGS: 4, "xxreg", "NXM_NX_XXREG", NXM_NX + 111, 128 / 16, 0 1 2 3);

/// Every field there is.
pub(super) fn all() -> impl Iterator<Item = Field> {
    let regs = (0..16).map(Field::Reg);
    let xregs = (0..8).map(Field::XReg);
    let xxregs = (0..4).map(Field::XxReg);
    SIMPLE.iter().copied().chain(regs).chain(xregs).chain(xxregs)
}

/// Every field by each of its names.
static NAMES: LazyLock<BTreeMap<&'static str, Field>> = LazyLock::new(|| {
    let mut names = BTreeMap::new();
    for field in all() {
        let info = field.info();
        let own = [&info.name, &info.nxm_name].into_iter();
        for name in own.chain(info.aliases).chain(info.oxm_name) {
            names.entry(*name).or_insert(field);
        }
    }
    names
});

pub(super) fn by_name(name: &str) -> Option<Field> {
    NAMES.get(name).copied()
}

/// The field with this class and number, in any of the forms a switch may use.
pub(crate) fn by_number(class: u16, number: u8) -> Option<Field> {
    match class {
        NXM_NX if number < 16 => return Some(Field::Reg(number)),
        OXM_OF_PKT_REG if number < 8 => return Some(Field::XReg(number)),
        NXM_NX if (111..115).contains(&number) => return Some(Field::XxReg(number - 111)),
        _ => {}
    }
    SIMPLE.iter().copied().find(|field| {
        let info = field.info();
        (info.class == class && info.number == number) || info.older.contains(&(class, number))
    })
}

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use openflow::Match;
use openflow::action::PacketInReason;
use testkit::fuzz::{Campaign, Outcome};

use super::*;
use crate::fields::{FROM_GATEWAY, FROM_POD, FROM_TUNNEL, SOURCE};
use crate::node::{Families, Gateway};

fn mk_node() -> NodeConfig {
    NodeConfig {
        families: Families::Dual,
        gateway: Gateway {
            ofport: fields::GATEWAY_OFPORT,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ips: vec!["10.0.0.1".parse().unwrap()],
        },
        tunnel: None,
        pod_cidrs: Vec::new(),
        node_ips: Vec::new(),
        services: None,
    }
}

fn mk_packet_in(data: Vec<u8>, source: u32) -> PacketIn {
    PacketIn {
        full_len: u32::try_from(data.len()).unwrap(),
        data: data.into(),
        table: fields::ANTREA_POLICY_INGRESS_RULE,
        cookie: openflow::Cookie(0),
        reason: PacketInReason::Action,
        metadata: Match::new().in_port(OfPort(7)).reg(SOURCE, source.into()),
        userdata: vec![1, 2].into(),
        continuation: None,
    }
}

const A: [u8; 6] = [2, 0, 0, 0, 0, 10];
const B: [u8; 6] = [2, 0, 0, 0, 0, 11];

fn build(packet: etherparse::PacketBuilderStep<etherparse::TcpHeader>, payload: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    packet.write(&mut data, payload).unwrap();
    data
}

fn v4() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    PacketBuilder::ethernet2(A, B).ipv4([10, 0, 0, 2], [10, 0, 0, 3], 64)
}

fn v6() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    let ip = |n| std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n).octets();
    PacketBuilder::ethernet2(A, B).ipv6(ip(2), ip(3), 64)
}

/// Read by another implementation, which checks the sums too.
#[test]
fn connections_are_reset() {
    for packet in [v4(), v6()] {
        let data = build(packet.tcp(1234, 80, 1000, 64_000).syn(), b"");
        let out = answer(&mk_node(), &mk_packet_in(data, FROM_POD.value)).unwrap();
        assert_eq!(out.actions, [Action::Output(OfPort(7))]);
        let sliced = SlicedPacket::from_ethernet(&out.data).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("{sliced:?}") };
        assert_eq!((tcp.source_port(), tcp.destination_port()), (80, 1234));
        assert!(tcp.rst() && tcp.ack() && !tcp.syn());
        assert_eq!(tcp.acknowledgment_number(), 1001);
        assert_eq!(&out.data[..12], [A, B].concat(), "back to whom it came from");
        let sum = match &sliced.net {
            Some(etherparse::NetSlice::Ipv4(ip)) => {
                let header = ip.header().to_header();
                assert_eq!(header.calc_header_checksum(), header.header_checksum);
                tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination()).unwrap()
            }
            Some(etherparse::NetSlice::Ipv6(ip)) => {
                tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()).unwrap()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(sum, tcp.checksum());
    }
    // One that is under way is reset where it is.
    let data = build(v4().tcp(1234, 80, 1000, 64_000).ack(77), b"abc");
    let out = answer(&mk_node(), &mk_packet_in(data, FROM_POD.value)).unwrap();
    let sliced = SlicedPacket::from_ethernet(&out.data).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("{sliced:?}") };
    assert_eq!((tcp.sequence_number(), tcp.rst(), tcp.ack()), (77, true, false));
}

#[test]
fn everything_else_is_prohibited() {
    for packet in [v4(), v6()] {
        let mut data = Vec::new();
        packet.udp(1234, 53).write(&mut data, b"question").unwrap();
        let out = answer(&mk_node(), &mk_packet_in(data.clone(), FROM_POD.value)).unwrap();
        let sliced = SlicedPacket::from_ethernet(&out.data).unwrap();
        let (kind, code, quote) = match &sliced.transport {
            Some(TransportSlice::Icmpv4(icmp)) => {
                (icmp.type_u8(), icmp.code_u8(), icmp.payload().to_vec())
            }
            Some(TransportSlice::Icmpv6(icmp)) => {
                let Some(etherparse::NetSlice::Ipv6(ip)) = &sliced.net else { panic!() };
                let (src, dst) = (ip.header().source(), ip.header().destination());
                assert!(icmp.is_checksum_valid(src, dst));
                (icmp.type_u8(), icmp.code_u8(), icmp.payload().to_vec())
            }
            other => panic!("{other:?}"),
        };
        assert!([(3, 10), (1, 1)].contains(&(kind, code)));
        assert!(data[14..].starts_with(&quote), "it quotes the packet");
        assert!(quote.len() >= 28);
    }
}

#[test]
fn nobody_is_told_twice() {
    let told = |data: Vec<u8>| answer(&mk_node(), &mk_packet_in(data, FROM_POD.value)).is_ok();
    assert!(!told(build(v4().tcp(1, 2, 3, 4).rst(), b"")));
    let mut error = Vec::new();
    v4().icmpv4_raw(3, 1, [0; 4]).write(&mut error, &[0; 28]).unwrap();
    assert!(!told(error));
    let mut echo = Vec::new();
    v4().icmpv4_echo_request(1, 1).write(&mut echo, b"").unwrap();
    assert!(told(echo.clone()));
    // What is sent back is never answered either.
    let out = answer(&mk_node(), &mk_packet_in(echo, FROM_POD.value)).unwrap();
    assert!(!told(out.data.to_vec()));
    let out = build(v6().tcp(1, 2, 3, 4).syn(), b"");
    let out = answer(&mk_node(), &mk_packet_in(out, FROM_POD.value)).unwrap();
    assert!(!told(out.data.to_vec()));
    let mut many = Vec::new();
    PacketBuilder::ethernet2(A, B)
        .ipv4([10, 0, 0, 2], [224, 0, 0, 1], 1)
        .udp(1, 2)
        .write(&mut many, b"")
        .unwrap();
    assert!(!told(many));
}

#[test]
fn answers_go_where_the_packet_came_from() {
    let data = build(v4().tcp(1234, 80, 1000, 64_000).syn(), b"");
    let out = answer(&mk_node(), &mk_packet_in(data.clone(), FROM_GATEWAY.value)).unwrap();
    assert_eq!(out.actions, [Action::Output(fields::GATEWAY_OFPORT)]);
    assert_eq!(&out.data[..6], mk_node().gateway.mac.0);
    let out = answer(&mk_node(), &mk_packet_in(data, FROM_TUNNEL.value)).unwrap();
    assert_eq!(out.actions.last(), Some(&Action::resubmit(L3_FORWARDING)));
    assert!(out.actions.contains(&GENERATED_REJECT.load()));
}

/// Case B6.
#[test]
fn any_bytes_are_survived() {
    let mut whole = Vec::new();
    for packet in [v4(), v6()] {
        whole.push(build(packet.tcp(1, 2, 3, 4).syn(), b"abc"));
    }
    for packet in [v4(), v6()] {
        let mut data = Vec::new();
        packet.udp(1, 2).write(&mut data, b"abc").unwrap();
        whole.push(data);
    }
    let mut state = 1u64;
    for data in whole {
        for len in 0..=data.len() {
            let _ = answer(&mk_node(), &mk_packet_in(data[..len].to_vec(), 3));
        }
        for _ in 0..2000 {
            let mut data = data.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from(state >> 40).unwrap() % data.len();
                data[at] = u8::try_from(state >> 56).unwrap();
            }
            let _ = answer(&mk_node(), &mk_packet_in(data, 1));
        }
    }
}

/// Damaged frames: what is read lies within the frame, and what is answered can be read again.
#[test]
fn fuzz_packet() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/packet");
    let report = Campaign::from_dir("frames", dir).run(|frame| {
        for source in [FROM_POD.value, FROM_GATEWAY.value, FROM_TUNNEL.value] {
            if let Ok(out) = answer(&mk_node(), &mk_packet_in(frame.to_vec(), source)) {
                assert!(Headers::read(&out.data).is_ok());
            }
        }
        let Ok(headers) = Headers::read(frame) else { return Outcome::Refused };
        let payload = headers.payload(frame);
        assert!(headers.segment_at + payload.len() <= frame.len() || payload.is_empty());
        Outcome::Accepted
    });
    assert!(report.accepted > report.executions / 10, "{report:?}");
}

#[test]
fn payloads_end_with_the_packet() {
    let mut frame = Vec::new();
    v4().udp(53, 40_000).write(&mut frame, b"answer").unwrap();
    frame.extend([0; 18]);
    assert_eq!(Headers::read(&frame).unwrap().payload(&frame), b"answer");
    let data = build(v6().tcp(53, 40_000, 1, 64_000), b"segment");
    let headers = Headers::read(&data).unwrap();
    assert_eq!(headers.payload(&data), b"segment");
    assert_eq!(headers.payload(&data[..data.len() - 3]), b"segm", "as much as there is");
}

/// The packet goes to an endpoint by now; the client dialled a Service.
#[test]
fn answers_come_from_what_was_dialled() {
    let ip6 = |n| std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    let state = CtState::TRK | CtState::NEW;
    let v4_ct = Match::new()
        .ip()
        .ct_state(state, CtState::empty())
        .with(Field::CtNwProto, 6)
        .ct_nw_dst(std::net::Ipv4Addr::new(10, 96, 0, 10))
        .with(Field::CtTpDst, 443);
    let v6_ct = Match::new()
        .ipv6()
        .ct_state(state, CtState::empty())
        .with(Field::CtNwProto, 6)
        .ct_ipv6_dst(ip6(0x96))
        .with(Field::CtTpDst, 443);
    for (packet, ct, from) in
        [(v4(), v4_ct, IpAddr::from([10, 96, 0, 10])), (v6(), v6_ct, IpAddr::from(ip6(0x96)))]
    {
        let data = build(packet.tcp(1234, 80, 1000, 64_000).syn(), b"");
        let mut packet_in = mk_packet_in(data, FROM_POD.value);
        packet_in.metadata = ct.clone().in_port(OfPort(7)).reg(SOURCE, FROM_POD.value.into());
        let out = answer(&mk_node(), &packet_in).unwrap();
        let headers = Headers::read(&out.data).unwrap();
        assert_eq!((headers.src, headers.ports()), (from, Some((443, 1234))));
        assert_eq!(out.actions, [Action::Output(OfPort(7))]);
        // A reply of that connection has its own source.
        packet_in.metadata = packet_in.metadata.ct_state(state | CtState::RPL, CtState::empty());
        let out = answer(&mk_node(), &packet_in).unwrap();
        let headers = Headers::read(&out.data).unwrap();
        assert_eq!(headers.ports(), Some((80, 1234)));
    }
}

#[test]
fn a_quote_is_what_the_client_sent() {
    let sent = {
        let mut data = Vec::new();
        PacketBuilder::ethernet2(A, B)
            .ipv4([10, 0, 0, 2], [10, 96, 0, 10], 64)
            .udp(1234, 53)
            .write(&mut data, b"question")
            .unwrap();
        data
    };
    let mut data = Vec::new();
    v4().udp(1234, 5353).write(&mut data, b"question").unwrap();
    let mut packet_in = mk_packet_in(data, FROM_POD.value);
    packet_in.metadata = Match::new()
        .ip()
        .ct_state(CtState::TRK | CtState::NEW, CtState::empty())
        .with(Field::CtNwProto, 17)
        .ct_nw_dst(std::net::Ipv4Addr::new(10, 96, 0, 10))
        .with(Field::CtTpDst, 53)
        .in_port(OfPort(7))
        .reg(SOURCE, FROM_POD.value.into());
    let out = answer(&mk_node(), &packet_in).unwrap();
    // Ethernet, IP and ICMP headers come before the quote: IP header and ports.
    assert_eq!(out.data[14 + 20 + 8..][..24], sent[14..][..24]);
}

#[test]
fn a_service_without_endpoints_has_no_such_port() {
    let data = build(v4().tcp(1234, 80, 1000, 64_000).syn(), b"");
    let out = no_endpoint_answer(&mk_node(), &mk_packet_in(data, FROM_POD.value)).unwrap();
    assert!(
        matches!(Headers::read(&out.data).unwrap().segment, Segment::Tcp { flags, .. } if flags & RST != 0)
    );
    for (packet, want) in [(v4(), (3, 3)), (v6(), (1, 4))] {
        let mut data = Vec::new();
        packet.udp(1234, 53).write(&mut data, b"question").unwrap();
        let out = no_endpoint_answer(&mk_node(), &mk_packet_in(data, FROM_POD.value)).unwrap();
        let segment = Headers::read(&out.data).unwrap().segment;
        let Segment::Icmp { kind, code } = segment else { panic!("{segment:?}") };
        assert_eq!((kind, code), want);
    }
}

/// On its way in to an endpoint the packet was routed already: its client is found by its address.
#[test]
fn a_routed_client_is_found_by_its_address() {
    let mut data = build(v4().tcp(1234, 80, 1000, 64_000).syn(), b"");
    data[6..12].copy_from_slice(&mk_node().gateway.mac.0);
    let out = answer(&mk_node(), &mk_packet_in(data, FROM_POD.value)).unwrap();
    assert_eq!(out.actions.last(), Some(&Action::resubmit(L3_FORWARDING)));
    assert_eq!(
        out.metadata.get(Field::InPort).map(|port| port.value),
        Some(u128::from(fields::GATEWAY_OFPORT.0))
    );
}

//! Session affinity: a client is given the same endpoint again, for a time.
//!
//! What a client was given is a flow that the switch itself makes in SessionAffinity, and that it
//! removes when the time is over. Whether the endpoint is still one of the Service's is looked at
//! each time (SessionAffinityCheck), so nothing has to be taken back when an endpoint goes.

use openflow::action::LearnFlags;
use openflow::{Action, Cookie, Field, Flow, Learn, LearnSource, LearnSpec, Subfield};

use super::frontend::dialled;
use super::group::{endpoint_ip, endpoint_value};
use super::{Endpoint, Frontend, FrontendAddress, Group, Protocol, flow};
use crate::fields::{
    self, Category, ENDPOINT_IP, ENDPOINT_IP_V6, ENDPOINT_KNOWN, ENDPOINT_PORT,
    ENDPOINT_REMEMBERED, HOST_ENDPOINT, NORMAL, REMOTE_ENDPOINT, REWRITE_MAC, SERVICE_GROUP,
    TO_EXTERNAL, cookie,
};

const ETH_IPV4: u128 = 0x0800;
const ETH_IPV6: u128 = 0x86dd;

/// The flow that learns, for a frontend with affinity.
pub(super) fn learn(frontend: &Frontend) -> Option<Flow> {
    let timeout = frontend.affinity?;
    let mut learn = Learn {
        hard_timeout: timeout.max(1),
        cookie: learned_cookie(frontend, &affinity_for(timeout)),
        flags: LearnFlags::DELETE_LEARNED,
        ..Learn::new(fields::SESSION_AFFINITY, learned_priority(timeout))
    };
    let ip = if frontend.address.is_ipv6() { ENDPOINT_IP_V6 } else { ENDPOINT_IP };
    let again = |place| LearnSpec::Load { dst: place, src: LearnSource::Field(place) };
    learn.specs = tuple(frontend);
    learn.specs.extend([
        again(ip),
        again(ENDPOINT_PORT),
        again(TO_EXTERNAL.place),
        again(REMOTE_ENDPOINT.place),
        again(HOST_ENDPOINT.place),
        again(SERVICE_GROUP),
        LearnSpec::Load {
            dst: ENDPOINT_REMEMBERED.place,
            src: LearnSource::Value(ENDPOINT_REMEMBERED.value.into()),
        },
    ]);
    // Each connection begins the time anew.
    let known = ENDPOINT_KNOWN.of(dialled(frontend));
    let next = Action::GotoTable(fields::SNAT_MARK);
    let flow = flow(fields::SESSION_AFFINITY_LEARN, NORMAL, known);
    Some(flow.actions([Action::learn(learn), next]))
}

/// What a learned flow matches: this client, dialling what it dials now.
pub(super) fn tuple(frontend: &Frontend) -> Vec<LearnSpec> {
    let (eth_type, src, dst) = if frontend.address.is_ipv6() {
        (ETH_IPV6, Field::Ipv6Src, Field::Ipv6Dst)
    } else {
        (ETH_IPV4, Field::Ipv4Src, Field::Ipv4Dst)
    };
    let (number, port) = match frontend.protocol {
        Protocol::Tcp => (crate::packet::protocol::TCP, Field::TcpDst),
        Protocol::Udp => (crate::packet::protocol::UDP, Field::UdpDst),
        Protocol::Sctp => (crate::packet::protocol::SCTP, Field::SctpDst),
    };
    let is = |field, value| LearnSpec::Match {
        dst: Subfield::whole(field),
        src: LearnSource::Value(value),
    };
    vec![
        is(Field::EthType, eth_type),
        is(Field::IpProto, number.into()),
        same(src),
        same(dst),
        same(port),
    ]
}

/// The learned flow matches what the packet has.
pub(super) fn same(field: Field) -> LearnSpec {
    let place = Subfield::whole(field);
    LearnSpec::Match { dst: place, src: LearnSource::Field(place) }
}

/// Another priority for another time, nearly always. For a moment after a change the switch may still
/// learn for the former time; were it the same flow, it would get the new cookie and keep that time.
/// As it is, it has a cookie that nobody wants any more. Direct server return comes before all.
const fn learned_priority(seconds: u16) -> u16 {
    /// A prime, so that usual times differ.
    const N_PRIORITIES: u16 = 199;
    1 + seconds % N_PRIORITIES
}

/// What affinity for so many seconds is learned for. The time counts, because a switch that is given
/// another learning flow with the same cookie in place of one keeps what that one learned, with its
/// time, and begins that time anew at each connection.
fn affinity_for(seconds: u16) -> [u8; 3] {
    let [high, low] = seconds.to_be_bytes();
    [0, high, low]
}

/// Learned flows go with the flow that learns, so each such flow has a cookie of its own: FNV-1a of
/// what is dialled, and of what it was learned for.
pub(super) fn learned_cookie(frontend: &Frontend, purpose: &[u8]) -> Cookie {
    let mut bytes = match frontend.address {
        FrontendAddress::Ip(std::net::IpAddr::V4(ip)) => ip.octets().to_vec(),
        FrontendAddress::Ip(std::net::IpAddr::V6(ip)) => ip.octets().to_vec(),
        FrontendAddress::NodePort { ipv6 } => vec![u8::from(ipv6)],
    };
    bytes.push(frontend.protocol as u8);
    bytes.extend(purpose);
    bytes.extend(frontend.port.to_be_bytes());
    let hash = bytes
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    cookie(Category::Service, hash.max(1))
}

/// The flow that tells that an endpoint still is one of the group's.
pub(super) fn member(group: &Group, endpoint: &Endpoint) -> Flow {
    let (place, ip) = endpoint_ip(endpoint.ip);
    let matching = ENDPOINT_REMEMBERED
        .of(openflow::Match::new())
        .reg(SERVICE_GROUP, group.id.0.into())
        .reg(place, ip)
        .reg(ENDPOINT_PORT, endpoint_value(endpoint).0 & u128::from(u16::MAX));
    flow(fields::SESSION_AFFINITY_CHECK, NORMAL, matching)
        .actions([REWRITE_MAC.load(), Action::GotoTable(fields::DSR_SERVICE_MARK)])
}

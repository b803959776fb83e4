//! Groups: one bucket for each endpoint.
//!
//! The switch chooses by a hash that the datapath makes (`dp_hash`), so that connections of one
//! Service share a few cached decisions instead of asking for one each. It looks at 8 bits of the
//! hash at most, which is enough for 256 buckets. A group with more endpoints than [`MAX_PART`] is
//! therefore cut into parts, a power of two of them: further bits of the same hash choose the part,
//! by a flow, and the first 8 bits the endpoint within it. An endpoint's part follows from its
//! address alone, so that a change of one endpoint changes one part.
//!
//! With session affinity a hash of the client's address chooses instead, so that connections which a
//! client opens before it is known what it was given go to one endpoint too. (Parts are chosen as
//! without it.)
//!
//! Buckets are never added or removed one by one: Open vSwitch (seen in 3.1.0) then builds the hash
//! table of a `dp_hash` group from the new buckets alone, and all connections go to them.

use std::net::IpAddr;

use openflow::{Action, Field, GroupId, Intent, Match, SelectionMethod, Subfield};

use super::affinity::member;
use super::{Endpoint, Group, MAX_GROUP_ID, Place, flow};
use crate::fields::{
    self, ENDPOINT_IP, ENDPOINT_IP_V6, ENDPOINT_PORT, GROUP_PART, HOST_ENDPOINT, NORMAL,
    REMOTE_ENDPOINT, SERVICE_GROUP,
};

/// Endpoints in a part, on average. Parts differ, since addresses choose them: 160 on average are
/// less than 256 in each.
const MAX_PART: usize = 160;
/// Bits that choose a part, at most.
const MAX_PART_BITS: u16 = 7;
/// The first bit of the hash that no group looks at.
const FREE_HASH_BIT: u16 = 8;
const WEIGHT: u16 = 100;

/// The groups that choose an endpoint, and what tells members of a group with session affinity.
#[must_use]
pub fn group(group: &Group) -> Vec<Intent> {
    let mut endpoints = group.endpoints.clone();
    endpoints.sort_unstable();
    endpoints.dedup();
    let mut intents = Vec::new();
    let bits = part_bits(endpoints.len());
    if bits == 0 {
        intents.push(one(group, group.id, &endpoints).into());
    } else {
        intents.push(whole(group.id, bits).into());
        let mut parts = vec![Vec::new(); 1 << bits];
        for endpoint in &endpoints {
            parts[part_of(endpoint, bits)].push(*endpoint);
        }
        fill_empty(&mut parts);
        for (part, endpoints) in (0u32..).zip(&parts) {
            let id = part_id(group.id, part);
            intents.push(one(group, id, endpoints).into());
            let place = Subfield::reg(2, GROUP_PART.offset, GROUP_PART.offset + bits - 1);
            let matching =
                Match::new().reg(SERVICE_GROUP, group.id.0.into()).reg(place, part.into());
            let flow = flow(fields::SERVICE_LB_PART, NORMAL, matching);
            intents.push(flow.actions([Action::Group(id)]).into());
        }
    }
    if group.affinity {
        intents.extend(endpoints.iter().map(|endpoint| member(group, endpoint).into()));
    }
    intents
}

/// How many bits choose a part of so many endpoints.
fn part_bits(n_endpoints: usize) -> u16 {
    if n_endpoints <= 1 << FREE_HASH_BIT {
        return 0;
    }
    let fits = |bits: &u16| n_endpoints <= MAX_PART << bits;
    (1..MAX_PART_BITS).find(fits).unwrap_or(MAX_PART_BITS)
}

/// The part an endpoint is in: FNV-1a of its address and port, with its high bits folded in.
fn part_of(endpoint: &Endpoint, bits: u16) -> usize {
    let ip = match endpoint.ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let bytes = ip.into_iter().chain(endpoint.port.to_be_bytes());
    let hash = bytes
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let folded = hash ^ (hash >> 15);
    let mixed = folded.wrapping_mul(0x2c1b_3c6d);
    (mixed >> (32 - u32::from(bits))) as usize
}

/// Connections that fall to a part without endpoints are served by its neighbour's.
fn fill_empty(parts: &mut [Vec<Endpoint>]) {
    for at in 0..parts.len() {
        if parts[at].is_empty() {
            let others = (1..parts.len()).map(|step| (at + step) % parts.len());
            let full = others.into_iter().find(|other| !parts[*other].is_empty());
            parts[at] = full.map(|other| parts[other].clone()).unwrap_or_default();
        }
    }
}

const fn part_id(group: GroupId, part: u32) -> GroupId {
    GroupId(group.0 | (part + 1) << MAX_GROUP_ID.0.count_ones())
}

fn select(id: GroupId) -> openflow::Group {
    let dp_hash = SelectionMethod { name: "dp_hash".into(), param: 0, fields: Vec::new() };
    openflow::Group { selection: Some(dp_hash), ..openflow::Group::select(id) }
}

/// The group that has the hash made and looks at the bits that choose a part.
fn whole(id: GroupId, bits: u16) -> openflow::Group {
    let hash = Subfield::new(Field::DpHash, FREE_HASH_BIT, FREE_HASH_BIT + bits - 1);
    let part = Subfield::reg(2, GROUP_PART.offset, GROUP_PART.offset + bits - 1);
    let actions = vec![Action::move_field(hash, part), Action::resubmit(fields::SERVICE_LB_PART)];
    select(id).bucket(WEIGHT, actions)
}

/// The group with this number, all of `of` or a part, that chooses one of few endpoints.
fn one(of: &Group, id: GroupId, endpoints: &[Endpoint]) -> openflow::Group {
    let mut group = select(id);
    if of.affinity {
        let ipv6 = endpoints.iter().any(|endpoint| endpoint.ip.is_ipv6());
        let source = if ipv6 { Field::Ipv6Src } else { Field::Ipv4Src };
        let by_client = SelectionMethod { name: "hash".into(), param: 0, fields: vec![source] };
        group.selection = Some(by_client);
    }
    for endpoint in endpoints {
        let (place, ip) = endpoint_ip(endpoint.ip);
        let (value, mask) = endpoint_value(endpoint);
        let actions = vec![
            Action::load(place, ip),
            Action::set_field_masked(ENDPOINT_PORT.field, value, mask),
            Action::resubmit(fields::DSR_SERVICE_MARK),
        ];
        group = group.bucket(WEIGHT, actions);
    }
    group
}

/// Where an endpoint's address is kept, and its value there.
pub(super) fn endpoint_ip(ip: IpAddr) -> (Subfield, u128) {
    match ip {
        IpAddr::V4(ip) => (ENDPOINT_IP, u32::from(ip).into()),
        IpAddr::V6(ip) => (ENDPOINT_IP_V6, ip.into()),
    }
}

/// An endpoint's port and place, in the register that holds both: value and mask.
pub(super) fn endpoint_value(endpoint: &Endpoint) -> (u128, u128) {
    let marks = [REMOTE_ENDPOINT, HOST_ENDPOINT];
    let mask = marks.iter().fold(ENDPOINT_PORT.mask(), |mask, mark| mask | mark.place.mask());
    let port = ENDPOINT_PORT.place(endpoint.port.into());
    let place = match endpoint.place {
        Place::LocalPod => 0,
        Place::RemotePod => REMOTE_ENDPOINT.place.mask(),
        Place::HostNetwork => HOST_ENDPOINT.place.mask(),
    };
    (port | place, mask)
}

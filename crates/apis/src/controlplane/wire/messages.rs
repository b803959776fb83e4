//! Field numbers of the group's own messages.

use ipnet::IpNet;

use super::DecodeError;
use super::codec::{Field, Message, Reader, Value, Writer, message, word_field};
use crate::common::Protocol;
use crate::controlplane::bytes::{of_addr, to_net};
use crate::controlplane::policy::tcp;
use crate::controlplane::{
    AddressGroup, AddressGroupPatch, AppliedToGroup, AppliedToGroupPatch, ClusterGroupMembers,
    Direction, Entity, GroupAssociation, GroupMember, GroupMembers, GroupReference, HttpProtocol,
    IpBlock, IpGroupAssociation, L7Protocol, MulticastGroupInfo, NamedPort, NetworkPolicy,
    NetworkPolicyEvaluation, NetworkPolicyEvaluationRequest, NetworkPolicyEvaluationResponse,
    NetworkPolicyNodeStatus, NetworkPolicyPeer, NetworkPolicyReference, NetworkPolicyRule,
    NetworkPolicyStats, NetworkPolicyStatus, NodeReference, NodeStatsSummary, ObjectName,
    PolicyType, RuleRef, RuleTrafficStats, Service, TlsProtocol, TrafficStats,
};
use crate::policy::RuleAction;

word_field! { RuleAction, Protocol, PolicyType, }

message! { AddressGroup { metadata = 1, group_members = 2 } }
message! {
    AddressGroupPatch { metadata = 1, added_group_members = 2, removed_group_members = 3 }
}
message! { AppliedToGroup { metadata = 1, group_members = 2 } }
message! {
    AppliedToGroupPatch { metadata = 1, added_group_members = 2, removed_group_members = 3 }
}
message! {
    GroupMember { pod = 1, external_entity = 2, ips = 3, ports = 4, node = 5, service = 6 }
}
// PodReference, ServiceReference and ExternalEntityReference alike.
message! { ObjectName { name = 1, namespace = 2 } }
message! { NodeReference { name = 1 } }
message! {
    NamedPort from NamedPort { port: 0, name: String::new(), protocol: tcp() }, required []
    { port = 1, name = 2, protocol = 3 }
}

message! {
    NetworkPolicy {
        metadata = 1,
        rules = 2,
        applied_to_groups = 3,
        priority = 4,
        tier_priority = 5,
        source_ref = 6,
    }
}
message! {
    NetworkPolicyReference from no_policy(), required []
    { type_ = 1, namespace = 2, name = 3, uid = 4 }
}
message! {
    NetworkPolicyRule from NetworkPolicyRule::new(Direction::In), required [1]
    {
        direction = 1,
        from = 2,
        to = 3,
        services = 4,
        priority = 5,
        action = 6,
        enable_logging = 7,
        applied_to_groups = 8,
        name = 9,
        l7_protocols = 10,
        log_label = 11,
    }
}
message! {
    NetworkPolicyPeer {
        address_groups = 1,
        ip_blocks = 2,
        fqdns = 3,
        to_services = 4,
        label_identities = 5,
    }
}
message! {
    IpBlock from IpBlock { cidr: IpNet::default(), except: Vec::new() }, required [1]
    { cidr = 1, except = 2 }
}
message! {
    Service {
        protocol = 1,
        port = 2,
        end_port = 3,
        icmp_type = 4,
        icmp_code = 5,
        igmp_type = 6,
        group_address = 7,
        src_port = 8,
        src_end_port = 9,
    }
}
message! { L7Protocol { http = 1, tls = 2 } }
message! { HttpProtocol { host = 1, method = 2, path = 3 } }
message! { TlsProtocol { sni = 1 } }

message! { NetworkPolicyStatus { metadata = 1, nodes = 2 } }
message! {
    NetworkPolicyNodeStatus { node_name = 1, generation = 2, realization_failure = 3, message = 4 }
}
message! {
    NodeStatsSummary {
        metadata = 1,
        network_policies = 2,
        antrea_cluster_network_policies = 3,
        antrea_network_policies = 4,
        multicast = 5,
    }
}
message! {
    NetworkPolicyStats
        from NetworkPolicyStats {
            network_policy: no_policy(),
            traffic_stats: TrafficStats::default(),
            rule_traffic_stats: Vec::new(),
        },
        required []
    { network_policy = 1, traffic_stats = 2, rule_traffic_stats = 3 }
}
message! { TrafficStats { packets = 1, bytes = 2, sessions = 3 } }
message! { RuleTrafficStats { name = 1, traffic_stats = 2 } }
message! { MulticastGroupInfo { group = 1, pods = 2 } }

message! {
    ClusterGroupMembers {
        metadata = 1,
        effective_members = 2,
        effective_ip_blocks = 3,
        total_members = 4,
        total_pages = 5,
        current_page = 6,
    }
}
message! {
    GroupMembers {
        metadata = 1,
        effective_members = 2,
        effective_ip_blocks = 3,
        total_members = 4,
        total_pages = 5,
        current_page = 6,
    }
}
message! { GroupAssociation { metadata = 1, associated_groups = 2 } }
message! { IpGroupAssociation { metadata = 1, associated_groups = 2 } }
message! { GroupReference { namespace = 1, name = 2, uid = 3 } }
message! { NetworkPolicyEvaluation { request = 1, response = 2, metadata = 3 } }
message! { NetworkPolicyEvaluationRequest { source = 1, destination = 2 } }
message! { Entity { pod = 1 } }
message! {
    NetworkPolicyEvaluationResponse
        from NetworkPolicyEvaluationResponse {
            network_policy: no_policy(),
            rule_index: 0,
            rule: RuleRef { direction: Direction::In, name: String::new(), action: None },
        },
        required [1, 3]
    { network_policy = 1, rule_index = 2, rule = 3 }
}
message! {
    RuleRef
        from RuleRef { direction: Direction::In, name: String::new(), action: None },
        required [1]
    { direction = 1, name = 2, action = 3 }
}

/// What a reference is before its fields are read.
fn no_policy() -> NetworkPolicyReference {
    NetworkPolicyReference {
        type_: PolicyType::Unknown(String::new()),
        namespace: String::new(),
        name: String::new(),
        uid: String::new(),
    }
}

impl Field for Direction {
    fn write(&self, field: u32, out: &mut Writer) {
        out.bytes(field, self.as_str().as_bytes());
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        *self = match value.text(field)? {
            "In" => Self::In,
            "Out" => Self::Out,
            _ => return Err(DecodeError::Field { field, what: "direction" }),
        };
        Ok(())
    }
}

/// IPNet: `{ 1: address, 2: length }`
impl Message for IpNet {
    fn write(&self, out: &mut Writer) {
        out.bytes(1, &of_addr(self.addr()));
        i32::from(self.prefix_len()).write(2, out);
    }

    fn read(mut from: Reader<'_>) -> Result<Self, DecodeError> {
        let (mut ip, mut length): (&[u8], i32) = (&[], 0);
        while let Some((field, value)) = from.next()? {
            match field {
                1 => ip = value.bytes(field)?,
                2 => length.merge(field, value)?,
                _ => {}
            }
        }
        to_net(ip, length).ok_or(DecodeError::Field { field: 1, what: "network" })
    }
}

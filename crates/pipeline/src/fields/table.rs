//! The tables: constant numbers with room between them, so that a table can be added without
//! moving another.

use openflow::TableId;

/// Changes whenever a table gets another number or meaning; kept with the bridge, so that the
/// first sync after an upgrade replaces everything at once.
pub const LAYOUT_VERSION: u32 = 3;

/// Independent chains of tables; the root table sends each packet into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pipeline {
    /// The first table.
    Root,
    /// ARP.
    Arp,
    /// IPv4 and IPv6.
    Ip,
    /// IP multicast.
    Multicast,
    /// The rest, on machines outside the cluster.
    NonIp,
}

/// What happens to a packet, in this order, within a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Choosing a pipeline.
    Start,
    /// Where it came from.
    Classifier,
    /// Whether it is what it says it is.
    Validation,
    /// Which connection it belongs to.
    ConntrackState,
    /// Where Services send it.
    PreRouting,
    /// Whether it may leave.
    EgressSecurity,
    /// Which way it goes.
    Routing,
    /// Whose source address it gets.
    PostRouting,
    /// Which port it goes to.
    Switching,
    /// Whether it may enter.
    IngressSecurity,
    /// Remembering its connection.
    Conntrack,
    /// Sending it.
    Output,
}

/// What a table does with a packet that no flow of a feature takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// Drop it.
    Drop,
    /// Go on in the next table in use.
    Next,
    /// A feature says.
    Feature,
}

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its number.
    pub id: TableId,
    /// Its name.
    pub name: &'static str,
    /// Its pipeline.
    pub pipeline: Pipeline,
    /// Its stage.
    pub stage: Stage,
    /// What happens to packets nobody takes.
    pub miss: Miss,
}

/// `PipelineRootClassifier`.
pub const PIPELINE_ROOT_CLASSIFIER: TableId = TableId(0);
/// `ARPSpoofGuard`.
pub const ARP_SPOOF_GUARD: TableId = TableId(8);
/// `ARPResponder`.
pub const ARP_RESPONDER: TableId = TableId(12);
/// `Classifier`.
pub const CLASSIFIER: TableId = TableId(20);
/// `SpoofGuard`.
pub const SPOOF_GUARD: TableId = TableId(24);
/// `IPv6`.
pub const IPV6: TableId = TableId(28);
/// `PipelineIPClassifier`.
pub const PIPELINE_IP_CLASSIFIER: TableId = TableId(32);
/// `UnSNAT`.
pub const UN_SNAT: TableId = TableId(36);
/// `ConntrackZone`.
pub const CONNTRACK_ZONE: TableId = TableId(40);
/// `ConntrackState`.
pub const CONNTRACK_STATE: TableId = TableId(44);
/// `PreRoutingClassifier`.
pub const PRE_ROUTING_CLASSIFIER: TableId = TableId(48);
/// `NodePortMark`.
pub const NODE_PORT_MARK: TableId = TableId(52);
/// `SessionAffinity`.
pub const SESSION_AFFINITY: TableId = TableId(56);
/// `SessionAffinityCheck`: whether an endpoint that a client was given before still serves.
pub const SESSION_AFFINITY_CHECK: TableId = TableId(58);
/// `ServiceLB`.
pub const SERVICE_LB: TableId = TableId(60);
/// `ServiceLBPart`: the parts of groups that are too large to be one.
pub const SERVICE_LB_PART: TableId = TableId(62);
/// `DSRServiceMark`.
pub const DSR_SERVICE_MARK: TableId = TableId(64);
/// `SessionAffinityLearn`: remembers which endpoint a client was given.
pub const SESSION_AFFINITY_LEARN: TableId = TableId(65);
/// `SNATMark`.
pub const SNAT_MARK: TableId = TableId(66);
/// `EndpointDNAT`.
pub const ENDPOINT_DNAT: TableId = TableId(68);
/// `DNAT`.
pub const DNAT: TableId = TableId(72);
/// `EgressSecurityClassifier`.
pub const EGRESS_SECURITY_CLASSIFIER: TableId = TableId(76);
/// `NodePortRule`: rules that are applied to NodePorts of Services. What they let pass goes on to the
/// rules of its source, if that is a Pod.
pub const NODE_PORT_RULE: TableId = TableId(77);
/// `EgressAudit`: reserved for rules under audit.
pub const EGRESS_AUDIT: TableId = TableId(78);
/// `AntreaPolicyEgressRule`.
pub const ANTREA_POLICY_EGRESS_RULE: TableId = TableId(80);
/// `EgressRule`.
pub const EGRESS_RULE: TableId = TableId(84);
/// `EgressDefaultRule`.
pub const EGRESS_DEFAULT_RULE: TableId = TableId(88);
/// `EgressMetric`.
pub const EGRESS_METRIC: TableId = TableId(92);
/// `L3Forwarding`.
pub const L3_FORWARDING: TableId = TableId(96);
/// `EgressMark`.
pub const EGRESS_MARK: TableId = TableId(100);
/// `EgressQoS`.
pub const EGRESS_QOS: TableId = TableId(104);
/// `L3DecTTL`.
pub const L3_DEC_TTL: TableId = TableId(108);
/// `SNAT`.
pub const SNAT: TableId = TableId(116);
/// `L2ForwardingCalc`.
pub const L2_FORWARDING_CALC: TableId = TableId(120);
/// `TrafficControl`.
pub const TRAFFIC_CONTROL: TableId = TableId(124);
/// `IngressSecurityClassifier`.
pub const INGRESS_SECURITY_CLASSIFIER: TableId = TableId(128);
/// `IngressAudit`: reserved for rules under audit.
pub const INGRESS_AUDIT: TableId = TableId(130);
/// `AntreaPolicyIngressRule`.
pub const ANTREA_POLICY_INGRESS_RULE: TableId = TableId(132);
/// `IngressRule`.
pub const INGRESS_RULE: TableId = TableId(136);
/// `IngressDefaultRule`.
pub const INGRESS_DEFAULT_RULE: TableId = TableId(140);
/// `IngressMetric`.
pub const INGRESS_METRIC: TableId = TableId(144);
/// `ConntrackCommit`.
pub const CONNTRACK_COMMIT: TableId = TableId(148);
/// `VLAN`.
pub const VLAN: TableId = TableId(152);
/// `Output`.
pub const OUTPUT: TableId = TableId(156);
/// `MulticastEgressRule`.
pub const MULTICAST_EGRESS_RULE: TableId = TableId(164);
/// `MulticastEgressMetric`.
pub const MULTICAST_EGRESS_METRIC: TableId = TableId(168);
/// `MulticastEgressPodMetric`.
pub const MULTICAST_EGRESS_POD_METRIC: TableId = TableId(172);
/// `MulticastRouting`.
pub const MULTICAST_ROUTING: TableId = TableId(176);
/// `MulticastIngressRule`.
pub const MULTICAST_INGRESS_RULE: TableId = TableId(180);
/// `MulticastIngressMetric`.
pub const MULTICAST_INGRESS_METRIC: TableId = TableId(184);
/// `MulticastIngressPodMetric`.
pub const MULTICAST_INGRESS_POD_METRIC: TableId = TableId(188);
/// `MulticastOutput`.
pub const MULTICAST_OUTPUT: TableId = TableId(192);
/// `NonIP`.
pub const NON_IP: TableId = TableId(200);

/// Tables in which packets go on after connection tracking has looked at them. The datapath knows
/// their numbers of packets that are on their way while an agent of another layout replaces the
/// flows, so these numbers are the same in every layout.
pub const RESUME_TABLES: &[TableId] = &[
    CONNTRACK_ZONE,
    CONNTRACK_STATE,
    NODE_PORT_RULE,
    ANTREA_POLICY_EGRESS_RULE,
    L2_FORWARDING_CALC,
];

/// Every table, in the order of their numbers.
pub const TABLES: &[Table] = &[
    table(
        PIPELINE_ROOT_CLASSIFIER,
        "PipelineRootClassifier",
        Pipeline::Root,
        Stage::Start,
        Miss::Drop,
    ),
    table(ARP_SPOOF_GUARD, "ARPSpoofGuard", Pipeline::Arp, Stage::Validation, Miss::Drop),
    table(ARP_RESPONDER, "ARPResponder", Pipeline::Arp, Stage::Output, Miss::Drop),
    table(CLASSIFIER, "Classifier", Pipeline::Ip, Stage::Classifier, Miss::Drop),
    table(SPOOF_GUARD, "SpoofGuard", Pipeline::Ip, Stage::Validation, Miss::Drop),
    table(IPV6, "IPv6", Pipeline::Ip, Stage::Validation, Miss::Next),
    table(
        PIPELINE_IP_CLASSIFIER,
        "PipelineIPClassifier",
        Pipeline::Ip,
        Stage::Validation,
        Miss::Next,
    ),
    table(UN_SNAT, "UnSNAT", Pipeline::Ip, Stage::ConntrackState, Miss::Next),
    table(CONNTRACK_ZONE, "ConntrackZone", Pipeline::Ip, Stage::ConntrackState, Miss::Next),
    table(CONNTRACK_STATE, "ConntrackState", Pipeline::Ip, Stage::ConntrackState, Miss::Feature),
    table(
        PRE_ROUTING_CLASSIFIER,
        "PreRoutingClassifier",
        Pipeline::Ip,
        Stage::PreRouting,
        Miss::Feature,
    ),
    // Packets come here and go back again, whether they were marked or not.
    table(NODE_PORT_MARK, "NodePortMark", Pipeline::Ip, Stage::PreRouting, Miss::Drop),
    table(SESSION_AFFINITY, "SessionAffinity", Pipeline::Ip, Stage::PreRouting, Miss::Feature),
    table(
        SESSION_AFFINITY_CHECK,
        "SessionAffinityCheck",
        Pipeline::Ip,
        Stage::PreRouting,
        Miss::Next,
    ),
    table(SERVICE_LB, "ServiceLB", Pipeline::Ip, Stage::PreRouting, Miss::Next),
    table(SERVICE_LB_PART, "ServiceLBPart", Pipeline::Ip, Stage::PreRouting, Miss::Next),
    table(DSR_SERVICE_MARK, "DSRServiceMark", Pipeline::Ip, Stage::PreRouting, Miss::Next),
    table(
        SESSION_AFFINITY_LEARN,
        "SessionAffinityLearn",
        Pipeline::Ip,
        Stage::PreRouting,
        Miss::Next,
    ),
    table(SNAT_MARK, "SNATMark", Pipeline::Ip, Stage::PreRouting, Miss::Next),
    table(ENDPOINT_DNAT, "EndpointDNAT", Pipeline::Ip, Stage::PreRouting, Miss::Next),
    table(DNAT, "DNAT", Pipeline::Ip, Stage::PreRouting, Miss::Next),
    table(
        EGRESS_SECURITY_CLASSIFIER,
        "EgressSecurityClassifier",
        Pipeline::Ip,
        Stage::EgressSecurity,
        Miss::Next,
    ),
    table(NODE_PORT_RULE, "NodePortRule", Pipeline::Ip, Stage::EgressSecurity, Miss::Next),
    table(EGRESS_AUDIT, "EgressAudit", Pipeline::Ip, Stage::EgressSecurity, Miss::Next),
    table(
        ANTREA_POLICY_EGRESS_RULE,
        "AntreaPolicyEgressRule",
        Pipeline::Ip,
        Stage::EgressSecurity,
        Miss::Next,
    ),
    table(EGRESS_RULE, "EgressRule", Pipeline::Ip, Stage::EgressSecurity, Miss::Next),
    table(
        EGRESS_DEFAULT_RULE,
        "EgressDefaultRule",
        Pipeline::Ip,
        Stage::EgressSecurity,
        Miss::Next,
    ),
    table(EGRESS_METRIC, "EgressMetric", Pipeline::Ip, Stage::EgressSecurity, Miss::Next),
    table(L3_FORWARDING, "L3Forwarding", Pipeline::Ip, Stage::Routing, Miss::Feature),
    table(EGRESS_MARK, "EgressMark", Pipeline::Ip, Stage::Routing, Miss::Feature),
    table(EGRESS_QOS, "EgressQoS", Pipeline::Ip, Stage::Routing, Miss::Next),
    table(L3_DEC_TTL, "L3DecTTL", Pipeline::Ip, Stage::Routing, Miss::Next),
    table(SNAT, "SNAT", Pipeline::Ip, Stage::PostRouting, Miss::Next),
    table(L2_FORWARDING_CALC, "L2ForwardingCalc", Pipeline::Ip, Stage::Switching, Miss::Next),
    table(TRAFFIC_CONTROL, "TrafficControl", Pipeline::Ip, Stage::Switching, Miss::Next),
    table(
        INGRESS_SECURITY_CLASSIFIER,
        "IngressSecurityClassifier",
        Pipeline::Ip,
        Stage::IngressSecurity,
        Miss::Next,
    ),
    table(INGRESS_AUDIT, "IngressAudit", Pipeline::Ip, Stage::IngressSecurity, Miss::Next),
    table(
        ANTREA_POLICY_INGRESS_RULE,
        "AntreaPolicyIngressRule",
        Pipeline::Ip,
        Stage::IngressSecurity,
        Miss::Next,
    ),
    table(INGRESS_RULE, "IngressRule", Pipeline::Ip, Stage::IngressSecurity, Miss::Next),
    table(
        INGRESS_DEFAULT_RULE,
        "IngressDefaultRule",
        Pipeline::Ip,
        Stage::IngressSecurity,
        Miss::Next,
    ),
    table(INGRESS_METRIC, "IngressMetric", Pipeline::Ip, Stage::IngressSecurity, Miss::Next),
    table(CONNTRACK_COMMIT, "ConntrackCommit", Pipeline::Ip, Stage::Conntrack, Miss::Next),
    table(VLAN, "VLAN", Pipeline::Ip, Stage::Output, Miss::Next),
    table(OUTPUT, "Output", Pipeline::Ip, Stage::Output, Miss::Drop),
    table(
        MULTICAST_EGRESS_RULE,
        "MulticastEgressRule",
        Pipeline::Multicast,
        Stage::EgressSecurity,
        Miss::Next,
    ),
    table(
        MULTICAST_EGRESS_METRIC,
        "MulticastEgressMetric",
        Pipeline::Multicast,
        Stage::EgressSecurity,
        Miss::Next,
    ),
    table(
        MULTICAST_EGRESS_POD_METRIC,
        "MulticastEgressPodMetric",
        Pipeline::Multicast,
        Stage::EgressSecurity,
        Miss::Next,
    ),
    table(MULTICAST_ROUTING, "MulticastRouting", Pipeline::Multicast, Stage::Routing, Miss::Next),
    table(
        MULTICAST_INGRESS_RULE,
        "MulticastIngressRule",
        Pipeline::Multicast,
        Stage::IngressSecurity,
        Miss::Next,
    ),
    table(
        MULTICAST_INGRESS_METRIC,
        "MulticastIngressMetric",
        Pipeline::Multicast,
        Stage::IngressSecurity,
        Miss::Next,
    ),
    table(
        MULTICAST_INGRESS_POD_METRIC,
        "MulticastIngressPodMetric",
        Pipeline::Multicast,
        Stage::IngressSecurity,
        Miss::Next,
    ),
    table(MULTICAST_OUTPUT, "MulticastOutput", Pipeline::Multicast, Stage::Output, Miss::Drop),
    table(NON_IP, "NonIP", Pipeline::NonIp, Stage::Classifier, Miss::Drop),
];

const fn table(
    id: TableId,
    name: &'static str,
    pipeline: Pipeline,
    stage: Stage,
    miss: Miss,
) -> Table {
    Table { id, name, pipeline, stage, miss }
}

/// The names of all tables, to be set in OVS.
#[must_use]
pub fn tables() -> &'static [(TableId, &'static str)] {
    const NAMES: [(TableId, &str); TABLES.len()] = {
        let mut names = [(TableId(0), ""); TABLES.len()];
        let mut n = 0;
        while n < TABLES.len() {
            names[n] = (TABLES[n].id, TABLES[n].name);
            n += 1;
        }
        names
    };
    &NAMES
}

/// The table of this number.
#[must_use]
pub fn table_of(id: TableId) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.id == id)
}

/// The name of a table, or its number where it has none.
#[must_use]
pub fn table_name(id: TableId) -> String {
    table_of(id).map_or_else(|| id.to_string(), |table| table.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order_and_leave_room() {
        for pair in TABLES.windows(2) {
            assert!(pair[0].id < pair[1].id, "{}", pair[1].name);
            assert!(
                (pair[0].pipeline, pair[0].stage) <= (pair[1].pipeline, pair[1].stage),
                "{} comes after {}",
                pair[1].name,
                pair[0].name
            );
        }
        assert_eq!(TABLES.len(), 47 + 2 + 4, "the known ones, two reserved, four of our own");
        assert_eq!(tables().len(), TABLES.len());
        assert_eq!(table_name(L3_FORWARDING), "L3Forwarding");
        assert_eq!(table_name(TableId(250)), "250");
    }
}

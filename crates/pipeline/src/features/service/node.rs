//! What Services need on a node whatever Services there are.

use std::net::IpAddr;

use openflow::{Action, Ct, CtState, Flow, Intent, Match, Meter, Nat};

use super::{Datapath, ServiceConfig, collision, dsr, flow};
use crate::features::pod_connectivity::keep;
use crate::fields::{
    self, CT_HAIRPIN, CT_NODE_PORT, CT_SERVICE, CT_SERVICE_GROUP, CT_SERVICE_SNAT, CT_SOURCE,
    CT_ZONE, CT_ZONE_SNAT, CT_ZONE_SNAT_V6, CT_ZONE_V6, ENDPOINT_KNOWN, ENDPOINT_REMEMBERED,
    ENDPOINT_TO_SELECT, FROM_EXTERNAL, FROM_GATEWAY, FROM_POD, FROM_TUNNEL, HAIRPIN_NEEDED, HIGH,
    HOST_ENDPOINT, LOW, METER_SERVICE, MISS, NO_DSR, NORMAL, OUTPUT_TO_PORT, REMOTE_ENDPOINT,
    REWRITE_MAC, SERVICE_GROUP, SNAT_NEEDED, SOURCE, Stage, TO_EXTERNAL, TO_GATEWAY, TO_NODE_PORT,
    VIRTUAL_MAC, VIRTUAL_NODE_PORT_IP, VIRTUAL_NODE_PORT_IP_V6, VIRTUAL_SERVICE_IP,
    VIRTUAL_SERVICE_IP_V6,
};
use crate::node::NodeConfig;

/// An address family in use.
struct Family {
    any: Match,
    zone: u16,
    snat_zone: u16,
    virtual_service: IpAddr,
    virtual_node_port: IpAddr,
    gateway: Option<IpAddr>,
}

/// The flows and meters that Services need whatever Services there are; none where the bridge
/// serves none.
#[must_use]
pub fn node_flows(node: &NodeConfig) -> Vec<Intent> {
    let Some(config) = &node.services else { return Vec::new() };
    let mut intents = Vec::new();
    if let Some(rate) = config.packet_in_rate {
        let burst = rate.saturating_mul(2);
        intents.push(Meter::packets_per_second(METER_SERVICE, rate, burst).into());
    }
    let mut flows = Vec::new();
    known(node, &mut flows);
    pre_routing(node, config, &mut flows);
    affinity(&mut flows);
    snat_mark(&mut flows);
    endpoints(node, &mut flows);
    to_host(node, &mut flows);
    if config.dsr {
        dsr::node(node, &mut flows);
    }
    for family in families(node) {
        un_snat(&family, &mut flows);
        snat(node, config, &family, &mut flows);
        if config.datapath == Datapath::System {
            flows.push(collision::in_kernel(node, &family.any, family.zone));
        }
    }
    for ip in node.gateway.ips.iter().filter(|ip| node.families.has(**ip)) {
        flows.extend(collision::of_gateway(node, config.datapath, *ip));
    }
    intents.extend(flows.into_iter().map(Intent::from));
    intents
}

fn families(node: &NodeConfig) -> Vec<Family> {
    let gateway = |ipv6| node.gateway.ips.iter().find(|ip| ip.is_ipv6() == ipv6).copied();
    let v4 = node.families.has_v4().then(|| Family {
        any: Match::new().ip(),
        zone: CT_ZONE,
        snat_zone: CT_ZONE_SNAT,
        virtual_service: VIRTUAL_SERVICE_IP.into(),
        virtual_node_port: VIRTUAL_NODE_PORT_IP.into(),
        gateway: gateway(false),
    });
    let v6 = node.families.has_v6().then(|| Family {
        any: Match::new().ipv6(),
        zone: CT_ZONE_V6,
        snat_zone: CT_ZONE_SNAT_V6,
        virtual_service: VIRTUAL_SERVICE_IP_V6.into(),
        virtual_node_port: VIRTUAL_NODE_PORT_IP_V6.into(),
        gateway: gateway(true),
    });
    v4.into_iter().chain(v6).collect()
}

/// ConntrackState: a known connection has found its endpoint already. It is routed, since neither
/// end knows the other's link, and policies that look at the Service see it. One without an answer
/// may be called new still: that it is committed shows by its mark.
fn known(node: &NodeConfig, flows: &mut Vec<Flow>) {
    let table = fields::CONNTRACK_STATE;
    let service = Match::new().ct_state(CtState::TRK, CtState::INV).reg(CT_SERVICE, 1);
    flows.push(flow(table, LOW + 1, service).actions([
        REWRITE_MAC.load(),
        Action::move_field(CT_SERVICE_GROUP, SERVICE_GROUP),
        Action::move_field(CT_NODE_PORT, TO_NODE_PORT.place),
        Action::GotoTable(node.layout().ip_stage(Stage::EgressSecurity)),
    ]));
    // What the host sends to an endpoint directly has to pass SNAT, which only what is routed does.
    let sent = Match::new().ct_state(CtState::TRK, CtState::RPL | CtState::INV);
    let direct = FROM_GATEWAY.of(sent).reg(CT_SERVICE, 0).reg(CT_SERVICE_SNAT, 1);
    flows.push(flow(table, LOW + 1, direct).actions([
        REWRITE_MAC.load(),
        Action::GotoTable(node.layout().ip_stage(Stage::EgressSecurity)),
    ]));
}

/// PreRoutingClassifier, NodePortMark.
fn pre_routing(node: &NodeConfig, config: &ServiceConfig, flows: &mut Vec<Flow>) {
    let table = fields::PRE_ROUTING_CLASSIFIER;
    let mut actions = Vec::new();
    if config.proxy_all {
        actions.push(Action::resubmit(fields::NODE_PORT_MARK));
        let virtual_ips = families(node).into_iter().map(|family| family.virtual_node_port);
        let own = config.node_port_addresses.iter().filter(|ip| !ip.is_loopback()).copied();
        for ip in virtual_ips.chain(own).filter(|ip| node.families.has(*ip)) {
            let to = Match::new().dst_net(ip);
            flows.push(flow(fields::NODE_PORT_MARK, NORMAL, to).actions([TO_NODE_PORT.load()]));
        }
    }
    // What a client was given before is learned, and what is learned can only be come back from.
    actions.push(Action::resubmit(fields::SESSION_AFFINITY));
    actions.push(Action::GotoTable(fields::SESSION_AFFINITY_CHECK));
    flows.push(flow(table, MISS, Match::new()).actions(actions));
}

/// SessionAffinity and SessionAffinityCheck: what a client was given before and does not serve any
/// more is forgotten.
fn affinity(flows: &mut Vec<Flow>) {
    let miss = flow(fields::SESSION_AFFINITY, MISS, Match::new());
    flows.push(miss.actions([ENDPOINT_TO_SELECT.load()]));
    let stale = ENDPOINT_REMEMBERED.of(Match::new());
    flows.push(flow(fields::SESSION_AFFINITY_CHECK, LOW, stale).actions([
        ENDPOINT_TO_SELECT.load(),
        Action::load(TO_EXTERNAL.place, 0),
        Action::GotoTable(fields::SERVICE_LB),
    ]));
}

/// SNATMark: whose source has to be translated. What the host sends to a Pod of another node in a
/// name that is not its own would be answered to somebody else; what only the host knows the way
/// to goes back to the host, and has to come back here.
fn snat_mark(flows: &mut Vec<Flow>) {
    let table = fields::SNAT_MARK;
    let next = Action::GotoTable(fields::ENDPOINT_DNAT);
    let from_host = FROM_GATEWAY.of(Match::new());
    let remote = NO_DSR.of(REMOTE_ENDPOINT.of(FROM_EXTERNAL.of(from_host.clone())));
    flows.push(flow(table, NORMAL, remote).actions([SNAT_NEEDED.load(), next.clone()]));
    let host = HOST_ENDPOINT.of(from_host);
    flows.push(flow(table, NORMAL, host).actions([HAIRPIN_NEEDED.load(), next]));
}

/// EndpointDNAT beside the endpoints' own flows.
fn endpoints(node: &NodeConfig, flows: &mut Vec<Flow>) {
    let table = fields::ENDPOINT_DNAT;
    // An endpoint without a flow is about to come, or to go.
    flows.push(flow(table, LOW, ENDPOINT_KNOWN.of(Match::new())));
    // Where this comes from it was decided already.
    let next = node.layout().ip_next(table);
    let from_peer = ENDPOINT_TO_SELECT.of(FROM_TUNNEL.of(Match::new()));
    flows.push(flow(table, HIGH, from_peer).goto_table(next));
}

/// L3Forwarding and Output: what came from the host and goes back to it, and a Pod that is its own
/// endpoint.
fn to_host(node: &NodeConfig, flows: &mut Vec<Flow>) {
    let translation = Action::GotoTable(node.layout().ip_stage(Stage::PostRouting));
    let hairpin = Match::new().ct_state(CtState::TRK, CtState::INV).reg(CT_HAIRPIN, 1);
    let back = FROM_GATEWAY.of(hairpin.clone());
    let set_mac = |field, mac: openflow::MacAddr| Action::set_field(field, mac.to_bits().into());
    flows.push(flow(fields::L3_FORWARDING, LOW + 1, back).actions([
        set_mac(openflow::Field::EthSrc, VIRTUAL_MAC),
        set_mac(openflow::Field::EthDst, node.gateway.mac),
        TO_GATEWAY.load(),
        translation,
    ]));
    let matching = OUTPUT_TO_PORT.of(hairpin);
    let in_port = Action::Output(openflow::OfPort::IN_PORT);
    flows.push(flow(fields::OUTPUT, HIGH, matching).actions([in_port]));
}

/// UnSNAT: answers to what was sent in the gateway's or the virtual address' name.
fn un_snat(family: &Family, flows: &mut Vec<Flow>) {
    for ip in [Some(family.virtual_service), family.gateway].into_iter().flatten() {
        let restore = Ct::zone(family.snat_zone).nat(Nat::restore()).table(fields::CONNTRACK_ZONE);
        let to = Match::new().dst_net(ip);
        flows.push(flow(fields::UN_SNAT, NORMAL, to).actions([Action::ct(restore)]));
    }
}

/// SNAT, and ConntrackCommit for what it translated.
fn snat(node: &NodeConfig, config: &ServiceConfig, family: &Family, flows: &mut Vec<Flow>) {
    let next = node.layout().ip_next(fields::SNAT);
    let not = CtState::RPL | CtState::INV;
    // Without an address of Pods only what goes back to the host is translated.
    let mut cases = vec![(1, Some(FROM_GATEWAY), family.virtual_service)];
    if let Some(gateway) = family.gateway {
        cases.extend([(1, Some(FROM_POD), gateway), (0, None, gateway)]);
    }
    let translate = |nat, hairpin| {
        Ct::zone(family.snat_zone)
            .commit()
            .nat(nat)
            .table(next)
            .exec(Action::move_field(SOURCE, CT_SOURCE))
            .exec(Action::load(CT_SERVICE_SNAT, 1))
            .exec(Action::load(CT_HAIRPIN, hairpin))
    };
    let sent = |from: Match, hairpin| {
        from.ct_state(CtState::TRK, not).reg(CT_SERVICE_SNAT, 1).reg(CT_HAIRPIN, hairpin)
    };
    for (hairpin, source, address) in cases {
        let translate = translate(Nat::src(address), hairpin);
        let sent = sent(family.any.clone(), hairpin);
        let sent = source.map_or(sent.clone(), |source| source.of(sent));
        // All policies are passed: what comes behind this does not look at such a connection.
        let half = sent.clone().reg(CT_SOURCE, 0);
        flows.push(
            flow(fields::SNAT, NORMAL, half)
                .actions([Action::ct(keep(family.zone)), Action::ct(translate.clone())]),
        );
        flows.push(flow(fields::SNAT, LOW, sent).actions([Action::ct(translate)]));
    }
    if let Some(gateway) = family.gateway
        && config.datapath == Datapath::Netdev
    {
        // No source is translated to itself there, not even where this zone has forgotten it.
        for (from, nat) in collision::by_half(gateway) {
            let translate = translate(nat, 0);
            let own = FROM_GATEWAY.of(sent(from, 0));
            flows.push(flow(fields::SNAT, LOW + 1, own).actions([Action::ct(translate)]));
        }
    }
    let kept = family.any.clone().ct_state(CtState::TRK, CtState::INV).reg(CT_SERVICE_SNAT, 1);
    let behind = node.layout().ip_next(fields::CONNTRACK_COMMIT);
    flows.push(flow(fields::CONNTRACK_COMMIT, HIGH, kept).goto_table(behind));
}

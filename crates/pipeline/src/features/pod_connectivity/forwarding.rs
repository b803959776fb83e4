//! Connections and ports: ConntrackZone, ConntrackState, L2ForwardingCalc, ConntrackCommit, Output.

use openflow::{Action, Ct, CtState, MacAddr, Match, Nat, OfPort};

use super::Build;
use crate::features::service;
use crate::fields::{
    self, CT_EGRESS_RULE, CT_INGRESS_RULE, CT_SOURCE, CT_ZONE, CT_ZONE_V6, EGRESS_RULE_ID,
    INGRESS_RULE_ID, LOW, NORMAL, OUTPUT_TO_PORT, SOURCE, Stage, TARGET_OFPORT, VIRTUAL_MAC,
};
use crate::node::PodInterface;

pub(super) fn node(build: &mut Build<'_>) {
    conntrack(build);
    let gateway = &build.node.gateway;
    let (port, mac) = (gateway.ofport, gateway.mac);
    destination(build, mac, port);
    if let Some(tunnel) = build.node.tunnel {
        destination(build, VIRTUAL_MAC, tunnel.ofport);
    }
    build.add(
        fields::OUTPUT,
        NORMAL,
        OUTPUT_TO_PORT.of(Match::new()),
        [Action::OutputReg(TARGET_OFPORT)],
    );
}

pub(super) fn pod(build: &mut Build<'_>, pod: &PodInterface) {
    destination(build, pod.mac, pod.ofport);
    for ip in pod.ips.iter().filter(|ip| build.node.families.has(**ip)) {
        let flows = service::keep_apart(build.node, *ip);
        build.flows.extend(flows);
    }
}

/// The port that an Ethernet destination is at.
fn destination(build: &mut Build<'_>, mac: MacAddr, port: OfPort) {
    let next = build.layout.ip_next(fields::L2_FORWARDING_CALC);
    build.add(
        fields::L2_FORWARDING_CALC,
        NORMAL,
        Match::new().eth_dst(mac),
        [
            Action::load(TARGET_OFPORT, port.0.into()),
            OUTPUT_TO_PORT.load(),
            Action::GotoTable(next),
        ],
    );
}

fn conntrack(build: &mut Build<'_>) {
    let mut zones = Vec::new();
    if build.node.families.has_v4() {
        zones.push((Match::new().ip(), CT_ZONE));
    }
    if build.node.families.has_v6() {
        zones.push((Match::new().ipv6(), CT_ZONE_V6));
    }
    let state = build.layout.ip_next(fields::CONNTRACK_ZONE);
    let commit_next = build.layout.ip_next(fields::CONNTRACK_COMMIT);
    for (family, zone) in zones {
        let look_up = Ct::zone(zone).table(state);
        // What connections to Services translated is translated on.
        let look_up = match build.node.services {
            Some(_) => look_up.nat(Nat::restore()),
            None => look_up,
        };
        build.add(fields::CONNTRACK_ZONE, NORMAL, family.clone(), [Action::ct(look_up)]);
        let keep = keep(zone);
        let new = family.clone().ct_state(CtState::TRK | CtState::NEW, CtState::empty());
        let half = family
            .ct_state(CtState::TRK, CtState::NEW | CtState::INV | CtState::RPL)
            .reg(CT_SOURCE, 0);
        for matching in [new, half] {
            build.add(
                fields::CONNTRACK_COMMIT,
                NORMAL,
                matching,
                [Action::ct(keep.clone()), Action::GotoTable(commit_next)],
            );
        }
    }
    let tracked = CtState::TRK;
    let table = fields::CONNTRACK_STATE;
    let invalid = Match::new().ct_state(tracked | CtState::INV, CtState::empty());
    build.drop(table, NORMAL, invalid);
    // A known connection has found its Service already.
    let known = Match::new().ct_state(tracked, CtState::NEW);
    let security = Action::GotoTable(build.layout.ip_stage(Stage::EgressSecurity));
    build.add(table, LOW, known, [security]);
    let routing = Action::GotoTable(build.layout.ip_stage(Stage::PreRouting));
    build.add(table, fields::MISS, Match::new(), [routing]);
}

/// Keeps a connection. Who opened it is kept with it: replies are routed by that, and later packets
/// pass policies by it. So nothing is committed with its source before it passed all of them, and
/// what was committed for another reason (a Service) is committed again.
pub(crate) fn keep(zone: u16) -> Ct {
    Ct::zone(zone)
        .commit()
        .exec(Action::move_field(SOURCE, CT_SOURCE))
        .exec(Action::move_field(INGRESS_RULE_ID, CT_INGRESS_RULE))
        .exec(Action::move_field(EGRESS_RULE_ID, CT_EGRESS_RULE))
}

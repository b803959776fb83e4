//! What passes policies without being looked at, and where packets enter the policy tables.

use openflow::{Action, CtState, Flow, Intent, Match, Meter};
use serde::{Deserialize, Serialize};

use super::{Direction, Place, metric_table, rule_table};
use crate::fields::{
    self, CT_HAIRPIN, CT_SOURCE, Category, ESTABLISHED_BYPASS, FROM_EXTERNAL, FROM_GATEWAY,
    FROM_LOCAL, GENERATED_REJECT, HIGH, HOST_MAC, METER_DNS, METER_NETWORK_POLICY, NORMAL,
    PKT_MARK_HOST, POLICY_DENY, RegMark, Stage, TO_GATEWAY, TO_TUNNEL, TO_UPLINK, cookie,
};
use crate::node::{Families, NodeConfig};

/// How packets that the host itself made are told from those it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostMark {
    /// They have the gateway's address. So has what the host forwards and masquerades to it.
    GatewayAddress,
    /// The host gives their frames the source [`HOST_MAC`], or the packet the mark
    /// [`PKT_MARK_HOST`].
    Marked,
}

/// What policies' flows have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyConfig {
    /// The families of Pods.
    pub families: Families,
    /// The controller id of the connection on which packets come to the agent.
    pub controller_id: u16,
    /// How many packets a second flows may send to the agent, in each of two kinds; without a
    /// rate there is no meter.
    pub packet_in_rate: Option<u32>,
    /// How the host's own packets are known.
    pub host_mark: HostMark,
}

/// The flows and meters that policies need whatever rules there are.
#[must_use]
pub fn node_flows(node: &NodeConfig, config: &PolicyConfig) -> Vec<Intent> {
    let mut intents = Vec::new();
    if let Some(rate) = config.packet_in_rate {
        for id in [METER_NETWORK_POLICY, METER_DNS] {
            intents.push(Meter::packets_per_second(id, rate, rate.saturating_mul(2)).into());
        }
    }
    let mut flows = Vec::new();
    for direction in [Direction::Egress, Direction::Ingress] {
        known_connections(direction, &mut flows);
        denied(direction, &mut flows);
    }
    if node.layout().has(fields::NODE_PORT_RULE) {
        node_ports(config, &mut flows);
    }
    entrance(node, config, &mut flows);
    intents.extend(flows.into_iter().map(Intent::from));
    intents
}

fn flow(table: openflow::TableId, priority: u16, matching: Match) -> Flow {
    Flow::new(table, priority, matching).cookie(cookie(Category::NetworkPolicy, 0))
}

/// What passes the rules of NodePorts without being looked at: connections that passed before, and
/// what the node itself sends.
fn node_ports(config: &PolicyConfig, flows: &mut Vec<Flow>) {
    let (table, next) = (fields::NODE_PORT_RULE, rule_table(Direction::Egress, Place::Tiered));
    let opens = Match::new().ct_state(CtState::TRK, CtState::RPL | CtState::INV);
    let marked = FROM_GATEWAY.of(opens.clone().reg(PKT_MARK_HOST, 1));
    let own = FROM_LOCAL.of(FROM_GATEWAY.of(opens));
    let own = (config.host_mark == HostMark::GatewayAddress).then_some(own);
    for matching in passed_before().chain([marked]).chain(own) {
        flows.push(flow(table, ESTABLISHED_BYPASS, matching).goto_table(next));
    }
}

/// Packets of connections that passed before, replies and related ones included. That a connection
/// is known does not suffice: one whose packets are all dropped here may be, for a Service. Its
/// source is noted when it has passed; each bit of that needs a match, since it is not 0.
fn passed_before() -> impl Iterator<Item = Match> {
    let known = Match::new().ct_state(CtState::TRK, CtState::NEW | CtState::INV);
    (0..CT_SOURCE.n_bits).map(move |bit| {
        let mark = 1 << (CT_SOURCE.offset + bit);
        known.clone().ct_mark(mark, mark)
    })
}

fn known_connections(direction: Direction, flows: &mut Vec<Flow>) {
    let table = rule_table(direction, Place::Tiered);
    for matching in passed_before() {
        flows.push(flow(table, ESTABLISHED_BYPASS, matching).goto_table(metric_table(direction)));
    }
}

/// What a rule denied is dropped after it was counted, even where its counting flow is not there
/// (yet, or any more).
fn denied(direction: Direction, flows: &mut Vec<Flow>) {
    flows.push(flow(metric_table(direction), fields::LOW, POLICY_DENY.of(Match::new())));
}

/// IngressSecurityClassifier, and the host's frames at the Classifier.
fn entrance(node: &NodeConfig, config: &PolicyConfig, flows: &mut Vec<Flow>) {
    let layout = node.layout();
    let table = fields::INGRESS_SECURITY_CLASSIFIER;
    let commit = layout.ip_stage(Stage::Conntrack);
    let output = layout.ip_stage(Stage::Output);
    // The agent's own answers to what a rule rejected: no policy, no connection.
    flows.push(flow(table, HIGH + 2, GENERATED_REJECT.of(Match::new())).goto_table(output));
    // The node may always reach its own Pods (probes). A reply is no such thing.
    let opens = Match::new().ct_state(CtState::TRK, CtState::RPL | CtState::INV);
    let marked = opens.clone().reg(PKT_MARK_HOST, 1);
    flows.push(flow(table, HIGH, FROM_GATEWAY.of(marked)).goto_table(commit));
    match config.host_mark {
        HostMark::GatewayAddress => {
            let own = FROM_LOCAL.of(FROM_GATEWAY.of(opens));
            flows.push(flow(table, HIGH, own).goto_table(commit));
        }
        HostMark::Marked => {
            let gateway = &node.gateway;
            let made = Match::new().in_port(gateway.ofport).eth_src(HOST_MAC);
            let mut known = |priority, matching: Match, from: &[RegMark]| {
                let mut actions = vec![
                    Action::set_field(openflow::Field::EthSrc, gateway.mac.to_bits().into()),
                    Action::load(PKT_MARK_HOST, 1),
                    FROM_GATEWAY.load(),
                ];
                actions.extend(from.iter().map(|mark| mark.load()));
                actions.push(Action::GotoTable(layout.ip_stage(Stage::Validation)));
                flows.push(flow(fields::CLASSIFIER, priority, matching).actions(actions));
            };
            // An answer to another address of the node would not come by this switch.
            known(HIGH + 1, made.clone(), &[FROM_LOCAL, FROM_EXTERNAL]);
            for ip in gateway.ips.iter().filter(|ip| node.families.has(**ip)) {
                known(HIGH + 2, made.clone().src_net(*ip), &[FROM_LOCAL]);
            }
        }
    }
    // What leaves the node is looked at where it arrives.
    for away in [TO_GATEWAY, TO_TUNNEL, TO_UPLINK] {
        let matching = away.of(Match::new());
        flows.push(flow(table, NORMAL, matching).goto_table(metric_table(Direction::Ingress)));
    }
    // A Pod that reaches itself through a Service.
    let hairpin = Match::new().ct_state(CtState::TRK, CtState::INV).reg(CT_HAIRPIN, 1);
    flows.push(flow(table, NORMAL, hairpin).goto_table(commit));
}

//! What a Pod's own state asks for: isolation by Kubernetes policies, interception of DNS answers.

use std::net::IpAddr;

use openflow::{Action, Controller, CtState, Flow, Match, OfPort};

use super::clause::ClauseKey;
use super::gates::PolicyConfig;
use super::packet_in::{Operation, to_agent};
use super::{Direction, Place, Verdict, metric_table, rule_table};
use crate::fields::{
    self, Category, METER_DNS, NORMAL, POLICY_DISPOSITION, TARGET_OFPORT, cookie, packet_in,
};

/// A Pod that Kubernetes policies isolate in a direction: what none of their rules allows is
/// dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isolation {
    /// Which way.
    pub direction: Direction,
    /// The Pod's port; used on the way in.
    pub ofport: OfPort,
    /// The Pod's addresses; used on the way out, which may begin at the gateway for Services.
    pub ips: Vec<IpAddr>,
    /// Whether the agent hears of what is dropped.
    pub log: bool,
}

impl Isolation {
    /// The flows that drop.
    #[must_use]
    pub fn flows(&self, config: &PolicyConfig) -> Vec<Flow> {
        let table = rule_table(self.direction, Place::Baseline);
        let keys: Vec<ClauseKey> = match self.direction {
            Direction::Ingress => vec![ClauseKey::ToPort(self.ofport)],
            Direction::Egress => {
                let ips = self.ips.iter().filter(|ip| config.families.has(**ip));
                ips.map(|ip| ClauseKey::from_ip(*ip)).collect()
            }
        };
        let actions = if self.log {
            let disposition = Action::load(POLICY_DISPOSITION, Verdict::Drop.number().into());
            vec![disposition, to_agent(config, Operation::Log)]
        } else {
            Vec::new()
        };
        keys.into_iter()
            .map(|key| {
                Flow::new(table, NORMAL, key.matching())
                    .cookie(cookie(Category::NetworkPolicy, 0))
                    .actions(actions.clone())
            })
            .collect()
    }
}

/// DNS answers to a Pod wait at the agent until what they tell is in the flows.
#[must_use]
pub fn dns_flows(config: &PolicyConfig, pod: OfPort) -> Vec<Flow> {
    const DNS: u16 = 53;
    let hold = Action::controller(Controller {
        controller_id: config.controller_id,
        userdata: vec![packet_in::DNS],
        meter: config.packet_in_rate.map(|_| METER_DNS),
        pause: true,
        ..Controller::default()
    });
    let table = rule_table(Direction::Ingress, Place::Tiered);
    let mut protocols = Vec::new();
    if config.families.has_v4() {
        protocols.extend([Match::new().udp(), Match::new().tcp()]);
    }
    if config.families.has_v6() {
        protocols.extend([Match::new().udp6(), Match::new().tcp6()]);
    }
    protocols
        .into_iter()
        .map(|protocol| {
            let answer = protocol
                .tp_src(DNS)
                .ct_state(CtState::TRK | CtState::RPL, CtState::empty())
                .reg(TARGET_OFPORT, pod.0.into());
            Flow::new(table, fields::DNS_INTERCEPT, answer)
                .cookie(cookie(Category::NetworkPolicy, 0))
                .actions([hold.clone(), Action::GotoTable(metric_table(Direction::Ingress))])
        })
        .collect()
}

//! A Pod whose policies are not known yet.

use openflow::{Flow, Match, OfPort};

use crate::fields::{self, Category, HIGH, OUTPUT_TO_PORT, TARGET_OFPORT, cookie};

/// The flows that keep a port closed: nothing but ARP comes from it or gets to it.
#[must_use]
pub fn closed_flows(pod: OfPort) -> Vec<Flow> {
    let out = Match::new().in_port(pod);
    let into = OUTPUT_TO_PORT.of(Match::new()).reg(TARGET_OFPORT, pod.0.into());
    [(fields::CLASSIFIER, out), (fields::OUTPUT, into)]
        .map(|(table, matching)| {
            Flow::new(table, HIGH + 5, matching).cookie(cookie(Category::PodConnectivity, 0))
        })
        .into()
}

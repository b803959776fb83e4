//! Metrics of the controller, under the prefix that dashboards know.

use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use addresses::NodeIpam;
use antrea_runtime::VERSION;

/// What the parts of the controller count. Clones count together.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: prometheus::Registry,
    leader: IntGauge,
    terms: IntCounter,
    nodes: IntGauge,
    nodes_without_cidr: IntGauge,
    free_cidrs: IntGaugeVec,
    writes: IntCounterVec,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: prometheus::Registry::new(),
            leader: gauge("leader", "Whether this replica holds the Lease."),
            terms: IntCounter::with_opts(opts(
                "leadership_terms_total",
                "Leaderships of this replica since it started.",
            ))
            .expect("the name is valid"),
            nodes: gauge("node_count", "Nodes that the leader knows; 0 on others."),
            nodes_without_cidr: gauge(
                "node_ipam_unassigned_nodes",
                "Nodes without Pod CIDRs, or with some that cannot be theirs.",
            ),
            free_cidrs: IntGaugeVec::new(
                opts("node_ipam_free_cidrs", "Pod CIDRs that can still be given."),
                &["cluster_cidr"],
            )
            .expect("name and label are valid"),
            writes: IntCounterVec::new(
                opts("node_ipam_writes_total", "Pod CIDRs written to Nodes."),
                &["result"],
            )
            .expect("name and label are valid"),
        };
        let build = IntGaugeVec::new(
            opts("build_info", "Always 1; the label says what runs."),
            &["version"],
        )
        .expect("name and label are valid");
        build.with_label_values(&[VERSION]).set(1);
        for result in [Write::Done, Write::Conflict, Write::Failed] {
            metrics.writes.with_label_values(&[result.label()]);
        }
        let all: [Box<dyn Collector>; 7] = [
            Box::new(build),
            Box::new(metrics.leader.clone()),
            Box::new(metrics.terms.clone()),
            Box::new(metrics.nodes.clone()),
            Box::new(metrics.nodes_without_cidr.clone()),
            Box::new(metrics.free_cidrs.clone()),
            Box::new(metrics.writes.clone()),
        ];
        for collector in all {
            metrics.registry.register(collector).expect("each metric is registered once");
        }
        metrics
    }

    /// What `/metrics` serves.
    pub(crate) fn prometheus(&self) -> prometheus::Registry {
        self.registry.clone()
    }

    /// This replica leads from now on.
    pub(crate) fn term_began(&self) {
        self.leader.set(1);
        self.terms.inc();
    }

    /// This replica does not lead any more: what only a leader knows is not known now.
    pub(crate) fn term_ended(&self) {
        self.leader.set(0);
        self.nodes.set(0);
        self.nodes_without_cidr.set(0);
        self.free_cidrs.reset();
    }

    /// How many Nodes there are, and what the allocator has left.
    pub(crate) fn nodes(&self, n_nodes: usize, ipam: Option<&NodeIpam>) {
        self.nodes.set(signed(n_nodes));
        let Some(ipam) = ipam else { return };
        self.nodes_without_cidr.set(signed(ipam.problems().count()));
        for (cidr, n_free) in ipam.free() {
            self.free_cidrs.with_label_values(&[&cidr.to_string()]).set(signed(n_free));
        }
    }

    /// Pod CIDRs were written to a Node, or not.
    pub(crate) fn wrote(&self, result: Write) {
        self.writes.with_label_values(&[result.label()]).inc();
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// It is done.
    Done,
    /// The Node had changed.
    Conflict,
    /// Anything else.
    Failed,
}

impl Write {
    fn label(self) -> &'static str {
        match self {
            Self::Done => "success",
            Self::Conflict => "conflict",
            Self::Failed => "error",
        }
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("antrea_controller_{name}"), help)
}

fn gauge(name: &str, help: &str) -> IntGauge {
    IntGauge::with_opts(opts(name, help)).expect("the name is valid")
}

/// Saturating, as metrics are signed.
fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(metrics: &Metrics) -> String {
        prometheus::TextEncoder::new().encode_to_string(&metrics.prometheus().gather()).unwrap()
    }

    #[test]
    fn a_leader_tells_what_it_gives_and_a_follower_does_not() {
        let metrics = Metrics::new();
        assert!(
            shown(&metrics)
                .contains(&format!("antrea_controller_build_info{{version=\"{VERSION}\"}} 1\n"))
        );
        let cluster = [("10.10.0.0/16".parse().unwrap(), 24)];
        let mut ipam = NodeIpam::new(&cluster, &[]).unwrap();
        metrics.term_began();
        let node = addresses::NodeCidrs {
            name: "n1".into(),
            pod_cidrs: vec!["10.10.0.0/24".parse().unwrap()],
        };
        ipam.step(addresses::Event::Resync(vec![node]));
        metrics.nodes(1, Some(&ipam));
        metrics.wrote(Write::Done);
        let text = shown(&metrics);
        for line in [
            "antrea_controller_leader 1",
            "antrea_controller_leadership_terms_total 1",
            "antrea_controller_node_count 1",
            "antrea_controller_node_ipam_free_cidrs{cluster_cidr=\"10.10.0.0/16\"} 255",
            "antrea_controller_node_ipam_unassigned_nodes 0",
            "antrea_controller_node_ipam_writes_total{result=\"success\"} 1",
            "antrea_controller_node_ipam_writes_total{result=\"error\"} 0",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in\n{text}");
        }
        metrics.term_ended();
        let text = shown(&metrics);
        assert!(text.contains("antrea_controller_leader 0\n"), "{text}");
        assert!(!text.contains("free_cidrs{"), "{text}");
    }
}

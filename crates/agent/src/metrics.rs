//! Metrics of the agent, under the names that dashboards know.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use openflow::TableId;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, IntGaugeVec, Opts};
use switch::bridge::{BridgeState, PacketCounts};
use tokio::sync::watch;

use crate::cni::PodRecord;
use crate::policy::{CountsRx, DnsCounts};
use crate::proxy;
use crate::proxy::FamilyCounts;

/// The registry and what its collectors read.
pub struct Registry {
    registry: prometheus::Registry,
}

impl Registry {
    /// Metrics of the Pod interfaces.
    pub fn new(interfaces: watch::Receiver<Arc<Vec<PodRecord>>>) -> Self {
        let registry = prometheus::Registry::new();
        let pods = gauge("antrea_agent_local_pod_count", "Pods on this Node.");
        let collector = Pods { interfaces, pods };
        registry.register(Box::new(collector)).expect("the registry is empty");
        Self { registry }
    }

    /// Adds how many CNI requests have a step that outlived its deadline and still runs.
    pub fn follow_overdue(&self, n_overdue: Arc<AtomicUsize>) {
        let gauge = gauge(
            "antrea_agent_cni_overdue_request_count",
            "CNI requests with a step that did not end in time and still runs.",
        );
        let collector = Overdue { n_overdue, gauge };
        self.registry.register(Box::new(collector)).expect("each metric is registered once");
    }

    /// Adds the metrics of the bridge.
    pub fn follow(&self, state: watch::Receiver<Arc<BridgeState>>) {
        let per_table = IntGaugeVec::new(
            Opts::new("antrea_agent_ovs_flow_count", "Flows in each table."),
            &["table_id", "table_name"],
        )
        .expect("name and labels are valid");
        let total = gauge("antrea_agent_ovs_total_flow_count", "Flows on the bridge.");
        let collector = Flows { state, per_table, total };
        self.registry.register(Box::new(collector)).expect("each metric is registered once");
    }

    /// Adds what became of packets that flows send to the agent.
    pub fn follow_packets(&self, counts: impl Fn() -> PacketCounts + Send + Sync + 'static) {
        let counter = |name: &str, help: &str| {
            IntCounter::new(format!("antrea_agent_packet_in_{name}"), help)
                .expect("the name is valid")
        };
        let received = counter("count", "Packets that flows sent to the agent.");
        let dropped = counter("drop_count", "Packets of these that were not taken in time.");
        let collector = PacketIns { counts: Box::new(counts), received, dropped };
        self.registry.register(Box::new(collector)).expect("each metric is registered once");
    }

    /// Adds how much of policy there is.
    pub fn follow_policies(&self, counts: CountsRx) {
        let gauges = [
            ("networkpolicy_count", "Policies on this Node."),
            ("ingress_networkpolicy_rule_count", "Rules for what Pods of this Node get."),
            ("egress_networkpolicy_rule_count", "Rules for what Pods of this Node send."),
        ];
        let gauges = gauges.map(|(name, help)| gauge(&format!("antrea_agent_{name}"), help));
        let collector = Policies { counts, gauges };
        self.registry.register(Box::new(collector)).expect("each metric is registered once");
    }

    /// Adds what becomes of DNS answers; the caller counts them.
    pub fn follow_names(&self) -> Arc<DnsCounts> {
        let counts = Arc::new(DnsCounts::default());
        let gauges = [
            ("fqdn_cache_size", "Names that policies name and whose addresses are known."),
            ("fqdn_cache_eviction_count", "Names that were forgotten as there were too many."),
            ("dns_answers_learned_count", "DNS answers to Pods that told of such names."),
            ("dns_answers_lost_count", "DNS answers that did not get to their Pods in time."),
        ];
        let gauges = gauges.map(|(name, help)| gauge(&format!("antrea_agent_{name}"), help));
        let collector = Names { counts: counts.clone(), gauges };
        self.registry.register(Box::new(collector)).expect("each metric is registered once");
        counts
    }

    /// Adds how many Services there are, and how long changes of them take.
    pub fn follow_services(&self, counts_tx: watch::Sender<proxy::Counts>) {
        let families = ["", "_v6"].map(|suffix| {
            let name = |what: &str| format!("antrea_proxy_total_{what}{suffix}");
            let counter = |what: &str, help: &str| {
                IntCounter::new(name(what), help).expect("the name is valid")
            };
            ServiceFamily {
                gauges: [
                    gauge(&name("services_installed"), "Ports of Services that are served."),
                    gauge(&name("endpoints_installed"), "Servers of Services in use."),
                ],
                counters: [
                    counter("services_updates", "Changes of ports of Services."),
                    counter("endpoints_updates", "Servers of Services that came or went."),
                ],
            }
        });
        let options = HistogramOpts::new(
            "antrea_proxy_sync_proxy_rules_duration_seconds",
            "From a change of Services to flows on the switch.",
        );
        let options =
            options.buckets(prometheus::exponential_buckets(0.001, 2.0, 15).expect("they grow"));
        let took = Histogram::with_opts(options).expect("the name is valid");
        let collector = Services { counts_tx, families, took };
        self.registry.register(Box::new(collector)).expect("each metric is registered once");
    }

    /// What `/metrics` serves.
    pub fn prometheus(&self) -> prometheus::Registry {
        self.registry.clone()
    }
}

fn gauge(name: &str, help: &str) -> IntGauge {
    IntGauge::new(name, help).expect("the name is valid")
}

/// Saturating, as metrics are signed.
fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Read when asked, so that nothing is kept up to date for nobody.
struct Pods {
    interfaces: watch::Receiver<Arc<Vec<PodRecord>>>,
    pods: IntGauge,
}

impl Collector for Pods {
    fn desc(&self) -> Vec<&Desc> {
        self.pods.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.pods.set(signed(self.interfaces.borrow().len()));
        self.pods.collect()
    }
}

struct Overdue {
    n_overdue: Arc<AtomicUsize>,
    gauge: IntGauge,
}

impl Collector for Overdue {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.set(signed(self.n_overdue.load(Ordering::Relaxed)));
        self.gauge.collect()
    }
}

struct Policies {
    counts: CountsRx,
    gauges: [IntGauge; 3],
}

impl Collector for Policies {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let counts = *self.counts.borrow();
        let values = [counts.policies, counts.ingress_rules, counts.egress_rules];
        for (gauge, value) in self.gauges.iter().zip(values) {
            gauge.set(signed(value));
        }
        self.gauges.iter().flat_map(Collector::collect).collect()
    }
}

struct ServiceFamily {
    gauges: [IntGauge; 2],
    counters: [IntCounter; 2],
}

struct Services {
    /// Durations are taken out when they are read.
    counts_tx: watch::Sender<proxy::Counts>,
    families: [ServiceFamily; 2],
    took: Histogram,
}

impl ServiceFamily {
    fn set(&self, counts: &FamilyCounts) {
        for (gauge, value) in self.gauges.iter().zip([counts.services, counts.endpoints]) {
            gauge.set(signed(value));
        }
        let updates = [counts.service_updates, counts.endpoint_updates];
        for (counter, value) in self.counters.iter().zip(updates) {
            // Both only grow.
            counter.inc_by(value.saturating_sub(counter.get()));
        }
    }
}

impl Collector for Services {
    fn desc(&self) -> Vec<&Desc> {
        let families = self.families.iter().flat_map(|family| {
            let gauges = family.gauges.iter().flat_map(Collector::desc);
            gauges.chain(family.counters.iter().flat_map(Collector::desc))
        });
        families.chain(self.took.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.counts_tx.send_if_modified(|counts| {
            for took in counts.took.drain(..) {
                self.took.observe(took.as_secs_f64());
            }
            self.families[0].set(&counts.v4);
            self.families[1].set(&counts.v6);
            false
        });
        let families = self.families.iter().flat_map(|family| {
            let gauges = family.gauges.iter().flat_map(Collector::collect);
            gauges.chain(family.counters.iter().flat_map(Collector::collect))
        });
        families.chain(self.took.collect()).collect()
    }
}

struct Names {
    counts: Arc<DnsCounts>,
    gauges: [IntGauge; 4],
}

impl Collector for Names {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let read = |count: &AtomicU64| i64::try_from(count.load(Ordering::Relaxed));
        let counts = &self.counts;
        let counted = [&counts.n_evicted, &counts.n_learned, &counts.n_lost].map(read);
        self.gauges[0].set(signed(counts.n_names.load(Ordering::Relaxed)));
        for (gauge, value) in self.gauges[1..].iter().zip(counted) {
            gauge.set(value.unwrap_or(i64::MAX));
        }
        self.gauges.iter().flat_map(Collector::collect).collect()
    }
}

struct Flows {
    state: watch::Receiver<Arc<BridgeState>>,
    per_table: IntGaugeVec,
    total: IntGauge,
}

impl Collector for Flows {
    fn desc(&self) -> Vec<&Desc> {
        [self.per_table.desc(), self.total.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let state = self.state.borrow().clone();
        self.per_table.reset();
        let mut total = 0;
        for (table, count) in tables(&state) {
            let name = pipeline::fields::table_name(table);
            self.per_table.with_label_values(&[&table.0.to_string(), &name]).set(signed(count));
            total += count;
        }
        self.total.set(signed(total));
        [self.per_table.collect(), self.total.collect()].concat()
    }
}

struct PacketIns {
    counts: Box<dyn Fn() -> PacketCounts + Send + Sync>,
    received: IntCounter,
    dropped: IntCounter,
}

impl Collector for PacketIns {
    fn desc(&self) -> Vec<&Desc> {
        [self.received.desc(), self.dropped.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let PacketCounts { n_received, n_dropped } = (self.counts)();
        for (counter, count) in [(&self.received, n_received), (&self.dropped, n_dropped)] {
            // Both only grow.
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        [self.received.collect(), self.dropped.collect()].concat()
    }
}

/// Tables that hold flows, with their number.
pub fn tables(state: &BridgeState) -> impl Iterator<Item = (TableId, usize)> + '_ {
    state.flows.iter().map(|(table, count)| (*table, usize::try_from(*count).unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_dashboards() {
        let (_interfaces_tx, interfaces) = watch::channel(Arc::default());
        let (_state_tx, state) = watch::channel(Arc::default());
        let registry = Registry::new(interfaces);
        registry.follow(state);
        registry.follow_overdue(Arc::new(AtomicUsize::new(3)));
        registry.follow_names();
        registry.follow_policies(watch::channel(crate::policy::Counts::default()).1);
        registry.follow_packets(|| PacketCounts { n_received: 7, n_dropped: 2 });
        let services = watch::Sender::new(proxy::Counts {
            v4: FamilyCounts { services: 5, endpoint_updates: 9, ..FamilyCounts::default() },
            took: vec![std::time::Duration::from_millis(3)],
            ..proxy::Counts::default()
        });
        registry.follow_services(services.clone());
        let families = registry.prometheus().gather();
        let names: Vec<_> = families.iter().map(|family| family.name().to_owned()).collect();
        assert_eq!(
            names,
            [
                "antrea_agent_cni_overdue_request_count",
                "antrea_agent_dns_answers_learned_count",
                "antrea_agent_dns_answers_lost_count",
                "antrea_agent_egress_networkpolicy_rule_count",
                "antrea_agent_fqdn_cache_eviction_count",
                "antrea_agent_fqdn_cache_size",
                "antrea_agent_ingress_networkpolicy_rule_count",
                "antrea_agent_local_pod_count",
                "antrea_agent_networkpolicy_count",
                "antrea_agent_ovs_total_flow_count",
                "antrea_agent_packet_in_count",
                "antrea_agent_packet_in_drop_count",
                "antrea_proxy_sync_proxy_rules_duration_seconds",
                "antrea_proxy_total_endpoints_installed",
                "antrea_proxy_total_endpoints_installed_v6",
                "antrea_proxy_total_endpoints_updates",
                "antrea_proxy_total_endpoints_updates_v6",
                "antrea_proxy_total_services_installed",
                "antrea_proxy_total_services_installed_v6",
                "antrea_proxy_total_services_updates",
                "antrea_proxy_total_services_updates_v6",
            ]
        );
        // The same again does not count twice.
        for families in [&families, &registry.prometheus().gather()] {
            let packets = families.iter().filter(|f| f.name().contains("_packet_in_"));
            let counts = packets.map(|f| f.get_metric()[0].get_counter().get_value());
            assert_eq!(counts.collect::<Vec<_>>(), [7.0, 2.0]);
        }
        assert_eq!(families[0].get_metric()[0].get_gauge().get_value(), 3.0);
        let of = |name: &str| {
            let family = families.iter().find(|family| family.name() == name).unwrap();
            family.get_metric()[0].clone()
        };
        let took = of("antrea_proxy_sync_proxy_rules_duration_seconds");
        assert_eq!(took.get_histogram().get_sample_count(), 1);
        assert!(services.borrow().took.is_empty(), "taken out");
        let installed = of("antrea_proxy_total_services_installed");
        assert_eq!(installed.get_gauge().get_value(), 5.0);
        let updates = of("antrea_proxy_total_endpoints_updates");
        assert_eq!(updates.get_counter().get_value(), 9.0);
    }
}

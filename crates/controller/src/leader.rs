//! What only the replica that holds the Lease does.

mod node_jobs;
mod nodes;
mod report;

use std::sync::Arc;

use addresses::{NodeIpam, PoolError};
use antrea_runtime::CancellationToken;
use ipnet::IpNet;
use kube_io::Client;
use tokio::task::JoinSet;

use crate::lead::Work;
use crate::metrics::Metrics;
use crate::policy::{self, Reports, State};
use crate::serve::CertificateTerms;
use crate::serve::identity;
use crate::settings::Settings;
use node_jobs::Reporter;
use nodes::Nodes;
use report::Identity;

/// What a leadership starts from; checked when the program starts.
pub(crate) struct LeaderSetup {
    /// An allocator that has seen no Node yet.
    ipam: Option<NodeIpam>,
    identity: Identity,
    namespace: String,
    certificates: CertificateTerms,
}

impl LeaderSetup {
    pub(crate) fn new(settings: &Settings) -> Result<Self, PoolError> {
        let ipam = settings.config.node_ipam.as_ref().map(|config| {
            let part = |cidr: &IpNet| match cidr {
                IpNet::V4(_) => config.mask_size_v4,
                IpNet::V6(_) => config.mask_size_v6,
            };
            let cluster: Vec<(IpNet, u8)> =
                config.cluster_cidrs.iter().map(|cidr| (*cidr, part(cidr))).collect();
            NodeIpam::new(&cluster, &config.service_cidrs)
        });
        let namespace = settings.environment.pod_namespace.clone();
        let (identity, certificates) = (Identity::new(settings), settings.certificates);
        Ok(Self { ipam: ipam.transpose()?, identity, namespace, certificates })
    }
}

/// The work of one leadership.
pub(crate) struct Leader {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    metrics: Metrics,
}

impl Leader {
    pub(crate) fn start(
        client: &Client,
        setup: &LeaderSetup,
        reports: &Arc<Reports>,
        state: &Arc<State>,
        metrics: &Metrics,
    ) -> Self {
        metrics.term_began();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let nodes = Nodes::new(setup.ipam.clone());
        let reporter = Reporter { instance: setup.identity.instance().to_owned() };
        let jobs = node_jobs::run(client.clone(), nodes, reporter, metrics.clone(), stop.clone());
        tasks.spawn(jobs);
        let (identity, objects) = (setup.identity.clone(), Arc::clone(state));
        tasks.spawn(report::run(client.clone(), identity, objects, stop.clone()));
        let namespace = setup.namespace.clone();
        let terms = setup.certificates;
        tasks.spawn(identity::publish(client.clone(), namespace, terms, stop.clone()));
        tasks.spawn(policy::tiers::make(client.clone(), stop.clone()));
        let reports = Arc::clone(reports);
        tasks.spawn(policy::write_statuses(client.clone(), reports, stop.clone()));
        let state = Arc::clone(state);
        tasks.spawn(policy::write_group_statuses(client.clone(), state, stop.clone()));
        Self { stop, tasks, metrics: metrics.clone() }
    }
}

impl Work for Leader {
    async fn failed(&mut self) {
        match self.tasks.join_next().await {
            Some(Err(error)) => tracing::error!(%error, "leader task failed"),
            Some(Ok(())) => tracing::error!("leader task ended"),
            None => std::future::pending().await,
        }
    }

    async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "leader task failed");
            }
        }
        self.metrics.term_ended();
    }
}

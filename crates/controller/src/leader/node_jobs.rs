//! Watches Nodes and carries out the jobs that [`super::nodes`] decides on.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;

use addresses::Problem;
use antrea_runtime::CancellationToken;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube_io::apis::common::{ObjectReference, Timestamp};
use kube_io::events::{self, EventKind};
use kube_io::nodes::{self, NodeView};
use kube_io::{ApiError, Client, WatchEvent, agent_info};

use super::nodes::{Event, Job, Nodes};
use crate::metrics::{Metrics, Write};

/// Calls under way at the same time; a cluster that starts wants thousands.
const PARALLEL: usize = 16;

/// Who Events come from.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    /// Pod or Node of this replica.
    pub(super) instance: String,
}

type Running = FuturesUnordered<Pin<Box<dyn Future<Output = Option<Event>> + Send>>>;

/// Works until told to stop; jobs under way are dropped then.
pub(super) async fn run(
    client: Client,
    mut state: Nodes,
    reporter: Reporter,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut watch = nodes::watch(&client);
    let (mut running, mut waiting) = (Running::new(), Running::new());
    let mut queue: VecDeque<Job> = VecDeque::new();
    loop {
        while running.len() < PARALLEL
            && let Some(job) = queue.pop_front()
        {
            if let Job::Wait(time, timer) = job {
                waiting.push(Box::pin(async move {
                    tokio::time::sleep(time).await;
                    Some(Event::Due(timer))
                }));
            } else {
                let (client, reporter) = (client.clone(), reporter.clone());
                running.push(Box::pin(perform(client, reporter, metrics.clone(), job)));
            }
        }
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some(event) = running.next() => match event {
                Some(event) => event,
                None => continue,
            },
            Some(Some(event)) = waiting.next() => event,
            Some(event) = watch.next() => {
                if let WatchEvent::Failed(error) = &event {
                    tracing::warn!(error, "watch Nodes");
                }
                Event::Watch(event)
            }
        };
        let was_synced = state.is_synced();
        queue.extend(state.step(event));
        metrics.nodes(state.n_known(), state.ipam());
        if state.is_synced() && !was_synced {
            tracing::info!("all Nodes are known");
        }
    }
}

async fn perform(client: Client, reporter: Reporter, metrics: Metrics, job: Job) -> Option<Event> {
    match job {
        Job::WriteCidrs { node, cidrs } => {
            match nodes::patch_pod_cidrs(&client, &node, &cidrs).await {
                Ok(node) => {
                    metrics.wrote(Write::Done);
                    tracing::info!(node = node.name, cidrs = ?node.pod_cidrs, "gave Pod CIDRs");
                    Some(Event::Seen(node))
                }
                Err(error) => {
                    let conflict = error.is_conflict();
                    metrics.wrote(if conflict { Write::Conflict } else { Write::Failed });
                    Some(write_failed(node, &error))
                }
            }
        }
        Job::Read(name) => match nodes::get(&client, &name).await {
            Ok(node) => Some(Event::Seen(node)),
            Err(error) if error.is_not_found() => Some(Event::Gone(name)),
            Err(error) => {
                tracing::warn!(node = name, error = %error.chain(), "read Node");
                Some(Event::ReadFailed(name))
            }
        },
        Job::Wait(_, timer) => Some(Event::Due(timer)),
        Job::Tell { name, uid, problem } => {
            tell(&client, &reporter, &name, uid, &problem).await;
            None
        }
        Job::DeleteAgentInfo(name) => match agent_info::delete(&client, &name).await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(node = name, error = %error.chain(), "remove AntreaAgentInfo");
                Some(Event::SweepFailed)
            }
        },
        Job::SweepAgentInfos(names) => match sweep(&client, names).await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(error = %error.chain(), "look for AntreaAgentInfos of gone Nodes");
                Some(Event::SweepFailed)
            }
        },
    }
}

fn write_failed(node: NodeView, error: &ApiError) -> Event {
    if error.is_conflict() {
        tracing::debug!(node = node.name, "the Node changed before it got Pod CIDRs");
    } else {
        tracing::warn!(node = node.name, error = %error.chain(), "give Pod CIDRs");
    }
    Event::WriteFailed(node.name)
}

async fn tell(client: &Client, reporter: &Reporter, name: &str, uid: String, problem: &Problem) {
    tracing::warn!(node = name, %problem, "Pod CIDRs");
    let reason = match problem {
        Problem::Exhausted(_) => "CIDRNotAvailable",
        _ => "CIDRAssignmentFailed",
    };
    let event = events::Event {
        regarding: ObjectReference { uid: Some(uid), ..ObjectReference::node(name) },
        kind: EventKind::Warning,
        reason: reason.into(),
        message: problem.to_string(),
        component: "antrea-controller".into(),
        instance: reporter.instance.clone(),
    };
    if let Err(error) = events::post(client, &event, Timestamp::now()).await {
        tracing::warn!(node = name, error = %error.chain(), "post Event");
    }
}

async fn sweep(client: &Client, names: Vec<String>) -> Result<(), ApiError> {
    let nodes: BTreeSet<String> = names.into_iter().collect();
    for info in agent_info::list(client).await? {
        let name = info.metadata.name.unwrap_or_default();
        if !nodes.contains(&name) {
            tracing::info!(node = name, "removing the AntreaAgentInfo of a gone Node");
            agent_info::delete(client, &name).await?;
        }
    }
    Ok(())
}

//! The gRPC service: one task per request, which outlives its caller.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cni_api::rpc::{Cni, CniCmdArgs, CniCmdRequest, CniCmdResponse};
use cni_api::{Code, NetConf, PodArgs};
use tonic::{Request, Response, Status};
use tracing::{debug, info, warn};

use super::failure::{CniFailure, chain};
use super::model::PodName;
use super::request::{CmdRequest, RequestError, Verb};
use super::server::{Node, Shared};

/// A switch that starts anew answers within this time; an ADD waits for it and no longer.
const SWITCH_PATIENCE: Duration = Duration::from_secs(2);

/// The service on the socket.
pub(super) struct Service {
    shared: Arc<Shared>,
}

type Answer = Result<Response<CniCmdResponse>, Status>;

impl Service {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Carries a request out on a task of its own: a caller that hangs up leaves nothing half done.
    async fn serve<F>(&self, verb: &'static str, args: Option<CniCmdArgs>, work: F) -> Answer
    where
        F: Future<Output = Result<Vec<u8>, CniFailure>> + Send + 'static,
    {
        let (container, ifname, pod) = args
            .map(|args| (args.container_id, args.ifname, pod_of(&args.args)))
            .unwrap_or_default();
        let after_burst = self.shared.after_burst.clone();
        let task = self.shared.requests.spawn(async move {
            let started = Instant::now();
            let outcome = work.await;
            let took = started.elapsed();
            match &outcome {
                // Runtimes ask for it every second.
                Ok(_) if verb == "STATUS" => debug!(?took, "CNI STATUS: ready"),
                Ok(_) => info!(verb, container, ifname, pod, ?took, "CNI request served"),
                Err(failure) if is_expected(verb, failure) => {
                    debug!(?took, error = chain(failure), "CNI STATUS: not ready yet");
                }
                Err(failure) => {
                    let (code, error) = (failure.code(), chain(failure));
                    warn!(verb, container, ifname, pod, ?took, %code, error, "CNI request failed");
                }
            }
            if verb != "STATUS" {
                after_burst.request_ended(host::memory::give_back);
            }
            outcome
        });
        let outcome = task.await.unwrap_or(Err(CniFailure::Internal));
        Ok(Response::new(match outcome {
            Ok(result) => CniCmdResponse::success(result),
            Err(failure) => failure.to_response(),
        }))
    }
}

/// Whether a failure is what the runtime asked about: STATUS is sent until the node is ready, and
/// "not yet" is as good an answer as "ready".
fn is_expected(verb: &str, failure: &CniFailure) -> bool {
    verb == "STATUS" && failure.code() == Code::TRY_AGAIN_LATER
}

/// The Pod that `CNI_ARGS` names, as namespace/name; empty when they name none.
fn pod_of(args: &str) -> String {
    match PodArgs::parse(args) {
        Ok(args) if !args.pod_name.is_empty() => {
            PodName { namespace: args.pod_namespace, name: args.pod_name }.to_string()
        }
        _ => String::new(),
    }
}

async fn add(shared: Arc<Shared>, args: Option<CniCmdArgs>) -> Result<Vec<u8>, CniFailure> {
    let request = CmdRequest::parse(Verb::Add, args)?;
    let _guard = shared.locks.lock(&request.attachment).await;
    let node = shared.reachable_node(SWITCH_PATIENCE).await?;
    let result = shared.add(&node, &request).await?;
    Ok(result.to_value(request.version).to_string().into_bytes())
}

async fn del(shared: Arc<Shared>, args: Option<CniCmdArgs>) -> Result<Vec<u8>, CniFailure> {
    let request = CmdRequest::parse(Verb::Del, args)?;
    let _guard = shared.locks.lock(&request.attachment).await;
    let node = shared.node()?;
    shared.del(&node, &request).await?;
    Ok(Vec::new())
}

async fn check(shared: Arc<Shared>, args: Option<CniCmdArgs>) -> Result<Vec<u8>, CniFailure> {
    let request = CmdRequest::parse(Verb::Check, args)?;
    let _guard = shared.locks.lock(&request.attachment).await;
    // vswitchd writes the number of a port into the database after it has told it to us: while it
    // does not answer, one that is missing there says nothing.
    let node = shared.reachable_node(SWITCH_PATIENCE).await?;
    shared.check(&node, &request).await?;
    Ok(Vec::new())
}

async fn gc(shared: Arc<Shared>, args: Option<CniCmdArgs>) -> Result<Vec<u8>, CniFailure> {
    let (conf, node) = prepare(&shared, args, "GC")?;
    shared.gc(&node, &conf).await?;
    Ok(Vec::new())
}

async fn status(shared: Arc<Shared>, args: Option<CniCmdArgs>) -> Result<Vec<u8>, CniFailure> {
    prepare(&shared, args, "STATUS")?;
    // Both daemons of Open vSwitch answer.
    let node = shared.reachable_node(Duration::ZERO).await?;
    node.ports.used_ofports().await?;
    Ok(Vec::new())
}

fn prepare(
    shared: &Shared,
    args: Option<CniCmdArgs>,
    verb: &'static str,
) -> Result<(NetConf, Arc<Node>), CniFailure> {
    let args = args.ok_or(RequestError::Empty)?;
    let (conf, version) =
        NetConf::parse(&args.network_configuration).map_err(RequestError::from)?;
    if !version.has_gc_and_status() {
        return Err(RequestError::NoSuchVerb { version, verb }.into());
    }
    Ok((conf, shared.node()?))
}

#[tonic::async_trait]
impl Cni for Service {
    async fn cmd_add(&self, request: Request<CniCmdRequest>) -> Answer {
        let args = request.into_inner().cni_args;
        self.serve("ADD", args.clone(), add(Arc::clone(&self.shared), args)).await
    }

    async fn cmd_check(&self, request: Request<CniCmdRequest>) -> Answer {
        let args = request.into_inner().cni_args;
        self.serve("CHECK", args.clone(), check(Arc::clone(&self.shared), args)).await
    }

    async fn cmd_del(&self, request: Request<CniCmdRequest>) -> Answer {
        let args = request.into_inner().cni_args;
        self.serve("DEL", args.clone(), del(Arc::clone(&self.shared), args)).await
    }

    async fn cmd_gc(&self, request: Request<CniCmdRequest>) -> Answer {
        let args = request.into_inner().cni_args;
        self.serve("GC", args.clone(), gc(Arc::clone(&self.shared), args)).await
    }

    async fn cmd_status(&self, request: Request<CniCmdRequest>) -> Answer {
        let args = request.into_inner().cni_args;
        let mut answer =
            self.serve("STATUS", args.clone(), status(Arc::clone(&self.shared), args)).await?;
        // The verb has its own word for a passing condition.
        if let Some(error) = &mut answer.get_mut().error
            && u32::try_from(error.code) == Ok(Code::TRY_AGAIN_LATER.0)
        {
            *answer.get_mut() =
                CniCmdResponse::failure(Code::PLUGIN_NOT_AVAILABLE, error.message.clone());
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::traits::PortsError;
    use super::*;

    #[test]
    fn a_pod_is_told_by_namespace_and_name() {
        for (args, pod) in [
            ("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;X=y", "shop/web-0"),
            ("IgnoreUnknown=1;X=y", ""),
            ("nonsense", ""),
            ("", ""),
        ] {
            assert_eq!(pod_of(args), pod, "{args}");
        }
    }

    #[test]
    fn only_a_status_may_say_not_yet_without_a_warning() {
        let waiting = CniFailure::NotReady { waiting_for: "the switch" };
        let away = CniFailure::Ports(PortsError::Unavailable("connection refused".into()));
        let wrong = CniFailure::Request(RequestError::Empty);
        for (verb, failure, expected) in [
            ("STATUS", &waiting, true),
            ("STATUS", &away, true),
            ("STATUS", &wrong, false),
            ("ADD", &waiting, false),
            ("DEL", &away, false),
        ] {
            assert_eq!(is_expected(verb, failure), expected, "{verb} {failure}");
        }
    }
}

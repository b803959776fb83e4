//! One gRPC call to the agent's unix socket.

use std::path::Path;
use std::time::Duration;

use cni_api::rpc::{CniClient, CniCmdArgs, CniCmdRequest, CniCmdResponse};
use cni_api::{CniError, Code};
use tonic::transport::Endpoint;

use crate::verb::Verb;

/// A runtime gives up on a plugin after minutes; before that it should hear a reason.
const DEADLINE: Duration = Duration::from_secs(100);

/// Results are a few hundred bytes; an agent gone wild must not make us large.
const MAX_ANSWER: usize = 1 << 20;

/// Asks the agent and returns the bytes to print.
pub(crate) fn call(socket: &Path, verb: Verb, args: CniCmdArgs) -> Result<Vec<u8>, CniError> {
    // One thread: the process lives for one call, and starting more would be most of its time.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CniError::new(Code::GENERIC, format!("start runtime: {error}")))?;
    let answer = runtime.block_on(async {
        match tokio::time::timeout(DEADLINE, ask(socket, verb, args)).await {
            Ok(answer) => answer,
            Err(_) => Err(unreachable(socket, verb, "no answer in time")),
        }
    })?;
    match answer.error {
        None => Ok(answer.cni_result),
        Some(error) => {
            let code = u32::try_from(error.code).map_or(Code::UNKNOWN, Code);
            Err(CniError::new(code, error.message))
        }
    }
}

async fn ask(socket: &Path, verb: Verb, args: CniCmdArgs) -> Result<CniCmdResponse, CniError> {
    let channel = Endpoint::from_shared(format!("unix:{}", socket.display()))
        .map_err(|error| unreachable(socket, verb, chain(&error)))?
        .connect()
        .await
        .map_err(|error| unreachable(socket, verb, chain(&error)))?;
    let mut client = CniClient::new(channel).max_decoding_message_size(MAX_ANSWER);
    let request = CniCmdRequest { cni_args: Some(args) };
    let answer = match verb {
        Verb::Add => client.cmd_add(request).await,
        Verb::Check => client.cmd_check(request).await,
        Verb::Del => client.cmd_del(request).await,
        Verb::Gc => client.cmd_gc(request).await,
        Verb::Status => client.cmd_status(request).await,
        Verb::Version => return Err(CniError::new(Code::GENERIC, "VERSION needs no agent")),
    };
    answer.map(tonic::Response::into_inner).map_err(|status| match status.code() {
        tonic::Code::Unavailable | tonic::Code::Cancelled | tonic::Code::DeadlineExceeded => {
            unreachable(socket, verb, status.message())
        }
        tonic::Code::Unimplemented => CniError::new(
            Code::INCOMPATIBLE_API_VERSION,
            format!("antrea-agent does not know this request: {}", status.message()),
        ),
        code => CniError::new(
            Code::UNKNOWN_RPC_ERROR,
            format!("antrea-agent at {}: {code:?}: {}", socket.display(), status.message()),
        ),
    })
}

fn unreachable(socket: &Path, verb: Verb, why: impl std::fmt::Display) -> CniError {
    let msg = format!("antrea-agent does not answer at {}: {why}", socket.display());
    CniError::new(verb.code_when_unreachable(), msg)
}

/// The innermost cause says it best: "No such file or directory", not "transport error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

//! `exec`, `attach` and `log`: passed on to the kubelet of the Pod's node.
//!
//! A kubelet listens on `DIR/<node>/kubelet.sock`. WebSocket handshakes go through as they are;
//! then bytes are piped both ways until one side ends. SPDY is refused.

use std::path::{Path, PathBuf};

use apiserver::body::{self, Response};
use apiserver::names::GroupResource;
use apiserver::query::{Query, percent_encode};
use apiserver::resource::{Call, Connect};
use apiserver::server::Request;
use apiserver::status::ApiError;
use apiserver::store::key;
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Empty};
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

use crate::kinds::POD;

/// Passes requests on to kubelets.
pub(crate) struct Proxy {
    dir: Option<PathBuf>,
    advice: String,
}

impl Proxy {
    pub(crate) fn new(dir: Option<PathBuf>, advice: String) -> Self {
        Self { dir, advice }
    }
}

impl Connect for Proxy {
    fn connect(
        &self,
        call: Call,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let (dir, advice) = (self.dir.clone(), self.advice.clone());
        Box::pin(async move {
            let target = Target::find(&call, &advice)?;
            let Some(dir) = dir else {
                return Err(ApiError::unavailable("this server knows no kubelets"));
            };
            let socket = target.socket(&dir)?;
            if call.path.subresource == "log" {
                logs(&call, &target, &socket).await
            } else {
                stream(&call, &target, &socket, request).await
            }
        })
    }
}

/// Where a request goes.
struct Target {
    node: String,
    container: String,
    advice: String,
    /// Why the container does not run yet, as its kubelet reported it.
    waits: Option<String>,
}

impl Target {
    fn find(call: &Call, advice: &str) -> Result<Self, ApiError> {
        let name = &call.path.name;
        let found = call.api.store.get(POD, &key(&call.path.namespace, name));
        let Some(pod) = found else {
            return Err(ApiError::not_found(&GroupResource::new("", POD), name));
        };
        let spec = &pod.value()["spec"];
        let names: Vec<&str> = ["containers", "initContainers"]
            .iter()
            .filter_map(|list| spec[*list].as_array())
            .flatten()
            .filter_map(|container| container["name"].as_str())
            .collect();
        let n_containers = spec["containers"].as_array().map_or(0, Vec::len);
        let container = match call.info.query.get("container").unwrap_or("") {
            "" if n_containers == 1 => names[0],
            "" => {
                return Err(ApiError::bad_request(format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    names.join(" ")
                )));
            }
            asked if names.contains(&asked) => asked,
            asked => {
                return Err(ApiError::bad_request(format!(
                    "container {asked} is not valid for pod {name}"
                )));
            }
        };
        let node = spec["nodeName"].as_str().unwrap_or("");
        if node.is_empty() {
            return Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")));
        }
        let advice = advice.replace("NODE", node);
        let (node, container) = (node.to_owned(), container.to_owned());
        let waits = waits(pod.value(), &container);
        Ok(Self { node, container, advice, waits })
    }

    /// A kubelet's refusal as ours, with the cause where the Pod tells one.
    async fn refused(&self, answer: hyper::Response<hyper::body::Incoming>) -> ApiError {
        let (code, reason, mut said) = refusal(answer).await;
        if let Some(waits) = &self.waits {
            said = format!("{said}; container {} waits: {waits}", self.container);
        }
        ApiError::new(code, reason, said)
    }

    fn socket(&self, dir: &Path) -> Result<PathBuf, ApiError> {
        if self.node.contains('/') || self.node.starts_with('.') {
            return Err(ApiError::bad_request(format!("node name {:?} is no name", self.node)));
        }
        Ok(dir.join(&self.node).join("kubelet.sock"))
    }

    fn path(&self, verb: &str, call: &Call) -> String {
        let parts = [&call.path.namespace, &call.path.name, &self.container];
        let parts: Vec<String> = parts.iter().map(|part| percent_encode(part)).collect();
        format!("/{verb}/{}", parts.join("/"))
    }
}

/// Reason and message of a container that waits.
fn waits(pod: &Value, container: &str) -> Option<String> {
    let status = &pod["status"];
    let mut all = ["containerStatuses", "initContainerStatuses"]
        .iter()
        .filter_map(|list| status[*list].as_array())
        .flatten();
    let waiting = &all.find(|own| own["name"] == container)?["state"]["waiting"];
    let reason = waiting["reason"].as_str()?;
    match waiting["message"].as_str().unwrap_or("") {
        "" => Some(reason.to_owned()),
        message => Some(format!("{reason}: {message}")),
    }
}

fn with_query(path: String, parameters: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = parameters
        .iter()
        .map(|(name, value)| format!("{name}={}", percent_encode(value)))
        .collect();
    if pairs.is_empty() { path } else { format!("{path}?{}", pairs.join("&")) }
}

type Sender = hyper::client::conn::http1::SendRequest<Empty<Bytes>>;

async fn connect(target: &Target, socket: &Path) -> Result<Sender, ApiError> {
    let unreachable = |error: &dyn std::fmt::Display| {
        let mut said = format!("the kubelet of node {} does not answer: {error}", target.node);
        if !target.advice.is_empty() {
            said = format!("{said}; {}", target.advice);
        }
        ApiError::new(502, "BadGateway", said)
    };
    let socket = UnixStream::connect(socket).await.map_err(|error| unreachable(&error))?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
        .await
        .map_err(|error| unreachable(&error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "kubelet connection");
        }
    });
    Ok(sender)
}

async fn send(
    sender: &mut Sender,
    request: hyper::Request<Empty<Bytes>>,
) -> Result<hyper::Response<hyper::body::Incoming>, ApiError> {
    let answer = sender.send_request(request).await;
    answer.map_err(|error| ApiError::new(502, "BadGateway", format!("kubelet: {error}")))
}

async fn logs(call: &Call, target: &Target, socket: &Path) -> Result<Response, ApiError> {
    const KNOWN: [&str; 7] = [
        "follow",
        "previous",
        "tailLines",
        "limitBytes",
        "sinceSeconds",
        "sinceTime",
        "timestamps",
    ];
    let query = &call.info.query;
    query.only(&[&KNOWN[..], &["container", "insecureSkipTLSVerifyBackend"]].concat())?;
    for name in ["tailLines", "limitBytes", "sinceSeconds"] {
        query.number(name)?;
    }
    let passed: Vec<(&str, &str)> = query.iter().filter(|(name, _)| KNOWN.contains(name)).collect();
    let uri = with_query(target.path("containerLogs", call), &passed);
    let mut sender = connect(target, socket).await?;
    let request = hyper::Request::builder()
        .uri(uri)
        .header("host", "kubelet")
        .body(Empty::new())
        .map_err(ApiError::internal)?;
    let answer = send(&mut sender, request).await?;
    let code = answer.status().as_u16();
    if code != 200 {
        return Err(target.refused(answer).await);
    }
    let chunks = answer.into_body().map_err(|error| Box::new(error) as body::BodyError);
    let headers = [("content-type", "text/plain; charset=utf-8")];
    Ok(body::build(200, &headers, chunks.boxed_unsync()))
}

/// Code, reason and text of a kubelet's refusal.
async fn refusal(answer: hyper::Response<hyper::body::Incoming>) -> (u16, &'static str, String) {
    let code = answer.status().as_u16();
    let limited = http_body_util::Limited::new(answer.into_body(), 64 * 1024).collect().await;
    let bytes = limited.map(|whole| whole.to_bytes()).unwrap_or_default();
    let text = match serde_json::from_slice::<Value>(&bytes) {
        Ok(status) if status["message"].is_string() => {
            status["message"].as_str().unwrap_or("").to_owned()
        }
        _ => String::from_utf8_lossy(&bytes).trim().to_owned(),
    };
    let (code, reason) = match code {
        400 => (400, "BadRequest"),
        404 => (404, "NotFound"),
        _ => (500, "InternalError"),
    };
    (code, reason, text)
}

fn stream_query(query: &Query) -> Result<Vec<(&str, &str)>, ApiError> {
    const STREAMS: [&str; 4] = ["stdin", "stdout", "stderr", "tty"];
    query.only(&["container", "command", "stdin", "stdout", "stderr", "tty"])?;
    let mut passed: Vec<(&str, &str)> =
        query.all("command").map(|word| ("command", word)).collect();
    for name in STREAMS {
        let default = matches!(name, "stdout" | "stderr");
        let on = if query.get(name).is_some() { query.flag(name) } else { default };
        passed.push((name, if on { "true" } else { "false" }));
    }
    Ok(passed)
}

async fn stream(
    call: &Call,
    target: &Target,
    socket: &Path,
    mut request: Request,
) -> Result<Response, ApiError> {
    let verb = call.path.subresource.as_str();
    let passed = stream_query(&call.info.query)?;
    if verb == "exec" && call.info.query.get("command").is_none() {
        return Err(ApiError::bad_request("you must specify at least 1 command for the container"));
    }
    let websocket = request
        .headers()
        .get(UPGRADE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.eq_ignore_ascii_case("websocket"));
    // Clients fall back to another protocol after any failure: the first cause is what they show.
    let mut sender = connect(target, socket).await?;
    if !websocket {
        // What such a client would show then is not why nothing runs.
        if let Some(waits) = &target.waits {
            return Err(ApiError::bad_request(format!(
                "container {} of pod {} waits: {waits}",
                target.container, call.path.name
            )));
        }
        return Err(ApiError::bad_request(
            "unable to upgrade: only WebSocket streams (v4 or v5.channel.k8s.io) are served",
        ));
    }
    let mut forwarded = hyper::Request::builder()
        .uri(with_query(target.path(verb, call), &passed))
        .header("host", "kubelet")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket");
    for (name, value) in request.headers() {
        if name.as_str().starts_with("sec-websocket-") {
            forwarded = forwarded.header(name, value);
        }
    }
    let forwarded = forwarded.body(Empty::new()).map_err(ApiError::internal)?;
    let mut answer = send(&mut sender, forwarded).await?;
    if answer.status() != hyper::StatusCode::SWITCHING_PROTOCOLS {
        return Err(target.refused(answer).await);
    }
    let mut response = body::build(101, &[], body::empty());
    for (name, value) in answer.headers() {
        if name.as_str().starts_with("sec-websocket-") {
            response.headers_mut().append(name, value.clone());
        }
    }
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    let (client, kubelet) = (hyper::upgrade::on(&mut request), hyper::upgrade::on(&mut answer));
    let stopping = call.api.stopping.clone();
    tokio::spawn(async move {
        let (Ok(client), Ok(kubelet)) = (client.await, kubelet.await) else { return };
        let (mut client, mut kubelet) = (TokioIo::new(client), TokioIo::new(kubelet));
        tokio::select! {
            () = stopping.cancelled() => {}
            piped = tokio::io::copy_bidirectional(&mut client, &mut kubelet) => {
                if let Err(error) = piped {
                    tracing::debug!(%error, "stream");
                }
            }
        }
        drop(sender);
    });
    Ok(response)
}

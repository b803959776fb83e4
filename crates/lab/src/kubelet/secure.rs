//! The kubelet's API on its Node's address, as an API server that is not ours asks it.
//!
//! Callers show a client certificate of the cluster's authority, and the cluster judges what they
//! may do: `nodes/proxy` of this Node. The serving certificate is signed by nobody, as that of a
//! kubelet that asked nobody for one.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use apiserver::body::{BodyError, Response};
use apiserver::pki::{Authority, user_of_certificate};
use apiserver::server::{Handler, Peer, Request, TlsServer};
use apiserver::trust::{ClientTrust, Holder, ServingCert, Trusted, tls_config};
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use kube_io::aggregation::{self, ActTarget, ReviewedUser};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Kubelet, server};
use crate::error::{Doing, Result};

/// The port that Nodes tell.
pub(super) const PORT: u16 = 10250;
/// How often the authority is read.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How soon it is read again when that failed.
const LOOK_SOON: Duration = Duration::from_millis(500);

/// Serves for ever.
pub(super) async fn serve(kubelet: Kubelet) -> Result<()> {
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).await {
        Ok(listener) => listener,
        // A machine without IPv6.
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))
            .await
            .doing(|| format!("listen on port {PORT}"))?,
    };
    let mut names = vec![kubelet.node.clone()];
    names.extend(kubelet.addresses.iter().map(ToString::to_string));
    let identity = Authority::create("lab-kubelet").and_then(|own| own.issue_serving(&names));
    let serving = identity.and_then(|identity| ServingCert::new(&identity));
    let trust = ClientTrust::new();
    let tls = serving.and_then(|serving| tls_config(&serving, &trust));
    let mut tls = tls.doing(|| "make a serving certificate".into())?;
    // Upgrades of connections are of HTTP/1.1 only.
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let handler = Arc::new(Secure { kubelet: kubelet.clone(), trust: trust.clone() });
    let stop = CancellationToken::new();
    let _server = TlsServer::start(vec![listener], tls, handler, stop);
    follow(&kubelet, &trust).await
}

/// Believes the authority that the cluster names.
async fn follow(kubelet: &Kubelet, trust: &ClientTrust) -> Result<()> {
    loop {
        let wait = match aggregation::authentication_config(&kubelet.client).await {
            Ok(Some(config)) if !config.client_ca.is_empty() => {
                let trusted = Trusted { client_ca_pem: config.client_ca, front_proxy: None };
                if let Err(error) = trust.replace(trusted) {
                    tracing::warn!(%error, "the cluster's authority cannot be used");
                }
                LOOK_AGAIN
            }
            Ok(_) => LOOK_SOON,
            Err(error) => {
                tracing::warn!(error = %error.chain(), "read extension-apiserver-authentication");
                LOOK_SOON
            }
        };
        tokio::time::sleep(wait).await;
    }
}

struct Secure {
    kubelet: Kubelet,
    trust: ClientTrust,
}

impl Handler for Secure {
    fn handle(self: Arc<Self>, request: Request) -> BoxFuture<'static, Response> {
        Box::pin(async move {
            let answer = match self.refusal(&request).await {
                Some((status, said)) => server::text(status, &said),
                None => server::answer(&self.kubelet, request).await,
            };
            answer.map(|body| body.map_err(|never| -> BodyError { match never {} }).boxed_unsync())
        })
    }
}

impl Secure {
    /// Why a request is not answered, if it is not.
    async fn refusal(&self, request: &Request) -> Option<(StatusCode, String)> {
        if request.uri().path() == "/healthz" {
            return None;
        }
        let chain = request.extensions().get::<Peer>().map(|peer| Arc::clone(&peer.chain));
        let chain = chain.unwrap_or_default();
        let user = match self.trust.judge(&chain) {
            Holder::User => chain.first().and_then(|end| user_of_certificate(end)),
            _ => None,
        };
        let Some(user) = user else {
            return Some((StatusCode::UNAUTHORIZED, "Unauthorized".into()));
        };
        let node = self.kubelet.node.as_str();
        let target = ActTarget::Resource {
            group: String::new(),
            resource: "nodes".into(),
            subresource: "proxy".into(),
            namespace: String::new(),
            name: node.to_owned(),
        };
        let name = user.username.clone();
        let user = ReviewedUser {
            username: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
        };
        let verb = verb(request.method());
        match aggregation::review_access(&self.kubelet.client, &user, verb, &target).await {
            Ok((true, _)) => None,
            Ok((false, _)) => {
                let said = format!("user {name} may not {verb} nodes/proxy of {node}");
                Some((StatusCode::FORBIDDEN, said))
            }
            Err(error) => Some((StatusCode::INTERNAL_SERVER_ERROR, error.chain())),
        }
    }
}

/// The verb of a request to a kubelet.
fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_those_of_a_kubelet() {
        for (method, want) in
            [(Method::GET, "get"), (Method::HEAD, "get"), (Method::POST, "create")]
        {
            assert_eq!(verb(&method), want, "{method}");
        }
    }
}

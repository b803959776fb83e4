//! Has the cluster judge tokens and acts; a token of this process' own is for local tools.

use apiserver::authn::{Authenticator, Credentials};
use apiserver::authz::{Attributes, Decision, Target};
use apiserver::delegated::{AccessReviewer, Authentication, ReviewError, TokenReviewer};
use apiserver::status::ApiError;
use apiserver::trust::ClientTrust;
use apiserver::user::{MASTERS, User};
use futures::future::BoxFuture;
use kube_io::Client;
use kube_io::aggregation::{self, ActTarget, ReviewedUser};

/// The cluster's reviews.
#[derive(Clone)]
pub(super) struct Reviews(pub(super) Client);

impl TokenReviewer for Reviews {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>> {
        Box::pin(async move {
            let user = aggregation::review_token(&self.0, token).await;
            let user = user.map_err(|error| ReviewError(error.chain()))?;
            Ok(user.map(|user| User {
                username: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
            }))
        })
    }
}

impl AccessReviewer for Reviews {
    fn review<'a>(&'a self, act: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>> {
        Box::pin(async move {
            let user = ReviewedUser {
                username: act.user.username.clone(),
                uid: act.user.uid.clone(),
                groups: act.user.groups.clone(),
                extra: act.user.extra.clone(),
            };
            let target = match act.object.clone() {
                Target::Path(path) => ActTarget::Path(path),
                Target::Resource { group, resource, subresource, namespace, name } => {
                    ActTarget::Resource { group, resource, subresource, namespace, name }
                }
            };
            let judged = aggregation::review_access(&self.0, &user, &act.verb, &target).await;
            let (allowed, reason) = judged.map_err(|error| ReviewError(error.chain()))?;
            Ok(Decision { allowed, reason })
        })
    }
}

/// Knows this process' own token, and leaves the others to the cluster.
pub(super) struct LocalOr {
    token: Option<String>,
    cluster: Authentication<Reviews>,
}

impl LocalOr {
    pub(super) fn new(token: Option<String>, trust: ClientTrust, reviews: Reviews) -> Self {
        Self { token, cluster: Authentication::new(trust, reviews) }
    }
}

/// Compares without telling by time where two tokens differ.
fn same(a: &str, b: &str) -> bool {
    let pairs = a.bytes().zip(b.bytes());
    a.len() == b.len() && pairs.fold(0, |differ, (x, y)| differ | (x ^ y)) == 0
}

impl Authenticator for LocalOr {
    fn authenticate<'a>(
        &'a self,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<User, ApiError>> {
        match (&self.token, &credentials.bearer) {
            (Some(own), Some(shown)) if same(own, shown) => {
                let user = User::new("antrea-loopback-client", [MASTERS]);
                Box::pin(std::future::ready(Ok(user)))
            }
            _ => self.cluster.authenticate(credentials),
        }
    }
}

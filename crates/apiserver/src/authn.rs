//! Who is asking: the credentials of a request.

use futures::future::BoxFuture;
use hyper::header::{AUTHORIZATION, HeaderMap};

use crate::server::{Peer, Request};
use crate::status::ApiError;
use crate::user::User;

/// What a request shows about its sender.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Bearer token.
    pub bearer: Option<String>,
    /// The connection's other end, with its verified certificate.
    pub peer: Option<Peer>,
    /// All headers; who believes one must know that its sender may set it.
    pub headers: HeaderMap,
}

impl Credentials {
    /// The credentials of a request.
    pub fn of(request: &Request) -> Self {
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = header.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        });
        let headers = request.headers().clone();
        Self { bearer, peer: request.extensions().get::<Peer>().cloned(), headers }
    }

    /// The user of the connection's client certificate.
    pub fn certificate_user(&self) -> Option<User> {
        let certificate = self.peer.as_ref()?.certificate.as_ref()?;
        crate::pki::user_of_certificate(certificate)
    }
}

/// Finds out who is asking.
pub trait Authenticator: Send + Sync {
    /// The user; anonymous when there are no credentials, 401 when they are wrong.
    fn authenticate<'a>(
        &'a self,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<User, ApiError>>;
}

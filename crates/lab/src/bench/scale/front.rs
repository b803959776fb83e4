//! Serves large lists from memory; every other request is another server's.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use apiserver::body::{self, Response};
use apiserver::negotiate::{self, Encoding, Offer};
use apiserver::protobuf::MEDIA_TYPE;
use apiserver::query::Query;
use apiserver::server::{Handler, Request};
use apiserver::upstream::{Upstream, dial_here};
use futures::future::BoxFuture;
use http_body_util::BodyExt;

use super::pages::Lists;
use crate::error::{Doing, Result};

/// The server that the controller knows.
pub(super) struct Front {
    lists: Lists,
    others: Upstream,
    address: SocketAddr,
    first_list: OnceLock<Instant>,
}

impl Front {
    /// A server in front of the one at an address, whose certificate is of an authority.
    pub(super) fn new(lists: Lists, address: SocketAddr, ca_pem: &str) -> Result<Self> {
        let others = Upstream::new("127.0.0.1", ca_pem, None, dial_here())
            .doing(|| "set up the way to the API server".into())?;
        Ok(Self { lists, others, address, first_list: OnceLock::new() })
    }

    /// When a list was asked for first.
    pub(super) fn first_list(&self) -> Option<Instant> {
        self.first_list.get().copied()
    }

    /// The answer from memory, if the request is for a list that is there.
    fn own(&self, request: &Request) -> Option<Response> {
        let path = request.uri().path();
        let accepted = request.headers().get("accept").and_then(|value| value.to_str().ok());
        let form = negotiate::accept(accepted, Offer::TextAndProtobuf).ok()?;
        let protobuf = form.encoding == Encoding::Protobuf;
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let page = query.get("continue").unwrap_or("0").parse::<usize>().unwrap_or(usize::MAX);
        if query.flag("watch") {
            self.lists.json(path, usize::MAX)?;
            let media_type = match protobuf {
                true => "application/vnd.kubernetes.protobuf;stream=watch",
                false => "application/json",
            };
            // Nothing changes; the client ends it.
            let quiet = body::stream(futures::stream::pending());
            return Some(body::build(200, &[("content-type", media_type)], quiet));
        }
        let (page, media_type) = match protobuf {
            true => (self.lists.protobuf(path, page)?, MEDIA_TYPE),
            false => (self.lists.json(path, page)?, "application/json"),
        };
        self.first_list.get_or_init(Instant::now);
        Some(match page {
            Some(page) => body::with_type(200, media_type, page),
            None => body::text(410, "no such page"),
        })
    }

    async fn hand_on(&self, request: Request) -> Response {
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let host = self.address.to_string();
        match self.others.send(self.address, &host, request).await {
            Ok(response) => response.map(|body| body.map_err(Into::into).boxed_unsync()),
            Err(error) => body::text(502, error.to_string()),
        }
    }
}

impl Handler for Front {
    fn handle(self: Arc<Self>, request: Request) -> BoxFuture<'static, Response> {
        Box::pin(async move {
            match self.own(&request) {
                Some(response) => response,
                None => self.hand_on(request).await,
            }
        })
    }
}

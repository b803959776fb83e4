//! One cluster's state: its store, resources and loops, wired together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use apiserver::body;
use apiserver::server::{Handler, Request};
use apiserver::status::ApiError;
use apiserver::token::TokenKey;
use futures::future::BoxFuture;
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

use crate::server::ServerError;

/// What a cluster is made from.
pub(crate) struct Setup {
    pub(crate) token_key: TokenKey,
    pub(crate) ca_pem: String,
    pub(crate) kubelet_dir: Option<PathBuf>,
    pub(crate) service_cidrs: Vec<IpNet>,
    pub(crate) endpoint: Option<SocketAddr>,
    pub(crate) watch_window: usize,
}

pub(crate) struct Cluster {
    setup: Setup,
}

struct Health;

impl Handler for Health {
    fn handle(self: Arc<Self>, _request: Request) -> BoxFuture<'static, body::Response> {
        Box::pin(async { body::text(200, "ok") })
    }
}

impl Cluster {
    pub(crate) fn new(setup: Setup) -> Result<Arc<Self>, ServerError> {
        Ok(Arc::new(Self { setup }))
    }

    pub(crate) fn handler(&self) -> Arc<dyn Handler> {
        Arc::new(Health)
    }

    pub(crate) fn start_loops(&self, _stop: CancellationToken) {}

    pub(crate) fn token_for(&self, _namespace: &str, _name: &str) -> Result<String, ApiError> {
        Err(ApiError::unavailable(&self.setup.ca_pem))
    }

    pub(crate) fn apply_yaml(&self, yaml: &str) -> Result<usize, ServerError> {
        Err(ServerError::Manifest(yaml.to_owned()))
    }
}

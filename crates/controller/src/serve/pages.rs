//! Health and metrics.

use antrea_runtime::Checks;
use antrea_runtime::health::checks::Endpoint;
use apiserver::api::Page;
use apiserver::body::{self, Response};
use apiserver::request_info::RequestInfo;
use apiserver::server::Request;
use apiserver::status::ApiError;
use apiserver::user::User;
use futures::future::BoxFuture;
use hyper::Method;
use hyper::header::HeaderValue;
use kube_io::controlplane::INSTANCE;
use prometheus::{Encoder, Registry, TextEncoder};

/// One health endpoint.
pub(super) struct Health {
    checks: Checks,
    endpoint: Endpoint,
    /// Name of this process.
    instance: String,
}

impl Health {
    /// All endpoints.
    pub(super) fn all(checks: &Checks, instance: &str) -> impl Iterator<Item = Self> {
        let endpoints = [Endpoint::Livez, Endpoint::Readyz, Endpoint::Healthz].into_iter();
        endpoints.map(move |endpoint| Self {
            checks: checks.clone(),
            endpoint,
            instance: instance.to_owned(),
        })
    }

    pub(super) fn path(&self) -> String {
        format!("/{}", self.endpoint.name())
    }
}

fn check_method(request: &Request) -> Result<(), ApiError> {
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(ApiError::method_not_allowed()),
    }
}

impl Page for Health {
    fn answer(
        &self,
        _user: User,
        _info: RequestInfo,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let result = check_method(&request).map(|()| {
            let query = request.uri().query().unwrap_or_default();
            let answer = self.checks.answer(self.endpoint, query);
            let mut response = body::text(if answer.healthy { 200 } else { 500 }, answer.text);
            if let Ok(instance) = HeaderValue::from_str(&self.instance) {
                response.headers_mut().insert(INSTANCE, instance);
            }
            response
        });
        Box::pin(std::future::ready(result))
    }
}

/// Metrics, in Prometheus' text form.
pub(super) struct MetricsPage(pub(super) Registry);

impl Page for MetricsPage {
    fn answer(
        &self,
        _user: User,
        _info: RequestInfo,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let result = check_method(&request).and_then(|()| {
            let mut text = Vec::new();
            TextEncoder::new().encode(&self.0.gather(), &mut text).map_err(|error| {
                ApiError::internal(format!("metrics cannot be encoded: {error}"))
            })?;
            Ok(body::with_type(200, "text/plain; version=0.0.4; charset=utf-8", text))
        });
        Box::pin(std::future::ready(result))
    }
}

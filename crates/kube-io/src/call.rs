//! One request to the API server: where it goes, what it carries, how its answer is read.

use std::borrow::Cow;
use std::time::Duration;

use apis::controlplane::wire;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use kube::Resource;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::error::{ApiError, CallError, Verb};

/// Time after which a call without an answer is given up.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
/// Objects per page of a list.
pub(crate) const PAGE: u32 = 500;

/// Longest answer with an error that is read.
const MAX_ERROR: usize = 64 << 10;

/// How a body changes an object.
#[derive(Clone, Copy)]
enum Form {
    /// A whole object.
    Object,
    /// RFC 7386: members replace, null removes, lists are replaced.
    Merge,
    /// Lists are merged by their key.
    Strategic,
    /// Server-side apply: what the applier named before and does not name now goes.
    Apply,
}

impl Form {
    fn content_type(self) -> &'static str {
        match self {
            Self::Object => "application/json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml", // Of which JSON is a part.
        }
    }
}

/// A request under construction.
pub(crate) struct Call<'a> {
    verb: Verb,
    group: Cow<'a, str>,
    version: Cow<'a, str>,
    plural: Cow<'a, str>,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    subresource: Option<&'a str>,
    query: Vec<(&'a str, String)>,
    body: Option<(Form, Result<Vec<u8>, String>)>,
}

/// What we read of a list.
#[derive(Deserialize)]
pub(crate) struct List<K> {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    #[serde(default = "Vec::new")]
    pub(crate) items: Vec<K>,
}

/// What we read of a list's metadata.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMeta {
    #[serde(default)]
    pub(crate) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(crate) continue_token: String,
}

/// Encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// JSON.
    Json,
    /// Kubernetes' protobuf, which only its own kinds have.
    Protobuf,
}

impl Media {
    /// What to ask for: JSON is taken in any case.
    fn accept(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf,application/json",
        }
    }

    /// What an answer says it is.
    pub(crate) fn of<B>(answer: &Response<B>) -> Self {
        let said = answer.headers().get(http::header::CONTENT_TYPE);
        let said = said.and_then(|said| said.to_str().ok()).unwrap_or_default();
        match said.split(';').next().unwrap_or_default().trim() {
            wire::CONTENT_TYPE => Self::Protobuf,
            _ => Self::Json,
        }
    }
}

impl<'a> Call<'a> {
    /// A call on objects of a kind known when we were compiled.
    pub(crate) fn on<K: Resource<DynamicType = ()>>(verb: Verb) -> Self {
        Self::to(verb, owned(K::group(&())), owned(K::version(&())), owned(K::plural(&())))
    }

    /// A call on objects of any kind; the core group is the empty one.
    pub(crate) fn to(
        verb: Verb,
        group: impl Into<Cow<'a, str>>,
        version: impl Into<Cow<'a, str>>,
        plural: impl Into<Cow<'a, str>>,
    ) -> Self {
        Self {
            verb,
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            namespace: None,
            name: None,
            subresource: None,
            query: Vec::new(),
            body: None,
        }
    }

    /// Asks which kinds a group and version has.
    pub(crate) fn discovery(
        group: impl Into<Cow<'a, str>>,
        version: impl Into<Cow<'a, str>>,
    ) -> Self {
        Self::to(Verb::Get, group, version, "")
    }

    pub(crate) fn namespace(mut self, namespace: &'a str) -> Self {
        self.namespace = Some(namespace);
        self
    }

    pub(crate) fn name(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    pub(crate) fn subresource(mut self, subresource: &'a str) -> Self {
        self.subresource = Some(subresource);
        self
    }

    /// Adds a parameter.
    pub(crate) fn query(mut self, key: &'a str, value: String) -> Self {
        self.query.push((key, value));
        self
    }

    pub(crate) fn object(self, body: &impl Serialize) -> Self {
        self.body(Form::Object, body)
    }

    /// Applies an object as `manager`, also over what others wrote.
    pub(crate) fn apply(mut self, manager: &str, body: &impl Serialize) -> Self {
        self.query.push(("fieldManager", manager.to_owned()));
        self.query.push(("force", "true".to_owned()));
        self.body(Form::Apply, body)
    }

    pub(crate) fn merge(self, body: &impl Serialize) -> Self {
        self.body(Form::Merge, body)
    }

    pub(crate) fn strategic(self, body: &impl Serialize) -> Self {
        self.body(Form::Strategic, body)
    }

    fn body(mut self, form: Form, body: &impl Serialize) -> Self {
        self.body = Some((form, serde_json::to_vec(body).map_err(|error| error.to_string())));
        self
    }

    fn path(&self) -> Result<String, CallError> {
        let mut path = match self.group.as_ref() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        let namespace = self.namespace.map(|name| ["namespaces", name]);
        let plural = Some(self.plural.as_ref()).filter(|plural| !plural.is_empty());
        let parts = namespace.iter().flatten().copied().chain(plural);
        for part in parts.chain(self.name).chain(self.subresource) {
            // Names of objects never need escaping; whatever does would change where this goes.
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
            if part.is_empty() || part == "." || part == ".." || !part.chars().all(plain) {
                return Err(CallError::Request(format!("{part:?} is no name of an object")));
            }
            path.push('/');
            path.push_str(part);
        }
        for (n, (key, value)) in self.query.iter().enumerate() {
            path.push(if n == 0 { '?' } else { '&' });
            path.push_str(key);
            path.push('=');
            path.push_str(&escape(value));
        }
        Ok(path)
    }

    fn request(&self) -> Result<Request<Vec<u8>>, CallError> {
        let method = match self.verb {
            Verb::Get | Verb::List | Verb::Watch => Method::GET,
            Verb::Create => Method::POST,
            Verb::Update => Method::PUT,
            Verb::Patch => Method::PATCH,
            Verb::Delete => Method::DELETE,
        };
        let mut request = Request::builder().method(method).uri(self.path()?);
        let mut bytes = Vec::new();
        if let Some((form, body)) = &self.body {
            bytes = body.clone().map_err(CallError::Request)?;
            request = request.header(http::header::CONTENT_TYPE, form.content_type());
        }
        request.body(bytes).map_err(|error| CallError::Request(error.to_string()))
    }

    /// Wraps what went wrong with what was asked.
    pub(crate) fn error(&self, source: CallError) -> ApiError {
        let mut resource = self.plural.to_string();
        if let Some(subresource) = self.subresource {
            resource = format!("{resource}/{subresource}");
        }
        let name = match (self.namespace, self.name.unwrap_or_default()) {
            (Some(namespace), name) => format!("{namespace}/{name}"),
            (None, name) => name.to_owned(),
        };
        ApiError { verb: self.verb, resource, name, source }
    }

    /// Sends the request and reads the answer.
    pub(crate) async fn send<T: DeserializeOwned>(&self, client: &Client) -> Result<T, ApiError> {
        let request = self.request().map_err(|source| self.error(source))?;
        let answer = async {
            client.limiter().acquire().await;
            client.kube().request::<T>(request).await
        };
        match tokio::time::timeout(DEADLINE, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.error(error.into())),
            Err(_) => Err(self.error(CallError::Timeout)),
        }
    }

    /// Sends the request, for an answer that is read as it comes in. Limits do not count.
    pub(crate) async fn open(
        &self,
        client: &Client,
        media: Media,
    ) -> Result<Response<Body>, CallError> {
        let mut request = self.request()?.map(Body::from);
        let accept = HeaderValue::from_static(media.accept());
        request.headers_mut().insert(http::header::ACCEPT, accept);
        let exchange = async {
            let answer = client.kube().send(request).await?;
            if answer.status().is_success() { Ok(answer) } else { Err(refusal(answer).await) }
        };
        tokio::time::timeout(DEADLINE, exchange).await.unwrap_or(Err(CallError::Timeout))
    }

    /// Sends the request and ignores what the answer holds.
    pub(crate) async fn run(&self, client: &Client) -> Result<(), ApiError> {
        self.send::<serde::de::IgnoredAny>(client).await.map(|_| ())
    }

    /// Reads all pages of a list: its objects, and the version of the whole.
    pub(crate) async fn list<K: DeserializeOwned>(
        mut self,
        client: &Client,
    ) -> Result<(Vec<K>, String), ApiError> {
        self.query.push(("limit", PAGE.to_string()));
        let n_query = self.query.len();
        let mut all = Vec::new();
        loop {
            let page: List<K> = self.send(client).await?;
            all.extend(page.items);
            if page.metadata.continue_token.is_empty() {
                return Ok((all, page.metadata.resource_version));
            }
            self.query.truncate(n_query);
            self.query.push(("continue", page.metadata.continue_token));
        }
    }
}

/// Why a server refused, by its answer with an error code.
pub(crate) async fn refusal(answer: Response<Body>) -> CallError {
    let (code, media) = (answer.status().as_u16(), Media::of(&answer));
    let body = Limited::new(answer.into_body(), MAX_ERROR).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    read_refusal(code, media, &body)
}

/// Reads a `Status` in either encoding, or plain text.
fn read_refusal(code: u16, media: Media, body: &[u8]) -> CallError {
    if media == Media::Protobuf
        && let Ok(status) = wire::decode_status(body)
    {
        return status.into();
    }
    let status: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    let message = match text("message") {
        message if message.is_empty() => String::from_utf8_lossy(body).trim().to_owned(),
        message => message,
    };
    CallError::Status { code, reason: text("reason"), message }
}

/// Attempts at a write that another writer may come before.
const UPSERT_ATTEMPTS: u32 = 3;

/// Makes an object, or replaces the content of the one there is if it differs.
///
/// Each write is conditional on the version read; labels and annotations of others stay.
pub(crate) async fn upsert<K>(client: &Client, wanted: &K) -> Result<(), ApiError>
where
    K: Resource<DynamicType = ()> + Clone + PartialEq + Serialize + DeserializeOwned,
{
    let name = wanted.meta().name.clone().unwrap_or_default();
    let mut attempt = 1;
    loop {
        let result = match Call::on::<K>(Verb::Get).name(&name).send::<K>(client).await {
            Ok(there) => {
                let mut next = wanted.clone();
                *next.meta_mut() = there.meta().clone();
                for (key, value) in wanted.meta().labels.iter().flatten() {
                    let labels = next.meta_mut().labels.get_or_insert_default();
                    labels.insert(key.clone(), value.clone());
                }
                if next == there {
                    return Ok(());
                }
                Call::on::<K>(Verb::Update).name(&name).object(&next).run(client).await
            }
            Err(error) if error.is_not_found() => {
                Call::on::<K>(Verb::Create).object(wanted).run(client).await
            }
            Err(error) => return Err(error),
        };
        match result {
            // Made, changed or removed by somebody between the two calls.
            Err(error)
                if attempt < UPSERT_ATTEMPTS
                    && (error.is_conflict()
                        || error.is_already_exists()
                        || (error.is_not_found() && error.verb == Verb::Update)) =>
            {
                attempt += 1;
            }
            result => return result,
        }
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

/// Percent-encodes a value of a query.
fn escape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let node = || Call::to(Verb::Get, "", "v1", "nodes");
        let lease = || Call::to(Verb::Get, "coordination.k8s.io", "v1", "leases");
        for (call, want) in [
            (node(), "/api/v1/nodes"),
            (node().name("a").subresource("status"), "/api/v1/nodes/a/status"),
            (
                lease().namespace("kube-system").name("x"),
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x",
            ),
            (Call::discovery("apps", "v1"), "/apis/apps/v1"),
        ] {
            assert_eq!(call.path().unwrap(), want);
        }
        let mut list = node();
        list.query = vec![("limit", "500".into()), ("continue", "a b=".into())];
        assert_eq!(list.path().unwrap(), "/api/v1/nodes?limit=500&continue=a%20b%3D");
    }

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        for name in ["", "..", "a/b", "a?b", "a%2e", "ä"] {
            let call = Call::to(Verb::Get, "", "v1", "nodes").name(name);
            assert!(matches!(call.path(), Err(CallError::Request(_))), "{name}");
        }
    }

    #[test]
    fn errors_name_the_object() {
        let call = Call::to(Verb::Patch, "", "v1", "pods");
        let call = call.namespace("default").name("web").subresource("status");
        assert_eq!(call.error(CallError::Timeout).to_string(), "patch pods/status default/web");
    }

    #[test]
    fn refusals_come_in_either_encoding_or_as_text() {
        for (media, body, want) in [
            (
                Media::Json,
                &br#"{"kind":"Status","message":"no","reason":"Forbidden"}"#[..],
                "no (Forbidden, 403)",
            ),
            (Media::Json, b"service unavailable\n", "service unavailable (, 403)"),
            (Media::Protobuf, b"gone\n", "gone (, 403)"),
        ] {
            assert_eq!(read_refusal(403, media, body).to_string(), want);
        }
        let typed = [
            b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x12".as_slice(),
            b"\x1a\x02no\x22\x09Forbidden0\x93\x03",
        ];
        let got = read_refusal(403, Media::Protobuf, &typed.concat()).to_string();
        assert_eq!(got, "no (Forbidden, 403)");
    }
}

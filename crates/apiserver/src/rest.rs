//! The HTTP verbs of stored resources.

mod encode;
mod list;
mod reviewed;

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;

use crate::api::Api;
use crate::authz::Attributes;
use crate::body::Response;
use crate::meta;
use crate::negotiate::{self, Form, Offer};
use crate::objects::{self, Existed, Writer, Written};
use crate::patch::{self, PatchFormat};
use crate::protobuf::{self, ProtobufError};
use crate::query::{DeleteOptions, WriteOptions, parse_apply};
use crate::resource::{Call, Part, Scope};
use crate::server::Request;
use crate::source::{Shared, Source, StoreSource, View};
use crate::status::ApiError;
use crate::store::key;
use crate::webhook::Operation;
use reviewed::{Change, Race};

pub use encode::answer;

/// Largest body that is read.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// A header's text; empty when it is not there.
pub fn header(request: &Request, name: hyper::header::HeaderName) -> Option<String> {
    request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The form of answer that a request accepts, out of JSON and YAML.
pub fn form(request: &Request) -> Result<Form, ApiError> {
    negotiate::accept(header(request, ACCEPT).as_deref(), Offer::Text)
}

/// Reads a whole body.
pub async fn read_body(request: Request) -> Result<Bytes, ApiError> {
    match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(ApiError::too_large(MAX_BODY))
        }
        Err(error) => Err(ApiError::bad_request(format!("read body: {error}"))),
    }
}

/// Reads a body as an object of the given kind.
pub async fn read_object(api: &Api, request: Request, kind: &str) -> Result<Value, ApiError> {
    let media_type = header(&request, CONTENT_TYPE);
    let bytes = read_body(request).await?;
    parse(api, media_type.as_deref(), &bytes).map_err(|error| {
        if error.code != 400 {
            return error;
        }
        let start: String = String::from_utf8_lossy(&bytes).chars().take(30).collect();
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get \
             version/kind; json parse error: {} ({start:?} ...)",
            error.message
        ))
    })
}

/// Reads bytes by their media type.
fn parse(api: &Api, media_type: Option<&str>, bytes: &[u8]) -> Result<Value, ApiError> {
    if media_type.is_some_and(|media_type| media_type.starts_with(protobuf::MEDIA_TYPE)) {
        let decoded = api.protobuf.decode(bytes);
        return decoded.map_err(|error| match error {
            ProtobufError::Malformed => ApiError::bad_request(error.to_string()),
            _ => ApiError::unsupported_media_type(error.to_string()),
        });
    }
    negotiate::parse_body(media_type, bytes)
}

/// Answers a request for a stored resource.
pub async fn serve(call: Call, request: Request) -> Result<Response, ApiError> {
    let form = negotiate::accept(header(&request, ACCEPT).as_deref(), call.resource.offer)?;
    let collection_only = ["create", "list", "watch", "deletecollection"];
    let single = !call.path.name.is_empty() && !call.path.name_from_selector;
    let verb = call.info.verb.clone();
    let part = match call.path.subresource.as_str() {
        "" => Part::Main,
        _ => Part::Status,
    };
    let served = match part {
        Part::Main => &call.resource.verbs,
        Part::Status => match call.resource.subresource("status") {
            Some(status) => &status.verbs,
            None => return Err(ApiError::no_such_resource()),
        },
    };
    let fits = single != collection_only.contains(&verb.as_str());
    if !fits || !served.contains(&verb.as_str()) {
        return Err(ApiError::method_not_allowed());
    }
    let namespaced = call.resource.scope == Scope::Namespaced;
    if namespaced && call.path.namespace.is_empty() && (single || verb == "create") {
        return Err(ApiError::method_not_allowed());
    }
    match verb.as_str() {
        "get" => get(&call, form),
        "list" => list::list(&call, form),
        "watch" => list::watch(&call, form),
        "create" => create(&call, form, request).await,
        "update" => update(&call, form, part, request).await,
        "patch" => apply_patch(&call, form, part, request).await,
        "delete" => delete(&call, form, request).await,
        "deletecollection" => delete_collection(&call, form, request).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Namespace of the objects; empty for cluster scope.
fn namespace(call: &Call) -> &str {
    match call.resource.scope {
        Scope::Namespaced => &call.path.namespace,
        Scope::Cluster => "",
    }
}

fn get(call: &Call, form: Form) -> Result<Response, ApiError> {
    let known = ["resourceVersion", "labelSelector", "fieldSelector", "includeObject", "export"];
    call.info.query.only(&known)?;
    let source = source(call);
    let mut view = View { namespace: namespace(call).to_owned(), ..View::default() };
    source.admit(&call.user, &mut view)?;
    let Some(object) = source.get(&view, &call.path.name) else {
        return Err(ApiError::not_found(&call.resource.group_resource(), &call.path.name));
    };
    encode::object(call, form, 200, &object)
}

/// Where a resource's objects are read.
fn source(call: &Call) -> Arc<dyn Source> {
    match &call.resource.source {
        Some(source) => Arc::clone(source),
        None => Arc::new(stored(call)),
    }
}

/// The lab's store as a source of a resource.
fn stored(call: &Call) -> StoreSource {
    StoreSource::new(Arc::clone(&call.api.store), &call.resource, &call.api.protobuf)
}

fn writer<'a>(call: &'a Call, options: WriteOptions) -> Writer<'a> {
    Writer {
        store: &call.api.store,
        registry: &call.api.registry,
        admission: call.api.admission.as_ref(),
        user: &call.user,
        options,
        manager: call.info.query.get("fieldManager").unwrap_or("unknown"),
    }
}

fn written(call: &Call, form: Form, code: u16, written: &Written) -> Result<Response, ApiError> {
    let object = stored(call).shared(written.object.clone());
    let mut response = encode::object(call, form, code, &object)?;
    header_warnings(&mut response, &written.warnings);
    Ok(response)
}

fn header_warnings(response: &mut Response, warnings: &[String]) {
    for warning in warnings {
        let text = format!("299 - {warning:?}");
        if let Ok(value) = hyper::header::HeaderValue::from_str(&text) {
            response.headers_mut().append(hyper::header::WARNING, value);
        }
    }
}

async fn create(call: &Call, form: Form, request: Request) -> Result<Response, ApiError> {
    let options = WriteOptions::parse(&call.info.query, "CreateOptions")?;
    let object = read_object(&call.api, request, &call.resource.kind).await?;
    let done = match reviewed::concerned(call, Operation::Create) {
        Some(webhooks) => reviewed::create(call, webhooks, options, object).await?,
        None => writer(call, options).create(&call.resource, namespace(call), object)?,
    };
    written(call, form, 201, &done)
}

async fn update(
    call: &Call,
    form: Form,
    part: Part,
    request: Request,
) -> Result<Response, ApiError> {
    let options = WriteOptions::parse(&call.info.query, "UpdateOptions")?;
    let object = read_object(&call.api, request, &call.resource.kind).await?;
    let (namespace, name) = (namespace(call), &call.path.name);
    let done = match reviewed::concerned(call, Operation::Update) {
        Some(webhooks) => {
            let race = if meta::version(&object) == 0 { Race::Retry } else { Race::Fail };
            let make = |_: &Value| Ok(object.clone());
            reviewed::change(call, webhooks, options, part, Change::Make(&make), race).await?.0
        }
        None => writer(call, options)
            .update(&call.resource, namespace, name, part, move |_| Ok(object))?,
    };
    written(call, form, 200, &done)
}

async fn apply_patch(
    call: &Call,
    form: Form,
    part: Part,
    request: Request,
) -> Result<Response, ApiError> {
    let media_type = header(&request, CONTENT_TYPE).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or("").trim();
    if media_type == "application/apply-patch+yaml" {
        return apply(call, form, part, request).await;
    }
    let format = PatchFormat::of(media_type, call.resource.strategic)
        .ok_or_else(ApiError::unsupported_patch)?;
    let options = WriteOptions::parse(&call.info.query, "PatchOptions")?;
    let body = read_body(request).await?;
    let (namespace, name) = (namespace(call), &call.path.name);
    let make = |old: &Value| patch::apply(format, &call.resource.shape, old, &body);
    let done = match reviewed::concerned(call, Operation::Update) {
        Some(webhooks) => {
            let change = Change::Make(&make);
            reviewed::change(call, webhooks, options, part, change, Race::Retry).await?.0
        }
        None => writer(call, options).update(&call.resource, namespace, name, part, make)?,
    };
    written(call, form, 200, &done)
}

async fn apply(
    call: &Call,
    form: Form,
    part: Part,
    request: Request,
) -> Result<Response, ApiError> {
    let options = WriteOptions::parse(&call.info.query, "PatchOptions")?;
    let (_, conflicts) = parse_apply(&call.info.query)?;
    let body = read_body(request).await?;
    let applied = negotiate::parse_body(Some("application/yaml"), &body)?;
    let (namespace, name) = (namespace(call), &call.path.name);
    let collection = call.resource.collection();
    if part == Part::Main && call.api.store.get(&collection, &key(namespace, name)).is_none() {
        // What an apply creates, its user must be allowed to create.
        let mut act = Attributes::of(&call.user, &call.info);
        act.verb = "create".to_owned();
        if !call.api.authorizer.authorize(&act).await?.allowed {
            return Err(act.refusal());
        }
    }
    let concerned = reviewed::concerned(call, Operation::Update)
        .or_else(|| reviewed::concerned(call, Operation::Create));
    let (done, existed) = match concerned {
        Some(webhooks) => {
            let change = Change::Apply(&applied, conflicts);
            reviewed::change(call, webhooks, options, part, change, Race::Retry).await?
        }
        None => writer(call, options).apply(
            &call.resource,
            namespace,
            name,
            part,
            applied,
            conflicts,
        )?,
    };
    written(call, form, if existed == Existed::Yes { 200 } else { 201 }, &done)
}

async fn delete_options(call: &Call, request: Request) -> Result<DeleteOptions, ApiError> {
    let media_type = header(&request, CONTENT_TYPE);
    let body = read_body(request).await?;
    let body = match body.as_ref() {
        b"" => None,
        bytes => Some(parse(&call.api, media_type.as_deref(), bytes)?),
    };
    DeleteOptions::parse(&call.info.query, body.as_ref())
}

async fn delete(call: &Call, form: Form, request: Request) -> Result<Response, ApiError> {
    let known = ["dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents"];
    call.info.query.only(&known)?;
    let options = delete_options(call, request).await?;
    if let Some(webhooks) = reviewed::concerned(call, Operation::Delete) {
        return reviewed::delete_one(call, webhooks, &options, form).await;
    }
    let deleted = call.api.store.write(|tx| {
        objects::delete(tx, &call.resource, namespace(call), &call.path.name, &options)
    })?;
    Ok(answer(form, 200, &deleted.answer(&call.resource)))
}

async fn delete_collection(
    call: &Call,
    form: Form,
    request: Request,
) -> Result<Response, ApiError> {
    let selection = list::selection(call)?;
    let options = delete_options(call, request).await?;
    if let Some(webhooks) = reviewed::concerned(call, Operation::Delete) {
        let prefix = crate::store::prefix(namespace(call));
        for object in call.api.store.list(&call.resource.collection(), &prefix).1 {
            let value = object.value();
            if selection.labels.matches(value) && selection.fields.matches(value) {
                reviewed::delete(call, webhooks, &object, &options).await?;
            }
        }
    }
    let (revision, deleted) = call.api.store.write(|tx| {
        let prefix = crate::store::prefix(namespace(call));
        let mut deleted = Vec::new();
        let version = tx.revision();
        for object in tx.list(&call.resource.collection(), &prefix) {
            let value = object.value();
            if !(selection.labels.matches(value) && selection.fields.matches(value)) {
                continue;
            }
            let (namespace, name) = (meta::namespace(object.value()), meta::name(object.value()));
            objects::delete(tx, &call.resource, namespace, name, &options)?;
            deleted.push(object);
        }
        Ok::<_, ApiError>((version, deleted))
    })?;
    let metadata = serde_json::json!({ "resourceVersion": revision.to_string() });
    let source = stored(call);
    let deleted: Vec<Shared> = deleted.into_iter().map(|object| source.shared(object)).collect();
    encode::list(call, form, metadata, &deleted)
}

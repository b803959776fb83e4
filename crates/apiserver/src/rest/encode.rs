//! Objects, lists and events in the form that a client accepts.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::body::{self, Response};
use crate::negotiate::{Encoding, Form, View, to_yaml};
use crate::protobuf::{self, write};
use crate::query::Query;
use crate::resource::{Call, Resource};
use crate::source::{Object, Shared};
use crate::status::ApiError;
use crate::table::{self, Include};
use crate::watch::Encode;

/// A value in the encoding that a client accepts; JSON where it would be protobuf.
pub fn answer(form: Form, code: u16, value: &Value) -> Response {
    match form.encoding {
        Encoding::Json | Encoding::Protobuf => body::json(code, value),
        Encoding::Yaml => body::with_type(code, "application/yaml", to_yaml(value)),
    }
}

fn include(query: &Query) -> Result<Include, ApiError> {
    match query.get("includeObject").unwrap_or("") {
        "" | "Metadata" => Ok(Include::Metadata),
        "None" => Ok(Include::None),
        "Object" => Ok(Include::Object),
        other => Err(ApiError::bad_request(format!("unrecognized includeObject value: {other:?}"))),
    }
}

/// The protobuf message of an object; the offer of protobuf promised that its kind has one.
fn message(object: &dyn Object) -> Result<Bytes, ApiError> {
    object.protobuf().map_err(ApiError::internal)
}

/// One object.
pub(super) fn object(
    call: &Call,
    form: Form,
    code: u16,
    object: &Shared,
) -> Result<Response, ApiError> {
    let resource = &call.resource;
    match form.view {
        View::Whole if form.encoding == Encoding::Json => {
            Ok(body::with_type(code, "application/json", object.json()))
        }
        View::Whole if form.encoding == Encoding::Protobuf => {
            let kind = object.kind().unwrap_or(&resource.kind);
            let bytes = write::envelope(&resource.api_version(), kind, &message(&**object)?);
            Ok(body::with_type(code, protobuf::MEDIA_TYPE, bytes))
        }
        View::Whole | View::Discovery => Ok(answer(form, code, &object.value())),
        View::Partial => Ok(answer(form, code, &table::partial(&object.value()))),
        View::PartialList => Err(ApiError::not_acceptable(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list \
             (*{}.{})",
            internal_group(resource),
            resource.kind
        ))),
        View::Table => {
            let metadata = json!({ "resourceVersion": object.version().to_string() });
            let table = rows(call, metadata, std::slice::from_ref(object))?;
            Ok(answer(form, code, &table))
        }
    }
}

fn internal_group(resource: &Resource) -> &str {
    if resource.group.is_empty() { "core" } else { &resource.group }
}

fn rows(call: &Call, metadata: Value, objects: &[Shared]) -> Result<Value, ApiError> {
    let include = include(&call.info.query)?;
    let rows = objects
        .iter()
        .map(|object| {
            let value = object.value();
            table::row(call.resource.strategy.cells(&value), &value, include)
        })
        .collect();
    Ok(table::table(metadata, Some(&call.resource.columns), rows))
}

/// A list.
pub(super) fn list(
    call: &Call,
    form: Form,
    metadata: Value,
    objects: &[Shared],
) -> Result<Response, ApiError> {
    let resource = &call.resource;
    let kind = format!("{}List", resource.kind);
    match form.view {
        View::Whole | View::Discovery => {}
        View::Table => return Ok(answer(form, 200, &rows(call, metadata, objects)?)),
        View::PartialList => {
            let items: Vec<Value> = objects.iter().map(|o| table::partial(&o.value())).collect();
            let list = json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": items,
            });
            return Ok(answer(form, 200, &list));
        }
        View::Partial => {
            return Err(ApiError::not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list \
                 (*{}.{kind})",
                internal_group(resource),
            )));
        }
    }
    if form.encoding == Encoding::Protobuf {
        let items =
            objects.iter().map(|object| message(&**object)).collect::<Result<Vec<_>, _>>()?;
        let list = write::list(&metadata, &items);
        let bytes = write::envelope(&resource.api_version(), &kind, &list);
        return Ok(body::with_type(200, protobuf::MEDIA_TYPE, bytes));
    }
    let head = json!({
        "kind": kind,
        "apiVersion": resource.api_version(),
        "metadata": metadata,
    });
    // The items are encoded already: the list is put together from its parts.
    let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
    bytes.pop();
    bytes.extend_from_slice(b",\"items\":[");
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(&object.item_json());
    }
    bytes.extend_from_slice(b"]}");
    if form.encoding == Encoding::Yaml {
        let value: Value = serde_json::from_slice(&bytes).map_err(ApiError::internal)?;
        return Ok(answer(form, 200, &value));
    }
    Ok(body::with_type(200, "application/json", bytes))
}

/// Writes watch events as lines of JSON.
pub(super) struct JsonEvents {
    resource: Arc<Resource>,
    view: View,
    include: Include,
    first: bool,
}

impl JsonEvents {
    fn object(&mut self, object: &Shared) -> Bytes {
        let value = match self.view {
            View::Partial | View::PartialList => table::partial(&object.value()),
            View::Table => {
                let columns = self.first.then_some(self.resource.columns.as_slice());
                self.first = false;
                let value = object.value();
                let row = table::row(self.resource.strategy.cells(&value), &value, self.include);
                let metadata = json!({ "resourceVersion": object.version().to_string() });
                table::table(metadata, columns, vec![row])
            }
            View::Whole | View::Discovery => return object.json(),
        };
        serde_json::to_vec(&value).unwrap_or_default().into()
    }
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

impl Encode for JsonEvents {
    fn event(&mut self, kind: &str, object: &Shared) -> Bytes {
        line(kind, &self.object(object))
    }

    fn bookmark(&mut self, metadata: Value) -> Bytes {
        let value = match self.view {
            View::Table => table::table(metadata, None, Vec::new()),
            View::Partial | View::PartialList => table::partial(&json!({ "metadata": metadata })),
            View::Whole | View::Discovery => json!({
                "kind": self.resource.kind,
                "apiVersion": self.resource.api_version(),
                "metadata": metadata,
            }),
        };
        line("BOOKMARK", &serde_json::to_vec(&value).unwrap_or_default())
    }

    fn error(&mut self, error: &ApiError) -> Bytes {
        line("ERROR", error.to_status().to_string().as_bytes())
    }
}

/// Writes watch events as protobuf frames.
struct ProtobufEvents {
    resource: Arc<Resource>,
    api_version: String,
}

impl Encode for ProtobufEvents {
    fn event(&mut self, kind: &str, object: &Shared) -> Bytes {
        match message(&**object) {
            Ok(message) => {
                let of = object.kind().unwrap_or(&self.resource.kind);
                write::frame(kind, &self.api_version, of, &message)
            }
            Err(error) => self.error(&error),
        }
    }

    fn bookmark(&mut self, metadata: Value) -> Bytes {
        let message = write::bookmark(&metadata);
        write::frame("BOOKMARK", &self.api_version, &self.resource.kind, &message)
    }

    fn error(&mut self, error: &ApiError) -> Bytes {
        write::frame("ERROR", "v1", "Status", &write::status(error))
    }
}

/// What writes the events of a watch, and their media type.
pub(super) fn events(call: &Call, form: Form) -> Result<(Box<dyn Encode>, &'static str), ApiError> {
    let resource = Arc::clone(&call.resource);
    if form.encoding == Encoding::Protobuf {
        let api_version = resource.api_version();
        let media_type = "application/vnd.kubernetes.protobuf;stream=watch";
        return Ok((Box::new(ProtobufEvents { resource, api_version }), media_type));
    }
    let include = include(&call.info.query)?;
    let events = JsonEvents { resource, view: form.view, include, first: true };
    Ok((Box::new(events), "application/json"))
}

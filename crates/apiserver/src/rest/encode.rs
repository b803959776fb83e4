//! Objects and lists in the form that a client accepts.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::body::{self, Response};
use crate::negotiate::{Encoding, Form, View, to_yaml};
use crate::query::Query;
use crate::resource::{Call, Resource};
use crate::status::ApiError;
use crate::store::Stored;
use crate::table::{self, Include};
use crate::watch::Encode;

/// A value in the encoding that a client accepts.
pub fn answer(form: Form, code: u16, value: &Value) -> Response {
    match form.encoding {
        Encoding::Json => body::json(code, value),
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

/// The object under the apiVersion that the request asked for.
fn in_version(resource: &Resource, object: &Stored) -> Stored {
    if !resource.custom || object.value()["apiVersion"] == resource.api_version().as_str() {
        return object.clone();
    }
    let mut value = object.value().clone();
    crate::meta::set_part(&mut value, "apiVersion", json!(resource.api_version()));
    Stored::new(value)
}

/// One object.
pub(super) fn object(
    call: &Call,
    form: Form,
    code: u16,
    object: &Stored,
) -> Result<Response, ApiError> {
    let object = in_version(&call.resource, object);
    match form.view {
        View::Whole if form.encoding == Encoding::Json => {
            Ok(body::with_type(code, "application/json", object.json()))
        }
        View::Whole | View::Discovery => Ok(answer(form, code, object.value())),
        View::Partial => Ok(answer(form, code, &table::partial(object.value()))),
        View::PartialList => Err(ApiError::not_acceptable(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list \
             (*{}.{})",
            internal_group(&call.resource),
            call.resource.kind
        ))),
        View::Table => {
            let metadata = json!({ "resourceVersion": object.version().to_string() });
            let table = rows(call, metadata, &[object])?;
            Ok(answer(form, code, &table))
        }
    }
}

fn internal_group(resource: &Resource) -> &str {
    if resource.group.is_empty() { "core" } else { &resource.group }
}

fn rows(call: &Call, metadata: Value, objects: &[Stored]) -> Result<Value, ApiError> {
    let include = include(&call.info.query)?;
    let rows = objects
        .iter()
        .map(|object| {
            let cells = call.resource.strategy.cells(object.value());
            table::row(cells, object.value(), include)
        })
        .collect();
    Ok(table::table(metadata, Some(&call.resource.columns), rows))
}

/// A list.
pub(super) fn list(
    call: &Call,
    form: Form,
    metadata: Value,
    objects: &[Stored],
) -> Result<Response, ApiError> {
    let resource = &call.resource;
    match form.view {
        View::Whole | View::Discovery => {}
        View::Table => return Ok(answer(form, 200, &rows(call, metadata, objects)?)),
        View::PartialList => {
            let items: Vec<Value> = objects.iter().map(|o| table::partial(o.value())).collect();
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
                 (*{}.{}List)",
                internal_group(resource),
                resource.kind
            )));
        }
    }
    let head = json!({
        "kind": format!("{}List", resource.kind),
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
        let object = in_version(resource, object);
        let item = if resource.custom { object.json() } else { object.item_json() };
        bytes.extend_from_slice(&item);
    }
    bytes.extend_from_slice(b"]}");
    if form.encoding == Encoding::Yaml {
        let value: Value = serde_json::from_slice(&bytes).map_err(ApiError::internal)?;
        return Ok(answer(form, 200, &value));
    }
    Ok(body::with_type(200, "application/json", bytes))
}

/// Writes the objects of watch events.
pub(super) struct WatchEncoder {
    resource: std::sync::Arc<Resource>,
    view: View,
    include: Include,
    first: bool,
}

impl WatchEncoder {
    pub(super) fn new(call: &Call, form: Form) -> Result<Self, ApiError> {
        let include = include(&call.info.query)?;
        Ok(Self { resource: call.resource.clone(), view: form.view, include, first: true })
    }
}

impl Encode for WatchEncoder {
    fn object(&mut self, object: &Stored) -> Bytes {
        let object = in_version(&self.resource, object);
        let value = match self.view {
            View::Partial | View::PartialList => table::partial(object.value()),
            View::Table => {
                let columns = self.first.then_some(self.resource.columns.as_slice());
                self.first = false;
                let cells = self.resource.strategy.cells(object.value());
                let row = table::row(cells, object.value(), self.include);
                let metadata = json!({ "resourceVersion": object.version().to_string() });
                table::table(metadata, columns, vec![row])
            }
            View::Whole | View::Discovery => return object.json(),
        };
        serde_json::to_vec(&value).unwrap_or_default().into()
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
        serde_json::to_vec(&value).unwrap_or_default().into()
    }
}

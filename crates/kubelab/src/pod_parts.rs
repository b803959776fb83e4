//! Subresources that change their object in one step: binding, eviction, finalize.

use apiserver::body::Response;
use apiserver::meta;
use apiserver::names::GroupResource;
use apiserver::objects;
use apiserver::query::{DeleteOptions, WriteOptions};
use apiserver::resource::{Call, Connect, Gone};
use apiserver::rest;
use apiserver::server::Request;
use apiserver::status::ApiError;
use apiserver::store::key;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::accounts::created;
use crate::kinds::{NAMESPACES, POD};

/// `pods/NAME/binding`: puts a Pod on a node.
pub(crate) struct Binding;

impl Connect for Binding {
    fn connect(
        &self,
        call: Call,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        Box::pin(async move {
            let options = WriteOptions::parse(&call.info.query, "CreateOptions")?;
            let body = rest::read_object(&call.api, request, "Binding").await?;
            bind(&call, &body, options)?;
            Ok(created())
        })
    }
}

fn bind(call: &Call, body: &Value, options: WriteOptions) -> Result<(), ApiError> {
    let name = &call.path.name;
    let target = &body["target"];
    let node = target["name"].as_str().unwrap_or("");
    if !matches!(target["kind"].as_str(), None | Some("Node" | "")) || node.is_empty() {
        return Err(ApiError::bad_request("a binding's target must be a Node with a name"));
    }
    let conflict =
        |why: String| Err(ApiError::conflict(&GroupResource::new("", "pods/binding"), name, &why));
    let key = key(&call.path.namespace, name);
    call.api.store.write(|tx| {
        let Some(old) = tx.get(POD, &key) else {
            return Err(ApiError::not_found(&GroupResource::new("", POD), name));
        };
        let mut pod = old.value().clone();
        let uid = meta::uid(body);
        if !uid.is_empty() && uid != meta::uid(&pod) {
            return conflict(format!("the UID {uid} is not that of pod {name}"));
        }
        if meta::is_deleting(&pod) {
            return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        let current = pod["spec"]["nodeName"].as_str().unwrap_or("");
        if !current.is_empty() {
            return conflict(format!("pod {name} is already assigned to node {current:?}"));
        }
        pod["spec"]["nodeName"] = json!(node);
        let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": meta::now(),
        }));
        pod["status"]["conditions"] = json!(conditions);
        if !options.dry_run {
            tx.put(POD, &key, pod);
        }
        Ok(())
    })
}

/// `pods/NAME/eviction`: a delete that may be refused; nothing of ours refuses it.
pub(crate) struct Eviction;

impl Connect for Eviction {
    fn connect(
        &self,
        call: Call,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        Box::pin(async move {
            let options = WriteOptions::parse(&call.info.query, "CreateOptions")?;
            let body = rest::read_object(&call.api, request, "Eviction").await?;
            let given = Some(&body["deleteOptions"]).filter(|options| options.is_object());
            let mut delete = DeleteOptions::parse(&call.info.query, given)?;
            delete.dry_run |= options.dry_run;
            call.api.store.write(|tx| {
                let (namespace, name) = (&call.path.namespace, &call.path.name);
                objects::delete(tx, &call.resource, namespace, name, &delete)
            })?;
            Ok(created())
        })
    }
}

/// `namespaces/NAME/finalize`: sets the finalizers in the spec.
pub(crate) struct Finalize;

impl Connect for Finalize {
    fn connect(
        &self,
        call: Call,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        Box::pin(async move {
            let form = rest::form(&request)?;
            let body = rest::read_object(&call.api, request, "Namespace").await?;
            let answer = finalize(&call, &body)?;
            Ok(rest::answer(form, 200, &answer))
        })
    }
}

fn finalize(call: &Call, body: &Value) -> Result<Value, ApiError> {
    let name = &call.path.name;
    call.api.store.write(|tx| {
        let resource = GroupResource::new("", NAMESPACES);
        let Some(old) = tx.get(NAMESPACES, name) else {
            return Err(ApiError::not_found(&resource, name));
        };
        let version = meta::text(body, "resourceVersion");
        if !version.is_empty() && version.parse() != Ok(old.version()) {
            return Err(ApiError::modified(&resource, name));
        }
        let mut namespace = old.value().clone();
        namespace["spec"]["finalizers"] = match &body["spec"]["finalizers"] {
            Value::Null => json!([]),
            list => list.clone(),
        };
        if namespace == *old.value() {
            return Ok(namespace);
        }
        let empty = namespace["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        if empty && meta::is_deleting(&namespace) {
            tx.remove(NAMESPACES, name);
            call.resource.strategy.written(tx, &namespace, Gone::Yes);
            return Ok(namespace);
        }
        Ok(tx.put(NAMESPACES, name, namespace).value().clone())
    })
}

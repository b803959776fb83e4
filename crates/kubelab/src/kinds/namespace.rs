//! Namespaces, and what each holds from its start.

use apiserver::meta;
use apiserver::names::GroupResource;
use apiserver::resource::{Deletion, Gone, NameRule, Part, Strategy, WriteContext};
use apiserver::status::ApiError;
use apiserver::store::{Tx, key};
use serde_json::{Value, json};

use super::util::set_default;
use super::{NAMESPACES, SERVICE_ACCOUNTS};

/// Finalizer in the spec that goes when the namespace is empty.
pub(crate) const CONTENT_FINALIZER: &str = "kubernetes";
/// Namespaces that stay.
const LASTING: [&str; 3] = ["default", "kube-system", "kube-public"];
/// The ConfigMap that holds the cluster's authority.
const ROOT_CA: &str = "kube-root-ca.crt";

pub(super) struct Rules {
    pub(super) ca_pem: String,
}

impl Strategy for Rules {
    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }

    fn default(&self, object: &mut Value) {
        let name = meta::name(object).to_owned();
        if !name.is_empty() {
            let mut labels = object["metadata"]["labels"].take();
            if !labels.is_object() {
                labels = json!({});
            }
            labels["kubernetes.io/metadata.name"] = json!(name);
            object["metadata"]["labels"] = labels;
        }
        set_default(object, "status", json!({}));
        set_default(&mut object["status"], "phase", json!("Active"));
    }

    fn prepare_create(
        &self,
        _context: &mut WriteContext<'_, '_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        object["spec"] = json!({ "finalizers": [CONTENT_FINALIZER] });
        object["status"] = json!({ "phase": "Active" });
        self.default(object);
        Ok(())
    }

    fn prepare_update(
        &self,
        _context: &mut WriteContext<'_, '_>,
        object: &mut Value,
        old: &Value,
        _part: Part,
    ) -> Result<(), ApiError> {
        // Only `finalize` changes the finalizers in the spec.
        object["spec"] = old["spec"].clone();
        Ok(())
    }

    fn delete(&self, object: &mut Value, _asked: Option<i64>) -> Result<Deletion, ApiError> {
        let name = meta::name(object);
        if LASTING.contains(&name) {
            let why = "this namespace may not be deleted";
            return Err(ApiError::forbidden(&GroupResource::new("", NAMESPACES), name, why));
        }
        let empty = object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        if empty && meta::is_deleting(object) {
            return Ok(Deletion::Remove);
        }
        object["status"]["phase"] = json!("Terminating");
        Ok(Deletion::Hold)
    }

    fn written(&self, tx: &mut Tx<'_>, object: &Value, gone: Gone) {
        if gone == Gone::No && !meta::is_deleting(object) {
            ensure_defaults(tx, meta::name(object), &self.ca_pem);
        }
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        vec![
            json!(meta::name(object)),
            object["status"]["phase"].clone(),
            apiserver::table::age(object),
        ]
    }
}

/// Makes the default ServiceAccount and the ConfigMap with the authority, where they are missing.
pub(crate) fn ensure_defaults(tx: &mut Tx<'_>, namespace: &str, ca_pem: &str) {
    let metadata = |name: &str| {
        json!({
            "name": name,
            "namespace": namespace,
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": meta::now(),
        })
    };
    let account = key(namespace, "default");
    if tx.get(SERVICE_ACCOUNTS, &account).is_none() {
        let object = json!({
            "kind": "ServiceAccount", "apiVersion": "v1", "metadata": metadata("default"),
        });
        tx.put(SERVICE_ACCOUNTS, &account, object);
    }
    let map = key(namespace, ROOT_CA);
    if tx.get("configmaps", &map).is_none() {
        let object = json!({
            "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata(ROOT_CA),
            "data": { "ca.crt": ca_pem },
        });
        tx.put("configmaps", &map, object);
    }
}

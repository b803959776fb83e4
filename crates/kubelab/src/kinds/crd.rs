//! CustomResourceDefinitions: each serves its resource from the moment it is written.
//!
//! Objects are pruned, filled in and checked by the version's schema and its CEL rules. Conversion between versions other than by name is refused.

use std::sync::{Arc, Weak};

use apiserver::meta;
use apiserver::negotiate::Offer;
use apiserver::objects::label_problem;
use apiserver::patch::Strategic;
use apiserver::resource::{
    DeleteAnswer, Gone, Part, Registry, Resource, Scope, Strategy, Subresource, WriteContext,
    collection,
};
use apiserver::schema::{Struct, Unknown, custom_root};
use apiserver::status::{ApiError, FieldError};
use apiserver::store::Tx;
use apiserver::structural;
use serde_json::{Value, json};

use super::util::{each, each_mut, one_of, set_default, text};
use super::{ALL, STATUS, custom};

/// API group of CustomResourceDefinitions.
pub(super) const GROUP: &str = "apiextensions.k8s.io";

pub(super) struct Rules {
    registry: Weak<Registry>,
    object_meta: Arc<Struct>,
}

impl Rules {
    pub(super) fn new(registry: &Arc<Registry>, object_meta: Arc<Struct>) -> Self {
        Self { registry: Arc::downgrade(registry), object_meta }
    }

    fn serve(&self, definition: &Value) {
        let Some(registry) = self.registry.upgrade() else { return };
        let spec = &definition["spec"];
        let names = &spec["names"];
        registry.remove(text(spec, "group"), text(names, "plural"));
        let texts = |field: &str| -> Vec<String> {
            each(names, field).filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        for version in each(spec, "versions").filter(|version| version["served"] == true) {
            let (rules, columns) =
                custom::Rules::of_version((text(spec, "group"), text(names, "kind")), version);
            let kind = text(names, "kind").to_owned();
            let status = Subresource {
                name: "status",
                group_version: None,
                kind: kind.clone(),
                verbs: STATUS.to_vec(),
                connect: None,
            };
            let has_status = version["subresources"]["status"].is_object();
            let fields = each(version, "selectableFields")
                .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
                .collect();
            registry.insert(Resource {
                group: text(spec, "group").to_owned(),
                version: text(version, "name").to_owned(),
                kind,
                plural: text(names, "plural").to_owned(),
                singular: text(names, "singular").to_owned(),
                short_names: texts("shortNames"),
                categories: texts("categories"),
                scope: match text(spec, "scope") {
                    "Cluster" => Scope::Cluster,
                    _ => Scope::Namespaced,
                },
                verbs: ALL.to_vec(),
                shape: custom_root(&version["schema"]["openAPIV3Schema"], &self.object_meta),
                unknown: Unknown::Keep,
                strategic: Strategic::Refused,
                columns,
                fields,
                counts_generation: true,
                unconditional_update: false,
                custom: true,
                delete_answer: DeleteAnswer::Status,
                strategy: Arc::new(rules),
                offer: Offer::Text,
                source: None,
                connect: None,
                subresources: if has_status { vec![status] } else { Vec::new() },
            });
        }
    }
}

impl Strategy for Rules {
    fn default(&self, object: &mut Value) {
        let names = &mut object["spec"]["names"];
        let kind = text(names, "kind").to_owned();
        set_default(names, "singular", json!(kind.to_lowercase()));
        set_default(names, "listKind", json!(format!("{kind}List")));
        set_default(&mut object["spec"], "conversion", json!({ "strategy": "None" }));
        for version in each_mut(&mut object["spec"], "versions") {
            set_default(version, "served", json!(false));
            set_default(version, "storage", json!(false));
        }
    }

    fn prepare_create(
        &self,
        _context: &mut WriteContext<'_, '_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let condition = |kind: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": "True", "lastTransitionTime": meta::now(),
                "reason": reason, "message": message,
            })
        };
        let stored: Vec<&str> = each(&object["spec"], "versions")
            .filter(|version| version["storage"] == true)
            .map(|version| text(version, "name"))
            .collect();
        let status = json!({
            "conditions": [
                condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            ],
            "acceptedNames": object["spec"]["names"],
            "storedVersions": stored,
        });
        object["status"] = status;
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let (spec, names) = (&object["spec"], &object["spec"]["names"]);
        let want = format!("{}.{}", text(names, "plural"), text(spec, "group"));
        if meta::name(object) != want {
            let why = "must be spec.names.plural+\".\"+spec.group";
            errors.push(FieldError::invalid("metadata.name", meta::name(object), why));
        }
        if text(spec, "group").is_empty() {
            errors.push(FieldError::required("spec.group", ""));
        }
        if text(spec, "scope").is_empty() {
            errors.push(FieldError::required("spec.scope", ""));
        }
        one_of(&mut errors, "spec.scope", text(spec, "scope"), &["Cluster", "Namespaced"]);
        for name in ["plural", "singular", "kind", "listKind"] {
            let field = format!("spec.names.{name}");
            let value = text(names, name).to_lowercase();
            if value.is_empty() {
                errors.push(FieldError::required(&field, ""));
            } else if let Some(why) = label_problem(&value) {
                errors.push(FieldError::invalid(&field, value, why));
            }
        }
        let storage = each(spec, "versions").filter(|version| version["storage"] == true).count();
        if storage != 1 {
            let why = "must have exactly one version marked as storage version";
            errors.push(FieldError::invalid("spec.versions", &spec["versions"], why));
        }
        for (index, version) in each(spec, "versions").enumerate() {
            let at = |name: &str| format!("spec.versions[{index}].{name}");
            if !version["schema"]["openAPIV3Schema"].is_object() {
                errors.push(FieldError::required(
                    &at("schema.openAPIV3Schema"),
                    "schemas are required",
                ));
            } else {
                let schema = &version["schema"]["openAPIV3Schema"];
                let at = at("schema.openAPIV3Schema");
                errors.extend(structural::compile(schema, &at).err().unwrap_or_default());
                let bad = custom::bad_rules(schema);
                errors.extend(bad.iter().map(|why| FieldError::refused(&at, why)));
            }
            if version["subresources"]["scale"].is_object() {
                errors.push(FieldError::forbidden(&at("subresources.scale"), "not served here"));
            }
        }
        one_of(
            &mut errors,
            "spec.conversion.strategy",
            text(&spec["conversion"], "strategy"),
            &["None"],
        );
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value, _part: Part) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (field, new, old) in [
            ("spec.group", &object["spec"]["group"], &old["spec"]["group"]),
            ("spec.scope", &object["spec"]["scope"], &old["spec"]["scope"]),
            ("spec.names.kind", &object["spec"]["names"]["kind"], &old["spec"]["names"]["kind"]),
        ] {
            if new != old {
                errors.push(FieldError::invalid(field, new, "field is immutable"));
            }
        }
        errors
    }

    fn written(&self, tx: &mut Tx<'_>, object: &Value, gone: Gone) {
        if gone == Gone::No {
            self.serve(object);
            return;
        }
        let (group, plural) =
            (text(&object["spec"], "group"), text(&object["spec"]["names"], "plural"));
        tx.remove_collection(&collection(group, plural));
        if let Some(registry) = self.registry.upgrade() {
            registry.remove(group, plural);
        }
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        vec![json!(meta::name(object)), object["metadata"]["creationTimestamp"].clone()]
    }
}

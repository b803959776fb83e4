//! Roles and their bindings.

use apiserver::meta;
use apiserver::rbac::GROUP;
use apiserver::resource::{NameRule, Part, Strategy};
use apiserver::status::FieldError;
use apiserver::table::age;
use serde_json::{Value, json};

use super::util::{each, each_mut, one_of, set_default, text};

pub(super) struct RoleRules;

impl Strategy for RoleRules {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn default(&self, object: &mut Value) {
        set_default(object, "rules", Value::Null);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (index, rule) in each(object, "rules").enumerate() {
            let field = |name: &str| format!("rules[{index}].{name}");
            let empty = |name: &str| each(rule, name).next().is_none();
            if empty("verbs") {
                errors.push(FieldError::required(
                    &field("verbs"),
                    "verbs must contain at least one value",
                ));
            }
            if !empty("nonResourceURLs") {
                if !meta::namespace(object).is_empty() {
                    let why = "namespaced rules cannot apply to non-resource URLs";
                    let value = &rule["nonResourceURLs"];
                    errors.push(FieldError::invalid(&field("nonResourceURLs"), value, why));
                }
                continue;
            }
            if empty("apiGroups") {
                let why = "resource rules must supply at least one api group";
                errors.push(FieldError::required(&field("apiGroups"), why));
            }
            if empty("resources") {
                let why = "resource rules must supply at least one resource";
                errors.push(FieldError::required(&field("resources"), why));
            }
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        vec![json!(meta::name(object)), object["metadata"]["creationTimestamp"].clone()]
    }
}

pub(super) struct BindingRules;

impl Strategy for BindingRules {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn default(&self, object: &mut Value) {
        set_default(&mut object["roleRef"], "apiGroup", json!(GROUP));
        for subject in each_mut(object, "subjects") {
            if matches!(text(subject, "kind"), "User" | "Group") {
                set_default(subject, "apiGroup", json!(GROUP));
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let role = &object["roleRef"];
        one_of(&mut errors, "roleRef.apiGroup", text(role, "apiGroup"), &[GROUP]);
        let kinds: &[&str] = if meta::namespace(object).is_empty() {
            &["ClusterRole"]
        } else {
            &["Role", "ClusterRole"]
        };
        if text(role, "kind").is_empty() {
            errors.push(FieldError::unsupported("roleRef.kind", "", kinds));
        }
        one_of(&mut errors, "roleRef.kind", text(role, "kind"), kinds);
        if text(role, "name").is_empty() {
            errors.push(FieldError::required("roleRef.name", ""));
        }
        for (index, subject) in each(object, "subjects").enumerate() {
            let field = |name: &str| format!("subjects[{index}].{name}");
            if text(subject, "name").is_empty() {
                errors.push(FieldError::required(&field("name"), ""));
            }
            let kinds = ["ServiceAccount", "User", "Group"];
            one_of(&mut errors, &field("kind"), text(subject, "kind"), &kinds);
            let homeless =
                text(subject, "namespace").is_empty() && meta::namespace(object).is_empty();
            if text(subject, "kind") == "ServiceAccount" && homeless {
                errors.push(FieldError::required(&field("namespace"), ""));
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value, _part: Part) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if object["roleRef"] != old["roleRef"] {
            errors.push(FieldError::invalid(
                "roleRef",
                &object["roleRef"],
                "cannot change roleRef",
            ));
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let role = &object["roleRef"];
        let name = format!("{}/{}", text(role, "kind"), text(role, "name"));
        vec![json!(meta::name(object)), json!(name), age(object)]
    }
}

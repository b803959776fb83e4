//! What extends the API server: APIServices and webhook configurations.

use apiserver::meta;
use apiserver::resource::{Strategy, WriteContext};
use apiserver::status::{ApiError, FieldError};
use apiserver::table::age;
use serde_json::{Value, json};

use super::util::{each, each_mut, one_of, set_default, text};

pub(super) struct ApiServiceRules;

impl Strategy for ApiServiceRules {
    fn default(&self, object: &mut Value) {
        set_default(&mut object["spec"]["service"], "port", json!(443));
    }

    fn prepare_create(
        &self,
        _context: &mut WriteContext<'_, '_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        object["status"] = json!({});
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object["spec"];
        let want = format!("{}.{}", text(spec, "version"), text(spec, "group"));
        if meta::name(object) != want {
            let why = format!("must be `spec.version+\".\"+spec.group`: {want:?}");
            errors.push(FieldError::invalid("metadata.name", meta::name(object), &why));
        }
        for field in ["name", "namespace"] {
            if text(&spec["service"], field).is_empty() {
                let why = "only APIServices with a service are served here";
                errors.push(FieldError::required(&format!("spec.service.{field}"), why));
            }
        }
        for (field, limit) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
            let number = spec[field].as_i64().unwrap_or(0);
            if !(1..=limit).contains(&number) {
                let why = format!("must be positive and less than or equal to {limit}");
                errors.push(FieldError::invalid(&format!("spec.{field}"), number, &why));
            }
        }
        if spec["insecureSkipTLSVerify"] == true {
            let why = "give a caBundle: nothing is taken on trust here";
            errors.push(FieldError::forbidden("spec.insecureSkipTLSVerify", why));
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let service = &object["spec"]["service"];
        let service = format!("{}/{}", text(service, "namespace"), text(service, "name"));
        let available = each(&object["status"], "conditions")
            .find(|condition| condition["type"] == "Available")
            .map_or_else(
                || "Unknown".to_owned(),
                |condition| match text(condition, "status") {
                    "True" => "True".to_owned(),
                    status => format!("{status} ({})", text(condition, "reason")),
                },
            );
        vec![json!(meta::name(object)), json!(service), json!(available), age(object)]
    }
}

pub(super) struct WebhookRules;

impl Strategy for WebhookRules {
    fn default(&self, object: &mut Value) {
        let mutating = object["kind"] == "MutatingWebhookConfiguration";
        for hook in each_mut(object, "webhooks") {
            for (field, value) in [
                ("failurePolicy", json!("Fail")),
                ("matchPolicy", json!("Equivalent")),
                ("namespaceSelector", json!({})),
                ("objectSelector", json!({})),
                ("timeoutSeconds", json!(10)),
            ] {
                set_default(hook, field, value);
            }
            if mutating {
                set_default(hook, "reinvocationPolicy", json!("Never"));
            }
            if hook["clientConfig"]["service"].is_object() {
                set_default(&mut hook["clientConfig"]["service"], "port", json!(443));
            }
            for rule in each_mut(hook, "rules") {
                set_default(rule, "scope", json!("*"));
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (n, hook) in each(object, "webhooks").enumerate() {
            let at = |field: &str| format!("webhooks[{n}].{field}");
            let effects = text(hook, "sideEffects");
            if effects.is_empty() {
                let why = "must specify one of None, NoneOnDryRun";
                errors.push(FieldError::required(&at("sideEffects"), why));
            }
            one_of(&mut errors, &at("sideEffects"), effects, &["None", "NoneOnDryRun"]);
            one_of(
                &mut errors,
                &at("failurePolicy"),
                text(hook, "failurePolicy"),
                &["Fail", "Ignore"],
            );
            if !each(hook, "admissionReviewVersions").any(|version| version == "v1") {
                let why = "must include at least one of v1";
                let value = &hook["admissionReviewVersions"];
                errors.push(FieldError::invalid(&at("admissionReviewVersions"), value, why));
            }
            if text(hook, "name").split('.').count() < 3 {
                let why = "should be a domain with at least three segments separated by dots";
                errors.push(FieldError::invalid(&at("name"), text(hook, "name"), why));
            }
            let client = &hook["clientConfig"];
            if client["url"].is_string() == client["service"].is_object() {
                let why = "exactly one of url or service is required";
                errors.push(FieldError::required(&at("clientConfig"), why));
            }
            if each(hook, "matchConditions").next().is_some() {
                errors.push(FieldError::forbidden(&at("matchConditions"), "not supported here"));
            }
            let seconds = hook["timeoutSeconds"].as_i64().unwrap_or(10);
            if !(1..=30).contains(&seconds) {
                let why = "the timeout value must be between 1 and 30 seconds";
                errors.push(FieldError::invalid(&at("timeoutSeconds"), seconds, why));
            }
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let n = each(object, "webhooks").count();
        vec![json!(meta::name(object)), json!(n), age(object)]
    }
}

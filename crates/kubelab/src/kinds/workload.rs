//! Deployments and ReplicaSets: defaults, validation, table form.
//!
//! Not here, and refused: waiting after a Pod is ready (`minReadySeconds`), pauses, `scale`.

use apiserver::meta;
use apiserver::resource::{Part, Strategy, WriteContext};
use apiserver::status::{ApiError, FieldError};
use apiserver::table::age;
use serde_json::{Value, json};

use super::pod;
use super::util::{each, one_of, set_default, text};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    Deployment,
    ReplicaSet,
}

impl Strategy for Rules {
    fn default(&self, object: &mut Value) {
        set_default(object, "spec", json!({}));
        set_default(object, "status", json!({}));
        let spec = &mut object["spec"];
        set_default(spec, "replicas", json!(1));
        set_default(spec, "template", json!({}));
        set_default(&mut spec["template"], "metadata", json!({}));
        set_default(&mut spec["template"], "spec", json!({}));
        pod::default_spec(&mut spec["template"]["spec"]);
        if *self == Self::Deployment {
            set_default(spec, "strategy", json!({}));
            set_default(&mut spec["strategy"], "type", json!("RollingUpdate"));
            if spec["strategy"]["type"] == "RollingUpdate" {
                set_default(&mut spec["strategy"], "rollingUpdate", json!({}));
                for field in ["maxSurge", "maxUnavailable"] {
                    set_default(&mut spec["strategy"]["rollingUpdate"], field, json!("25%"));
                }
            }
            set_default(spec, "revisionHistoryLimit", json!(10));
            set_default(spec, "progressDeadlineSeconds", json!(600));
        }
    }

    fn prepare_create(
        &self,
        _context: &mut WriteContext<'_, '_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        object["status"] =
            if *self == Self::Deployment { json!({}) } else { json!({ "replicas": 0 }) };
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Vec::new();
        if spec["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid("spec.replicas", &spec["replicas"], why));
        }
        let labels = &spec["template"]["metadata"]["labels"];
        let selector = &spec["selector"];
        if each(selector, "matchExpressions").next().is_some() {
            let why = "this server knows matchLabels only";
            errors.push(FieldError::forbidden("spec.selector.matchExpressions", why));
        }
        match selector["matchLabels"].as_object().filter(|own| !own.is_empty()) {
            None => errors.push(FieldError::required("spec.selector", "")),
            Some(own) if own.iter().any(|(name, value)| labels[name] != *value) => {
                let why = "`selector` does not match template `labels`";
                errors.push(FieldError::invalid("spec.template.metadata.labels", labels, why));
            }
            Some(_) => {}
        }
        let within = &spec["template"]["spec"];
        let policy = text(within, "restartPolicy");
        one_of(&mut errors, "spec.template.spec.restartPolicy", policy, &["Always"]);
        errors.extend(pod::validate(within).into_iter().map(|e| e.within("spec.template")));
        for (field, other) in [("minReadySeconds", json!(0)), ("paused", json!(false))] {
            if !spec[field].is_null() && spec[field] != other {
                let why = "this server does not implement it";
                errors.push(FieldError::forbidden(&format!("spec.{field}"), why));
            }
        }
        let kind = text(&spec["strategy"], "type");
        one_of(&mut errors, "spec.strategy.type", kind, &["Recreate", "RollingUpdate"]);
        let rolling = &spec["strategy"]["rollingUpdate"];
        for field in ["maxSurge", "maxUnavailable"] {
            let value = &rolling[field];
            if !value.is_null() && share(value, 100, Round::Down).is_none() {
                let field = format!("spec.strategy.rollingUpdate.{field}");
                let why = "must be an integer or percentage (e.g '5%')";
                errors.push(FieldError::invalid(&field, value, why));
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        let (new, old) = (&object["spec"]["selector"], &old["spec"]["selector"]);
        if part == Part::Main && new != old {
            return vec![FieldError::invalid("spec.selector", new, "field is immutable")];
        }
        Vec::new()
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let count = |field: &str| json!(status[field].as_i64().unwrap_or(0));
        let mut cells = vec![json!(meta::name(object))];
        cells.extend(match self {
            Self::Deployment => [
                json!(format!("{}/{}", count("readyReplicas"), spec["replicas"])),
                count("updatedReplicas"),
                count("availableReplicas"),
            ],
            Self::ReplicaSet => {
                [spec["replicas"].clone(), count("replicas"), count("readyReplicas")]
            }
        });
        let containers: Vec<&Value> = each(&spec["template"]["spec"], "containers").collect();
        let words = |field: &str| {
            let all: Vec<&str> = containers.iter().map(|own| text(own, field)).collect();
            json!(all.join(","))
        };
        let labels = spec["selector"]["matchLabels"].as_object().into_iter().flatten();
        let labels: Vec<String> = labels
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or("")))
            .collect();
        cells.extend([age(object), words("name"), words("image"), json!(labels.join(","))]);
        cells
    }
}

/// Which way a share of an odd number is rounded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    Up,
    Down,
}

/// A number, or a share of one in percent.
pub(crate) fn share(value: &Value, of: i64, round: Round) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return (number >= 0).then_some(number);
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok().filter(|p| *p >= 0)?;
    let exact = percent.checked_mul(of)?;
    Some(if round == Round::Up { (exact + 99) / 100 } else { exact / 100 })
}

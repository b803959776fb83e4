//! Pods: defaults, validation, what may change, how they end.
//!
//! Admission of new Pods is in `pod_admission`, the table form in `pod_table`.

use apiserver::meta;
use apiserver::resource::{Deletion, Part, Strategy, WriteContext};
use apiserver::status::{ApiError, FieldError};
use serde_json::{Value, json};

use super::util::{each, each_mut, one_of, port_in_range, set_default, text};
use super::{pod_admission, pod_table};

/// The collection of Pods.
pub(crate) const POD: &str = "pods";

/// Fields of a Pod's spec that hold containers.
pub(super) const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub(super) struct Rules;

impl Strategy for Rules {
    fn default(&self, object: &mut Value) {
        set_default(object, "spec", json!({}));
        set_default(object, "status", json!({}));
        default_spec(&mut object["spec"]);
        let status = &mut object["status"];
        set_default(status, "phase", json!("Pending"));
        for condition in each_mut(status, "conditions") {
            set_default(condition, "lastProbeTime", Value::Null);
            set_default(condition, "lastTransitionTime", Value::Null);
        }
    }

    fn prepare_create(
        &self,
        context: &mut WriteContext<'_, '_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        pod_admission::admit(context, object)
    }

    fn prepare_update(
        &self,
        _context: &mut WriteContext<'_, '_>,
        object: &mut Value,
        old: &Value,
        part: Part,
    ) -> Result<(), ApiError> {
        if part == Part::Main {
            pod_admission::tolerate_outages(&mut object["spec"]);
        }
        let qos = old["status"]["qosClass"].clone();
        meta::set_part(&mut object["status"], "qosClass", qos);
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate(&object["spec"])
    }

    fn validate_update(&self, object: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        if part == Part::Status { Vec::new() } else { validate_update(object, old) }
    }

    fn delete(&self, object: &mut Value, asked: Option<i64>) -> Result<Deletion, ApiError> {
        let spec = &object["spec"];
        let finished = matches!(text(&object["status"], "phase"), "Succeeded" | "Failed");
        if text(spec, "nodeName").is_empty() || finished {
            return Ok(Deletion::Grace(0));
        }
        let own = spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let seconds = asked.unwrap_or(own);
        Ok(Deletion::Grace(if seconds < 0 { 1 } else { seconds }))
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        pod_table::cells(object)
    }
}

pub(super) fn default_spec(spec: &mut Value) {
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
    ] {
        set_default(spec, field, value);
    }
    let host_network = spec["hostNetwork"] == true;
    for field in CONTAINERS {
        for container in each_mut(spec, field) {
            default_container(container, host_network);
        }
    }
    for volume in each_mut(spec, "volumes") {
        default_volume(volume);
    }
}

fn default_container(container: &mut Value, host_network: bool) {
    let image = text(container, "image");
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    let policy = if tag.is_none_or(|tag| tag == "latest") { "Always" } else { "IfNotPresent" };
    for (field, value) in [
        ("imagePullPolicy", json!(policy)),
        ("resources", json!({})),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
    ] {
        set_default(container, field, value);
    }
    for port in each_mut(container, "ports") {
        set_default(port, "protocol", json!("TCP"));
        if host_network {
            let number = port["containerPort"].clone();
            set_default(port, "hostPort", number);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe) else { continue };
        for (field, value) in [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ] {
            set_default(probe, field, json!(value));
        }
        if let Some(get) = probe.get_mut("httpGet") {
            set_default(get, "path", json!("/"));
            set_default(get, "scheme", json!("HTTP"));
        }
    }
    for variable in each_mut(container, "env") {
        if let Some(source) = variable.get_mut("valueFrom").and_then(|v| v.get_mut("fieldRef")) {
            set_default(source, "apiVersion", json!("v1"));
        }
    }
    let resources = &mut container["resources"];
    if let Some(limits) = resources["limits"].as_object().cloned() {
        set_default(resources, "requests", json!({}));
        for (name, amount) in limits {
            set_default(&mut resources["requests"], &name, amount);
        }
    } else {
        meta::set_part(resources, "limits", Value::Null);
    }
}

fn default_volume(volume: &mut Value) {
    for source in ["secret", "configMap", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(source) {
            set_default(source, "defaultMode", json!(420));
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        set_default(path, "type", json!(""));
    }
    if volume.as_object().is_some_and(|fields| fields.len() == 1) {
        set_default(volume, "emptyDir", json!({}));
    }
}

pub(super) fn validate(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes: Vec<&str> = each(spec, "volumes").map(|volume| text(volume, "name")).collect();
    for (index, name) in volumes.iter().enumerate() {
        let field = format!("spec.volumes[{index}].name");
        check_name(&mut errors, &field, name, &volumes[..index]);
    }
    if each(spec, "containers").next().is_none() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for list in CONTAINERS {
        for (index, container) in each(spec, list).enumerate() {
            let at = format!("spec.{list}[{index}]");
            check_name(&mut errors, &format!("{at}.name"), text(container, "name"), &names);
            names.push(text(container, "name"));
            validate_container(&mut errors, &at, container, &volumes);
        }
    }
    let policies = ["Always", "OnFailure", "Never"];
    one_of(&mut errors, "spec.restartPolicy", text(spec, "restartPolicy"), &policies);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(&mut errors, "spec.dnsPolicy", text(spec, "dnsPolicy"), &policies);
    errors
}

fn check_name(errors: &mut Vec<FieldError>, field: &str, name: &str, taken: &[&str]) {
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if let Some(why) = apiserver::objects::label_problem(name) {
        errors.push(FieldError::invalid(field, name, why));
    } else if taken.contains(&name) {
        errors.push(FieldError::duplicate(field, name));
    }
}

fn validate_container(errors: &mut Vec<FieldError>, at: &str, container: &Value, volumes: &[&str]) {
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(&format!("{at}.image"), ""));
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    let field = format!("{at}.imagePullPolicy");
    one_of(errors, &field, text(container, "imagePullPolicy"), &policies);
    for (index, port) in each(container, "ports").enumerate() {
        let at = format!("{at}.ports[{index}]");
        if port["containerPort"].is_null() {
            errors.push(FieldError::required(&format!("{at}.containerPort"), ""));
        }
        port_in_range(errors, &format!("{at}.containerPort"), &port["containerPort"]);
        port_in_range(errors, &format!("{at}.hostPort"), &port["hostPort"]);
        let protocols = ["SCTP", "TCP", "UDP"];
        one_of(errors, &format!("{at}.protocol"), text(port, "protocol"), &protocols);
    }
    for (index, variable) in each(container, "env").enumerate() {
        if text(variable, "name").is_empty() {
            errors.push(FieldError::required(&format!("{at}.env[{index}].name"), ""));
        }
    }
    for (index, mount) in each(container, "volumeMounts").enumerate() {
        let name = text(mount, "name");
        if !volumes.contains(&name) {
            errors.push(FieldError::not_found(&format!("{at}.volumeMounts[{index}].name"), name));
        }
        if text(mount, "mountPath").is_empty() {
            let field = format!("{at}.volumeMounts[{index}].mountPath");
            errors.push(FieldError::required(&field, ""));
        }
    }
}

fn validate_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (&object["spec"], &old["spec"]);
    for list in ["containers", "initContainers"] {
        let names = |spec| each(spec, list).map(|c| text(c, "name")).collect::<Vec<_>>();
        if names(new).len() != names(old).len() {
            let field = format!("spec.{list}");
            let why = "pod updates may not add or remove containers";
            return vec![FieldError::forbidden(&field, why)];
        }
    }
    let mut rest = new.clone();
    for field in ["activeDeadlineSeconds", "terminationGracePeriodSeconds"] {
        let negative = old[field].as_i64().is_some_and(|seconds| seconds < 0);
        if field == "activeDeadlineSeconds" || (negative && new[field] == 1) {
            meta::set_part(&mut rest, field, old[field].clone());
        }
    }
    let kept = |taint| each(new, "tolerations").any(|own| own == taint);
    if each(old, "tolerations").all(kept) {
        meta::set_part(&mut rest, "tolerations", old["tolerations"].clone());
    }
    for list in ["containers", "initContainers"] {
        for (container, before) in each_mut(&mut rest, list).zip(each(old, list)) {
            container["image"] = before["image"].clone();
        }
    }
    if rest == *old {
        return Vec::new();
    }
    let changed: Vec<String> = rest
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, value)| old[name.as_str()] != **value)
        .map(|(name, _)| name.clone())
        .collect();
    vec![FieldError::forbidden(
        "spec",
        &format!(
            "pod updates may not change fields other than \
             `spec.containers[*].image`,`spec.initContainers[*].image`,\
             `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
             tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
             previously negative)\nchanged: {}",
            changed.join(", ")
        ),
    )]
}

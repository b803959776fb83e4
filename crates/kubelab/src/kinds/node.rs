//! Nodes.

use apiserver::meta;
use apiserver::resource::{Part, Strategy, WriteContext};
use apiserver::status::{ApiError, FieldError};
use apiserver::table::age;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::util::{each, each_mut, or_none, set_default, text};

/// Taint of a node that is not ready.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Taint of a node of which nobody knows whether it is ready.
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

pub(super) struct Rules;

impl Strategy for Rules {
    fn default(&self, object: &mut Value) {
        set_default(object, "spec", json!({}));
        set_default(object, "status", json!({}));
        let spec = &mut object["spec"];
        let (one, many) = (spec["podCIDR"].clone(), spec["podCIDRs"].clone());
        if one.is_string() && !many.is_array() {
            spec["podCIDRs"] = json!([one]);
        } else if !one.is_string() && many[0].is_string() {
            spec["podCIDR"] = many[0].clone();
        }
        let status = &mut object["status"];
        set_default(status, "daemonEndpoints", json!({}));
        set_default(&mut status["daemonEndpoints"], "kubeletEndpoint", json!({ "Port": 0 }));
        set_default(status, "nodeInfo", json!({}));
        for field in [
            "machineID",
            "systemUUID",
            "bootID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeletVersion",
            "kubeProxyVersion",
            "operatingSystem",
            "architecture",
        ] {
            set_default(&mut status["nodeInfo"], field, json!(""));
        }
        if status["capacity"].is_object() {
            let capacity = status["capacity"].clone();
            set_default(status, "allocatable", capacity);
        }
        for condition in each_mut(status, "conditions") {
            set_default(condition, "lastHeartbeatTime", Value::Null);
            set_default(condition, "lastTransitionTime", Value::Null);
        }
    }

    fn prepare_create(
        &self,
        _context: &mut WriteContext<'_, '_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let spec = &mut object["spec"];
        set_default(spec, "taints", json!([]));
        let known = each(spec, "taints").any(|taint| text(taint, "key") == NOT_READY);
        if !known && let Some(taints) = spec["taints"].as_array_mut() {
            taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object["spec"];
        let mut families = Vec::new();
        for (index, range) in each(spec, "podCIDRs").enumerate() {
            let range = range.as_str().unwrap_or("");
            match range.parse::<IpNet>() {
                Ok(net) => families.push(net.addr().is_ipv4()),
                Err(_) => errors.push(FieldError::invalid(
                    &format!("spec.podCIDRs[{index}]"),
                    range,
                    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                )),
            }
        }
        let both = families.contains(&true) && families.contains(&false);
        if families.len() > 2 || (families.len() == 2 && !both) {
            let why = "may specify no more than one CIDR for each IP family";
            errors.push(FieldError::invalid("spec.podCIDRs", &spec["podCIDRs"], why));
        }
        for (index, taint) in each(spec, "taints").enumerate() {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            let effect = text(taint, "effect");
            if !effects.contains(&effect) {
                let field = format!("spec.taints[{index}].effect");
                errors.push(FieldError::unsupported(&field, effect, &effects));
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value, _part: Part) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let before = &old["spec"]["podCIDRs"];
        if before.is_array() && object["spec"]["podCIDRs"] != *before {
            let why = "node updates may not change podCIDR except from \"\" to valid";
            errors.push(FieldError::forbidden("spec.podCIDRs", why));
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let status = &object["status"];
        let ready = each(status, "conditions").find(|c| text(c, "type") == "Ready");
        let mut state = match ready.map(|condition| text(condition, "status")) {
            Some("True") => "Ready".to_owned(),
            Some(_) => "NotReady".to_owned(),
            None => "Unknown".to_owned(),
        };
        if object["spec"]["unschedulable"] == true {
            state.push_str(",SchedulingDisabled");
        }
        let roles: Vec<&str> = object["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/"))
            .collect();
        let address = |kind: &str| {
            let found = each(status, "addresses").find(|a| text(a, "type") == kind);
            or_none(found.map_or("", |address| text(address, "address")))
        };
        let info = |field: &str| match text(&status["nodeInfo"], field) {
            "" => "<unknown>".to_owned(),
            known => known.to_owned(),
        };
        vec![
            json!(meta::name(object)),
            json!(state),
            json!(or_none(&roles.join(","))),
            age(object),
            json!(text(&status["nodeInfo"], "kubeletVersion")),
            json!(address("InternalIP")),
            json!(address("ExternalIP")),
            json!(info("osImage")),
            json!(info("kernelVersion")),
            json!(info("containerRuntimeVersion")),
        ]
    }
}

//! Leases, Endpoints and EndpointSlices.

use apiserver::meta;
use apiserver::resource::{Part, Strategy};
use apiserver::status::FieldError;
use apiserver::table::age;
use serde_json::{Value, json};

use super::util::{each, each_mut, is_ip, one_of, or_none, port_in_range, set_default, text};

pub(super) struct LeaseRules;

impl Strategy for LeaseRules {
    fn default(&self, object: &mut Value) {
        set_default(object, "spec", json!({}));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object["spec"];
        if let Some(seconds) = spec["leaseDurationSeconds"].as_i64()
            && seconds <= 0
        {
            let field = "spec.leaseDurationSeconds";
            errors.push(FieldError::invalid(field, seconds, "must be greater than 0"));
        }
        if let Some(count) = spec["leaseTransitions"].as_i64()
            && count < 0
        {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid("spec.leaseTransitions", count, why));
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let holder = text(&object["spec"], "holderIdentity");
        vec![json!(meta::name(object)), json!(holder), age(object)]
    }
}

pub(super) struct EndpointsRules;

impl Strategy for EndpointsRules {
    fn default(&self, object: &mut Value) {
        for subset in each_mut(object, "subsets") {
            for port in each_mut(subset, "ports") {
                set_default(port, "protocol", json!("TCP"));
            }
        }
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let mut all = Vec::new();
        for subset in each(object, "subsets") {
            for address in each(subset, "addresses") {
                for port in each(subset, "ports") {
                    all.push(format!("{}:{}", text(address, "ip"), port["port"]));
                }
            }
        }
        vec![json!(meta::name(object)), json!(first_three(&all)), age(object)]
    }
}

fn first_three(all: &[String]) -> String {
    match all.len() {
        0 => "<none>".to_owned(),
        1..=3 => all.join(","),
        many => format!("{} + {} more...", all[..3].join(","), many - 3),
    }
}

pub(super) struct SliceRules;

impl Strategy for SliceRules {
    fn default(&self, object: &mut Value) {
        for port in each_mut(object, "ports") {
            set_default(port, "protocol", json!("TCP"));
            set_default(port, "name", json!(""));
        }
        for field in ["endpoints", "ports"] {
            set_default(object, field, json!([]));
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let kind = text(object, "addressType");
        if kind.is_empty() {
            errors.push(FieldError::required("addressType", ""));
        }
        one_of(&mut errors, "addressType", kind, &["IPv4", "IPv6", "FQDN"]);
        for (index, endpoint) in each(object, "endpoints").enumerate() {
            let field = format!("endpoints[{index}].addresses");
            if each(endpoint, "addresses").next().is_none() {
                errors.push(FieldError::required(&field, "must contain at least 1 address"));
            }
            for (at, address) in each(endpoint, "addresses").enumerate() {
                let address = address.as_str().unwrap_or("");
                let fits = match kind {
                    "IPv4" => is_ip(address) && !address.contains(':'),
                    "IPv6" => is_ip(address) && address.contains(':'),
                    _ => true,
                };
                if !fits {
                    let why = "must be a valid IP address of the slice's family";
                    errors.push(FieldError::invalid(&format!("{field}[{at}]"), address, why));
                }
            }
        }
        for (index, port) in each(object, "ports").enumerate() {
            port_in_range(&mut errors, &format!("ports[{index}].port"), &port["port"]);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value, _part: Part) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if object["addressType"] != old["addressType"] {
            let value = &object["addressType"];
            errors.push(FieldError::invalid("addressType", value, "field is immutable"));
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let ports: Vec<String> = each(object, "ports").map(|p| p["port"].to_string()).collect();
        let addresses: Vec<String> = each(object, "endpoints")
            .flat_map(|endpoint| each(endpoint, "addresses"))
            .filter_map(|address| address.as_str().map(str::to_owned))
            .collect();
        vec![
            json!(meta::name(object)),
            object["addressType"].clone(),
            json!(or_none(&ports.join(","))),
            json!(first_three(&addresses)),
            age(object),
        ]
    }
}

//! NetworkPolicies of networking.k8s.io.

use apiserver::meta;
use apiserver::resource::Strategy;
use apiserver::status::FieldError;
use apiserver::table::age;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::util::{each, each_mut, one_of, or_none, port_in_range, set_default, text};

pub(super) struct Rules;

/// The two directions, with the field of their peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

impl Strategy for Rules {
    fn default(&self, object: &mut Value) {
        set_default(object, "spec", json!({}));
        let spec = &mut object["spec"];
        set_default(spec, "podSelector", json!({}));
        for (direction, _) in DIRECTIONS {
            for rule in each_mut(spec, direction) {
                for port in each_mut(rule, "ports") {
                    set_default(port, "protocol", json!("TCP"));
                }
            }
        }
        let both = each(spec, "egress").next().is_some();
        let types = if both { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        set_default(spec, "policyTypes", types);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object["spec"];
        for (n, kind) in each(spec, "policyTypes").enumerate() {
            let field = format!("spec.policyTypes[{n}]");
            one_of(&mut errors, &field, kind.as_str().unwrap_or(""), &["Egress", "Ingress"]);
        }
        for (direction, peers) in DIRECTIONS {
            for (n, rule) in each(spec, direction).enumerate() {
                let at = format!("spec.{direction}[{n}]");
                for (n, port) in each(rule, "ports").enumerate() {
                    check_port(&mut errors, &format!("{at}.ports[{n}]"), port);
                }
                for (n, peer) in each(rule, peers).enumerate() {
                    check_peer(&mut errors, &format!("{at}.{peers}[{n}]"), peer);
                }
            }
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let selector = &object["spec"]["podSelector"];
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let mut parts: Vec<String> =
            labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect();
        for expression in each(selector, "matchExpressions") {
            let values: Vec<&str> = each(expression, "values").filter_map(Value::as_str).collect();
            let (key, values) = (text(expression, "key"), values.join(","));
            parts.push(match text(expression, "operator") {
                "Exists" => key.to_owned(),
                "DoesNotExist" => format!("!{key}"),
                operator => format!("{key} {} ({values})", operator.to_lowercase()),
            });
        }
        vec![json!(meta::name(object)), json!(or_none(&parts.join(","))), age(object)]
    }
}

fn check_port(errors: &mut Vec<FieldError>, at: &str, port: &Value) {
    one_of(errors, &format!("{at}.protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
    port_in_range(errors, &format!("{at}.port"), &port["port"]);
    let field = format!("{at}.endPort");
    let Some(end) = port["endPort"].as_i64() else { return };
    port_in_range(errors, &field, &port["endPort"]);
    match port["port"].as_i64() {
        Some(start) if end < start => {
            let why = "must be greater than or equal to `port`";
            errors.push(FieldError::invalid(&field, end, why));
        }
        Some(_) => {}
        None => {
            let why = "may not be specified when `port` is non-numeric or not specified";
            errors.push(FieldError::invalid(&field, end, why));
        }
    }
}

fn check_peer(errors: &mut Vec<FieldError>, at: &str, peer: &Value) {
    let selects = peer["podSelector"].is_object() || peer["namespaceSelector"].is_object();
    let block = &peer["ipBlock"];
    if !block.is_object() {
        if !selects {
            errors.push(FieldError::required(at, "must specify a peer"));
        }
        return;
    }
    if selects {
        errors.push(FieldError::forbidden(at, "may not specify both ipBlock and another peer"));
    }
    let field = format!("{at}.ipBlock.cidr");
    let Ok(range) = text(block, "cidr").parse::<IpNet>() else {
        let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        errors.push(FieldError::invalid(&field, text(block, "cidr"), why));
        return;
    };
    for (n, except) in each(block, "except").enumerate() {
        let except = except.as_str().unwrap_or("");
        let inside = except
            .parse::<IpNet>()
            .is_ok_and(|inner| range.contains(&inner) && inner.prefix_len() > range.prefix_len());
        if !inside {
            let why = "must be a strict subset of `cidr`";
            errors.push(FieldError::invalid(&format!("{at}.ipBlock.except[{n}]"), except, why));
        }
    }
}

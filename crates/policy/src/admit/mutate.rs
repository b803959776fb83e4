//! What is filled in: the tier of a policy, and the names of its rules.

use apis::policy::DEFAULT_TIER;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};

/// The JSON patch for a policy of Antrea's; `None` if nothing is missing.
pub fn mutate_policy(object: &Value) -> Option<Value> {
    let mut patch = Vec::new();
    let mut set = |path: String, present: bool, value: Value| {
        let op = if present { "replace" } else { "add" };
        patch.push(json!({"op": op, "path": path, "value": value}));
    };
    let spec = object.get("spec")?;
    if spec["tier"].as_str().unwrap_or_default().is_empty() {
        set("/spec/tier".into(), spec.get("tier").is_some(), json!(DEFAULT_TIER));
    }
    for direction in ["ingress", "egress"] {
        for (n, rule) in spec[direction].as_array().into_iter().flatten().enumerate() {
            if rule["name"].as_str().unwrap_or_default().is_empty() {
                let path = format!("/spec/{direction}/{n}/name");
                set(path, rule.get("name").is_some(), json!(rule_name(direction, rule)));
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Array(patch))
}

/// A name that is a function of what the rule says.
fn rule_name(direction: &str, rule: &Value) -> String {
    let action = rule["action"].as_str().unwrap_or_default().to_lowercase();
    let hash = Sha1::digest(rule.to_string());
    let digits: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{direction}-{action}-{}", &digits[..7])
}

//! Authorization by Roles and their bindings, read from the store.
//!
//! `system:masters` may do everything. Rules only allow; what none allows is refused.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::authz::{Attributes, Authorizer, Decision, Target};
use crate::meta;
use crate::selector::LabelSelector;
use crate::status::ApiError;
use crate::store::{Store, Stored, key, prefix};
use crate::user::{MASTERS, User};

/// API group of the role kinds.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Judges by the roles of a store.
pub struct Rbac {
    store: Arc<Store>,
}

/// A binding that applies to a user, with the rules of its role.
struct Grant {
    binding: Stored,
    rules: Vec<Value>,
    subject: Value,
}

impl Rbac {
    /// Judges by the roles of `store`.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// Judges one act.
    pub fn decide(&self, act: &Attributes) -> Decision {
        if act.user.in_group(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        let namespace = match &act.object {
            Target::Resource { namespace, .. } => namespace.as_str(),
            Target::Path(_) => "",
        };
        for grant in self.grants(&act.user, namespace) {
            if grant.rules.iter().any(|rule| allows(rule, act)) {
                return Decision { allowed: true, reason: reason(&grant) };
            }
        }
        Decision { allowed: false, reason: String::new() }
    }

    /// All rules that hold for a user in a namespace.
    pub fn rules(&self, user: &User, namespace: &str) -> Vec<Value> {
        let grants = self.grants(user, namespace);
        let mut rules: Vec<Value> = grants.into_iter().flat_map(|grant| grant.rules).collect();
        if user.in_group(MASTERS) {
            rules.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
            rules.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        }
        rules
    }

    fn grants(&self, user: &User, namespace: &str) -> Vec<Grant> {
        let mut bindings = self.list("clusterrolebindings", "");
        if !namespace.is_empty() {
            bindings.extend(self.list("rolebindings", &prefix(namespace)));
        }
        let mut grants = Vec::new();
        for binding in bindings {
            let empty = Vec::new();
            let subjects = binding.value()["subjects"].as_array().unwrap_or(&empty);
            let own_namespace = meta::namespace(binding.value());
            let Some(subject) = subjects.iter().find(|s| is_subject(s, user, own_namespace)) else {
                continue;
            };
            let subject = subject.clone();
            let role = &binding.value()["roleRef"];
            let rules = self.rules_of(role, own_namespace);
            grants.push(Grant { binding, rules, subject });
        }
        grants
    }

    fn list(&self, plural: &str, prefix: &str) -> Vec<Stored> {
        self.store.list(&format!("{GROUP}/{plural}"), prefix).1
    }

    fn rules_of(&self, role: &Value, namespace: &str) -> Vec<Value> {
        let name = role["name"].as_str().unwrap_or("");
        let found = match role["kind"].as_str() {
            Some("ClusterRole") => self.store.get(&format!("{GROUP}/clusterroles"), name),
            Some("Role") => self.store.get(&format!("{GROUP}/roles"), &key(namespace, name)),
            _ => None,
        };
        let Some(found) = found else { return Vec::new() };
        let mut rules = list(&found.value()["rules"]);
        let selectors = list(&found.value()["aggregationRule"]["clusterRoleSelectors"]);
        if !selectors.is_empty() {
            for other in self.list("clusterroles", "") {
                let chosen = selectors.iter().any(|s| selects(s, other.value()));
                if chosen && meta::name(other.value()) != name {
                    rules.extend(list(&other.value()["rules"]));
                }
            }
        }
        rules
    }
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Whether a label selector in object form selects an object.
pub fn selects(selector: &Value, object: &Value) -> bool {
    let mut terms = Vec::new();
    for (name, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        terms.push(format!("{name}={}", value.as_str().unwrap_or("")));
    }
    for expression in list(&selector["matchExpressions"]) {
        let name = expression["key"].as_str().unwrap_or("");
        let values: Vec<String> = list(&expression["values"])
            .iter()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect();
        let values = values.join(",");
        terms.push(match expression["operator"].as_str().unwrap_or("") {
            "In" => format!("{name} in ({values})"),
            "NotIn" => format!("{name} notin ({values})"),
            "Exists" => name.to_owned(),
            "DoesNotExist" => format!("!{name}"),
            _ => return false,
        });
    }
    LabelSelector::parse(&terms.join(",")).is_ok_and(|selector| selector.matches(object))
}

fn is_subject(subject: &Value, user: &User, binding_namespace: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or("");
    match subject["kind"].as_str().unwrap_or("") {
        "User" => name == "*" || name == user.username,
        "Group" => user.in_group(name),
        "ServiceAccount" => {
            let namespace = subject["namespace"].as_str().unwrap_or(binding_namespace);
            !namespace.is_empty() && User::service_account_name(namespace, name) == user.username
        }
        _ => false,
    }
}

fn contains(list: &Value, wanted: impl Fn(&str) -> bool) -> bool {
    list.as_array().is_some_and(|items| items.iter().filter_map(Value::as_str).any(wanted))
}

/// Whether a rule allows an act.
pub fn allows(rule: &Value, act: &Attributes) -> bool {
    if !contains(&rule["verbs"], |verb| verb == "*" || verb == act.verb) {
        return false;
    }
    match &act.object {
        Target::Path(path) => contains(&rule["nonResourceURLs"], |url| {
            url == "*" || url == path || url.strip_suffix('*').is_some_and(|p| path.starts_with(p))
        }),
        Target::Resource { group, resource, subresource, name, .. } => {
            let full = match subresource.as_str() {
                "" => resource.clone(),
                subresource => format!("{resource}/{subresource}"),
            };
            contains(&rule["apiGroups"], |own| own == "*" || own == group)
                && contains(&rule["resources"], |own| {
                    own == "*"
                        || own == full
                        || (!subresource.is_empty() && own == format!("*/{subresource}"))
                })
                && match rule["resourceNames"].as_array() {
                    None => true,
                    Some(names) => names.is_empty() || names.iter().any(|own| own == name),
                }
        }
    }
}

fn reason(grant: &Grant) -> String {
    let binding = grant.binding.value();
    let kind = binding["kind"].as_str().unwrap_or("");
    let namespace = meta::namespace(binding);
    let name = match namespace {
        "" => meta::name(binding).to_owned(),
        namespace => format!("{}/{namespace}", meta::name(binding)),
    };
    let role = &binding["roleRef"];
    let subject = &grant.subject;
    let who = match subject["kind"].as_str().unwrap_or("") {
        "ServiceAccount" => {
            let namespace = subject["namespace"].as_str().unwrap_or(namespace);
            format!("{}/{namespace}", subject["name"].as_str().unwrap_or(""))
        }
        _ => subject["name"].as_str().unwrap_or("").to_owned(),
    };
    format!(
        "RBAC: allowed by {kind} {name:?} of {} {:?} to {} {who:?}",
        role["kind"].as_str().unwrap_or(""),
        role["name"].as_str().unwrap_or(""),
        subject["kind"].as_str().unwrap_or(""),
    )
}

impl Authorizer for Rbac {
    fn authorize<'a>(&'a self, act: &'a Attributes) -> BoxFuture<'a, Result<Decision, ApiError>> {
        let decision = self.decide(act);
        Box::pin(async move { Ok(decision) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_act(verb: &str, resource: &str, name: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes {
            user: User::new("alice", ["dev"]),
            verb: verb.to_owned(),
            object: Target::Resource {
                group: String::new(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                namespace: "ns".to_owned(),
                name: name.to_owned(),
            },
        }
    }

    #[test]
    fn rules_allow_what_they_name_and_nothing_else() {
        for (rule, act, want) in [
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
                mk_act("get", "pods", "p"),
                true,
            ),
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
                mk_act("list", "pods", ""),
                false,
            ),
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
                mk_act("get", "pods/status", "p"),
                false,
            ),
            (
                json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
                mk_act("patch", "pods/status", "p"),
                true,
            ),
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*/status"]}),
                mk_act("get", "pods/status", "p"),
                true,
            ),
            (
                json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["pods"]}),
                mk_act("get", "pods", "p"),
                false,
            ),
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}),
                mk_act("get", "pods", "p"),
                true,
            ),
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}),
                mk_act("get", "pods", "q"),
                false,
            ),
            (
                json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}),
                mk_act("list", "pods", ""),
                false,
            ),
            (
                json!({"verbs": ["get"], "nonResourceURLs": ["*"]}),
                mk_act("get", "pods", "p"),
                false,
            ),
        ] {
            assert_eq!(allows(&rule, &act), want, "{rule} {act:?}");
        }
        let mut act = mk_act("get", "pods", "");
        act.object = Target::Path("/metrics/x".to_owned());
        for (urls, want) in [(["/metrics"], false), (["/metrics/*"], true), (["*"], true)] {
            assert_eq!(allows(&json!({"verbs": ["get"], "nonResourceURLs": urls}), &act), want);
        }
    }

    #[test]
    fn bindings_reach_users_groups_and_service_accounts() {
        let store = Arc::new(Store::new(10));
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        store.write(|tx| {
            tx.put(&format!("{GROUP}/roles"), "ns/r", json!({"metadata": {"name": "r", "namespace": "ns"}, "rules": [rule]}));
            tx.put(&format!("{GROUP}/rolebindings"), "ns/b", json!({
                "kind": "RoleBinding", "metadata": {"name": "b", "namespace": "ns"},
                "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [{"kind": "Group", "name": "dev"}, {"kind": "ServiceAccount", "name": "sa"}],
            }));
        });
        let rbac = Rbac::new(store);
        let mut act = mk_act("get", "pods", "p");
        assert_eq!(
            rbac.decide(&act).reason,
            "RBAC: allowed by RoleBinding \"b/ns\" of Role \"r\" to Group \"dev\""
        );
        act.user = User::new("system:serviceaccount:ns:sa", ["x"]);
        assert!(rbac.decide(&act).allowed);
        act.user = User::new("system:serviceaccount:other:sa", ["x"]);
        assert!(!rbac.decide(&act).allowed);
        act.user = User::new("root", [MASTERS]);
        assert!(rbac.decide(&act).allowed);
    }
}

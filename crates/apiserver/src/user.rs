//! Who makes a request.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// An authenticated (or anonymous) caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct User {
    /// User name, as `system:serviceaccount:kube-system:antrea-agent`.
    pub username: String,
    /// Identifier that survives no re-creation; empty when unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups, in the order in which they were established.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Further facts, as the node a token is bound to.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Group of callers who may do everything.
pub const MASTERS: &str = "system:masters";
/// Group of all who proved who they are.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of all who did not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

impl User {
    /// A caller known by name and groups; `system:authenticated` is added.
    pub fn new<G: Into<String>>(
        username: impl Into<String>,
        groups: impl IntoIterator<Item = G>,
    ) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { username: username.into(), groups, ..Self::default() }
    }

    /// A caller who showed no credentials.
    pub fn anonymous() -> Self {
        Self {
            username: "system:anonymous".to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Whether the caller belongs to `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// First value of an extra key.
    pub fn extra_value(&self, key: &str) -> Option<&str> {
        self.extra.get(key).and_then(|values| values.first()).map(String::as_str)
    }

    /// The node that the caller's token is bound to.
    pub fn node(&self) -> Option<&str> {
        self.extra_value("authentication.kubernetes.io/node-name")
    }

    /// Name and UID of the Pod that the caller's token is bound to.
    pub fn pod(&self) -> Option<(&str, &str)> {
        let name = self.extra_value("authentication.kubernetes.io/pod-name")?;
        Some((name, self.extra_value("authentication.kubernetes.io/pod-uid")?))
    }

    /// Reads the `userInfo` of reviews; what is not there stays empty.
    pub fn from_json(value: &Value) -> Self {
        let text = |field: &str| value[field].as_str().unwrap_or("").to_owned();
        let texts = |value: &Value| -> Vec<String> {
            let all = value.as_array().into_iter().flatten();
            all.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        let extra = value["extra"].as_object().into_iter().flatten();
        Self {
            username: text("username"),
            uid: text("uid"),
            groups: texts(&value["groups"]),
            extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
        }
    }

    /// The user name of a ServiceAccount.
    pub fn service_account_name(namespace: &str, name: &str) -> String {
        format!("system:serviceaccount:{namespace}:{name}")
    }
}

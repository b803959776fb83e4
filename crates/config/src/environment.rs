//! What the programs take from environment variables.

use std::collections::BTreeMap;

/// Values of the environment variables that agent and controller know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `NODE_NAME`; without it the host's name is taken.
    pub node_name: Option<String>,
    /// `POD_NAME`.
    pub pod_name: Option<String>,
    /// `POD_NAMESPACE`.
    pub pod_namespace: String,
    /// `SERVICEACCOUNT_NAME`, of the controller.
    pub service_account_name: Option<String>,
    /// `ANTREA_CONFIG_MAP_NAME`.
    pub config_map_name: Option<String>,
    /// `KUBE_DNS_SERVICE_HOST` and `KUBE_DNS_SERVICE_PORT`.
    pub kube_dns: Option<(String, u16)>,
    /// `ANTREA_CLOUD_EKS` is `true`.
    pub cloud_eks: bool,
    /// `ALLOW_NO_ENCAP_WITHOUT_ANTREA_PROXY` is `true`.
    pub allow_no_encap_without_antrea_proxy: bool,
}

impl Environment {
    /// Namespace of the Pods when nothing says otherwise.
    pub const DEFAULT_NAMESPACE: &str = "kube-system";

    /// Reads from variables by name; empty ones count as absent.
    pub fn from_map(variables: &BTreeMap<String, String>) -> Self {
        let get = |name: &str| variables.get(name).filter(|v| !v.is_empty()).cloned();
        let is_true = |name: &str| get(name).is_some_and(|v| v.eq_ignore_ascii_case("true"));
        let dns_port = get("KUBE_DNS_SERVICE_PORT").and_then(|p| p.parse().ok()).unwrap_or(53);
        Self {
            node_name: get("NODE_NAME"),
            pod_name: get("POD_NAME"),
            pod_namespace: get("POD_NAMESPACE").unwrap_or_else(|| Self::DEFAULT_NAMESPACE.into()),
            service_account_name: get("SERVICEACCOUNT_NAME"),
            config_map_name: get("ANTREA_CONFIG_MAP_NAME"),
            kube_dns: get("KUBE_DNS_SERVICE_HOST").map(|host| (host, dns_port)),
            cloud_eks: is_true("ANTREA_CLOUD_EKS"),
            allow_no_encap_without_antrea_proxy: is_true("ALLOW_NO_ENCAP_WITHOUT_ANTREA_PROXY"),
        }
    }

    /// Reads the process' own variables; ones that are no UTF-8 count as absent.
    pub fn from_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
            .collect();
        Self::from_map(&variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables() {
        let map = [("NODE_NAME", "n1"), ("POD_NAME", ""), ("KUBE_DNS_SERVICE_HOST", "10.96.0.10")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let env = Environment::from_map(&map);
        assert_eq!(env.node_name.as_deref(), Some("n1"));
        assert_eq!(env.pod_name, None);
        assert_eq!(env.pod_namespace, "kube-system");
        assert_eq!(env.kube_dns, Some(("10.96.0.10".into(), 53)));
    }
}

//! The controller's configuration: typed values of the keys that this version acts on.
//!
//! The value of any other key is in [`ControllerConfig::values`].

use std::path::PathBuf;

use ipnet::IpNet;

use crate::client_limit::ClientLimit;
use crate::error::{ConfigError, ConfigErrors};
use crate::gates::{FeatureGates, Gate};
use crate::key::Component;
use crate::reader::Reader;
use crate::values::Values;

/// How nodes get their Pod prefixes, when the controller gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIpamConfig {
    /// `nodeIPAM.clusterCIDRs`, one or two, of different families.
    pub cluster_cidrs: Vec<IpNet>,
    /// `nodeIPAM.serviceCIDR` and `nodeIPAM.serviceCIDRv6`, never given to a node.
    pub service_cidrs: Vec<IpNet>,
    /// `nodeIPAM.nodeCIDRMaskSizeIPv4`.
    pub mask_size_v4: u8,
    /// `nodeIPAM.nodeCIDRMaskSizeIPv6`.
    pub mask_size_v6: u8,
}

/// Configuration of antrea-controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    /// `featureGates`.
    pub gates: FeatureGates,
    /// `clientConnection.kubeconfig`; none uses the Pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `clientConnection.qps` and `clientConnection.burst`.
    pub client_limit: ClientLimit,
    /// `kubeAPIServerOverride`.
    pub kube_api_server_override: Option<String>,
    /// `apiPort`.
    pub api_port: u16,
    /// `enablePrometheusMetrics`.
    pub enable_prometheus_metrics: bool,
    /// `nodeIPAM`, when enabled.
    pub node_ipam: Option<NodeIpamConfig>,
    /// Every key of the file.
    pub values: Values,
}

impl ControllerConfig {
    /// Reads antrea-controller.conf; an empty text gives all defaults.
    pub fn parse(text: &str) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let (values, gates) = Values::read(Component::Controller, text, &mut errors);
        let config = Self::from_values(values, gates);
        config.check(&mut errors);
        if errors.is_empty() { Ok(config) } else { Err(ConfigErrors(errors)) }
    }

    fn from_values(values: Values, gates: FeatureGates) -> Self {
        let read = Reader(&values);
        let node_ipam = read.flag("nodeIPAM.enableNodeIPAM").then(|| NodeIpamConfig {
            cluster_cidrs: read.cidrs("nodeIPAM.clusterCIDRs"),
            service_cidrs: ["nodeIPAM.serviceCIDR", "nodeIPAM.serviceCIDRv6"]
                .into_iter()
                .filter_map(|key| read.cidr(key))
                .collect(),
            mask_size_v4: read.byte("nodeIPAM.nodeCIDRMaskSizeIPv4"),
            mask_size_v6: read.byte("nodeIPAM.nodeCIDRMaskSizeIPv6"),
        });
        Self {
            gates,
            kubeconfig: read.optional("clientConnection.kubeconfig").map(Into::into),
            client_limit: read.client_limit(),
            kube_api_server_override: read.optional("kubeAPIServerOverride"),
            api_port: read.port("apiPort"),
            enable_prometheus_metrics: read.flag("enablePrometheusMetrics"),
            node_ipam,
            values,
        }
    }

    /// What no single key can say.
    fn check(&self, errors: &mut Vec<ConfigError>) {
        let mut conflict =
            |keys, reason: String| errors.push(ConfigError::Conflict { keys, reason });
        for (gate, keys) in [
            (
                Gate::ClusterNetworkPolicy,
                "featureGates.ClusterNetworkPolicy, featureGates.AntreaPolicy",
            ),
            (
                Gate::AdminNetworkPolicy,
                "featureGates.AdminNetworkPolicy, featureGates.AntreaPolicy",
            ),
        ] {
            if self.gates.configured(gate) && !self.gates.configured(Gate::AntreaPolicy) {
                conflict(keys, "the first needs the second".into());
            }
        }
        let Some(ipam) = &self.node_ipam else { return };
        if !self.gates.configured(Gate::NodeIPAM) {
            conflict("nodeIPAM.enableNodeIPAM, featureGates.NodeIPAM", "needs the gate".into());
        }
        let n_v4 = ipam.cluster_cidrs.iter().filter(|c| matches!(c, IpNet::V4(_))).count();
        let n_v6 = ipam.cluster_cidrs.len() - n_v4;
        if n_v4 + n_v6 == 0 || n_v4 > 1 || n_v6 > 1 {
            conflict(
                "nodeIPAM.clusterCIDRs",
                "one or two prefixes are needed, at most one of each family".into(),
            );
        }
        for cidr in &ipam.cluster_cidrs {
            let (length, mask, keys) = match cidr {
                IpNet::V4(_) => (
                    cidr.prefix_len(),
                    ipam.mask_size_v4,
                    "nodeIPAM.clusterCIDRs, nodeIPAM.nodeCIDRMaskSizeIPv4",
                ),
                IpNet::V6(_) => (
                    cidr.prefix_len(),
                    ipam.mask_size_v6,
                    "nodeIPAM.clusterCIDRs, nodeIPAM.nodeCIDRMaskSizeIPv6",
                ),
            };
            if mask < length {
                conflict(keys, format!("a node's /{mask} does not fit into {cidr}"));
            } else if mask - length > 16 {
                conflict(keys, format!("a node's /{mask} is more than 16 bits longer than {cidr}"));
            }
        }
        if let [first, second] = ipam.service_cidrs[..]
            && matches!(first, IpNet::V6(_)) == matches!(second, IpNet::V6(_))
        {
            conflict(
                "nodeIPAM.serviceCIDR, nodeIPAM.serviceCIDRv6",
                "both are of one family, dual-stack needs one of each".into(),
            );
        }
    }
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self::from_values(Values::defaults(Component::Controller), FeatureGates::default())
    }
}

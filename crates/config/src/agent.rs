//! The agent's configuration: typed values of the keys that this version acts on.
//!
//! The value of any other key is in [`AgentConfig::values`].

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use crate::client_limit::ClientLimit;
use crate::error::{ConfigError, ConfigErrors};
use crate::gates::{FeatureGates, Gate};
use crate::key::Component;
use crate::reader::Reader;
use crate::values::Values;

/// Which of OVS' datapaths the bridge uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatapathType {
    /// The kernel's.
    System,
    /// The one in ovs-vswitchd.
    Netdev,
    /// The kernel's where its module is there, else `netdev` where an uplink is marked for it.
    Auto,
}

/// How Pod traffic travels between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncapMode {
    /// In a tunnel, always.
    Encap,
    /// By the underlay's routes.
    NoEncap,
    /// In a tunnel only between subnets.
    Hybrid,
    /// By another CNI.
    NetworkPolicyOnly,
}

/// Encapsulation between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelType {
    /// Geneve, RFC 8926.
    Geneve,
    /// VXLAN, RFC 7348.
    Vxlan,
    /// GRE, RFC 2784.
    Gre,
    /// Stateless transport tunnelling.
    Stt,
}

impl TunnelType {
    /// Interface type in OVSDB, and the spelling in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Geneve => "geneve",
            Self::Vxlan => "vxlan",
            Self::Gre => "gre",
            Self::Stt => "stt",
        }
    }

    /// Port that the protocol's own registration names; GRE has none.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Self::Geneve => Some(6081),
            Self::Vxlan => Some(4789),
            Self::Stt => Some(7471),
            Self::Gre => None,
        }
    }

    /// Bytes that a packet grows by, outer IP header included, over an underlay of that address.
    pub fn overhead(self, underlay: IpAddr) -> u32 {
        let over_v4 = match self {
            Self::Geneve | Self::Vxlan => 50,
            Self::Gre => 42,
            Self::Stt => 54,
        };
        if underlay.is_ipv6() { over_v4 + 20 } else { over_v4 }
    }
}

/// `antreaProxy`: how Services are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// `enable`.
    pub enable: bool,
    /// `proxyAll`.
    pub proxy_all: bool,
    /// `nodePortAddresses`; empty means all.
    pub node_port_addresses: Vec<IpNet>,
    /// `skipServices`, each a cluster address or `namespace/name`.
    pub skip_services: Vec<String>,
    /// `proxyLoadBalancerIPs`.
    pub load_balancer_ips: bool,
    /// `serviceProxyName`.
    pub name: String,
    /// `defaultLoadBalancerMode` is `dsr`.
    pub direct_return: bool,
    /// `serviceHealthCheckServerBindAddress`; none where the server is disabled.
    pub health_address: Option<SocketAddr>,
    /// `disableServiceHealthCheckServer` is false.
    pub health_checks: bool,
}

/// Configuration of antrea-agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentConfig {
    /// `featureGates`.
    pub gates: FeatureGates,
    /// `cniSocket`.
    pub cni_socket: PathBuf,
    /// `clientConnection.kubeconfig`; none uses the Pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `clientConnection.qps` and `clientConnection.burst`.
    pub client_limit: ClientLimit,
    /// `kubeAPIServerOverride`.
    pub kube_api_server_override: Option<String>,
    /// `dnsServerOverride`.
    pub dns_server_override: Option<String>,
    /// `fqdnCacheMinTTL`, in seconds.
    pub fqdn_cache_min_ttl: u64,
    /// `ovsBridge`.
    pub ovs_bridge: String,
    /// `ovsDatapathType`.
    pub datapath_type: DatapathType,
    /// `ovsRunDir`.
    pub ovs_run_dir: PathBuf,
    /// `hostGateway`.
    pub host_gateway: String,
    /// `trafficEncapMode`.
    pub encap_mode: EncapMode,
    /// `noSNAT`.
    pub no_snat: bool,
    /// `tunnelType`.
    pub tunnel_type: TunnelType,
    /// `tunnelPort`; none takes the protocol's own.
    pub tunnel_port: Option<u16>,
    /// `tunnelCsum`.
    pub tunnel_csum: bool,
    /// `defaultMTU`; none takes the transport interface's less the tunnel's overhead.
    pub default_mtu: Option<u32>,
    /// `hostProcPathPrefix`; empty leaves paths as they are.
    pub host_proc_path_prefix: String,
    /// `disableTXChecksumOffload`.
    pub disable_tx_checksum_offload: bool,
    /// `apiPort`.
    pub api_port: u16,
    /// `enablePrometheusMetrics`.
    pub enable_prometheus_metrics: bool,
    /// `transportInterface`.
    pub transport_interface: Option<String>,
    /// `transportInterfaceCIDRs`.
    pub transport_interface_cidrs: Vec<IpNet>,
    /// `antreaProxy`.
    pub proxy: ProxyConfig,
    /// Every key of the file.
    pub values: Values,
}

impl AgentConfig {
    /// Reads antrea-agent.conf; an empty text gives all defaults.
    pub fn parse(text: &str) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let (values, gates) = Values::read(Component::Agent, text, &mut errors);
        let config = Self::from_values(values, gates);
        config.check(&mut errors);
        if errors.is_empty() { Ok(config) } else { Err(ConfigErrors(errors)) }
    }

    /// UDP or TCP port of the tunnel; GRE has none.
    pub fn effective_tunnel_port(&self) -> Option<u16> {
        match self.tunnel_type {
            TunnelType::Gre => None,
            kind => self.tunnel_port.or(kind.default_port()),
        }
    }

    fn from_values(values: Values, gates: FeatureGates) -> Self {
        let read = Reader(&values);
        Self {
            gates,
            cni_socket: read.text("cniSocket").into(),
            kubeconfig: read.optional("clientConnection.kubeconfig").map(Into::into),
            client_limit: read.client_limit(),
            kube_api_server_override: read.optional("kubeAPIServerOverride"),
            dns_server_override: read.optional("dnsServerOverride"),
            fqdn_cache_min_ttl: u64::try_from(read.int("fqdnCacheMinTTL")).unwrap_or(0),
            ovs_bridge: read.text("ovsBridge"),
            datapath_type: match read.text("ovsDatapathType").as_str() {
                "netdev" => DatapathType::Netdev,
                "auto" => DatapathType::Auto,
                _ => DatapathType::System,
            },
            ovs_run_dir: read.text("ovsRunDir").into(),
            host_gateway: read.text("hostGateway"),
            encap_mode: match read.text("trafficEncapMode").as_str() {
                "noEncap" => EncapMode::NoEncap,
                "hybrid" => EncapMode::Hybrid,
                "networkPolicyOnly" => EncapMode::NetworkPolicyOnly,
                _ => EncapMode::Encap,
            },
            no_snat: read.flag("noSNAT"),
            tunnel_type: match read.text("tunnelType").as_str() {
                "vxlan" => TunnelType::Vxlan,
                "gre" => TunnelType::Gre,
                "stt" => TunnelType::Stt,
                _ => TunnelType::Geneve,
            },
            tunnel_port: Some(read.port("tunnelPort")).filter(|port| *port != 0),
            tunnel_csum: read.flag("tunnelCsum"),
            default_mtu: u32::try_from(read.int("defaultMTU")).ok().filter(|mtu| *mtu != 0),
            host_proc_path_prefix: read.text("hostProcPathPrefix"),
            disable_tx_checksum_offload: read.flag("disableTXChecksumOffload"),
            api_port: read.port("apiPort"),
            enable_prometheus_metrics: read.flag("enablePrometheusMetrics"),
            transport_interface: read.optional("transportInterface"),
            transport_interface_cidrs: read.cidrs("transportInterfaceCIDRs"),
            proxy: proxy(&read),
            values,
        }
    }

    /// What no single key can say.
    fn check(&self, errors: &mut Vec<ConfigError>) {
        let mut conflict =
            |keys, reason: String| errors.push(ConfigError::Conflict { keys, reason });
        if self.ovs_bridge == self.host_gateway {
            conflict(
                "ovsBridge, hostGateway",
                format!("both are {}, two interfaces need two names", self.ovs_bridge),
            );
        }
        if let Some(mtu) = self.default_mtu
            && mtu < 576
        {
            conflict("defaultMTU", format!("{mtu} is too small for IPv4, 576 is the least"));
        }
        if self.proxy.direct_return && !self.gates.configured(Gate::LoadBalancerModeDSR) {
            conflict(
                "antreaProxy.defaultLoadBalancerMode, featureGates.LoadBalancerModeDSR",
                "dsr needs the gate".into(),
            );
        }
        if self.proxy.direct_return && !self.proxy.proxy_all {
            conflict(
                "antreaProxy.defaultLoadBalancerMode, antreaProxy.proxyAll",
                "dsr needs proxyAll".into(),
            );
        }
        let is_service = |text: &&String| {
            let name = text.split_once('/').is_some_and(|(namespace, name)| {
                !namespace.is_empty() && !name.is_empty() && !name.contains('/')
            });
            name || text.parse::<IpAddr>().is_ok()
        };
        if let Some(bad) = self.proxy.skip_services.iter().find(|text| !is_service(text)) {
            conflict(
                "antreaProxy.skipServices",
                format!("{bad} is neither a cluster address nor namespace/name"),
            );
        }
        let mode = Reader(&self.values).text("hostNetworkMode");
        if mode == "nftables" && !self.gates.configured(Gate::NFTablesHostNetworkMode) {
            conflict(
                "hostNetworkMode, featureGates.NFTablesHostNetworkMode",
                "nftables needs the gate".into(),
            );
        }
    }
}

fn proxy(read: &Reader<'_>) -> ProxyConfig {
    let health_checks = !read.flag("antreaProxy.disableServiceHealthCheckServer");
    let address = read.socket("antreaProxy.serviceHealthCheckServerBindAddress");
    ProxyConfig {
        enable: read.flag("antreaProxy.enable"),
        proxy_all: read.flag("antreaProxy.proxyAll"),
        node_port_addresses: read.cidrs("antreaProxy.nodePortAddresses"),
        skip_services: read.texts("antreaProxy.skipServices"),
        load_balancer_ips: read.flag("antreaProxy.proxyLoadBalancerIPs"),
        name: read.text("antreaProxy.serviceProxyName"),
        direct_return: read.text("antreaProxy.defaultLoadBalancerMode") == "dsr",
        health_address: address.filter(|_| health_checks),
        health_checks,
    }
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self::from_values(Values::defaults(Component::Agent), FeatureGates::default())
    }
}

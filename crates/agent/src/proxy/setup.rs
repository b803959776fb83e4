//! What the proxy of this node is, by the configuration and what was found on the node.

use std::net::{IpAddr, Ipv4Addr};

use antrea_config::Gate;
use anyhow::{Context, Result};
use apis::service::LoadBalancerMode;
use host::Rtnl;
use host::address::{self, Scope};
use host::conntrack::Conntrack;
use ipnet::IpNet;
use kube_io::Client;
use pipeline::service::ServiceConfig;
use pipeline::{Families, NodeConfig};
use services::{Config, Skip};
use switch::bridge::Bridge;
use tokio::sync::watch;

use super::run::{HostWantsTx, ProxyLoop};
use super::stale::Forget;
use super::{Counts, OWNER};
use crate::datapath::Datapath;
use crate::nodes::NodeList;
use crate::options::{NodeListSource, Options};
use crate::policy::TellPolicies;

/// Whether this agent serves Services: they are known of the API server only.
pub(crate) fn is_served(options: &Options) -> bool {
    options.config.proxy.enable && options.source == NodeListSource::Api
}

/// Whether it does for the host and the outside too.
pub(crate) fn is_for_all(options: &Options) -> bool {
    is_served(options) && options.config.proxy.proxy_all
}

/// How answers go back to clients of load balancers; none where there is one way only.
fn load_balancer_mode(options: &Options) -> Option<LoadBalancerMode> {
    let can_choose =
        is_for_all(options) && options.config.gates.configured(Gate::LoadBalancerModeDSR);
    can_choose.then_some(match options.config.proxy.direct_return {
        true => LoadBalancerMode::Dsr,
        false => LoadBalancerMode::Nat,
    })
}

/// Which addresses of this host serve NodePorts.
#[derive(Clone, Debug)]
pub struct NodePortChoice {
    /// Those in one of these; all where there are none.
    pub(crate) among: Vec<IpNet>,
    /// Those of these families.
    pub(crate) families: Families,
}

impl NodePortChoice {
    /// The addresses as of now, one of loopback among them.
    ///
    /// # Errors
    /// When the kernel does not tell the addresses.
    pub(crate) fn list(&self, rtnl: &Rtnl) -> Result<Vec<IpAddr>> {
        let all = address::list(rtnl, None).context("list addresses for NodePorts")?;
        let ips = all.iter().filter(|one| one.scope == Scope::Global && !one.tentative);
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let ips = ips.map(|one| one.net.addr()).chain([loopback]);
        Ok(chosen(ips, &self.among, self.families))
    }
}

/// Those that the switch has to know: nothing comes to it from loopback.
pub(crate) fn on_switch(node_port_addresses: &[IpAddr]) -> Vec<IpAddr> {
    node_port_addresses.iter().copied().filter(|ip| !ip.is_loopback()).collect()
}

fn chosen(ips: impl Iterator<Item = IpAddr>, among: &[IpNet], families: Families) -> Vec<IpAddr> {
    let is_chosen = |ip: &IpAddr| among.is_empty() || among.iter().any(|net| net.contains(ip));
    let mut chosen: Vec<IpAddr> = ips.filter(|ip| families.has(*ip) && is_chosen(ip)).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// What the flows of Services have in common.
pub(crate) fn service_config(
    options: &Options,
    datapath: Datapath,
    node_port_addresses: Option<&[IpAddr]>,
    controller_id: u16,
    packet_in_rate: u32,
) -> ServiceConfig {
    ServiceConfig {
        datapath: match datapath {
            Datapath::System => pipeline::service::Datapath::System,
            Datapath::Netdev => pipeline::service::Datapath::Netdev,
        },
        proxy_all: node_port_addresses.is_some(),
        node_port_addresses: on_switch(node_port_addresses.unwrap_or_default()),
        dsr: load_balancer_mode(options).is_some(),
        controller_id,
        packet_in_rate: Some(packet_in_rate),
    }
}

/// Where what the loop says is shown.
pub(crate) struct Shown {
    /// Metrics.
    pub(crate) counts_tx: watch::Sender<Counts>,
    /// What the host is to do.
    pub(crate) host_tx: HostWantsTx,
    /// Which groups there are.
    pub(crate) policies: TellPolicies,
}

/// Puts the flows that all Services share on the bridge, and prepares the loop.
///
/// # Errors
/// When the kernel's table of connections cannot be reached.
pub(crate) fn prepare(
    options: &Options,
    datapath: Datapath,
    network: &NodeConfig,
    bridge: &Bridge,
    (client, nodes_rx): (&Client, watch::Receiver<NodeList>),
    shown: Shown,
) -> Result<ProxyLoop> {
    let (config, proxy) = (&options.config, &options.config.proxy);
    bridge.set(OWNER, "node", pipeline::service::node_flows(network));
    let forget = match datapath {
        Datapath::Netdev => Forget::Userspace(config.ovs_run_dir.clone()),
        Datapath::System => Forget::Kernel(Conntrack::open().context("open conntrack")?),
    };
    let forgets = config.gates.configured(Gate::CleanupStaleUDPSvcConntrack);
    let for_all = is_for_all(options);
    Ok(ProxyLoop {
        client: client.clone(),
        proxy_name: proxy.name.clone(),
        state_dir: options.state_dir.clone(),
        bridge: bridge.clone(),
        network: network.clone(),
        config: Config {
            proxy_all: for_all,
            proxy_load_balancer_ips: proxy.load_balancer_ips,
            skip: proxy.skip_services.iter().filter_map(|text| Skip::parse(text)).collect(),
            load_balancer_mode: load_balancer_mode(options),
            node_hints: config.gates.configured(Gate::PreferSameTrafficDistribution),
            ..Config::new(&options.node_name, network.families)
        },
        nodes_rx,
        forget: forgets.then_some(forget),
        health_address: proxy.health_address.filter(|_| for_all),
        answers_health_checks: proxy.health_checks && for_all,
        counts_tx: shown.counts_tx,
        host_tx: shown.host_tx,
        policies: shown.policies,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use antrea_config::{AgentConfig, Environment};

    use super::*;

    #[test]
    fn node_ports_are_served_at_the_addresses_that_were_chosen() {
        let ips = ["172.30.0.1", "127.0.0.1", "10.0.0.1", "fd00::1", "172.30.0.1"];
        let ips = || ips.iter().map(|ip| ip.parse().unwrap());
        let shown = |among: &[&str], families| -> Vec<String> {
            let among: Vec<IpNet> = among.iter().map(|net| net.parse().unwrap()).collect();
            chosen(ips(), &among, families).iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown(&[], Families::V4), ["10.0.0.1", "127.0.0.1", "172.30.0.1"]);
        assert_eq!(shown(&["172.30.0.0/16"], Families::Dual), ["172.30.0.1"]);
        assert_eq!(shown(&[], Families::V6), ["fd00::1"]);
    }

    #[test]
    fn the_switch_knows_nothing_of_loopback() {
        let ips = ["127.0.0.1", "172.30.0.1"].map(|ip| ip.parse().unwrap());
        let config = |text: &str| Options {
            config: AgentConfig::parse(text).unwrap(),
            environment: Environment::from_map(&BTreeMap::new()),
            node_name: "us".into(),
            source: NodeListSource::Api,
            state_dir: PathBuf::new(),
            run_dir: PathBuf::new(),
            log_dir: PathBuf::new(),
        };
        let all = "antreaProxy: {proxyAll: true}\n";
        let options = config(all);
        let seen = service_config(&options, Datapath::System, Some(&ips), 1, 10);
        assert_eq!((seen.proxy_all, seen.node_port_addresses.len(), seen.dsr), (true, 1, false));
        let seen = service_config(&options, Datapath::Netdev, None, 1, 10);
        assert!(!seen.proxy_all);
        let direct = config(&format!("{all}featureGates: {{LoadBalancerModeDSR: true}}"));
        assert!(service_config(&direct, Datapath::System, Some(&ips), 1, 10).dsr);
        assert_eq!(load_balancer_mode(&direct), Some(LoadBalancerMode::Nat), "unless one asks");
    }
}

//! The node's side of the bridge: `br-int` with the gateway and the tunnel port.

use std::net::IpAddr;
use std::time::Duration;

use antrea_config::AgentConfig;
use anyhow::{Context, Result, bail};
use host::address;
use host::link::{self, IfIndex, MacAddr};
use host::netlink::Rtnl;
use host::sysctl::{Family, Sysctl};
use ipnet::IpNet;
use openflow::OfPort;
use ovsdb::Snapshot;
use pipeline::{Families, LAYOUT_VERSION};
use switch::ovsdb_session::{BridgeSpec, OvsdbSession, PortSpec};

use crate::cni::mac_for;
use crate::datapath::Datapath;
use crate::peers::first_host;

/// Name of the tunnel port.
pub const TUNNEL: &str = "antrea-tun0";
/// OpenFlow port asked for the tunnel.
pub const TUNNEL_PORT: OfPort = OfPort(1);
/// OpenFlow port asked for the gateway.
pub const GATEWAY_PORT: OfPort = OfPort(2);
/// Key of the layout version in the bridge's external_ids.
pub const LAYOUT_KEY: &str = "antrea-layout";
const PORT_DEADLINE: Duration = Duration::from_secs(10);

/// The gateway as it was made.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Its link's index.
    pub index: IfIndex,
    /// Its link.
    pub link: GatewayLink,
    /// Its port.
    pub ofport: OfPort,
}

/// What the gateway's link is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayLink {
    /// Its name.
    pub name: String,
    /// Its MAC.
    pub mac: MacAddr,
    /// Its MTU.
    pub mtu: u32,
    /// Its addresses with the length of the Pod CIDR. Without any, those that it has stay.
    pub addresses: Vec<IpNet>,
    /// The families that the kernel forwards for.
    pub families: Families,
}

/// What the gateway is made from.
#[derive(Clone, Copy, Debug)]
pub struct GatewayFacts<'a> {
    /// Prefixes of the node's Pods; none as long as it has none.
    pub pod_cidrs: &'a [IpNet],
    /// The families in use.
    pub families: Families,
    /// The node's transport address.
    pub transport: IpAddr,
    /// MTU of Pods.
    pub mtu: u32,
}

/// Whether the flows on the bridge are of this program's table layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutFound {
    /// The bridge is new, or of this layout.
    Same,
    /// Another layout: the first sync has to replace everything at once.
    Other,
}

/// Makes the bridge. `fail_mode=secure` is there before the first port.
pub async fn ensure_bridge(
    ovsdb: &OvsdbSession,
    config: &AgentConfig,
    datapath: Datapath,
) -> Result<LayoutFound> {
    let name = &config.ovs_bridge;
    let version = LAYOUT_VERSION.to_string();
    let existed = ovsdb.rows().bridge(name).is_some();
    let found = ovsdb.bridge_external_ids(name).get(LAYOUT_KEY).cloned();
    ovsdb
        .ensure_bridge(BridgeSpec::secure(name, datapath.as_str()))
        .await
        .with_context(|| format!("make bridge {name}"))?;
    ovsdb
        .set_table_names(name, pipeline::tables())
        .await
        .with_context(|| format!("name the tables of {name}"))?;
    if existed && found.as_ref() != Some(&version) {
        return Ok(LayoutFound::Other);
    }
    record_layout(ovsdb, name).await?;
    Ok(LayoutFound::Same)
}

/// Notes this program's layout; to be called once the flows of that layout are in.
pub async fn record_layout(ovsdb: &OvsdbSession, bridge: &str) -> Result<()> {
    let version = LAYOUT_VERSION.to_string();
    ovsdb
        .set_bridge_external_ids(bridge, &[(LAYOUT_KEY, &version)])
        .await
        .context("note the table layout")
}

/// Makes the tunnel port and returns its OpenFlow number.
pub async fn ensure_tunnel(ovsdb: &OvsdbSession, config: &AgentConfig) -> Result<OfPort> {
    let checksum = if config.tunnel_csum { "true" } else { "false" };
    let mut spec = PortSpec::new(&config.ovs_bridge, TUNNEL)
        .interface_type(config.tunnel_type.as_str())
        .ofport_request(TUNNEL_PORT)
        .external_id("antrea-type", "tunnel")
        .option("remote_ip", "flow")
        .option("key", "flow")
        .option("csum", checksum);
    if let Some(port) = config.tunnel_port {
        spec = spec.option("dst_port", &port.to_string());
    }
    ovsdb.add_port(spec).await.context("add the tunnel port")?;
    ovsdb.wait_ofport(TUNNEL, PORT_DEADLINE).await.context("add the tunnel port")
}

/// Makes the gateway interface, with the first address of each Pod CIDR.
pub async fn ensure_gateway(
    ovsdb: &OvsdbSession,
    rtnl: &Rtnl,
    config: &AgentConfig,
    facts: &GatewayFacts<'_>,
) -> Result<Gateway> {
    let GatewayFacts { pod_cidrs, families, transport, mtu } = *facts;
    let name = config.host_gateway.clone();
    let known = ovsdb.rows().interface(&name).and_then(|(_, row)| row.mac.clone());
    let mac = choose_mac(known.and_then(|text| text.parse().ok()), pod_cidrs, transport);
    let mut spec = PortSpec::new(&config.ovs_bridge, &name)
        .interface_type("internal")
        .ofport_request(GATEWAY_PORT)
        .external_id("antrea-type", "gateway");
    spec.mac = Some(mac);
    spec.mtu_request = Some(mtu);
    ovsdb.add_port(spec).await.context("add the gateway port")?;
    let ofport = ovsdb.wait_ofport(&name, PORT_DEADLINE).await.context("add the gateway port")?;

    let addresses: Vec<IpNet> = pod_cidrs.iter().map(gateway_address).collect();
    let link = GatewayLink { name, mac: openflow_to_host(mac), mtu, addresses, families };
    let wanted = link.clone();
    let index = rtnl.call(move |rtnl| configure(rtnl, &wanted, PORT_DEADLINE)).await??;
    Ok(Gateway { index, link, ofport })
}

/// The gateway's MAC. The one in the database stays, because Pods have it in their neighbour tables;
/// not so the one from before the node had Pods. Pure.
fn choose_mac(
    known: Option<openflow::MacAddr>,
    pod_cidrs: &[IpNet],
    transport: IpAddr,
) -> openflow::MacAddr {
    let without_pods = mac_for(&[transport]);
    match known {
        Some(mac) if pod_cidrs.is_empty() || mac != without_pods => mac,
        None if pod_cidrs.is_empty() => without_pods,
        _ => fresh_mac(pod_cidrs),
    }
}

/// The MAC of a gateway that has none: made from its addresses, so that Pods which outlive a lost
/// database find the gateway where it was.
fn fresh_mac(pod_cidrs: &[IpNet]) -> openflow::MacAddr {
    let ips: Vec<IpAddr> = pod_cidrs.iter().map(first_host).collect();
    mac_for(&ips)
}

/// Brings the gateway to what it should be, once it is there; changes only what is not right.
pub fn configure(rtnl: &Rtnl, wanted: &GatewayLink, patience: Duration) -> Result<IfIndex> {
    let GatewayLink { name, mac, mtu, addresses, families } = wanted;
    let (mac, mtu) = (*mac, *mtu);
    check_mtu(mtu, addresses)?;
    let gateway = link::wait_for(rtnl, name, patience, |_| true)?;
    if gateway.mac != Some(mac) {
        link::set_mac(rtnl, gateway.index, mac).context("set the gateway's MAC")?;
    }
    if gateway.mtu != mtu {
        link::set_mtu(rtnl, gateway.index, mtu).context("set the gateway's MTU")?;
    }
    sysctls(name, *families)?;
    if !gateway.up {
        link::set_up(rtnl, gateway.index).context("bring the gateway up")?;
    }
    if !addresses.is_empty() {
        address::set(rtnl, gateway.index, addresses).context("set the gateway's addresses")?;
    }
    Ok(gateway.index)
}

/// Below it Linux takes IPv6 off an interface (RFC 8200, section 5).
const IPV6_MTU: u32 = 1280;

fn check_mtu(mtu: u32, addresses: &[IpNet]) -> Result<()> {
    if mtu < IPV6_MTU && addresses.iter().any(|net| net.addr().is_ipv6()) {
        bail!(
            "Pod MTU {mtu} is below {IPV6_MTU}, the least that IPv6 needs: raise the MTU of the \
             transport interface, or defaultMTU where it is set"
        );
    }
    Ok(())
}

/// What the kernel has to do for Pods: forward, and not listen to Pods that pretend to be routers.
fn sysctls(gateway: &str, families: Families) -> Result<()> {
    if families.has_v4() {
        Sysctl::new("net/ipv4/ip_forward").set("1").context("forward IPv4")?;
        Sysctl::conf(Family::Ipv4, gateway, "arp_announce").set("1")?;
    }
    if families.has_v6() {
        keep_router_advertisements();
        Sysctl::conf(Family::Ipv6, gateway, "accept_ra").set("0")?;
        Sysctl::new("net/ipv6/conf/all/forwarding").set("1").context("forward IPv6")?;
    } else if let Err(error) = Sysctl::conf(Family::Ipv6, gateway, "accept_ra").set("0") {
        tracing::debug!(%error, "IPv6 is off in this kernel");
    }
    Ok(())
}

/// A forwarding kernel takes router advertisements only where accept_ra is 2: interfaces that live
/// by them must not lose their default route.
fn keep_router_advertisements() {
    let Ok(interfaces) = std::fs::read_dir("/proc/sys/net/ipv6/conf") else { return };
    for interface in interfaces.flatten() {
        let name = interface.file_name().to_string_lossy().into_owned();
        let accept = Sysctl::conf(Family::Ipv6, &name, "accept_ra");
        if matches!(accept.get_number(), Ok(1))
            && let Err(error) = accept.set("2")
        {
            tracing::debug!(%error, interface = name, "accept_ra stays 1");
        }
    }
}

/// The gateway's address in a Pod CIDR: the first host address, with the CIDR's length.
pub fn gateway_address(cidr: &IpNet) -> IpNet {
    let first: IpAddr = first_host(cidr);
    IpNet::new(first, cidr.prefix_len()).expect("the length is the CIDR's own, of the same family")
}

/// The same six bytes, as the other crate's type.
pub fn openflow_to_host(mac: openflow::MacAddr) -> MacAddr {
    MacAddr(mac.0)
}

/// Says which of these ports is not what it was: deleted, or with another number.
///
/// Every flow of the node hangs on their numbers. A port that ovs-vswitchd has not looked at yet,
/// or could not open for now, counts as before.
pub fn moved_port(rows: &Snapshot, bridge: &str, ports: &[(&str, OfPort)]) -> Option<String> {
    ports.iter().find_map(|(name, was)| {
        let Some(view) = rows.port_view(name).filter(|view| view.bridge == bridge) else {
            return Some(format!("port {name} was deleted"));
        };
        let now = view.interface.valid_ofport().map(OfPort)?;
        (now != *was).then(|| format!("port {name} has number {} and not {}", now.0, was.0))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ovsdb::{Bridge, Interface, Port, Uuid};

    use super::*;

    #[test]
    fn a_gateway_that_moved_is_named() {
        let (port, interface) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let rows = |ofport: Option<i64>| {
            let mut rows = Snapshot::default();
            let name = || "gw".to_owned();
            let row = Interface { name: name(), ofport, ..Interface::default() };
            rows.interfaces.insert(interface, Arc::new(row));
            let row = Port { name: name(), interfaces: [interface].into(), ..Port::default() };
            rows.ports.insert(port, Arc::new(row));
            let row = Bridge { name: "br-int".into(), ports: [port].into(), ..Bridge::default() };
            rows.bridges.insert(Uuid::from_u128(3), Arc::new(row));
            rows
        };
        let moved = |rows: &Snapshot| moved_port(rows, "br-int", &[("gw", OfPort(2))]);
        for as_before in [None, Some(-1), Some(2)] {
            assert_eq!(moved(&rows(as_before)), None, "{as_before:?}");
        }
        assert_eq!(moved(&rows(Some(7))).unwrap(), "port gw has number 7 and not 2");
        assert_eq!(moved(&Snapshot::default()).unwrap(), "port gw was deleted");
    }

    #[test]
    fn a_gateway_made_anew_has_the_mac_it_had() {
        let mac = |cidrs: &[&str]| {
            let cidrs: Vec<IpNet> = cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
            fresh_mac(&cidrs).to_string()
        };
        assert_eq!(mac(&["10.77.1.0/24", "fd00:77:1::/64"]), "5e:41:0a:4d:01:01");
        assert_eq!(mac(&["fd00:77:1::/64"]), mac(&["fd00:77:1::/64"]));
        assert_ne!(mac(&["fd00:77:1::/64"]), mac(&["fd00:77:2::/64"]));
    }

    #[test]
    fn a_mac_from_before_the_node_had_pods_does_not_stay() {
        let transport: IpAddr = "172.30.0.1".parse().unwrap();
        let (early, cidrs) = ("5e:41:ac:1e:00:01", ["10.77.1.0/24".parse().unwrap()]);
        for (name, known, cidrs, want) in [
            ("a new one without Pods", None, &[][..], early),
            ("it stays while there are none", Some(early), &[], early),
            ("and not once there are", Some(early), &cidrs, "5e:41:0a:4d:01:01"),
            ("a new one with Pods", None, &cidrs, "5e:41:0a:4d:01:01"),
            ("any other stays", Some("02:00:00:00:00:07"), &cidrs, "02:00:00:00:00:07"),
            ("also without Pods", Some("02:00:00:00:00:07"), &[], "02:00:00:00:00:07"),
        ] {
            let mac = choose_mac(known.map(|mac| mac.parse().unwrap()), cidrs, transport);
            assert_eq!(mac.to_string(), want, "{name}");
        }
    }

    #[test]
    fn the_gateway_has_the_first_host_address() {
        for (cidr, want) in
            [("10.77.1.0/24", "10.77.1.1/24"), ("fd00:77:1::/64", "fd00:77:1::1/64")]
        {
            assert_eq!(gateway_address(&cidr.parse().unwrap()).to_string(), want);
        }
    }

    #[test]
    fn ipv6_needs_its_least_mtu() {
        let addresses = |all: &[&str]| -> Vec<IpNet> {
            all.iter().map(|address| address.parse().unwrap()).collect()
        };
        assert!(check_mtu(1230, &addresses(&["10.77.1.1/24"])).is_ok());
        assert!(check_mtu(1280, &addresses(&["fd00:77:1::1/64"])).is_ok());
        let error = check_mtu(1230, &addresses(&["10.77.1.1/24", "fd00:77:1::1/64"])).unwrap_err();
        assert!(error.to_string().contains("Pod MTU 1230 is below 1280"), "{error}");
    }
}

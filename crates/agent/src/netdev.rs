//! Gives the userspace datapath what it needs of the node: the uplink moves into `br-phy`.
//!
//! Native tunnelling ends tunnels at addresses of a userspace bridge only, so the node's addresses
//! and routes move from the NIC to `br-phy`'s own port, and the kernel's copy of what the NIC
//! receives is dropped. Every step may be repeated; a restart in the middle goes on where it
//! stopped. Only an uplink that the node's owner marked is touched (`datapath::choose`).

use std::time::Duration;

use anyhow::{Context, Result, bail};
use host::link;
use host::netfilter::DropChains;
use host::netlink::Rtnl;
use host::offload;
use host::sysctl::{Family, Sysctl};
use host::uplink::{self, Transport, Uplink};
use switch::ovsdb_session::{BridgeSpec, OvsdbSession, PortSpec};

/// The userspace bridge that holds the uplink.
pub const BRIDGE: &str = "br-phy";
/// Key in the external_ids of `Open_vSwitch` by which an uplink is marked.
pub const UPLINK_MARK: &str = "antrea-netdev-uplink";
/// Linux bridge that is never up: a master for links whose kernel copy must go nowhere.
pub const NULL_BRIDGE: &str = "antrea-null";
/// What AF_PACKET sockets need as receive buffer, in bytes; less costs TCP retransmissions.
const RECEIVE_BUFFER: i64 = 8 << 20;
const PORT_DEADLINE: Duration = Duration::from_secs(10);
/// How long ovs-vswitchd may take over the MTU.
const MTU_PATIENCE: Duration = Duration::from_secs(3);

/// Makes `br-phy`, moves the uplink into it, and returns the facts of the bridge's own port.
pub async fn prepare(ovsdb: &OvsdbSession, rtnl: &Rtnl, uplink: &str) -> Result<Uplink> {
    raise_receive_buffer();
    let nic = link::get_by_name(rtnl, uplink)
        .with_context(|| format!("uplink {uplink}, marked by external_ids:{UPLINK_MARK}"))?;
    let Some(mac) = nic.mac else { bail!("uplink {uplink} is not an Ethernet interface") };
    offload::disable_tx_checksum(uplink).context("prepare the uplink")?;

    let mut spec = BridgeSpec::standalone(BRIDGE, "netdev");
    spec.hwaddr = Some(openflow::MacAddr(mac.0));
    spec.external_ids.insert("antrea-type".into(), "uplink".into());
    spec.external_ids.insert("antrea-uplink".into(), uplink.into());
    ovsdb.ensure_bridge(spec).await.context("make bridge br-phy")?;
    let port = PortSpec::new(BRIDGE, uplink).external_id("antrea-type", "uplink");
    ovsdb.add_port(port).await.context("add the uplink to br-phy")?;
    ovsdb.wait_ofport(uplink, PORT_DEADLINE).await.context("add the uplink to br-phy")?;
    rtnl.call(|rtnl| link::wait_for(rtnl, BRIDGE, PORT_DEADLINE, |_| true))
        .await?
        .context("wait for br-phy")?;
    // Left alone, ovs-vswitchd gives its own port the smallest MTU of the bridge's ports late, and
    // now and then never (seen with 3.1). What the port has is everybody's: the gateway's and that
    // of every Pod.
    let mtu = nic.mtu;
    let mut own = PortSpec::new(BRIDGE, BRIDGE).interface_type("internal");
    own.mtu_request = Some(mtu);
    ovsdb.add_port(own).await.context("ask for the uplink's MTU on br-phy")?;
    let same = rtnl
        .call(move |rtnl| link::wait_for(rtnl, BRIDGE, MTU_PATIENCE, |link| link.mtu == mtu))
        .await?;
    if let Err(error) = same {
        tracing::warn!(%error, uplink, mtu, "br-phy has another MTU than the uplink");
    }

    let uplink = uplink.to_owned();
    rtnl.call(move |rtnl| take_over(rtnl, &uplink)).await?
}

/// From here the NIC's frames are the bridge's alone, and the node speaks through `br-phy`. Changes
/// only what is not so yet.
pub fn take_over(rtnl: &Rtnl, uplink: &str) -> Result<Uplink> {
    let nic = link::get_by_name(rtnl, uplink)?;
    let bridge = link::get_by_name(rtnl, BRIDGE)?;
    // Lost replies are asked for again soon: a restart of ovs-vswitchd costs little time then.
    for family in [Family::Ipv4, Family::Ipv6] {
        let retrans = Sysctl::neigh(family, BRIDGE, "retrans_time_ms");
        if let Err(error) = retrans.set("100") {
            tracing::debug!(%error, "neighbour retransmission time stays as it is");
        }
    }
    DropChains::open()
        .context("open netfilter")?
        .add(uplink)
        .context("drop the kernel's copy of the uplink's frames")?;
    let moved = uplink::move_to(rtnl, nic.index, bridge.index)
        .context("move the node's addresses to br-phy")?;
    // Only now: this drops whatever IPv6 the NIC still has, such as the link-local address that the
    // node would answer solicitations at.
    quiet_ipv6(uplink);
    Ok(moved)
}

/// The facts of the bridge's own port.
pub fn facts(rtnl: &Rtnl) -> Result<Uplink> {
    Ok(uplink::find(rtnl, &Transport::Name(BRIDGE.to_owned()))?)
}

/// Undoes [`prepare`]: the NIC gets addresses and routes back, and the bridge goes.
pub async fn undo(ovsdb: &OvsdbSession, rtnl: &Rtnl, uplink: &str) -> Result<()> {
    let nic = link::find_by_name(rtnl, uplink)?;
    if let Some(nic) = &nic {
        if let Err(error) = Sysctl::conf(Family::Ipv6, uplink, "disable_ipv6").set("0") {
            tracing::debug!(%error, "IPv6 of the uplink stays off");
        }
        if let Some(bridge) = link::find_by_name(rtnl, BRIDGE)? {
            uplink::move_to(rtnl, bridge.index, nic.index)
                .context("move the node's addresses back")?;
        }
    }
    let removed = ovsdb.del_bridge(BRIDGE).await.context("remove br-phy");
    // The kernel gets its copy back when the bridge takes no frames any more: never both. Where the
    // bridge cannot be removed the node has to be reached all the same.
    if nic.is_some() {
        DropChains::open()?.delete(uplink)?;
        offload::enable_tx_checksum(uplink)?;
    }
    removed
}

/// Makes the bridge that is never up, if it is not there.
pub fn ensure_null_bridge(rtnl: &Rtnl) -> Result<()> {
    match link::create_bridge(rtnl, NULL_BRIDGE) {
        Ok(_) | Err(link::LinkError::Exists(_)) => {}
        Err(error) => return Err(error).context("make the bridge that is never up"),
    }
    let bridge = link::get_by_name(rtnl, NULL_BRIDGE)?;
    if bridge.up {
        tracing::warn!("{NULL_BRIDGE} was up and would have switched frames past the policy");
        link::set_down(rtnl, bridge.index)?;
    }
    Ok(())
}

fn quiet_ipv6(link: &str) {
    let off = Sysctl::conf(Family::Ipv6, link, "disable_ipv6");
    if let Err(error) = off.set("1") {
        tracing::debug!(%error, "IPv6 is off in this kernel");
    }
}

/// Host-wide, and not there in a namespace of its own: then whoever owns the host sets it.
fn raise_receive_buffer() {
    match Sysctl::new("net/core/rmem_default").set_if_lower(RECEIVE_BUFFER) {
        Ok(Some(former)) => {
            tracing::info!(former, now = RECEIVE_BUFFER, "raised net.core.rmem_default");
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(
            %error,
            "net.core.rmem_default stays low; set it to {RECEIVE_BUFFER} on the host, or TCP retransmits"
        ),
    }
}

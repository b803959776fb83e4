//! The wires: an underlay bridge, an outside host and one link per node, each in a namespace.
//!
//! The machine's own namespace gets no address, route, link or rule: every link is created inside
//! the namespace that holds it.

use crate::addressing::{self, on_link};
use crate::error::{Doing, LabError, Result};
use crate::layout::Layout;
use crate::preflight::program;
use crate::state::Store;
use crate::{ip, netns};

/// Makes the underlay bridge and the outside host.
///
/// # Errors
/// When a namespace or link cannot be made.
pub fn make_underlay(store: &Store) -> Result<()> {
    let layout = store.layout();
    let (underlay, outside) = (layout.underlay_netns(), layout.outside_netns());
    make_netns(store, &underlay)?;
    make_netns(store, &outside)?;
    let state = store.get();
    let (family, mtu) = (state.variant.family, state.underlay_mtu);
    let mut lines = vec![
        format!("link add br0 mtu {mtu} type bridge forward_delay 0 mcast_snooping 0"),
        "link set br0 addrgenmode none".into(),
    ];
    lines.extend(addressing::api_server(family).into_iter().map(|ip| add_line(ip, "br0")));
    lines.extend([
        "link set br0 up".into(),
        wire_line("outside", "eth0", &outside.display().to_string(), mtu),
        "link set outside addrgenmode none".into(),
        "link set outside master br0 up".into(),
    ]);
    ip::batch(&underlay, &lines).doing(|| "make the underlay bridge".into())?;
    let mut lines = vec!["link set eth0 addrgenmode none".to_owned()];
    lines.extend(addressing::outside(family).into_iter().map(|ip| add_line(ip, "eth0")));
    lines.extend(
        addressing::behind_outside(family).iter().map(|ip| format!("addr add {ip} dev lo")),
    );
    lines.push("link set eth0 up".into());
    ip::batch(&outside, &lines).doing(|| "make the outside host".into())?;
    // A userspace switch reads frames before their checksums are filled in.
    checksum_in_software(&outside, "eth0")?;
    checksum_in_software(&underlay, "br0")
}

/// Makes a node's namespace and its link to the underlay.
///
/// # Errors
/// When a namespace or link cannot be made.
pub fn make_node(store: &Store, n: u8, name: &str) -> Result<()> {
    let layout = store.layout();
    let node = layout.node(name);
    make_netns(store, node.netns())?;
    let port = format!("n{n}");
    let mtu = store.get().underlay_mtu;
    ip::batch(
        &layout.underlay_netns(),
        &[
            wire_line(&port, "eth0", &node.netns().display().to_string(), mtu),
            format!("link set {port} addrgenmode none"),
            format!("link set {port} master br0 up"),
        ],
    )
    .doing(|| format!("wire {name} to the underlay"))?;
    let family = store.get().variant.family;
    // A node that is rebooted has the same card, whose address its neighbours know.
    let card = format!("link set eth0 address 02:ac:1e:00:00:{n:02x}");
    let mut lines = vec!["link set eth0 addrgenmode none".to_owned(), card];
    lines.extend(addressing::node(family, n).into_iter().map(|ip| add_line(ip, "eth0")));
    lines.push("link set eth0 up".into());
    lines
        .extend(addressing::outside(family).iter().map(|ip| format!("route add default via {ip}")));
    ip::batch(node.netns(), &lines).doing(|| format!("give {name} its address"))
}

/// Removes a node's namespace and its link to the underlay, so that they can be made again.
///
/// # Errors
/// When they cannot be removed.
pub fn remove_node(store: &Store, n: u8, name: &str) -> Result<()> {
    // The link first: a namespace ends some time after its last user.
    ip::batch(&store.layout().underlay_netns(), &[format!("link del n{n}")])
        .doing(|| format!("cut {name} off the underlay"))?;
    netns::remove(store.layout().node(name).netns())
}

/// Removes every namespace that is recorded; links and addresses go with them.
///
/// # Errors
/// When one cannot be removed; the others are tried all the same.
pub fn remove_namespaces(store: &Store) -> Result<()> {
    let mut failed = Vec::new();
    for path in store.get().namespaces.into_iter().rev() {
        if let Err(error) = netns::remove(&path) {
            failed.push(error.chain());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(LabError::new(failed.join("; "))) }
}

/// Names of all namespaces the layout uses that exist without being recorded.
#[must_use]
pub fn clashes(layout: &Layout, node_names: &[String]) -> Vec<String> {
    let mut paths = vec![layout.underlay_netns(), layout.outside_netns()];
    paths.extend(node_names.iter().map(|n| layout.netns(n)));
    paths.iter().filter(|p| p.exists()).map(|p| p.display().to_string()).collect()
}

/// Records the name first, so that a crash right after leaves nothing unknown.
fn make_netns(store: &Store, path: &std::path::Path) -> Result<()> {
    store.update(|state| {
        if !state.namespaces.iter().any(|known| known == path) {
            state.namespaces.push(path.to_owned());
        }
    })?;
    netns::create(path)
}

/// Nobody else has a lab's addresses: none waits for the detection of a second owner.
fn add_line(address: std::net::IpAddr, link: &str) -> String {
    let flag = if address.is_ipv6() { " nodad" } else { "" };
    format!("addr add {} dev {link}{flag}", on_link(address))
}

fn wire_line(here: &str, there: &str, netns: &str, mtu: u16) -> String {
    format!("link add {here} mtu {mtu} type veth peer name {there} mtu {mtu} netns {netns}")
}

pub(crate) fn checksum_in_software(netns: &std::path::Path, link: &str) -> Result<()> {
    let output =
        netns::enter(netns, || program("ethtool").args(["-K", link, "tx", "off"]).output())?
            .doing(|| "run ethtool".into())
            .map_err(|e| e.hint("install the package ethtool"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::new(format!("turn off checksum offload of {link}: {said}")))
}

//! Removes from a node everything that an agent made there.
//!
//! Finds it from the things themselves: ports and bridges in the database, links by their mark,
//! routes by their protocol, tables of ours in nftables. Goes on past failures and lists them.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use host::link::{self, LinkKind};
use host::netfilter::DropChains;
use host::netlink::Rtnl;
use host::route::{self, RouteFilter};
use switch::ovsdb_session::{OvsdbConfig, OvsdbSession};

use crate::netdev;
use crate::nodes::chain;
use crate::options::Options;

const PATIENCE: Duration = Duration::from_secs(10);
/// Where host-local keeps the leases of our network.
const LEASES: &str = "/var/lib/cni/networks/antrea";
/// Where the agent's container has that folder, below the run folder of the node.
const LEASES_OF_CONTAINER: &str = "cni/networks/antrea";
/// Where Open vSwitch's container has its sockets, below the run folder of the node.
const OVS_OF_CONTAINER: &str = "openvswitch";
/// The CNI configuration that kubelet reads.
const CONFLIST: &str = "/etc/cni/net.d/10-antrea.conflist";

/// Failures so far.
#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    fn note<T, E: std::fmt::Display>(&mut self, what: &str, outcome: Result<T, E>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.push(format!("{what}: {error:#}"));
                None
            }
        }
    }
}

/// Removes everything; fails at the end with a list of what could not be removed.
pub async fn run(options: &Options) -> Result<()> {
    let socket = &options.config.cni_socket;
    if UnixStream::connect(socket).is_ok() {
        bail!("an agent runs on this node and listens at {}: stop it first", socket.display());
    }
    let mut failures = Failures::default();
    let rtnl = Rtnl::open()?;
    let db = database(&options.config.ovs_run_dir, &options.run_dir);
    let session = OvsdbSession::connect(OvsdbConfig::new(db.clone()));
    let connected = session.wait_connected(PATIENCE).await.map_err(|e| chain(&e));
    let reachable =
        failures.note(&format!("Open vSwitch at {}", db.display()), connected).is_some();
    let pods = pod_links(options, &session, &rtnl, &mut failures);
    if reachable {
        remove_bridges(options, &session, &rtnl, &mut failures).await;
    }
    for name in pods {
        remove_link(&rtnl, &name, &mut failures);
    }
    remove_link(&rtnl, netdev::NULL_BRIDGE, &mut failures);
    remove_routes(&rtnl, &mut failures);
    failures.note("nftables", host::nft::delete_table().await.map_err(|e| chain(&e)));
    let frames = host::nft::host_frames::remove().await;
    failures.note("mark of the node's frames", frames.map_err(|e| chain(&e)));
    // The uplink needs its chain for as long as a bridge may hold it.
    if reachable && let Some(drops) = failures.note("netfilter", DropChains::open()) {
        failures.note("drop chains", drops.delete_all().map_err(|e| chain(&e)));
    }
    for family in [host::iptables_forward::Family::Ipv4, host::iptables_forward::Family::Ipv6] {
        let outcome = host::iptables_forward::disallow(family, &options.config.host_gateway).await;
        failures.note("iptables FORWARD", outcome.map_err(|e| chain(&e)));
    }
    let chains = host::iptables_leftovers::remove().await;
    failures.note("chains of a Go agent", chains.map_err(|e| chain(&e)));
    let token_dir = options.run_dir.join("apiserver");
    let leases_of_container = options.run_dir.join(LEASES_OF_CONTAINER);
    for path in [
        Path::new(LEASES),
        &leases_of_container,
        &options.state_dir,
        Path::new(CONFLIST),
        socket,
        &token_dir,
    ] {
        failures.note(&path.display().to_string(), remove_path(path));
    }
    if failures.0.is_empty() {
        tracing::info!(
            "links, bridges, routes, firewall tables and files of the agent are removed; sysctls stay as they are"
        );
        return Ok(());
    }
    bail!("could not remove everything: {}", failures.0.join("; "))
}

/// Names of the host's ends of Pod links: ports in the database, and links marked as ours.
fn pod_links(
    options: &Options,
    session: &OvsdbSession,
    rtnl: &Rtnl,
    failures: &mut Failures,
) -> Vec<String> {
    // Without a connection there are no rows: then the marks have to do.
    let rows = session.rows();
    let mut names: Vec<String> = rows
        .ports_of(&options.config.ovs_bridge)
        .filter(|view| {
            view.port.external_ids.get("antrea-type").is_some_and(|kind| kind == "container")
        })
        .map(|view| view.port.name.clone())
        .collect();
    let marked = link::list(rtnl).map_err(|e| chain(&e));
    for found in failures.note("links", marked).unwrap_or_default() {
        let ours = found.kind == LinkKind::Veth && crate::cni::is_ours(found.alias.as_deref());
        if ours && !names.contains(&found.name) {
            names.push(found.name);
        }
    }
    names
}

async fn remove_bridges(
    options: &Options,
    session: &OvsdbSession,
    rtnl: &Rtnl,
    failures: &mut Failures,
) {
    let uplink = session.bridge_external_ids(netdev::BRIDGE).get("antrea-uplink").cloned();
    let removed = session.del_bridge(&options.config.ovs_bridge).await;
    failures.note("bridge", removed.map_err(|e| chain(&e)));
    if let Some(uplink) = uplink {
        failures.note("uplink", netdev::undo(session, rtnl, &uplink).await);
    }
}

fn remove_link(rtnl: &Rtnl, name: &str, failures: &mut Failures) {
    let outcome = match link::find_by_name(rtnl, name) {
        Ok(Some(found)) => link::delete(rtnl, found.index),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    failures.note(name, outcome.map_err(|e| chain(&e)));
}

fn remove_routes(rtnl: &Rtnl, failures: &mut Failures) {
    for filter in [RouteFilter::OURS, RouteFilter::SERVICES] {
        let routes = route::list(rtnl, filter).map_err(|e| chain(&e));
        for stale in failures.note("routes", routes).unwrap_or_default() {
            failures.note("route", route::delete(rtnl, &stale).map_err(|e| chain(&e)));
        }
    }
}

/// Where the database's socket is: in the configured folder, else where the node has it when Open
/// vSwitch runs in a Pod and this program does not.
fn database(ovs_run_dir: &Path, run_dir: &Path) -> PathBuf {
    let of_container = run_dir.join(OVS_OF_CONTAINER).join("db.sock");
    let configured = ovs_run_dir.join("db.sock");
    if !configured.exists() && of_container.exists() { of_container } else { configured }
}

/// Removes a file, or a folder with all that is in it. A folder that something is mounted on is
/// emptied and stays.
fn remove_path(path: &Path) -> io::Result<()> {
    let gone = |outcome: io::Result<()>| match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    };
    let is_dir = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    if !is_dir {
        return gone(std::fs::remove_file(path));
    }
    for entry in std::fs::read_dir(path)? {
        remove_path(&entry?.path())?;
    }
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
        outcome => gone(outcome),
    }
}

#[cfg(test)]
mod tests {
    use testkit::netns::sh;

    use super::*;

    #[test]
    fn the_database_is_found_from_the_node_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let (configured, run_dir) = (dir.path().join("openvswitch"), dir.path().join("antrea"));
        assert_eq!(database(&configured, &run_dir), configured.join("db.sock"));
        std::fs::create_dir_all(run_dir.join("openvswitch")).unwrap();
        std::fs::write(run_dir.join("openvswitch/db.sock"), "").unwrap();
        assert_eq!(database(&configured, &run_dir), run_dir.join("openvswitch/db.sock"));
        std::fs::create_dir(&configured).unwrap();
        std::fs::write(configured.join("db.sock"), "").unwrap();
        assert_eq!(database(&configured, &run_dir), configured.join("db.sock"));
    }

    /// A folder that is a mount point, as the volume of a Pod is.
    struct Mount(PathBuf);

    impl Mount {
        fn over(path: &Path) -> Self {
            sh(&format!("mount --bind {0} {0}", path.display()));
            Self(path.to_owned())
        }
    }

    impl Drop for Mount {
        fn drop(&mut self) {
            sh(&format!("umount {}", self.0.display()));
        }
    }

    #[test]
    #[ignore = "needs root: make test"]
    fn a_mounted_folder_is_emptied_and_everything_else_goes() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        std::fs::create_dir_all(state.join("interfaces")).unwrap();
        std::fs::write(state.join("interfaces/one.json"), "{}").unwrap();
        {
            let _mount = Mount::over(&state);
            remove_path(&state).unwrap();
            assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0);
        }
        remove_path(&state).unwrap();
        assert!(!state.exists());
        remove_path(&state).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        remove_path(&link).unwrap();
        assert!(dir.path().exists() && !link.exists());
    }
}

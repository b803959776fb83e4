//! Veth pairs by netlink.
//!
//! The host's end carries the attachment as its alias: that is how a link without a port is known
//! as ours. On a userspace datapath it is born down, as a port of a bridge that is never up, and
//! gets its drop chain before it is brought up: at no moment does the node's kernel forward for the
//! Pod.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni_api::Attachment;
use host::link::{self, Link, LinkError, LinkKind, VethSpec};
use host::netfilter::DropChains;
use host::netns::Netns;
use host::offload::{self, Offload};
use host::route::{self, Route, RouteFilter};
use host::sysctl::{Family, Sysctl, SysctlError};
use host::{IfIndex, NetlinkError, Rtnl, address, garp};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use openflow::MacAddr;
use tonic::async_trait;
use tracing::warn;

use super::super::failure::chain;
use super::super::model::{HostIfName, PodAddress, PodRecord};
use super::super::traits::{BoxError, LinkSpec, NetError, OwnedLink, PodNet};
use super::RealConfig;
use crate::netdev;

/// What the alias of the host's end begins with.
const ALIAS: &str = "antrea-pod:";

/// Whether a link with this alias is the host's end of a Pod's.
pub fn is_ours(alias: Option<&str>) -> bool {
    alias.is_some_and(|alias| alias.starts_with(ALIAS))
}

fn alias_of(attachment: &Attachment) -> String {
    format!("{ALIAS}{attachment}")
}

fn owner_of(link: &Link) -> Option<Attachment> {
    let (container_id, ifname) = link.alias.as_deref()?.strip_prefix(ALIAS)?.rsplit_once('/')?;
    Attachment::new(container_id, ifname).ok()
}

/// Links in the node's namespace and in Pods'.
#[derive(Clone, Debug)]
pub(super) struct RealLinks {
    rtnl: Rtnl,
    /// A handle of its own: a deletion takes long, and calls of one handle take turns.
    deleting: Rtnl,
    /// Where the kernel's own copy is dropped; none when the datapath takes frames by itself.
    drops: Option<DropChains>,
    host_proc: PathBuf,
    checksum: Offload,
}

impl RealLinks {
    pub(super) fn open(config: &RealConfig) -> Result<Self, NetlinkError> {
        let whole = config.userspace || config.tx_checksum_off;
        Ok(Self {
            rtnl: Rtnl::open()?,
            deleting: Rtnl::open()?,
            drops: if config.userspace { Some(DropChains::open()?) } else { None },
            host_proc: PathBuf::from(&config.host_proc),
            checksum: if whole { Offload::Off } else { Offload::On },
        })
    }

    /// Runs synchronous work off the async threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, NetError> + Send + 'static,
    ) -> Result<T, NetError> {
        let this = self.clone();
        match tokio::task::spawn_blocking(move || work(&this)).await {
            Ok(outcome) => outcome,
            Err(error) => Err(failed("work on", "links")(error.into())),
        }
    }

    fn open_netns(&self, path: &str) -> Result<Netns, NetError> {
        let seen = self.seen_path(path);
        let refused = |source: BoxError| NetError::Netns { path: path.to_owned(), source };
        let netns = Netns::open(&seen).map_err(|error| refused(error.into()))?;
        let own = Netns::current().map_err(|error| refused(error.into()))?;
        if netns.same_as(&own) {
            return Err(refused("it is the node's own namespace and no Pod's".into()));
        }
        Ok(netns)
    }

    /// The path by which this process sees a path of the host: in a container the host's folders are
    /// below a prefix.
    fn seen_path(&self, path: &str) -> PathBuf {
        if let Ok(below) = Path::new(path).strip_prefix("/")
            && !self.host_proc.as_os_str().is_empty()
        {
            let seen = self.host_proc.join(below);
            if seen.parent().is_some_and(Path::is_dir) {
                return seen;
            }
        }
        PathBuf::from(path)
    }

    fn create_now(&self, spec: &LinkSpec) -> Result<MacAddr, NetError> {
        let pod_netns = self.open_netns(&spec.netns)?;
        let name = spec.host_name.as_str();
        let master = match &self.drops {
            Some(_) => Some(self.null_bridge()?),
            None => None,
        };
        let veth_spec = VethSpec {
            host_name: name,
            host_mac: None,
            pod_netns: &pod_netns,
            pod_name: spec.ifname(),
            // It follows from the addresses.
            pod_mac: None,
            mtu: spec.mtu,
            master,
        };
        let veth = match link::create_veth(&self.rtnl, &veth_spec) {
            Err(LinkError::Exists(_)) => {
                self.remove_stale(spec)?;
                link::create_veth(&self.rtnl, &veth_spec)
            }
            other => other,
        };
        let veth = veth.map_err(|error| match error {
            LinkError::Exists(_) => NetError::Exists(spec.ifname().to_owned()),
            error => failed("create", name)(error.into()),
        })?;
        link::set_alias(&self.rtnl, veth.host, &alias_of(&spec.attachment))
            .map_err(|error| failed("mark", name)(error.into()))?;
        if let Some(drops) = &self.drops {
            drops.add(name).map_err(|error| failed("guard", name)(error.into()))?;
        }
        // Up before Open vSwitch opens it, never beside that: it sets flags from a copy it made
        // earlier (3.1), and would take the link down again.
        link::set_up_without_ipv6_address(&self.rtnl, veth.host)
            .map_err(|error| failed("bring up", name)(error.into()))?;
        // The carrier comes with the Pod's end. Each change of a link of the node makes vswitchd
        // look over every port, so they all come now and not when the addresses are known.
        enter(&pod_netns, spec.ifname(), || raise_inside(spec.ifname()))??;
        Ok(MacAddr(veth.host_mac.0))
    }

    /// Deletes the link of an earlier ADD for the same attachment, if that is what has the name.
    fn remove_stale(&self, spec: &LinkSpec) -> Result<(), NetError> {
        let name = spec.host_name.as_str();
        let found = link::find_by_name(&self.rtnl, name)
            .map_err(|error| failed("find", name)(error.into()))?;
        match found {
            Some(link) if owner_of(&link).as_ref() == Some(&spec.attachment) => {
                link::delete(&self.rtnl, link.index)
                    .map_err(|error| failed("delete", name)(error.into()))
            }
            Some(_) => Err(NetError::Exists(name.to_owned())),
            None => Ok(()),
        }
    }

    fn null_bridge(&self) -> Result<IfIndex, NetError> {
        let name = netdev::NULL_BRIDGE;
        // It may have been deleted, or brought up, by hand.
        netdev::ensure_null_bridge(&self.rtnl)
            .map_err(|error| failed("prepare", name)(error.into()))?;
        let bridge = link::get_by_name(&self.rtnl, name);
        Ok(bridge.map_err(|error| failed("find", name)(error.into()))?.index)
    }

    fn configure_now(&self, spec: &LinkSpec) -> Result<(), NetError> {
        let netns = self.open_netns(&spec.netns)?;
        enter(&netns, spec.ifname(), || configure_inside(spec, self.checksum))?
    }

    fn announce_now(&self, spec: &LinkSpec) -> Result<(), NetError> {
        let netns = self.open_netns(&spec.netns)?;
        let ifname = spec.ifname();
        let ips: Vec<_> = spec.addresses.iter().map(|address| address.address.addr()).collect();
        let mac = host::MacAddr(spec.mac.0);
        let announced = enter(&netns, ifname, || -> Result<(), BoxError> {
            let index = link::get_by_name(&Rtnl::open()?, ifname)?.index;
            for ip in ips {
                garp::announce(index, mac, ip)?;
            }
            Ok(())
        })?;
        announced.map_err(failed("announce on", ifname))
    }

    fn check_now(&self, spec: &LinkSpec) -> Result<MacAddr, NetError> {
        let name = spec.host_name.as_str();
        let differs = |what: String| Err(NetError::Differs(what));
        let find = failed("find", name);
        let Some(host) = link::find_by_name(&self.rtnl, name).map_err(|e| find(e.into()))? else {
            return differs(format!("link {name} is missing"));
        };
        if !host.up {
            return differs(format!("link {name} is down"));
        }
        if let Some(drops) = &self.drops {
            let chains =
                drops.list().map_err(|error| failed("list guards of", name)(error.into()))?;
            if !chains.iter().any(|chain| chain.device == name && chain.is_right()) {
                return differs(format!("link {name} has no drop chain"));
            }
            if host.master != Some(self.null_bridge()?) {
                return differs(format!("link {name} is not on {}", netdev::NULL_BRIDGE));
            }
        }
        let netns = match Netns::open(self.seen_path(&spec.netns)) {
            Ok(netns) => netns,
            Err(error) if error.is_gone() => {
                return differs(format!("network namespace {} is gone", spec.netns));
            }
            Err(error) => return Err(failed("enter the namespace of", name)(error.into())),
        };
        enter(&netns, name, || check_inside(spec, self.checksum, host.peer))??;
        Ok(MacAddr(host.mac.unwrap_or_default().0))
    }

    fn delete_now(&self, name: &HostIfName, owner: &Attachment) -> Result<(), NetError> {
        let name = name.as_str();
        let delete = |error: BoxError| failed("delete", name)(error);
        match link::find_by_name(&self.deleting, name).map_err(|e| delete(e.into()))? {
            // A link without a mark was cut short while it was made, or is the Go agent's.
            Some(link) if link.kind != LinkKind::Veth => return Ok(()),
            Some(link) if link.alias.is_some() && owner_of(&link).as_ref() != Some(owner) => {
                return Ok(());
            }
            Some(link) => {
                link::delete(&self.deleting, link.index).map_err(|e| delete(e.into()))?;
            }
            None => {}
        }
        match &self.drops {
            // Some kernels keep the chain of a device that is gone.
            Some(drops) => drops.delete(name).map_err(|e| delete(e.into())),
            None => Ok(()),
        }
    }

    fn is_alive_now(&self, record: &PodRecord) -> bool {
        let link = link::find_by_name(&self.rtnl, record.host_name.as_str());
        if matches!(link, Ok(None)) {
            return false;
        }
        if record.netns.is_empty() {
            return true;
        }
        let path = self.seen_path(&record.netns);
        match Netns::open(&path) {
            Ok(_) => true,
            // A folder that this process does not see says nothing.
            Err(error) => !error.is_gone() || !path.parent().is_some_and(Path::is_dir),
        }
    }
}

/// Runs work in a Pod's namespace.
fn enter<T: Send>(
    netns: &Netns,
    link: &str,
    work: impl FnOnce() -> T + Send,
) -> Result<T, NetError> {
    netns.run(work).map_err(|error| failed("enter the namespace of", link)(error.into()))
}

/// Brings the Pod's end up without any address; runs in the Pod's namespace.
fn raise_inside(ifname: &str) -> Result<(), NetError> {
    let rtnl = Rtnl::open().map_err(|error| failed("reach", ifname)(error.into()))?;
    let link = link::get_by_name(&rtnl, ifname);
    let index = link.map_err(|error| failed("find", ifname)(error.into()))?.index;
    link::set_up_without_ipv6_address(&rtnl, index)
        .map_err(|error| failed("bring up", ifname)(error.into()))
}

/// Lets the Pod's end have a link-local address again, now that it has its MAC; how one is made
/// is the namespace's default.
fn allow_link_local(ifname: &str) -> Result<(), NetError> {
    let mode = |interface| Sysctl::conf(Family::Ipv6, interface, "addr_gen_mode");
    let set = mode("default").get().and_then(|default| mode(ifname).set(&default));
    match set {
        Ok(_) | Err(SysctlError::NotFound(_)) => Ok(()),
        Err(error) => Err(failed("allow a link-local address on", ifname)(error.into())),
    }
}

/// Makes the Pod's end ready; runs in the Pod's namespace.
fn configure_inside(spec: &LinkSpec, checksum: Offload) -> Result<(), NetError> {
    let ifname = spec.ifname();
    let rtnl = Rtnl::open().map_err(|error| failed("reach", ifname)(error.into()))?;
    let link = link::get_by_name(&rtnl, ifname);
    let index = link.map_err(|error| failed("find", ifname)(error.into()))?.index;
    if checksum == Offload::Off {
        let off = offload::disable_tx_checksum(ifname);
        off.map_err(|error| failed("switch off checksum offload of", ifname)(error.into()))?;
    }
    link::set_mac(&rtnl, index, host::MacAddr(spec.mac.0))
        .map_err(|error| failed("set MAC of", ifname)(error.into()))?;
    allow_link_local(ifname)?;
    for PodAddress { address: net, .. } in &spec.addresses {
        address::add(&rtnl, index, *net)
            .map_err(|error| failed("add address to", ifname)(error.into()))?;
    }
    link::set_up(&rtnl, index).map_err(|error| failed("bring up", ifname)(error.into()))?;
    for address in &spec.addresses {
        route::add(&rtnl, &default_route(address, index))
            .map_err(|error| failed("add route to", ifname)(error.into()))?;
    }
    Ok(())
}

/// Looks at the Pod's end; runs in the Pod's namespace.
fn check_inside(spec: &LinkSpec, checksum: Offload, peer: Option<IfIndex>) -> Result<(), NetError> {
    let ifname = spec.ifname();
    let differs = |what: String| Err(NetError::Differs(what));
    let look = |error: BoxError| failed("look at", ifname)(error);
    let rtnl = Rtnl::open().map_err(|e| look(e.into()))?;
    let Some(link) = link::find_by_name(&rtnl, ifname).map_err(|e| look(e.into()))? else {
        return differs(format!("interface {ifname} is missing"));
    };
    if peer.is_some_and(|peer| peer != link.index) {
        return differs(format!("interface {ifname} is not the other end of {}", spec.host_name));
    }
    if link.mac.map(|mac| mac.0) != Some(spec.mac.0) {
        let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
        return differs(format!("interface {ifname} has MAC {mac}, made was {}", spec.mac));
    }
    if !link.up {
        return differs(format!("interface {ifname} is down"));
    }
    let present = address::list(&rtnl, Some(link.index)).map_err(|e| look(e.into()))?;
    let routes = route::list(&rtnl, RouteFilter::default()).map_err(|e| look(e.into()))?;
    for address in &spec.addresses {
        if !present.iter().any(|found| found.net == address.address) {
            return differs(format!("address {} is missing from {ifname}", address.address));
        }
        let wanted = default_route(address, link.index);
        let same = |found: &Route| {
            found.dst == wanted.dst && found.via == wanted.via && found.dev == wanted.dev
        };
        if !routes.iter().any(same) {
            return differs(format!("route to {} by {} is missing", wanted.dst, address.gateway));
        }
    }
    if checksum == Offload::Off
        && offload::tx_checksum(ifname).map_err(|e| look(e.into()))? == Offload::On
    {
        return differs(format!("checksum offload of {ifname} is on"));
    }
    Ok(())
}

/// The Pod's way out in the family of an address.
fn default_route(address: &PodAddress, index: IfIndex) -> Route {
    let everything = match address.gateway {
        IpAddr::V4(_) => IpNet::V4(Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(Ipv6Net::default()),
    };
    let route = if address.address.contains(&address.gateway) {
        Route::via(everything, address.gateway, index)
    } else {
        Route::via_onlink(everything, address.gateway, index)
    };
    route.with_protocol(route::RouteProtocol::BOOT)
}

fn failed(action: &'static str, link: &str) -> impl Fn(BoxError) -> NetError + use<> {
    let link = link.to_owned();
    move |source| NetError::Failed { action, link: link.clone(), source }
}

#[async_trait]
impl PodNet for RealLinks {
    async fn create(&self, spec: &LinkSpec) -> Result<MacAddr, NetError> {
        let spec = spec.clone();
        self.blocking(move |this| this.create_now(&spec)).await
    }

    async fn configure(&self, spec: &LinkSpec) -> Result<(), NetError> {
        let spec = spec.clone();
        self.blocking(move |this| this.configure_now(&spec)).await
    }

    async fn announce(&self, spec: &LinkSpec) -> Result<(), NetError> {
        // Not waited for: the frame leaves at once, but the kernel takes some ten milliseconds to
        // close the socket it went out by.
        let (this, spec) = (self.clone(), spec.clone());
        tokio::task::spawn_blocking(move || {
            if let Err(error) = this.announce_now(&spec) {
                let error = chain(&error);
                warn!(link = %spec.host_name, error, "Pod not announced");
            }
        });
        Ok(())
    }

    async fn check(&self, spec: &LinkSpec) -> Result<MacAddr, NetError> {
        let spec = spec.clone();
        self.blocking(move |this| this.check_now(&spec)).await
    }

    async fn delete(&self, name: &HostIfName, owner: &Attachment) -> Result<(), NetError> {
        let (name, owner) = (name.clone(), owner.clone());
        self.blocking(move |this| this.delete_now(&name, &owner)).await
    }

    async fn list(&self) -> Result<Vec<OwnedLink>, NetError> {
        self.blocking(|this| {
            let links = link::list(&this.rtnl).map_err(|e| failed("list", "links")(e.into()))?;
            let owned = |link: &Link| {
                let attachment = owner_of(link)?;
                Some(OwnedLink { host_name: HostIfName::existing(link.name.as_str()), attachment })
            };
            Ok(links.iter().filter_map(owned).collect())
        })
        .await
    }

    async fn is_alive(&self, record: &PodRecord) -> bool {
        let record = record.clone();
        self.blocking(move |this| Ok(this.is_alive_now(&record))).await.unwrap_or(true)
    }
}

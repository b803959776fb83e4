//! Addresses by `host-local`: the installed plugin, or the same built in.

use std::net::IpAddr;
use std::path::PathBuf;

use host::ipam::{self, Attachment, NetConf, RangeConfig, Request, Store};
use tonic::async_trait;

use super::super::model::PodAddress;
use super::super::network::NodeNetwork;
use super::super::traits::{Ipam, IpamError, IpamRequest, Lease};

/// The version spoken with the plugin; its result is ours to turn into the runtime's.
const CNI_VERSION: &str = "1.0.0";

/// Where plugins are installed when the runtime does not say.
const PLUGIN_DIRS: &str = "/opt/cni/bin:/usr/lib/cni";

/// Leases of this node's Pod prefixes.
#[derive(Clone, Debug)]
pub(super) struct RealIpam {
    network: NodeNetwork,
}

impl RealIpam {
    pub(super) fn new(network: NodeNetwork) -> Self {
        Self { network }
    }

    fn conf(&self, network: &str, data_dir: Option<&PathBuf>) -> NetConf {
        let mut conf = NetConf::for_pod_cidrs(CNI_VERSION, network, &self.network.pod_cidrs);
        let ranges: &mut Vec<Vec<RangeConfig>> = &mut conf.ipam.ranges;
        for range in ranges.iter_mut().flatten() {
            let Some(subnet) = range.subnet else { continue };
            // Never given to a Pod, wherever in the prefix it is.
            range.gateway = self.network.gateways.iter().copied().find(|ip| subnet.contains(ip));
        }
        match data_dir {
            Some(dir) => conf.with_data_dir(dir),
            None => conf,
        }
    }

    fn plugins(request: &IpamRequest) -> ipam::Ipam {
        let path = if request.cni_path.is_empty() { PLUGIN_DIRS } else { &request.cni_path };
        ipam::Ipam::from_cni_path(path)
    }

    fn request(request: &IpamRequest) -> Request {
        let wish = request.wish.map(|ip| format!("IgnoreUnknown=1;IP={ip}"));
        Request {
            container_id: request.attachment.container_id.to_string(),
            ifname: request.attachment.ifname.to_string(),
            netns: request.netns.clone(),
            args: wish.unwrap_or_default(),
        }
    }

    fn exhausted(&self, error: ipam::IpamError, action: &'static str) -> IpamError {
        let full = match &error {
            ipam::IpamError::Exhausted(_) => true,
            // The installed plugin has words for it, and no code.
            ipam::IpamError::Plugin { message, .. } => {
                message.contains("no IP addresses available")
            }
            _ => false,
        };
        if full {
            let cidrs: Vec<_> = self.network.pod_cidrs.iter().map(ToString::to_string).collect();
            return IpamError::Exhausted(cidrs.join(", "));
        }
        IpamError::Failed { action, source: error.into() }
    }
}

#[async_trait]
impl Ipam for RealIpam {
    async fn allocate(&self, request: &IpamRequest) -> Result<Vec<PodAddress>, IpamError> {
        let conf = self.conf(&request.network, request.data_dir.as_ref()).to_json();
        let (plugins, call) = (Self::plugins(request), Self::request(request));
        let result = match plugins.add(&call, &conf).await {
            Ok(result) => result,
            Err(first) => {
                // A lease that an ADD cut short left is ours to take back: an attachment that is
                // connected does not come here.
                let dir = self.conf(&request.network, request.data_dir.as_ref()).lease_dir();
                if leases_of(dir, &request.attachment).await?.is_empty() {
                    return Err(self.exhausted(first, "allocate"));
                }
                self.release(request).await?;
                plugins.add(&call, &conf).await.map_err(|e| self.exhausted(e, "allocate"))?
            }
        };
        let addresses = result.ips.iter().map(|ip| self.network.address(ip.address.addr()));
        addresses.collect::<Option<Vec<_>>>().ok_or_else(|| IpamError::Failed {
            action: "use the leased",
            source: format!("{:?} are not of this node", result.ips).into(),
        })
    }

    async fn release(&self, request: &IpamRequest) -> Result<(), IpamError> {
        let conf = self.conf(&request.network, request.data_dir.as_ref());
        let dir = conf.lease_dir();
        // By hand: it is the same as the plugin does, and no program has to start.
        let attachment = theirs(&request.attachment);
        with_store(dir, "release", move |store| store.release(&attachment).map(drop)).await?;
        Ok(())
    }

    async fn check(&self, request: &IpamRequest, ips: &[IpAddr]) -> Result<(), IpamError> {
        let dir = self.conf(&request.network, request.data_dir.as_ref()).lease_dir();
        let leased = leases_of(dir, &request.attachment).await?;
        match ips.iter().find(|ip| !leased.contains(ip)) {
            Some(ip) => Err(IpamError::NotLeased(*ip)),
            None => Ok(()),
        }
    }

    async fn leases(
        &self,
        network: &str,
        data_dir: Option<&PathBuf>,
    ) -> Result<Vec<Lease>, IpamError> {
        let dir = self.conf(network, data_dir).lease_dir();
        let leases = with_store(dir, "list", |store| store.leases()).await?.unwrap_or_default();
        let lease = |lease: ipam::Lease| Lease {
            ip: lease.ip,
            container_id: lease.attachment.container_id,
            ifname: lease.attachment.ifname,
        };
        Ok(leases.into_iter().map(lease).collect())
    }

    async fn release_lease(
        &self,
        network: &str,
        data_dir: Option<&PathBuf>,
        lease: &Lease,
    ) -> Result<(), IpamError> {
        let dir = self.conf(network, data_dir).lease_dir();
        let attachment =
            Attachment { container_id: lease.container_id.clone(), ifname: lease.ifname.clone() };
        let seen = ipam::Lease { ip: lease.ip, attachment };
        with_store(dir, "release", move |store| store.release_one(&seen).map(drop)).await?;
        Ok(())
    }
}

fn theirs(attachment: &cni_api::Attachment) -> Attachment {
    Attachment {
        container_id: attachment.container_id.to_string(),
        ifname: attachment.ifname.to_string(),
    }
}

async fn leases_of(
    dir: PathBuf,
    attachment: &cni_api::Attachment,
) -> Result<Vec<IpAddr>, IpamError> {
    let attachment = theirs(attachment);
    let leases = with_store(dir, "read", move |store| store.of_attachment(&attachment)).await?;
    Ok(leases.unwrap_or_default().into_iter().map(|lease| lease.ip).collect())
}

/// Works on a folder of leases under its lock, off the async threads. A folder that is not there
/// has no leases, and is not made for saying so.
async fn with_store<T: Send + 'static>(
    dir: PathBuf,
    action: &'static str,
    work: impl FnOnce(&Store) -> Result<T, ipam::IpamError> + Send + 'static,
) -> Result<Option<T>, IpamError> {
    let task = tokio::task::spawn_blocking(move || {
        if !dir.exists() {
            return Ok(None);
        }
        work(&Store::open_dir(dir)?).map(Some)
    });
    let outcome = task.await.map_err(|e| IpamError::Failed { action, source: e.into() })?;
    outcome.map_err(|e| IpamError::Failed { action, source: e.into() })
}

//! Connections in the kernel and in Open vSwitch's userspace datapath.
//!
//! The kernel's table holds those of the node and, on the `system` datapath, those of every zone of
//! Open vSwitch. The userspace datapath has a table of its own.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::try_join_all;
use host::NetlinkError;
use host::conntrack::{Conntrack as Kernel, Filter};
use switch::unixctl::{UnixCtl, UnixCtlError};
use tokio::sync::Semaphore;
use tonic::async_trait;

use super::super::traits::{Conntrack, ConntrackError};
use super::RealConfig;

const FLUSH: &str = "dpctl/flush-conntrack";

/// Both tables.
#[derive(Clone, Debug)]
pub(super) struct RealConntrack {
    kernel: Kernel,
    /// Where ovs-vswitchd's control socket is, when its datapath has a table of its own.
    userspace: Option<PathBuf>,
    /// More callers at once than this find the control socket's backlog full.
    turns: Arc<Semaphore>,
}

/// How many commands may wait for ovs-vswitchd at once.
const N_TURNS: usize = 8;

impl RealConntrack {
    pub(super) fn open(config: &RealConfig) -> Result<Self, NetlinkError> {
        Ok(Self {
            kernel: Kernel::open()?,
            userspace: config.userspace.then(|| config.ovs_run_dir.clone()),
            turns: Arc::new(Semaphore::new(N_TURNS)),
        })
    }
}

/// Flushes what has the address at either end of either direction, in every zone. Only a command
/// without the datapath's name takes a tuple of one field (3.1), and means the only datapath.
async fn flush_userspace(ctl: &UnixCtl, turns: &Semaphore, ip: IpAddr) -> Result<(), UnixCtlError> {
    let (src, dst) = match ip {
        IpAddr::V4(_) => (format!("ct_nw_src={ip}"), format!("ct_nw_dst={ip}")),
        IpAddr::V6(_) => (format!("ct_ipv6_src={ip}"), format!("ct_ipv6_dst={ip}")),
    };
    // Side by side: each is served once per turn of ovs-vswitchd's loop, which takes tens of
    // milliseconds while ports come and go.
    let tuples: [&[&str]; 4] = [&[&src], &[&dst], &["", &src], &["", &dst]];
    let flush = async |tuple: &&[&str]| {
        // Never closed; without a turn the call is made all the same.
        let _turn = turns.acquire().await;
        ctl.call(FLUSH, tuple).await
    };
    try_join_all(tuples.iter().map(flush)).await?;
    Ok(())
}

#[async_trait]
impl Conntrack for RealConntrack {
    async fn flush(&self, ips: &[IpAddr]) -> Result<(), ConntrackError> {
        let failed = |source| ConntrackError { ips: ips.to_vec(), source };
        let filter = Filter { addresses: ips.to_vec(), ..Filter::default() };
        let kernel =
            async { self.kernel.delete_async(filter).await.map_err(|error| failed(error.into())) };
        let userspace = async {
            let Some(run_dir) = &self.userspace else { return Ok(()) };
            // Found anew each time: its name changes when ovs-vswitchd starts again.
            let ctl = UnixCtl::find(run_dir).map_err(|error| failed(error.into()))?;
            let flushes = ips.iter().map(|ip| flush_userspace(&ctl, &self.turns, *ip));
            try_join_all(flushes).await.map_err(|error| failed(error.into()))?;
            Ok(())
        };
        tokio::try_join!(kernel, userspace)?;
        Ok(())
    }
}

//! Connections in the kernel and in Open vSwitch's userspace datapath.
//!
//! The kernel's table holds those of the node and, on the `system` datapath, those of every zone of
//! Open vSwitch. The userspace datapath has a table of its own.

use std::net::IpAddr;
use std::path::PathBuf;

use host::NetlinkError;
use host::conntrack::{Conntrack as Kernel, Filter};
use switch::unixctl::{UnixCtl, UnixCtlError};
use tonic::async_trait;

use super::super::traits::{Conntrack, ConntrackError};
use super::RealConfig;

/// Both tables.
#[derive(Clone, Debug)]
pub(super) struct RealConntrack {
    kernel: Kernel,
    /// Where ovs-vswitchd's control socket is, when its datapath has a table of its own.
    userspace: Option<PathBuf>,
}

impl RealConntrack {
    pub(super) fn open(config: &RealConfig) -> Result<Self, NetlinkError> {
        Ok(Self {
            kernel: Kernel::open()?,
            userspace: config.userspace.then(|| config.ovs_run_dir.clone()),
        })
    }
}

/// Flushes what has the address at either end of either direction, in every zone. Only a command
/// without the datapath's name takes a tuple of one field (3.1), and means the only datapath.
async fn flush_userspace(ctl: &UnixCtl, ip: IpAddr) -> Result<(), UnixCtlError> {
    let (src, dst) = match ip {
        IpAddr::V4(_) => (format!("ct_nw_src={ip}"), format!("ct_nw_dst={ip}")),
        IpAddr::V6(_) => (format!("ct_ipv6_src={ip}"), format!("ct_ipv6_dst={ip}")),
    };
    for tuples in [[&src, ""], [&dst, ""], ["", &src], ["", &dst]] {
        let args: &[&str] = if tuples[1].is_empty() { &tuples[..1] } else { &tuples };
        ctl.call("dpctl/flush-conntrack", args).await?;
    }
    Ok(())
}

#[async_trait]
impl Conntrack for RealConntrack {
    async fn flush(&self, ips: &[IpAddr]) -> Result<(), ConntrackError> {
        let failed = |source| ConntrackError { ips: ips.to_vec(), source };
        let filter = Filter { addresses: ips.to_vec(), ..Filter::default() };
        self.kernel.delete_async(filter).await.map_err(|error| failed(error.into()))?;
        if let Some(run_dir) = &self.userspace {
            // Found anew each time: its name changes when ovs-vswitchd starts again.
            let ctl = UnixCtl::find(run_dir).map_err(|error| failed(error.into()))?;
            for ip in ips {
                flush_userspace(&ctl, *ip).await.map_err(|error| failed(error.into()))?;
            }
        }
        Ok(())
    }
}

//! Client of ovs-vswitchd's control socket, what `ovs-appctl` talks to: JSON-RPC, one command and
//! one text answer per connection.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use openflow::MacAddr;
use ovsdb::{Id, Incoming, RpcError, SplitError, Splitter, request};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long a command may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why a command gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum UnixCtlError {
    /// No control socket was found.
    #[error("no control socket of ovs-vswitchd in {}", .0.display())]
    NotFound(PathBuf),
    /// The socket failed.
    #[error("control socket")]
    Io(#[from] io::Error),
    /// The answer could not be read.
    #[error("answer of ovs-vswitchd")]
    Split(#[from] SplitError),
    /// The answer is no JSON-RPC.
    #[error("answer of ovs-vswitchd")]
    Rpc(#[from] RpcError),
    /// The daemon closed the connection before it answered.
    #[error("ovs-vswitchd closed the control connection")]
    Closed,
    /// The daemon did not answer in time.
    #[error("no answer of ovs-vswitchd within {0:?}")]
    Timeout(Duration),
    /// The daemon refused the command.
    #[error("{command}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// What the daemon says.
        reason: String,
    },
}

/// The control socket of one daemon.
#[derive(Clone, Debug)]
pub struct UnixCtl {
    path: PathBuf,
}

/// Which conntrack entries to flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConntrackFilter {
    /// Those of this zone.
    pub zone: u16,
    /// Of them those with this original tuple, in the syntax of `ovs-dpctl flush-conntrack`:
    /// `ct_nw_src=..,ct_nw_dst=..,ct_nw_proto=..,ct_tp_src=..,ct_tp_dst=..`, or some of these.
    pub tuple: Option<String>,
}

impl UnixCtl {
    /// The daemon whose control socket is at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The ovs-vswitchd that runs with `run_dir`: `ovs-vswitchd.<pid>.ctl` by its pid file, or
    /// `ovs-vswitchd.ctl` where it was told so.
    pub fn find(run_dir: &Path) -> Result<Self, UnixCtlError> {
        let by_pid = fs::read_to_string(run_dir.join("ovs-vswitchd.pid"))
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok())
            .map(|pid| run_dir.join(format!("ovs-vswitchd.{pid}.ctl")));
        by_pid
            .into_iter()
            .chain([run_dir.join("ovs-vswitchd.ctl")])
            .find(|path| path.exists())
            .map(Self::new)
            .ok_or_else(|| UnixCtlError::NotFound(run_dir.to_owned()))
    }

    /// Where the socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a command and returns what it printed.
    pub async fn call(&self, command: &str, args: &[&str]) -> Result<String, UnixCtlError> {
        timeout(DEADLINE, self.exchange(command, args))
            .await
            .map_err(|_| UnixCtlError::Timeout(DEADLINE))?
    }

    async fn exchange(&self, command: &str, args: &[&str]) -> Result<String, UnixCtlError> {
        let mut stream = UnixStream::connect(&self.path).await?;
        stream.write_all(request(Id(0), command, &json!(args)).to_string().as_bytes()).await?;
        let mut splitter = Splitter::new();
        let mut buffer = vec![0; 16 << 10];
        let answer = loop {
            let n = stream.read(&mut buffer).await?;
            if n == 0 {
                return Err(UnixCtlError::Closed);
            }
            splitter.push(&buffer[..n]);
            if let Some(json) = splitter.next_message()? {
                break Incoming::from_json(json)?;
            }
        };
        let text = |json: Json| match json {
            Json::String(text) => text,
            other => other.to_string(),
        };
        match answer {
            Incoming::Response { result: Ok(result), .. } => Ok(text(result)),
            Incoming::Response { result: Err(reason), .. } => Err(UnixCtlError::Refused {
                command: command.to_owned(),
                reason: text(reason).trim().to_owned(),
            }),
            Incoming::Notification { .. } | Incoming::Request { .. } => Err(UnixCtlError::Closed),
        }
    }

    /// Version of the daemon.
    pub async fn version(&self) -> Result<String, UnixCtlError> {
        Ok(self.call("version", &[]).await?.trim().to_owned())
    }

    /// The way of a packet through `bridge`; `flow` and `options` as for `ovs-appctl ofproto/trace`.
    pub async fn ofproto_trace(
        &self,
        bridge: &str,
        flow: &str,
        options: &[&str],
    ) -> Result<String, UnixCtlError> {
        self.call("ofproto/trace", &[options, &[bridge, flow]].concat()).await
    }

    /// Tells native tunnelling the Ethernet address of a tunnel peer, so that the first packet to
    /// it is not lost.
    pub async fn tnl_arp_set(
        &self,
        bridge: &str,
        ip: IpAddr,
        mac: MacAddr,
    ) -> Result<(), UnixCtlError> {
        let (ip, mac) = (ip.to_string(), mac.to_string());
        self.call("tnl/arp/set", &[bridge, &ip, &mac]).await.map(drop)
    }

    /// Flushes conntrack entries. A tuple that is not there is no error.
    ///
    /// OVS 3.1 takes the datapath's name for a tuple here, so it is left out unless the daemon has
    /// more than one datapath and asks for it.
    pub async fn flush_conntrack(
        &self,
        datapath: &str,
        filter: &ConntrackFilter,
    ) -> Result<(), UnixCtlError> {
        let zone = format!("zone={}", filter.zone);
        let mut args = vec![zone.as_str()];
        args.extend(filter.tuple.as_deref());
        let mut result = self.call("dpctl/flush-conntrack", &args).await;
        if matches!(&result, Err(UnixCtlError::Refused { reason, .. }) if reason.contains("multiple"))
        {
            args.insert(0, datapath);
            result = self.call("dpctl/flush-conntrack", &args).await;
        }
        match result {
            Err(UnixCtlError::Refused { reason, .. })
                if reason.contains("No such file or directory") =>
            {
                Ok(())
            }
            result => result.map(drop),
        }
    }
}

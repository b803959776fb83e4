//! Addresses for Pods, by the CNI's IPAM plugins.
//!
//! [`Ipam`] runs the plugin that a network configuration names when it is installed, and does the
//! work of `host-local` itself when that one is not: same configuration, same lease files, so that
//! either can release what the other gave.
//! Not here: pools in the cluster (`addresses`), putting addresses on links ([`crate::address`]).

pub mod config;
pub mod exec;
pub mod host_local;
pub mod result;

use std::path::PathBuf;

pub use self::config::{IpamConfig, NetConf, RangeConfig};
pub use self::host_local::{Attachment, Lease, Store};
pub use self::result::{Dns, IpConfig, IpamResult, RouteConfig};
use crate::command::CommandError;

/// Name of the plugin that is built in.
pub const HOST_LOCAL: &str = "host-local";

/// What a CNI call is about: the parts of its environment that IPAM plugins look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_IFNAME`
    pub ifname: String,
    /// `CNI_NETNS`; may be empty for a DEL.
    pub netns: String,
    /// `CNI_ARGS`, such as `IgnoreUnknown=1;K8S_POD_NAME=web-0`.
    pub args: String,
}

/// Why an IPAM call failed. [`IpamError::code`] is the CNI specification's number for it.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// The network configuration cannot be used.
    #[error("invalid IPAM configuration: {0}")]
    Config(String),
    /// The configuration is not JSON of the right shape.
    #[error("decode IPAM configuration")]
    Decode(#[from] serde_json::Error),
    /// Container ID, interface name or CNI_ARGS cannot be used.
    #[error("invalid CNI environment: {0}")]
    Environment(String),
    /// The plugin is neither installed nor built in.
    #[error("IPAM plugin {name} not found in {path}")]
    NoPlugin {
        /// The plugin.
        name: String,
        /// Where it was looked for.
        path: String,
    },
    /// The plugin gave no answer.
    #[error("run IPAM plugin")]
    Command(#[from] CommandError),
    /// The plugin refused, with these words.
    #[error("IPAM plugin: {message}")]
    Plugin {
        /// Its code.
        code: u32,
        /// What it said.
        message: String,
    },
    /// Every address of a range set is taken.
    #[error("no address is free in {0}")]
    Exhausted(String),
    /// The attachment has an address already.
    #[error("{ip} is allocated to {container_id} already")]
    Duplicate {
        /// The address.
        ip: std::net::IpAddr,
        /// The container.
        container_id: String,
    },
    /// A requested address cannot be given.
    #[error("requested address {ip} is not available: {reason}")]
    Unavailable {
        /// The address.
        ip: std::net::IpAddr,
        /// Why not.
        reason: &'static str,
    },
    /// CHECK found no lease of this attachment.
    #[error("no address is allocated to container {0}")]
    NoLease(String),
    /// Lease files could not be read or written.
    #[error("{action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The thread that did the work was abandoned.
    #[error("IPAM call was abandoned")]
    Abandoned,
}

impl IpamError {
    /// Result code of the CNI specification, or the plugin's own.
    pub fn code(&self) -> u32 {
        match self {
            Self::Environment(_) => 4,
            Self::Io { .. } => 5,
            Self::Decode(_) => 6,
            Self::Config(_) | Self::NoPlugin { .. } => 7,
            Self::Plugin { code, .. } => *code,
            Self::Exhausted(_)
            | Self::Duplicate { .. }
            | Self::Unavailable { .. }
            | Self::NoLease(_) => 100,
            Self::Command(_) | Self::Abandoned => 999,
        }
    }
}

/// The way to IPAM plugins: where they may be installed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ipam {
    path: Vec<PathBuf>,
}

/// Who does the work for a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provider {
    /// An installed plugin.
    Plugin(PathBuf),
    /// `host-local`, built in.
    BuiltIn,
}

impl Ipam {
    /// Looks for plugins in these directories.
    pub fn new(path: Vec<PathBuf>) -> Self {
        Self { path }
    }

    /// Looks for plugins where `CNI_PATH` says, entries separated by colons.
    pub fn from_cni_path(path: &str) -> Self {
        Self::new(path.split(':').filter(|part| !part.is_empty()).map(PathBuf::from).collect())
    }

    /// Never runs a program: only what is built in.
    pub fn built_in() -> Self {
        Self::default()
    }

    /// Who would do the work for this plugin name.
    pub fn provider(&self, name: &str) -> Result<Provider, IpamError> {
        if let Some(program) = exec::find(&self.path, name)? {
            return Ok(Provider::Plugin(program));
        }
        if name == HOST_LOCAL {
            return Ok(Provider::BuiltIn);
        }
        Err(IpamError::NoPlugin { name: name.to_owned(), path: self.cni_path() })
    }

    /// Allocates addresses for an attachment.
    pub async fn add(&self, request: &Request, conf: &[u8]) -> Result<IpamResult, IpamError> {
        match self.provider(&config::plugin_name(conf)?)? {
            Provider::Plugin(program) => {
                let out = exec::run(&program, "ADD", request, conf, &self.cni_path()).await?;
                IpamResult::parse(&out)
            }
            Provider::BuiltIn => blocking(request, conf, host_local::add).await,
        }
    }

    /// Checks that the attachment still has its addresses.
    pub async fn check(&self, request: &Request, conf: &[u8]) -> Result<(), IpamError> {
        match self.provider(&config::plugin_name(conf)?)? {
            Provider::Plugin(program) => {
                exec::run(&program, "CHECK", request, conf, &self.cni_path()).await.map(|_| ())
            }
            Provider::BuiltIn => blocking(request, conf, host_local::check).await,
        }
    }

    /// Releases the attachment's addresses; success when it has none.
    pub async fn del(&self, request: &Request, conf: &[u8]) -> Result<(), IpamError> {
        match self.provider(&config::plugin_name(conf)?)? {
            Provider::Plugin(program) => {
                exec::run(&program, "DEL", request, conf, &self.cni_path()).await.map(|_| ())
            }
            Provider::BuiltIn => blocking(request, conf, host_local::del).await,
        }
    }

    /// Releases every address whose attachment is not among `valid`; returns what was released.
    ///
    /// `host-local` (installed ones know no GC) is done here in any case; other plugins are asked
    /// by the GC verb of CNI 1.1.
    pub async fn gc(&self, conf: &[u8], valid: Vec<Attachment>) -> Result<Vec<Lease>, IpamError> {
        let name = config::plugin_name(conf)?;
        if name == HOST_LOCAL {
            let conf = NetConf::parse(conf)?;
            // Nothing was ever allocated: no directory is made for saying so.
            if !conf.lease_dir().exists() {
                return Ok(Vec::new());
            }
            return tokio::task::spawn_blocking(move || Store::open(&conf)?.gc(&valid))
                .await
                .map_err(|_| IpamError::Abandoned)?;
        }
        match self.provider(&name)? {
            Provider::Plugin(program) => {
                let conf = config::with_valid_attachments(conf, &valid)?;
                let request = Request {
                    container_id: String::new(),
                    ifname: String::new(),
                    netns: String::new(),
                    args: String::new(),
                };
                exec::run(&program, "GC", &request, &conf, &self.cni_path()).await?;
                Ok(Vec::new())
            }
            Provider::BuiltIn => Ok(Vec::new()),
        }
    }

    fn cni_path(&self) -> String {
        let parts: Vec<_> = self.path.iter().map(|part| part.display().to_string()).collect();
        parts.join(":")
    }
}

async fn blocking<T: Send + 'static>(
    request: &Request,
    conf: &[u8],
    work: impl FnOnce(&Request, &NetConf) -> Result<T, IpamError> + Send + 'static,
) -> Result<T, IpamError> {
    let request = request.clone();
    let conf = NetConf::parse(conf)?;
    tokio::task::spawn_blocking(move || work(&request, &conf))
        .await
        .map_err(|_| IpamError::Abandoned)?
}

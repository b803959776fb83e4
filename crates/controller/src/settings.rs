//! Command-line flags, and all settings of a run in one place.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use antrea_config::{ControllerConfig, Environment};
use antrea_runtime::{LogArgs, VERSION};
use clap::Parser;
use kube_io::ClientOptions;
use kube_io::lease::Terms;

use crate::serve::CertificateTerms;

/// Folder of files that live as long as the process.
const RUN_DIR: &str = "/var/run/antrea";

/// Keys that `--help` explains in full.
fn keys() -> String {
    format!("Configuration keys:\n{}", antrea_config::Component::Controller.describe())
}

/// Central controller of an Antrea cluster
#[derive(Clone, Debug, Parser)]
#[command(name = "antrea-controller", version = VERSION, after_long_help = keys())]
pub struct Args {
    /// Configuration file; all defaults without it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address on which the API port is served
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
    pub bind_address: IpAddr,
    /// Folder for the token with which a local tool reads metrics
    #[arg(long, value_name = "DIR", default_value = RUN_DIR)]
    pub run_dir: PathBuf,
    /// Log flags.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The configuration file.
    pub config: ControllerConfig,
    /// Environment variables.
    pub environment: Environment,
    /// Address of the API port.
    pub api_addr: SocketAddr,
    /// Folder for the metrics token.
    pub run_dir: PathBuf,
    /// Durations of leader election.
    pub terms: Terms,
    /// How long certificates are used.
    pub certificates: CertificateTerms,
}

impl Settings {
    /// Settings of the program.
    pub fn new(args: &Args, config: ControllerConfig, environment: Environment) -> Self {
        let api_addr = SocketAddr::new(args.bind_address, config.api_port);
        let run_dir = args.run_dir.clone();
        let (terms, certificates) = (Terms::default(), CertificateTerms::default());
        Self { config, environment, api_addr, run_dir, terms, certificates }
    }

    /// How to talk to the API server.
    pub(crate) fn client_options(&self) -> ClientOptions {
        let mut options = ClientOptions::new("antrea-controller", VERSION);
        options.server_override.clone_from(&self.config.kube_api_server_override);
        let limit = self.config.client_limit;
        options.limit(limit.qps, limit.burst);
        options
    }

    /// Name of this replica, different after each start.
    pub(crate) fn identity(&self) -> String {
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let name = self.environment.pod_name.clone().or_else(host).unwrap_or_default();
        let name = name.trim();
        let name = if name.is_empty() { "antrea-controller" } else { name };
        format!("{name}_{:016x}", rand::random::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_explains_every_configuration_key() {
        use clap::CommandFactory;
        let help = Args::command().render_long_help().to_string();
        for key in antrea_config::Component::Controller.keys() {
            assert!(help.contains(key.path), "{}", key.path);
        }
    }

    #[test]
    fn flags_and_file_come_together() {
        let args = Args::parse_from([
            "antrea-controller",
            "--config=/etc/antrea/antrea-controller.conf",
            "--bind-address=127.0.0.1",
            "--logtostderr=false",
            "--log_dir=/var/log/antrea",
            "--v=0",
        ]);
        let config = ControllerConfig::parse(
            "apiPort: 10349\nclientConnection: {qps: 5, burst: 7}\n\
             kubeAPIServerOverride: https://10.0.0.1:6443\n",
        )
        .unwrap();
        let environment = Environment::from_map(&std::collections::BTreeMap::new());
        let settings = Settings::new(&args, config, environment);
        assert_eq!(settings.api_addr, "127.0.0.1:10349".parse().unwrap());
        let options = settings.client_options();
        assert_eq!((options.qps, options.burst), (5.0, 7));
        assert_eq!(options.server_override.as_deref(), Some("https://10.0.0.1:6443"));
        assert_ne!(settings.identity(), settings.identity());
    }
}

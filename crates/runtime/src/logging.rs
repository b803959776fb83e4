//! Log flags of the daemons and the logger they start.
//!
//! The flags keep the names that manifests and habits know (`--v`, `--logtostderr`, `--log_dir`,
//! `--alsologtostderr`, `--log_file_max_size`, `--log_file_max_num`). Level 0 shows what an
//! operator wants, 2 and up adds detail of ours, 6 and up everything; messages of libraries start at 4.

mod rotate;

use std::path::PathBuf;

use clap::ArgAction;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use rotate::RotatingFile;

/// Command-line flags for logging, to be flattened into a daemon's arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Verbosity: 0 for operators, 2 for detail, 4 with libraries, 6 for everything
    #[arg(short = 'v', long = "v", value_name = "N", default_value_t = 0)]
    pub verbosity: u8,
    /// Write the log to standard error and to no file
    #[arg(long = "logtostderr", value_name = "BOOL", default_value_t = true,
          default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = ArgAction::Set)]
    pub log_to_stderr: bool,
    /// Write the log to standard error as well as to the file
    #[arg(long = "alsologtostderr", value_name = "BOOL", default_value_t = false,
          default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = ArgAction::Set)]
    pub also_log_to_stderr: bool,
    /// Folder of the log files, used with --logtostderr=false
    #[arg(long = "log_dir", value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Megabytes at which a log file is closed and a new one started; 0 for no limit
    #[arg(long = "log_file_max_size", value_name = "MB", default_value_t = 100)]
    pub log_file_max_size: u64,
    /// Number of log files kept, the current one included; 0 keeps all
    #[arg(long = "log_file_max_num", value_name = "N", default_value_t = 4)]
    pub log_file_max_num: usize,
    /// Write each message as one JSON object
    #[arg(long = "log_json")]
    pub log_json: bool,
}

impl Default for LogArgs {
    fn default() -> Self {
        Self {
            verbosity: 0,
            log_to_stderr: true,
            also_log_to_stderr: false,
            log_dir: None,
            log_file_max_size: 100,
            log_file_max_num: 4,
            log_json: false,
        }
    }
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `--logtostderr=false` without a folder.
    #[error("--logtostderr=false needs --log_dir")]
    NoFolder,
    /// The file cannot be created.
    #[error("open log file {path}")]
    Open {
        /// The file that could not be opened.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A logger is installed already.
    #[error("start logging")]
    Start(#[from] tracing_subscriber::util::TryInitError),
}

impl LogArgs {
    /// Starts the process' logger; `program` names the file (`DIR/program.log`).
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn init(&self, program: &str) -> Result<(), LogError> {
        let file = match (&self.log_dir, self.log_to_stderr) {
            (_, true) => None,
            (None, false) => return Err(LogError::NoFolder),
            (Some(dir), false) => {
                let path = dir.join(format!("{program}.log"));
                let limit = self.log_file_max_size.saturating_mul(1 << 20);
                let file = RotatingFile::open(path.clone(), limit, self.log_file_max_num)
                    .map_err(|source| LogError::Open { path, source })?;
                Some(file)
            }
        };
        let to_stderr = (self.log_to_stderr || self.also_log_to_stderr).then_some(std::io::stderr);
        let registry = tracing_subscriber::registry().with(self.filter());
        // Two optional layers of each form: types differ, so they are spelled out.
        if self.log_json {
            registry
                .with(to_stderr.map(|w| fmt::layer().json().with_writer(w)))
                .with(file.map(|w| fmt::layer().json().with_writer(w)))
                .try_init()?;
        } else {
            registry
                .with(to_stderr.map(|w| fmt::layer().with_ansi(false).with_writer(w)))
                .with(file.map(|w| fmt::layer().with_ansi(false).with_writer(w)))
                .try_init()?;
        }
        Ok(())
    }

    fn filter(&self) -> Targets {
        let (ours, libraries) = match self.verbosity {
            0 | 1 => (LevelFilter::INFO, LevelFilter::WARN),
            2 | 3 => (LevelFilter::DEBUG, LevelFilter::WARN),
            4 | 5 => (LevelFilter::DEBUG, LevelFilter::INFO),
            6 | 7 => (LevelFilter::TRACE, LevelFilter::INFO),
            8 | 9 => (LevelFilter::TRACE, LevelFilter::DEBUG),
            _ => (LevelFilter::TRACE, LevelFilter::TRACE),
        };
        OURS.iter().fold(Targets::new().with_default(libraries), |filter, name| {
            filter.with_target(*name, ours)
        })
    }
}

/// Crates of ours, whose messages follow `--v` one to one.
const OURS: &[&str] = &[
    "antrea_agent",
    "antrea_config",
    "antrea_controller",
    "antrea_lab",
    "antrea_runtime",
    "addresses",
    "apiserver",
    "host",
    "kube_io",
    "kubelab",
    "lab",
    "ovsdb",
    "openflow",
    "pipeline",
    "switch",
];

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        log: LogArgs,
    }

    #[test]
    fn flags_are_read_as_manifests_write_them() {
        let args = Args::parse_from([
            "antrea-agent",
            "--logtostderr=false",
            "--log_dir=/var/log/antrea",
            "--alsologtostderr",
            "--log_file_max_size=100",
            "--log_file_max_num=4",
            "--v=4",
        ]);
        assert!(!args.log.log_to_stderr);
        assert!(args.log.also_log_to_stderr);
        assert_eq!(args.log.verbosity, 4);
        assert_eq!(args.log.log_dir.as_deref(), Some(std::path::Path::new("/var/log/antrea")));
    }

    #[test]
    fn defaults_of_the_flags_are_the_defaults_of_the_type() {
        let args = Args::parse_from(["antrea-agent", "--logtostderr", "-v", "2"]);
        assert_eq!(args.log.verbosity, 2);
        let plain = Args::parse_from(["antrea-agent"]).log;
        assert_eq!(format!("{plain:?}"), format!("{:?}", LogArgs::default()));
    }

    #[test]
    fn verbosity_opens_our_messages_before_those_of_libraries() {
        let at = |verbosity| LogArgs { verbosity, ..LogArgs::default() }.filter();
        let debug = tracing::Level::DEBUG;
        assert!(!at(0).would_enable("kube_io::lease", &debug));
        assert!(at(2).would_enable("kube_io::lease", &debug));
        assert!(!at(2).would_enable("hyper", &tracing::Level::INFO));
        assert!(at(4).would_enable("hyper", &tracing::Level::INFO));
        assert!(at(8).would_enable("hyper", &debug));
    }

    #[test]
    fn a_file_needs_a_folder() {
        let args = LogArgs { log_to_stderr: false, ..LogArgs::default() };
        assert!(matches!(args.init("x"), Err(LogError::NoFolder)));
    }
}

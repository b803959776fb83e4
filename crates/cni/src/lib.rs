//! Turns one run of the plugin (environment, standard input) into what it prints.
//!
//! VERSION is answered here. Every other verb is one call to the agent, whose answer is printed
//! as it is; this side decides nothing about a Pod. Errors are printed as the specification's error
//! object, with exit status 1.
//! Not here: doing what is asked (`antrea_agent::cni`).

mod call;
mod verb;

use std::io;
use std::path::PathBuf;

use cni_api::rpc::CniCmdArgs;
use cni_api::{CniError, Code, NetConf, VersionReply};

use verb::Verb;

/// Where the agent listens when neither the environment nor the configuration says otherwise.
pub const DEFAULT_SOCKET: &str = "/var/run/antrea/cni.sock";

/// The environment variable that overrides the socket. It goes before the configuration's
/// `cniSocket`.
pub const SOCKET_VARIABLE: &str = "ANTREA_CNI_SOCKET";

/// What a run prints and whether it succeeded.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Everything for standard output.
    pub stdout: Vec<u8>,
    /// Exit status 0 or 1.
    pub succeeded: bool,
}

/// What the plugin says of itself when it is asked on a command line; a runtime gives it none. None
/// for what it does not know.
pub fn answer_to(argument: &str) -> Option<String> {
    let version = env!("CARGO_PKG_VERSION");
    match argument {
        "--version" | "-V" => Some(format!("antrea-cni {version}\n")),
        "--help" | "-h" => Some(format!(
            "antrea-cni {version}, the CNI plugin of Antrea\n\n\
             A container runtime runs it with CNI_COMMAND, CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME,\n\
             CNI_ARGS and CNI_PATH in the environment and a network configuration on standard\n\
             input. It hands the request to antrea-agent at {DEFAULT_SOCKET},\n\
             or where {SOCKET_VARIABLE} or the configuration's cniSocket says.\n\n\
             usage: antrea-cni [--help | --version]\n",
        )),
        _ => None,
    }
}

/// Runs the plugin once.
pub fn run(env: impl Fn(&str) -> Option<String>, stdin: io::Result<Vec<u8>>) -> Outcome {
    let mut version = String::new();
    match answer(env, stdin, &mut version) {
        Ok(stdout) => Outcome { stdout, succeeded: true },
        Err(error) => {
            let error = error.in_version(&version);
            let mut stdout = serde_json::to_vec_pretty(&error).unwrap_or_default();
            stdout.push(b'\n');
            Outcome { stdout, succeeded: false }
        }
    }
}

/// The same with errors apart; `version` is set as soon as the configuration has told it.
fn answer(
    env: impl Fn(&str) -> Option<String>,
    stdin: io::Result<Vec<u8>>,
    version: &mut String,
) -> Result<Vec<u8>, CniError> {
    let get = |name: &str| env(name).filter(|value| !value.is_empty());
    let verb = verb::from_env(get)?;
    let stdin = stdin.map_err(|error| {
        CniError::new(Code::IO_FAILURE, format!("read standard input: {error}"))
    })?;
    // Tools ask for the versions without a configuration, which tells nothing but a version.
    if verb == Verb::Version && stdin.trim_ascii().is_empty() {
        return versions("");
    }
    let conf: NetConf = serde_json::from_slice(&stdin).map_err(|error| {
        let msg = format!("network configuration on standard input: {error}");
        CniError::new(Code::DECODING_FAILURE, msg)
    })?;
    version.clone_from(&conf.cni_version);

    if verb == Verb::Version {
        return versions(&conf.cni_version);
    }
    let spec = conf
        .cni_version
        .parse::<cni_api::SpecVersion>()
        .map_err(|error| CniError::new(Code::INCOMPATIBLE_CNI_VERSION, error.to_string()))?;
    verb.check_version(spec)?;
    if verb == Verb::Add {
        // The agent says so too; but a socket that is misspelt is not where it is.
        conf.check()
            .map_err(|error| CniError::new(Code::INVALID_NETWORK_CONFIG, error.to_string()))?;
    }

    let socket = get(SOCKET_VARIABLE)
        .or(conf.cni_socket)
        .map_or_else(|| PathBuf::from(DEFAULT_SOCKET), PathBuf::from);
    let args = CniCmdArgs {
        container_id: get("CNI_CONTAINERID").unwrap_or_default(),
        netns: get("CNI_NETNS").unwrap_or_default(),
        ifname: get("CNI_IFNAME").unwrap_or_default(),
        args: get("CNI_ARGS").unwrap_or_default(),
        path: get("CNI_PATH").unwrap_or_default(),
        network_configuration: stdin,
    };
    call::call(&socket, verb, args)
}

fn versions(asked: &str) -> Result<Vec<u8>, CniError> {
    serde_json::to_vec(&VersionReply::to(asked))
        .map_err(|error| CniError::new(Code::GENERIC, error.to_string()))
}

#[cfg(test)]
mod tests;

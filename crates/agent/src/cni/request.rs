//! Turns the bytes of a request into a checked one.
//!
//! Pure; bytes from outside never panic. Not here: whether what is asked can be done.

use std::path::PathBuf;

use cni_api::rpc::CniCmdArgs;
use cni_api::{
    ArgsError, Attachment, Code, ConfError, ContainerId, IdentError, NetConf, PodArgs, SpecVersion,
};

use super::model::PodName;
use super::traits::IpamRequest;

/// The only kind of address management built so far.
const HOST_LOCAL: &str = "host-local";

/// The network's name when a configuration gives none.
const DEFAULT_NETWORK: &str = "antrea";

/// What a runtime asks for about one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Connect it.
    Add,
    /// See whether it is as connected.
    Check,
    /// Disconnect it.
    Del,
}

/// Why a request makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The gRPC message lacks its only field.
    #[error("request without arguments")]
    Empty,
    /// The network configuration.
    #[error(transparent)]
    Conf(#[from] ConfError),
    /// The verb is newer than the configuration's version.
    #[error("cniVersion {version} does not have {verb}")]
    NoSuchVerb {
        /// The version.
        version: SpecVersion,
        /// The verb.
        verb: &'static str,
    },
    /// The container's id or interface name.
    #[error(transparent)]
    Ident(#[from] IdentError),
    /// `CNI_ARGS`.
    #[error(transparent)]
    Args(#[from] ArgsError),
    /// A variable that the verb needs.
    #[error("{0} is not set")]
    Missing(&'static str),
    /// The name of the network cannot be one.
    #[error(
        "network name {0:?} is not a letter or digit followed by letters, digits, '_', '.', '-'"
    )]
    NetworkName(String),
    /// A key has a value that is not supported.
    #[error("{key} {value:?} is not supported, {why}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is.
        why: &'static str,
    },
    /// The folder of leases, which would depend on where the agent was started.
    #[error("ipam.dataDir {0:?} is not an absolute path")]
    LeaseDir(String),
    /// What should be another plugin's result is none.
    #[error("prevResult {0} is not the result of a plugin")]
    NoResult(String),
    /// A key that the verb needs is absent.
    #[error("network configuration lacks {0}")]
    ConfLacks(&'static str),
}

impl RequestError {
    /// The specification's code.
    pub fn code(&self) -> Code {
        match self {
            Self::Empty | Self::Conf(ConfError::Decode(_) | ConfError::PrevResult(_)) => {
                Code::DECODING_FAILURE
            }
            Self::Conf(ConfError::Version(_)) | Self::NoSuchVerb { .. } => {
                Code::INCOMPATIBLE_CNI_VERSION
            }
            Self::Ident(_) | Self::Args(_) | Self::Missing(_) => Code::INVALID_ENVIRONMENT,
            Self::NoResult(_) => Code::DECODING_FAILURE,
            Self::Conf(ConfError::Mtu(_) | ConfError::Misspelt { .. })
            | Self::NetworkName(_)
            | Self::ConfLacks(_)
            | Self::LeaseDir(_) => Code::INVALID_NETWORK_CONFIG,
            Self::Unsupported { .. } => Code::UNSUPPORTED_FIELD,
        }
    }
}

/// A checked request.
#[derive(Clone, Debug)]
pub struct CmdRequest {
    /// Container and interface.
    pub attachment: Attachment,
    /// The Pod it belongs to.
    pub pod: PodName,
    /// Path of the network namespace; may be empty with DEL.
    pub netns: String,
    /// The configuration.
    pub conf: NetConf,
    /// The version to answer in.
    pub version: SpecVersion,
    /// Where its lease is.
    pub ipam: IpamRequest,
}

impl CmdRequest {
    /// Checks a request for `verb`.
    pub fn parse(verb: Verb, args: Option<CniCmdArgs>) -> Result<Self, RequestError> {
        let args = args.ok_or(RequestError::Empty)?;
        let (conf, version) = NetConf::parse(&args.network_configuration)?;
        if verb == Verb::Check && !version.has_check() {
            return Err(RequestError::NoSuchVerb { version, verb: "CHECK" });
        }
        let attachment = Attachment::new(args.container_id, args.ifname)?;
        let pod_args = match PodArgs::parse(&args.args) {
            Ok(pod_args) => pod_args,
            // What was connected must come off, whatever is said about it.
            Err(_) if verb == Verb::Del => PodArgs::default(),
            Err(error) => return Err(error.into()),
        };
        if verb != Verb::Del && args.netns.is_empty() {
            return Err(RequestError::Missing("CNI_NETNS"));
        }
        if verb == Verb::Add {
            conf.check()?;
            check_supported(&conf)?;
            check_complete(&conf)?;
        }
        let ipam = IpamRequest {
            attachment: attachment.clone(),
            network: network_name(&conf)?,
            data_dir: data_dir(&conf),
            wish: pod_args.ip,
            netns: args.netns.clone(),
            cni_path: args.path,
        };
        Ok(Self {
            attachment,
            pod: PodName { namespace: pod_args.pod_namespace, name: pod_args.pod_name },
            netns: args.netns,
            conf,
            version,
            ipam,
        })
    }
}

fn check_supported(conf: &NetConf) -> Result<(), RequestError> {
    if let Some(ipam) = &conf.ipam
        && !ipam.kind.is_empty()
        && ipam.kind != HOST_LOCAL
    {
        return Err(RequestError::Unsupported {
            key: "ipam.type",
            value: ipam.kind.clone(),
            why: "only host-local is",
        });
    }
    let previous = conf.prev_result.as_ref().filter(|value| !value.is_null());
    if let Some(value) = previous.filter(|value| !value.is_object()) {
        let text: String = value.to_string().chars().take(60).collect();
        return Err(RequestError::NoResult(text));
    }
    if previous.is_some() {
        return Err(RequestError::Unsupported {
            key: "prevResult",
            value: "of another plugin".into(),
            why: "antrea has to be the first plugin of the list",
        });
    }
    Ok(())
}

/// What the specification asks for, and what leases need. DEL goes without: what was connected
/// must come off.
fn check_complete(conf: &NetConf) -> Result<(), RequestError> {
    if conf.name.is_empty() {
        return Err(RequestError::ConfLacks("name"));
    }
    match data_dir(conf) {
        Some(dir) if !dir.is_absolute() => Err(RequestError::LeaseDir(dir.display().to_string())),
        _ => Ok(()),
    }
}

/// The name of the network, which becomes a folder of leases.
pub(super) fn network_name(conf: &NetConf) -> Result<String, RequestError> {
    if conf.name.is_empty() {
        return Ok(DEFAULT_NETWORK.to_owned());
    }
    // The specification gives both the same pattern.
    match ContainerId::new(conf.name.as_str()) {
        Ok(_) => Ok(conf.name.clone()),
        Err(_) => Err(RequestError::NetworkName(conf.name.clone())),
    }
}

/// The folder of leases, when the configuration names one.
pub(super) fn data_dir(conf: &NetConf) -> Option<PathBuf> {
    let text = conf.ipam.as_ref()?.rest.get("dataDir")?.as_str()?;
    (!text.is_empty()).then(|| PathBuf::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_args(conf: &str) -> CniCmdArgs {
        CniCmdArgs {
            container_id: "c1".into(),
            netns: "/run/netns/p".into(),
            ifname: "eth0".into(),
            args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0".into(),
            path: String::new(),
            network_configuration: conf.as_bytes().to_vec(),
        }
    }

    const CONF: &str = r#"{"cniVersion":"0.3.0","name":"antrea","type":"antrea",
        "ipam":{"type":"host-local","dataDir":"/leases"}}"#;

    #[test]
    fn a_request_is_read() {
        let request = CmdRequest::parse(Verb::Add, Some(mk_args(CONF))).unwrap();
        assert_eq!(request.attachment.to_string(), "c1/eth0");
        assert_eq!(request.pod.to_string(), "shop/web-0");
        assert_eq!(request.ipam.data_dir, Some("/leases".into()));
        assert_eq!(request.ipam.network, "antrea");
    }

    #[test]
    fn bad_requests_have_the_specs_codes() {
        let conf = |text: &str| mk_args(text);
        let with = |change: &dyn Fn(&mut CniCmdArgs)| {
            let mut args = mk_args(CONF);
            change(&mut args);
            args
        };
        for (name, verb, args, code) in [
            ("no JSON", Verb::Add, conf("{"), 6),
            ("not UTF-8", Verb::Add, with(&|a| a.network_configuration = vec![0xff, 0xfe]), 6),
            ("future version", Verb::Add, conf(r#"{"cniVersion":"9.0.0"}"#), 1),
            ("CHECK before 0.4.0", Verb::Check, conf(CONF), 1),
            ("container id", Verb::Add, with(&|a| a.container_id = "../c".into()), 4),
            ("interface name", Verb::Add, with(&|a| a.ifname = "a/b".into()), 4),
            ("arguments", Verb::Add, with(&|a| a.args = "nonsense".into()), 4),
            ("no namespace", Verb::Add, with(&|a| a.netns = String::new()), 4),
            ("network name", Verb::Add, conf(r#"{"name":"../../etc"}"#), 7),
            ("network name of DEL", Verb::Del, conf(r#"{"name":"../../etc"}"#), 7),
            ("other IPAM", Verb::Add, conf(r#"{"ipam":{"type":"dhcp"}}"#), 2),
            ("not the first", Verb::Add, conf(r#"{"prevResult":{"ips":[]}}"#), 2),
            ("no result", Verb::Add, conf(r#"{"name":"n","prevResult":7}"#), 6),
            ("no network name", Verb::Add, conf(r#"{"cniVersion":"1.0.0"}"#), 7),
            ("MTU out of range", Verb::Add, conf(r#"{"name":"n","mtu":99999}"#), 7),
            ("a key misspelt", Verb::Add, conf(r#"{"name":"n","cniSocke":"/x"}"#), 7),
            (
                "relative folder of leases",
                Verb::Add,
                conf(r#"{"name":"n","ipam":{"type":"host-local","dataDir":"leases"}}"#),
                7,
            ),
        ] {
            let error = CmdRequest::parse(verb, Some(args)).expect_err(name);
            assert_eq!(error.code(), Code(code), "{name}: {error}");
        }
        assert_eq!(CmdRequest::parse(Verb::Add, None).unwrap_err().code(), Code(6));
    }

    #[test]
    fn del_takes_what_add_would_refuse() {
        let mut args =
            mk_args(r#"{"ipam":{"type":"dhcp"},"prevResult":{},"mtu":99999,"cniSocke":"/x"}"#);
        args.netns = String::new();
        args.args = "nonsense".into();
        let request = CmdRequest::parse(Verb::Del, Some(args)).unwrap();
        assert_eq!(request.ipam.network, "antrea");
    }
}

//! The network configuration on a plugin's standard input.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::keys;
use crate::{Attachment, CniResult, Dns, ResultError, SpecVersion, UnknownVersion};

/// Why a network configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfError {
    /// It is not JSON, or not JSON of the right form.
    #[error("decode network configuration")]
    Decode(#[from] serde_json::Error),
    /// It asks for a version of the specification that we do not speak.
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    /// The result of an earlier plugin or an earlier ADD does not decode.
    #[error("decode prevResult")]
    PrevResult(#[source] ResultError),
    /// A number that no link can have.
    #[error("mtu {0} is not between {MIN_MTU} and {MAX_MTU}")]
    Mtu(u32),
    /// A key that nobody knows and that is nearly one of ours.
    #[error("unknown key {key:?}: {meant:?} is meant")]
    Misspelt {
        /// The key.
        key: String,
        /// The key of ours.
        meant: &'static str,
    },
}

/// The least MTU that IPv4 takes.
const MIN_MTU: u32 = 68;
/// The most that a link takes.
const MAX_MTU: u32 = 65_535;

/// The `ipam` part; what the type in it needs beyond this stays in `rest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpamConf {
    /// The IPAM plugin, such as `host-local`.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Every other key.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A network configuration: the keys of the specification, and ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetConf {
    /// Version of the specification; empty means 0.1.0.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cni_version: String,
    /// Name of the network.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name of the plugin.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Wished MTU of the Pod's interface; 0 leaves it to the agent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mtu: u32,
    /// Socket of the agent, when it is not at the usual place. A key of ours, for antrea-cni.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni_socket: Option<String>,
    /// Address management.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam: Option<IpamConf>,
    /// Name service settings handed through to the result.
    #[serde(default, skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
    /// Result of an earlier ADD, or of the plugin before us in a chain. See [`Self::previous`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev_result: Option<Value>,
    /// What the runtime fills in for declared capabilities.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub runtime_config: Map<String, Value>,
    /// Arguments of the network, by convention under `cni`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
    /// GC: attachments that are still in use.
    #[serde(
        default,
        rename = "cni.dev/valid-attachments",
        skip_serializing_if = "Option::is_none"
    )]
    pub valid_attachments: Option<Vec<Attachment>>,
    /// The same under the name that the first runtimes with GC used.
    #[serde(default, rename = "cni.dev/attachments", skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<Attachment>>,
    /// Every key we do not know, kept for plugins behind us.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl NetConf {
    /// Decodes standard input. The version in it must be one of ours.
    pub fn parse(bytes: &[u8]) -> Result<(Self, SpecVersion), ConfError> {
        let conf: Self = serde_json::from_slice(bytes)?;
        let version = conf.cni_version.parse()?;
        Ok((conf, version))
    }

    /// Refuses values out of range and keys that are misspelt. Asked before something is made, not
    /// before it is taken away.
    pub fn check(&self) -> Result<(), ConfError> {
        if self.mtu != 0 && !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(ConfError::Mtu(self.mtu));
        }
        for key in self.rest.keys() {
            if let Some(meant) = keys::meant(key) {
                let key = key.chars().take(60).collect();
                return Err(ConfError::Misspelt { key, meant });
            }
        }
        Ok(())
    }

    /// The decoded `prevResult`, or none when the configuration has none.
    pub fn previous(&self) -> Result<Option<CniResult>, ConfError> {
        let Some(value) = &self.prev_result else { return Ok(None) };
        let version = self.cni_version.parse()?;
        CniResult::from_value(value, version).map(Some).map_err(ConfError::PrevResult)
    }

    /// The attachments still in use, by either name of the key. None when the runtime sent no list,
    /// which must not be taken for an empty one.
    pub fn valid_attachments(&self) -> Option<&[Attachment]> {
        self.valid_attachments.as_deref().or(self.attachments.as_deref())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_keeps_what_it_does_not_know() {
        let text = r#"{
            "cniVersion": "0.3.0", "name": "antrea", "type": "antrea", "mtu": 1400,
            "ipam": {"type": "host-local", "dataDir": "/x"},
            "runtimeConfig": {"portMappings": []}, "capabilities": {"portMappings": true}
        }"#;
        let (conf, version) = NetConf::parse(text.as_bytes()).unwrap();
        assert_eq!(version, SpecVersion::V0_3_0);
        assert_eq!(conf.mtu, 1400);
        let ipam = conf.ipam.as_ref().unwrap();
        assert_eq!(ipam.kind, "host-local");
        assert_eq!(ipam.rest["dataDir"], "/x");
        assert!(conf.rest.contains_key("capabilities"));
        let again = serde_json::to_vec(&conf).unwrap();
        assert_eq!(NetConf::parse(&again).unwrap().0, conf);
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        for bad in ["", "{", "[]", "7", "null", r#"{"cniVersion":7}"#, r#"{"mtu":-1}"#, "\u{0}"] {
            assert!(matches!(NetConf::parse(bad.as_bytes()), Err(ConfError::Decode(_))), "{bad}");
        }
        let future = NetConf::parse(br#"{"cniVersion":"2.0.0"}"#);
        assert!(matches!(future, Err(ConfError::Version(_))));
    }

    #[test]
    fn values_out_of_range_and_misspelt_keys_are_refused_by_name() {
        for (text, words) in [
            (r#"{"mtu": 99999}"#, "mtu 99999 is not between 68 and 65535"),
            (r#"{"mtu": 67}"#, "mtu 67"),
            (r#"{"cniSocke": "/x"}"#, r#"unknown key "cniSocke": "cniSocket" is meant"#),
        ] {
            let error = NetConf::parse(text.as_bytes()).unwrap().0.check().unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        for fine in [
            "{}",
            r#"{"mtu": 0}"#,
            r#"{"mtu": 68}"#,
            r#"{"mtu": 65535}"#,
            r#"{"capabilities": {}, "disableCheck": true, "x-runtime": 1, "cniSocket": "/x"}"#,
        ] {
            NetConf::parse(fine.as_bytes()).unwrap().0.check().unwrap();
        }
    }

    #[test]
    fn valid_attachments_have_two_names_and_absent_is_not_empty() {
        let of = |text: &str| {
            let (conf, _) = NetConf::parse(text.as_bytes()).unwrap();
            conf.valid_attachments().map(<[Attachment]>::to_vec)
        };
        let one = Attachment::new("c1", "eth0").unwrap();
        assert_eq!(of("{}"), None);
        assert_eq!(of(r#"{"cni.dev/valid-attachments":[]}"#), Some(vec![]));
        for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            let text = format!(r#"{{"{key}":[{{"containerID":"c1","ifname":"eth0"}}]}}"#);
            assert_eq!(of(&text), Some(vec![one.clone()]), "{key}");
        }
    }
}

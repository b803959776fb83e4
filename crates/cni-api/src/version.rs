//! The versions of the CNI specification we speak.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A version of the CNI specification, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpecVersion {
    /// 0.1.0, also meant when a configuration names no version.
    V0_1_0,
    /// 0.2.0, the same as 0.1.0 on the wire.
    V0_2_0,
    /// 0.3.0 brought interfaces and lists of addresses.
    V0_3_0,
    /// 0.3.1
    V0_3_1,
    /// 0.4.0 brought CHECK and `prevResult` on DEL.
    V0_4_0,
    /// 1.0.0 dropped the `version` field of addresses.
    V1_0_0,
    /// 1.1.0 brought GC and STATUS.
    V1_1_0,
}

/// A version that is none of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported cniVersion {0:?}, supported are 0.1.0 to 1.1.0")]
pub struct UnknownVersion(pub String);

impl SpecVersion {
    /// Every version, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// The newest version.
    pub const LATEST: Self = Self::V1_1_0;

    /// The version as it is written in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// CHECK exists from 0.4.0 on.
    pub fn has_check(self) -> bool {
        self >= Self::V0_4_0
    }

    /// GC and STATUS exist from 1.1.0 on.
    pub fn has_gc_and_status(self) -> bool {
        self >= Self::V1_1_0
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SpecVersion {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::V0_1_0);
        }
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

/// The answer to the VERSION verb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionReply {
    /// The version the runtime asked in.
    pub cni_version: String,
    /// What the plugin can be asked in.
    pub supported_versions: Vec<String>,
}

impl VersionReply {
    /// The reply to a request in `asked`.
    pub fn to(asked: &str) -> Self {
        let cni_version =
            if asked.is_empty() { SpecVersion::LATEST.as_str() } else { asked }.to_owned();
        let supported_versions = SpecVersion::ALL.iter().map(ToString::to_string).collect();
        Self { cni_version, supported_versions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_round_trip_and_are_ordered() {
        for version in SpecVersion::ALL {
            assert_eq!(version.as_str().parse(), Ok(version));
        }
        assert!(SpecVersion::ALL.is_sorted());
        assert_eq!("".parse(), Ok(SpecVersion::V0_1_0));
        for bad in ["1.2.0", "v1.0.0", "1.0", "0.3.0 "] {
            assert!(bad.parse::<SpecVersion>().is_err(), "{bad}");
        }
    }

    #[test]
    fn version_reply_repeats_the_asked_version() {
        let reply = serde_json::to_string(&VersionReply::to("0.4.0")).unwrap();
        assert!(reply.starts_with(r#"{"cniVersion":"0.4.0","supportedVersions":["0.1.0","#));
        assert_eq!(VersionReply::to("").cni_version, "1.1.0");
    }
}

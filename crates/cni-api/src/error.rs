//! The error object a plugin prints, and its codes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A result code: those below 100 are the specification's, the others Antrea's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Code(pub u32);

impl Code {
    /// Nothing more is known.
    pub const UNKNOWN: Self = Self(0);
    /// The configuration's `cniVersion` is not supported.
    pub const INCOMPATIBLE_CNI_VERSION: Self = Self(1);
    /// A field of the configuration is not supported; the message names it.
    pub const UNSUPPORTED_FIELD: Self = Self(2);
    /// The container does not exist: the runtime need not clean up.
    pub const UNKNOWN_CONTAINER: Self = Self(3);
    /// An environment variable is missing or wrong; the message names it.
    pub const INVALID_ENVIRONMENT: Self = Self(4);
    /// Reading standard input failed.
    pub const IO_FAILURE: Self = Self(5);
    /// Standard input is not what it should be.
    pub const DECODING_FAILURE: Self = Self(6);
    /// The configuration decodes but makes no sense.
    pub const INVALID_NETWORK_CONFIG: Self = Self(7);
    /// The network namespace given cannot be used.
    pub const INVALID_NETNS: Self = Self(8);
    /// A passing condition: the runtime should try again.
    pub const TRY_AGAIN_LATER: Self = Self(11);
    /// STATUS: the plugin cannot serve ADD.
    pub const PLUGIN_NOT_AVAILABLE: Self = Self(50);
    /// STATUS: as 50, and containers of this network may lack connectivity.
    pub const LIMITED_CONNECTIVITY: Self = Self(51);
    /// An operation that none of the others describes failed.
    pub const GENERIC: Self = Self(100);
    /// Allocating, checking or releasing an address failed.
    pub const IPAM_FAILURE: Self = Self(101);
    /// Building the Pod's interface failed.
    pub const CONFIG_INTERFACE_FAILURE: Self = Self(102);
    /// CHECK found the interface not as it should be.
    pub const CHECK_INTERFACE_FAILURE: Self = Self(103);
    /// The agent's answer is not one.
    pub const UNKNOWN_RPC_ERROR: Self = Self(201);
    /// The agent does not know the request.
    pub const INCOMPATIBLE_API_VERSION: Self = Self(202);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({})", self.0)
    }
}

/// The error object on a plugin's standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{msg} (code {code})")]
pub struct CniError {
    /// The version of the configuration that was refused.
    #[serde(default)]
    pub cni_version: String,
    /// What kind of failure.
    pub code: Code,
    /// One line for people.
    pub msg: String,
    /// More for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl CniError {
    /// An error without details; the version is set by who prints it.
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self { cni_version: String::new(), code, msg: msg.into(), details: String::new() }
    }

    /// The same error in the words of the version of a configuration.
    pub fn in_version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.cni_version);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_written_as_the_specification_says() {
        let error = CniError::new(Code::TRY_AGAIN_LATER, "agent not ready").in_version("1.0.0");
        let json = serde_json::to_string(&error).unwrap();
        assert_eq!(json, r#"{"cniVersion":"1.0.0","code":11,"msg":"agent not ready"}"#);
        assert_eq!(serde_json::from_str::<CniError>(&json).unwrap(), error);
    }
}

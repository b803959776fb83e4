//! Which interface of which container a request is about.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Linux allows 15 bytes for an interface name.
const IFNAME_MAX: usize = 15;

/// The specification sets no limit; with this one an attachment fits into the alias of a link.
const CONTAINER_ID_MAX: usize = 200;

/// Why a container id or an interface name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentError {
    /// The container id breaks the specification's pattern.
    #[error(
        "container id {0:?} is not a letter or digit followed by letters, digits, '_', '.' or '-'"
    )]
    ContainerId(String),
    /// The kernel would not take the interface name.
    #[error("interface name {0:?} is not 1 to 15 bytes without '/', ':' and blanks")]
    IfName(String),
}

/// A runtime's id of a container or Pod sandbox (`CNI_CONTAINERID`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ContainerId(String);

impl ContainerId {
    /// Takes an id that follows the specification's pattern.
    pub fn new(id: impl Into<String>) -> Result<Self, IdentError> {
        let id = id.into();
        let mut bytes = id.bytes();
        let good = bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
            && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
            && id.len() <= CONTAINER_ID_MAX;
        if good { Ok(Self(id)) } else { Err(IdentError::ContainerId(id)) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of an interface inside a container (`CNI_IFNAME`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct IfName(String);

impl IfName {
    /// Takes a name the kernel would take.
    pub fn new(name: impl Into<String>) -> Result<Self, IdentError> {
        let name = name.into();
        let good = (1..=IFNAME_MAX).contains(&name.len())
            && name != "."
            && name != ".."
            && !name.chars().any(|c| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
        if good { Ok(Self(name)) } else { Err(IdentError::IfName(name)) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One interface of one container: what the specification calls an attachment, and the key of
/// everything the agent keeps about a Pod's network. A Pod's name is no key: a StatefulSet's next
/// Pod has the same one while its predecessor is still being removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Attachment {
    /// The container.
    #[serde(rename = "containerID")]
    pub container_id: ContainerId,
    /// Its interface.
    pub ifname: IfName,
}

impl Attachment {
    /// Takes an id and a name that both follow their rules.
    pub fn new(
        container_id: impl Into<String>,
        ifname: impl Into<String>,
    ) -> Result<Self, IdentError> {
        Ok(Self { container_id: ContainerId::new(container_id)?, ifname: IfName::new(ifname)? })
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container_id, self.ifname)
    }
}

impl<'de> Deserialize<'de> for Attachment {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(rename = "containerID")]
            container_id: String,
            ifname: String,
        }
        let raw = Raw::deserialize(deserializer)?;
        Self::new(raw.container_id, raw.ifname).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_ids_follow_the_pattern() {
        for good in ["a", "0", "abc_D.e-f", "9f3c"] {
            assert!(ContainerId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "a/b", "a b", "é", "a\n", &"a".repeat(300)] {
            assert!(ContainerId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn interface_names_are_what_the_kernel_takes() {
        for good in ["eth0", "e", "net1.100", "fifteen-bytes-x"] {
            assert!(IfName::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a:b", "a b", "sixteen-bytes-xx", "a\0"] {
            assert!(IfName::new(bad).is_err(), "{bad:?}");
        }
    }
}

//! Names of groups: functions of what the group stands for, equal on every replica.

use std::fmt;

use sha1::{Digest, Sha1};

use crate::index::Selector;

/// Namespace of the UUIDs that name groups.
const NAMESPACE: [u8; 16] = [
    0xe4, 0xf2, 0x4a, 0x48, 0xca, 0x1f, 0x4d, 0x5b, 0x81, 0x9c, 0xea, 0x76, 0x32, 0xb2, 0x21, 0x15,
];

/// Name of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupName {
    /// Of a selector.
    Uuid([u8; 16]),
    /// Of a group that a user named.
    Text(Box<str>),
}

impl GroupName {
    /// The name (UUID version 5) of what a text describes.
    pub(super) fn of(text: &str) -> Self {
        let hash = Sha1::new().chain_update(NAMESPACE).chain_update(text).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        bytes[6] = (bytes[6] & 0x0f) | 0x50;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Self::Uuid(bytes)
    }

    /// The name of Pods in one namespace.
    pub(super) fn of_namespace(namespace: &str, pods: &Selector) -> Self {
        Self::of(&format!("namespace={namespace} And podSelector={pods}"))
    }

    /// The name of Pods in the namespaces that a selector selects.
    pub(super) fn of_namespaces(namespaces: &Selector, pods: &Selector) -> Self {
        Self::of(&format!("namespaceSelector={namespaces} And podSelector={pods}"))
    }

    /// The name of Nodes.
    pub(super) fn of_nodes(nodes: &Selector) -> Self {
        Self::of(&format!("nodeSelector={nodes}"))
    }

    /// The name of a Service as a target.
    pub(super) fn of_service(namespace: &str, name: &str) -> Self {
        Self::of(&format!("service={namespace}/{name}"))
    }

    /// The name of a group that a user named: that name, unless it could be taken for a UUID.
    pub(super) fn of_named(namespace: &str, name: &str) -> Self {
        match namespace {
            "" if Self::parse_uuid(name).is_some() => Self::of(&format!("clusterGroup={name}")),
            "" => Self::Text(name.into()),
            namespace => Self::Text(format!("{namespace}/{name}").into()),
        }
    }

    /// Reads a name.
    pub fn parse(text: &str) -> Self {
        Self::parse_uuid(text).map_or_else(|| Self::Text(text.into()), Self::Uuid)
    }

    fn parse_uuid(text: &str) -> Option<[u8; 16]> {
        let text = text.as_bytes();
        if text.len() != 36 {
            return None;
        }
        let mut bytes = [0; 16];
        let mut digits = 0;
        for (at, letter) in text.iter().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                if *letter != b'-' {
                    return None;
                }
                continue;
            }
            let digit = match letter {
                b'0'..=b'9' => letter - b'0',
                b'a'..=b'f' => letter - b'a' + 10,
                _ => return None,
            };
            bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
            digits += 1;
        }
        Some(bytes)
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(bytes) => {
                let mut text = [b'-'; 36];
                let mut at = 0;
                for (n, byte) in bytes.iter().enumerate() {
                    if matches!(n, 4 | 6 | 8 | 10) {
                        at += 1;
                    }
                    for nibble in [byte >> 4, byte & 15] {
                        text[at] = b"0123456789abcdef"[usize::from(nibble)];
                        at += 1;
                    }
                }
                f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
            }
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_version_5_uuids() {
        let name = GroupName::of("namespace=x And podSelector=app=web");
        let text = name.to_string();
        assert_eq!(&text[14..15], "5");
        assert!("89ab".contains(&text[19..20]), "{text}");
        assert_eq!(GroupName::parse(&text), name);
        assert_eq!(GroupName::of_namespace("x", &Selector::equal("app", "web")).to_string(), text);
    }

    #[test]
    fn a_group_of_a_user_never_takes_the_name_of_a_selector() {
        let taken = GroupName::of("namespace=x And podSelector=").to_string();
        assert_ne!(GroupName::of_named("", &taken).to_string(), taken);
        assert_eq!(GroupName::of_named("", "web").to_string(), "web");
        assert_eq!(GroupName::of_named("x", "web").to_string(), "x/web");
    }
}

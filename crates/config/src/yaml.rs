//! Turns YAML text into a small tree that remembers the line of each key.
//!
//! The tree is untyped on purpose: every value is judged by the table of keys, so that one file's
//! errors are found together and named in the user's words.
//! Not here: which keys exist (`agent_keys`, `controller_keys`), what a value must look like (`kind`).

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// One YAML value.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Nothing: `key:`, `~` or `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Line of the key, counted from 1; 0 when the parser did not say.
    pub line: u64,
    /// The value.
    pub node: Node,
}

/// Parses one YAML document; an empty one is an empty mapping.
pub(crate) fn parse(text: &str) -> Result<Node, serde_saphyr::Error> {
    // Keys that are there twice are the caller's to name.
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
    };
    Ok(match serde_saphyr::from_str_with_options::<Option<Node>>(text, options)? {
        None | Some(Node::Null) => Node::Map(Vec::new()),
        Some(node) => node,
    })
}

/// The value as a user would write it on one line.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(value) if value.is_empty() => f.write_str("\"\""),
            Self::Text(value) => f.write_str(value),
            Self::List(items) => {
                f.write_str("[")?;
                for (n, item) in items.iter().enumerate() {
                    f.write_str(if n == 0 { "" } else { ", " })?;
                    write!(f, "{item}")?;
                }
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("{")?;
                for (n, entry) in entries.iter().enumerate() {
                    f.write_str(if n == 0 { "" } else { ", " })?;
                    write!(f, "{}: {}", entry.key, entry.node)?;
                }
                f.write_str("}")
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Int(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Node, E> {
        i64::try_from(value).map(Node::Int).map_err(|_| E::custom("number too large"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries: Vec<Entry> = Vec::new();
        while let Some((key, node)) = map.next_entry::<Spanned<String>, Node>()? {
            entries.push(Entry { line: key.referenced.line(), key: key.value, node });
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_remember_their_lines() {
        let tree = parse("# head\na: 1\nb:\n  c: x\n  d: [z, 2]\n").unwrap();
        let Node::Map(top) = &tree else { panic!("{tree:?}") };
        assert_eq!(top.iter().map(|e| e.line).collect::<Vec<_>>(), [2, 3]);
        let Node::Map(inner) = &top[1].node else { panic!("{tree:?}") };
        assert_eq!(inner.iter().map(|e| e.line).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(tree.to_string(), "{a: 1, b: {c: x, d: [z, 2]}}");
    }

    #[test]
    fn emptiness_is_an_empty_mapping() {
        for text in ["", "\n", "# only a comment\n", "---\n", "{}", "null"] {
            assert_eq!(parse(text).unwrap(), Node::Map(Vec::new()), "{text:?}");
        }
    }

    #[test]
    fn nonsense_is_an_error_and_no_panic() {
        for text in ["a: [", "a: 1\na: 2", ": :", "\t- x", "a: 99999999999999999999999x: y", "\0"] {
            let _ = parse(text);
        }
        let Node::Map(twice) = parse("a: 1\na: 2").unwrap() else { panic!("no mapping") };
        assert_eq!(twice.iter().map(|e| e.line).collect::<Vec<_>>(), [1, 2]);
        assert!(parse("a: [").is_err());
    }
}

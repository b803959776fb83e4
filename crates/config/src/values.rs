//! Reads a file by the table of keys: all values, or all mistakes.
//!
//! Not here: what values mean together (`agent`, `controller`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::error::ConfigError;
use crate::gates::FeatureGates;
use crate::key::{Built, Component, Key};
use crate::kind::Value;
use crate::nearest::nearest;
use crate::yaml::{self, Entry, Node};

/// The value of every key of a component, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    component: Component,
    by_path: BTreeMap<&'static str, Value>,
}

impl Values {
    /// All defaults.
    pub fn defaults(component: Component) -> Self {
        static AGENT: LazyLock<Values> = LazyLock::new(|| Values::spelt(Component::Agent));
        static CONTROLLER: LazyLock<Values> =
            LazyLock::new(|| Values::spelt(Component::Controller));
        match component {
            Component::Agent => AGENT.clone(),
            Component::Controller => CONTROLLER.clone(),
        }
    }

    /// The defaults as the table spells them.
    fn spelt(component: Component) -> Self {
        let by_path = component.keys().iter().map(|key| (key.path, default_of(key))).collect();
        Self { component, by_path }
    }

    /// The component whose keys these are.
    pub fn component(&self) -> Component {
        self.component
    }

    /// The value of a key; none when the component has no such key.
    pub fn get(&self, path: &str) -> Option<&Value> {
        self.by_path.get(path)
    }

    /// All keys with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.by_path.iter().map(|(path, value)| (*path, value))
    }

    /// Reads a file. Mistakes are added to `errors` and the key keeps its default, so that the
    /// caller can go on and find more.
    pub(crate) fn read(
        component: Component,
        text: &str,
        errors: &mut Vec<ConfigError>,
    ) -> (Self, FeatureGates) {
        let mut values = Self::defaults(component);
        let mut gates = FeatureGates::default();
        match yaml::parse(text) {
            Ok(Node::Map(entries)) => values.read_map("", &entries, &mut gates, errors),
            Ok(other) => errors.push(ConfigError::NotAMapping { found: other.to_string() }),
            Err(error) => errors.push(ConfigError::Yaml { reason: error.to_string() }),
        }
        (values, gates)
    }

    fn read_map(
        &mut self,
        prefix: &str,
        entries: &[Entry],
        gates: &mut FeatureGates,
        errors: &mut Vec<ConfigError>,
    ) {
        for (n, Entry { key, line, node }) in entries.iter().enumerate() {
            let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            if let Some(earlier) = entries[..n].iter().find(|earlier| earlier.key == *key) {
                errors.push(ConfigError::Twice { line: *line, key: path, first: earlier.line });
                continue;
            }
            if let Some(row) = self.component.key(&path) {
                if *node == Node::Null {
                    continue; // A key whose lines are all commented out has its default.
                }
                match read_value(row, *line, node) {
                    Ok(Value::Gates(_)) => *gates = FeatureGates::read(node, errors),
                    Ok(value) => {
                        self.by_path.insert(row.path, value);
                    }
                    Err(error) => errors.push(error),
                }
            } else if self.component.keys().iter().any(|row| is_below(row.path, &path)) {
                match node {
                    Node::Map(entries) => self.read_map(&path, entries, gates, errors),
                    Node::Null => {}
                    other => errors.push(ConfigError::BadValue {
                        line: *line,
                        key: path,
                        value: other.to_string(),
                        allowed: "a mapping of keys".into(),
                    }),
                }
            } else {
                let nearest = self.nearest(prefix, key);
                errors.push(ConfigError::UnknownKey { line: *line, key: path, nearest });
            }
        }
    }

    /// The known key that a wrong one meant: the same name elsewhere, or one like it here, or
    /// one like it anywhere.
    fn nearest(&self, prefix: &str, name: &str) -> Option<String> {
        let keys = self.component.keys();
        if let Some(row) = keys.iter().find(|row| row.leaf() == name) {
            return Some(row.path.to_owned());
        }
        let here = keys.iter().filter_map(|row| {
            let below = if prefix.is_empty() {
                row.path
            } else {
                row.path.strip_prefix(prefix)?.strip_prefix('.')?
            };
            below.split('.').next()
        });
        if let Some(found) = nearest(name, here) {
            return Some(if prefix.is_empty() {
                found.to_owned()
            } else {
                format!("{prefix}.{found}")
            });
        }
        let leaf = nearest(name, keys.iter().map(Key::leaf))?;
        keys.iter().find(|row| row.leaf() == leaf).map(|row| row.path.to_owned())
    }
}

/// The default of a key; the tables' own test keeps every one of them readable.
fn default_of(key: &Key) -> Value {
    spelt(key, key.default).unwrap_or(Value::None)
}

/// The value that a YAML spelling in the table stands for.
fn spelt(key: &Key, text: &str) -> Option<Value> {
    match yaml::parse(&format!("v: {text}")).ok()? {
        Node::Map(mut entries) => match entries.pop()?.node {
            Node::Null => Some(Value::None),
            node => key.kind.check(&node).ok(),
        },
        _ => None,
    }
}

fn read_value(key: &Key, line: u64, node: &Node) -> Result<Value, ConfigError> {
    let value = key.kind.check(node).map_err(|allowed| {
        let (value, allowed) = match key.kind.unquoted(node) {
            Some(allowed) => (format!("\"{node}\""), allowed),
            None => (node.to_string(), allowed),
        };
        ConfigError::BadValue { line, key: key.path.into(), value, allowed }
    })?;
    let refuse = |reason| Err(ConfigError::NotBuilt { line, key: key.path.into(), reason });
    match key.built {
        Built::Yes | Built::NoEffect(_) => Ok(value),
        Built::Only(words, until) => match &value {
            Value::Text(word) if !words.contains(&word.as_str()) => refuse(format!(
                "{word} is not built {until}, only {} is accepted",
                words.join(", ")
            )),
            _ => Ok(value),
        },
        Built::No => {
            let same = |text| spelt(key, text).as_ref() == Some(&value);
            if same(key.default) || key.also.is_some_and(same) {
                Ok(value)
            } else {
                refuse(format!(
                    "not built in this version, only the default {} is accepted",
                    key.default
                ))
            }
        }
    }
}

fn is_below(path: &str, section: &str) -> bool {
    path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_of_the_tables_is_sound() {
        for component in [Component::Agent, Component::Controller] {
            let mut paths = BTreeSet::new();
            for key in component.keys() {
                assert!(paths.insert(key.path), "{} is there twice", key.path);
                assert!(spelt(key, key.default).is_some(), "default of {}", key.path);
                assert!(key.also.is_none_or(|v| spelt(key, v).is_some()), "{}", key.path);
                assert!(key.about.ends_with('.'), "{}", key.path);
                let text = nested(key.path, key.default);
                let mut errors = Vec::new();
                let (values, _) = Values::read(component, &text, &mut errors);
                assert_eq!(errors, [], "the default of {} is accepted", key.path);
                assert_eq!(values, Values::defaults(component), "{}", key.path);
                for other in component.keys() {
                    assert!(!is_below(other.path, key.path), "{} is key and section", key.path);
                }
            }
        }
    }

    /// `a.b.c` and a value as a YAML document.
    fn nested(path: &str, value: &str) -> String {
        let mut text = String::new();
        let parts: Vec<_> = path.split('.').collect();
        for (depth, part) in parts.iter().enumerate() {
            let end = if depth + 1 == parts.len() { format!(" {value}\n") } else { "\n".into() };
            text.push_str(&format!("{}{part}:{end}", "  ".repeat(depth)));
        }
        text
    }
}

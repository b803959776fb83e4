//! Label selectors in a form that is quick to match, compare and name.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::labels::{Labels, label_hash};

/// The label that stands for a Pod's ServiceAccount. It begins with a character that no label of
/// the API can have, so that nobody gives or selects it by writing labels.
pub const SERVICE_ACCOUNT_LABEL: &str = "\u{1}internal.antrea.io/service-account";

/// Why a selector cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator that is not one of the four.
    #[error("label selector: unknown operator {0:?}")]
    Operator(String),
    /// `In` or `NotIn` without values.
    #[error("label selector: operator {operator} of key {key:?} needs values")]
    NoValues {
        /// The operator.
        operator: &'static str,
        /// The label's key.
        key: String,
    },
    /// `Exists` or `DoesNotExist` with values.
    #[error("label selector: operator {operator} of key {key:?} takes no values")]
    Values {
        /// The operator.
        operator: &'static str,
        /// The label's key.
        key: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Test {
    In(Box<[Box<str>]>),
    NotIn(Box<[Box<str>]>),
    Exists,
    DoesNotExist,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Requirement {
    key: Box<str>,
    test: Test,
}

/// A label selector. Equal meaning written in another order is equal here.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector(Box<[Requirement]>);

impl Selector {
    /// The selector that matches everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Compiles a selector of the API.
    ///
    /// # Errors
    /// When it is one that no API server lets through; the caller must let it match nothing.
    pub fn compile(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let mut all = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            all.push(equals(key, value));
        }
        for expression in selector.match_expressions.iter().flatten() {
            let key = expression.key.as_str();
            let values = expression.values.as_deref().unwrap_or_default();
            let some = |operator| match values {
                [] => Err(SelectorError::NoValues { operator, key: key.to_owned() }),
                values => {
                    let mut values: Vec<Box<str>> =
                        values.iter().map(|value| value.as_str().into()).collect();
                    values.sort();
                    values.dedup();
                    Ok(values.into_boxed_slice())
                }
            };
            let none = |operator| match values {
                [] => Ok(()),
                _ => Err(SelectorError::Values { operator, key: key.to_owned() }),
            };
            let test = match expression.operator.as_str() {
                "In" => Test::In(some("In")?),
                "NotIn" => Test::NotIn(some("NotIn")?),
                "Exists" => none("Exists").map(|()| Test::Exists)?,
                "DoesNotExist" => none("DoesNotExist").map(|()| Test::DoesNotExist)?,
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            all.push(Requirement { key: key.into(), test });
        }
        Ok(Self::of(all))
    }

    /// Selects one value of one key.
    pub fn equal(key: &str, value: &str) -> Self {
        Self::of(vec![equals(key, value)])
    }

    /// Selects what both select.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).cloned().collect())
    }

    fn of(mut all: Vec<Requirement>) -> Self {
        all.sort();
        all.dedup();
        Self(all.into())
    }

    /// Whether it selects an object with these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// A label that every selected object has, as a hash; 0 when there is none.
    pub(super) fn needed_label(&self) -> u64 {
        let single = |requirement: &Requirement| match &requirement.test {
            Test::In(values) if values.len() == 1 => {
                Some(label_hash(requirement.key.as_bytes(), values[0].as_bytes()))
            }
            _ => None,
        };
        self.0.iter().find_map(single).unwrap_or(0)
    }
}

fn equals(key: &str, value: &str) -> Requirement {
    Requirement { key: key.into(), test: Test::In(Box::new([value.into()])) }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let one_of =
            |values: &[Box<str>], own: &[u8]| values.iter().any(|value| value.as_bytes() == own);
        match (&self.test, value) {
            (Test::In(values), Some(own)) => one_of(values, own),
            (Test::NotIn(values), Some(own)) => !one_of(values, own),
            (Test::Exists, own) => own.is_some(),
            (Test::DoesNotExist, own) => own.is_none(),
            (Test::In(_), None) => false,
            (Test::NotIn(_), None) => true,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let list = |f: &mut fmt::Formatter<'_>, word: &str, values: &[Box<str>]| {
            write!(f, "{key} {word} (")?;
            for (n, value) in values.iter().enumerate() {
                write!(f, "{}{value}", if n == 0 { "" } else { "," })?;
            }
            f.write_str(")")
        };
        match &self.test {
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
            Test::In(values) => list(f, "in", values),
            Test::NotIn(values) => list(f, "notin", values),
            Test::Exists => f.write_str(key),
            Test::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, requirement) in self.0.iter().enumerate() {
            write!(f, "{}{requirement}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(value: serde_json::Value) -> Result<Selector, SelectorError> {
        Selector::compile(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn meaning() {
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (text, written, matching, other) in [
            ("", json!({}), vec![vec![], vec![("a", "1")]], vec![]),
            (
                "a=1",
                json!({"matchLabels": {"a": "1"}}),
                vec![vec![("a", "1"), ("b", "2")]],
                vec![vec![], vec![("a", "2")], vec![("b", "1")]],
            ),
            ("a=1", expression("a", "In", &["1"]), vec![vec![("a", "1")]], vec![vec![("a", "")]]),
            (
                "a in (1,2)",
                expression("a", "In", &["2", "1", "2"]),
                vec![vec![("a", "1")], vec![("a", "2")]],
                vec![vec![], vec![("a", "3")]],
            ),
            (
                "a notin (1,2)",
                expression("a", "NotIn", &["1", "2"]),
                vec![vec![], vec![("a", "3")], vec![("b", "1")]],
                vec![vec![("a", "2")]],
            ),
            (
                "a",
                expression("a", "Exists", &[]),
                vec![vec![("a", "")]],
                vec![vec![], vec![("b", "")]],
            ),
            ("!a", expression("a", "DoesNotExist", &[]), vec![vec![]], vec![vec![("a", "")]]),
        ] {
            let selector = selector(written).unwrap();
            assert_eq!(selector.to_string(), text);
            for labels in matching {
                assert!(selector.matches(&Labels::pack(labels.clone())), "{text} {labels:?}");
            }
            for labels in other {
                assert!(!selector.matches(&Labels::pack(labels.clone())), "{text} {labels:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_meant_is_an_error() {
        for (operator, values) in
            [("In", vec![]), ("NotIn", vec![]), ("Exists", vec!["x"]), ("Gt", vec!["1"])]
        {
            let written = json!({"matchExpressions": [
                {"key": "a", "operator": operator, "values": values}]});
            assert!(selector(written).is_err(), "{operator}");
        }
    }
}

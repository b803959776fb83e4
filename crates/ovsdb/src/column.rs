//! Columns as Rust types.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use uuid::Uuid;

use crate::value::{Atom, Value, ValueError};

/// Why a column's value does not have the column's type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// It is no value at all.
    #[error("malformed value")]
    Value(#[from] ValueError),
    /// It is a value of another type.
    #[error("expected {expected}, found {found}")]
    Type {
        /// The type the column has.
        expected: &'static str,
        /// The value.
        found: String,
    },
}

impl ColumnError {
    fn of_type(expected: &'static str, found: &Value) -> Self {
        Self::Type { expected, found: found.to_string() }
    }
}

/// A Rust type that a column's value can be read into, and that monitor updates can change.
pub trait Column: Sized + Default {
    /// Reads a whole value.
    fn from_value(value: &Value) -> Result<Self, ColumnError>;

    /// Applies what an `update2` notification says of a modified row. For scalars, optional ones
    /// included, that is the new value.
    fn modify(&mut self, value: &Value) -> Result<(), ColumnError> {
        *self = Self::from_value(value)?;
        Ok(())
    }

    /// Reads a whole value from JSON.
    fn from_json(json: &Json) -> Result<Self, ColumnError> {
        Self::from_value(&Value::from_json(json)?)
    }
}

/// A Rust type that one atom can be read into.
trait Scalar: Sized {
    const NAME: &'static str;
    fn from_atom(atom: &Atom) -> Option<Self>;
}

macro_rules! scalars {
    ($($type:ty, $name:literal, $pattern:pat => $value:expr;)*) => {$(
        impl Scalar for $type {
            const NAME: &'static str = $name;
            fn from_atom(atom: &Atom) -> Option<Self> {
                match atom {
                    $pattern => Some($value),
                    _ => None,
                }
            }
        }

        impl Column for $type {
            fn from_value(value: &Value) -> Result<Self, ColumnError> {
                match value.atoms() {
                    Some([atom]) => Self::from_atom(atom),
                    _ => None,
                }
                .ok_or_else(|| ColumnError::of_type($name, value))
            }
        }
    )*};
}

scalars! {
    i64, "an integer", Atom::Integer(i) => *i;
    bool, "a boolean", Atom::Boolean(b) => *b;
    String, "a string", Atom::String(s) => s.clone();
    Uuid, "a uuid", Atom::Uuid(u) => *u;
}

impl<T: Scalar> Column for Option<T> {
    fn from_value(value: &Value) -> Result<Self, ColumnError> {
        match value.atoms() {
            Some([]) => Some(None),
            Some([atom]) => T::from_atom(atom).map(Some),
            _ => None,
        }
        .ok_or_else(|| ColumnError::of_type(T::NAME, value))
    }
}

impl<T: Scalar + Ord> Column for BTreeSet<T> {
    fn from_value(value: &Value) -> Result<Self, ColumnError> {
        value
            .atoms()
            .and_then(|atoms| atoms.iter().map(T::from_atom).collect())
            .ok_or_else(|| ColumnError::of_type(T::NAME, value))
    }

    /// The elements that came or went.
    fn modify(&mut self, value: &Value) -> Result<(), ColumnError> {
        for element in Self::from_value(value)? {
            if !self.remove(&element) {
                self.insert(element);
            }
        }
        Ok(())
    }
}

impl<K: Scalar + Ord, V: Scalar + PartialEq> Column for BTreeMap<K, V> {
    fn from_value(value: &Value) -> Result<Self, ColumnError> {
        value
            .pairs()
            .and_then(|pairs| {
                pairs
                    .iter()
                    .map(|(key, value)| Some((K::from_atom(key)?, V::from_atom(value)?)))
                    .collect()
            })
            .ok_or_else(|| ColumnError::of_type("a map", value))
    }

    /// A pair that is there goes, any other is put in.
    fn modify(&mut self, value: &Value) -> Result<(), ColumnError> {
        for (key, value) in Self::from_value(value)? {
            if self.get(&key) == Some(&value) {
                self.remove(&key);
            } else {
                self.insert(key, value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_and_maps_are_modified_by_difference() {
        let mut set: BTreeSet<String> = Column::from_json(&json!(["set", ["a", "b"]])).unwrap();
        set.modify(&Value::from_json(&json!(["set", ["b", "c"]])).unwrap()).unwrap();
        assert_eq!(set, BTreeSet::from(["a".to_owned(), "c".to_owned()]));

        let mut map: BTreeMap<String, String> =
            Column::from_json(&json!(["map", [["k", "1"], ["l", "2"]]])).unwrap();
        let change = json!(["map", [["k", "1"], ["l", "3"], ["m", "4"]]]);
        map.modify(&Value::from_json(&change).unwrap()).unwrap();
        let want = [("l", "3"), ("m", "4")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(map, BTreeMap::from(want));
    }

    #[test]
    fn optional_scalars_are_replaced() {
        let mut ofport: Option<i64> = Column::from_json(&json!(["set", []])).unwrap();
        assert_eq!(ofport, None);
        ofport.modify(&Value::from_json(&json!(7)).unwrap()).unwrap();
        assert_eq!(ofport, Some(7));
        ofport.modify(&Value::from_json(&json!(["set", [-1]])).unwrap()).unwrap();
        assert_eq!(ofport, Some(-1));
        ofport.modify(&Value::from_json(&json!(["set", []])).unwrap()).unwrap();
        assert_eq!(ofport, None);
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        let error = i64::from_json(&json!("7")).unwrap_err();
        assert_eq!(error.to_string(), "expected an integer, found \"7\"");
        assert!(Option::<i64>::from_json(&json!(["set", [1, 2]])).is_err());
        assert!(BTreeMap::<String, String>::from_json(&json!(["map", [["k", 1]]])).is_err());
        assert!(BTreeSet::<String>::from_json(&json!(["map", [["k", "v"]]])).is_err());
    }
}

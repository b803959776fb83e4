//! Values of columns: atoms, sets and maps, and their JSON form (RFC 7047 section 5.1).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value as Json, json};
use uuid::Uuid;

/// One scalar.
#[derive(Clone, Debug, PartialEq)]
pub enum Atom {
    /// `integer`
    Integer(i64),
    /// `real`
    Real(f64),
    /// `boolean`
    Boolean(bool),
    /// `string`
    String(String),
    /// `uuid`: a row that exists.
    Uuid(Uuid),
    /// A row that an insert of the same transaction makes.
    NamedUuid(String),
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Exactly one atom.
    Atom(Atom),
    /// Any number of atoms; an optional scalar is a set of at most one.
    Set(Vec<Atom>),
    /// Pairs of key and value.
    Map(Vec<(Atom, Atom)>),
}

/// Why JSON is not a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {expected}: {found}")]
pub struct ValueError {
    /// What should be there.
    pub expected: &'static str,
    /// The beginning of what is there.
    pub found: String,
}

impl ValueError {
    pub(crate) fn new(expected: &'static str, found: &Json) -> Self {
        const SHOWN: usize = 80;
        let mut found = found.to_string();
        if let Some((at, _)) = found.char_indices().nth(SHOWN) {
            found.truncate(at);
            found.push('…');
        }
        Self { expected, found }
    }
}

impl Atom {
    /// Its JSON form.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Integer(i) => json!(i),
            Self::Real(r) => json!(r),
            Self::Boolean(b) => json!(b),
            Self::String(s) => json!(s),
            Self::Uuid(u) => json!(["uuid", u.to_string()]),
            Self::NamedUuid(name) => json!(["named-uuid", name]),
        }
    }

    /// Reads its JSON form.
    pub fn from_json(json: &Json) -> Result<Self, ValueError> {
        let fail = || ValueError::new("an atom", json);
        Ok(match json {
            Json::Bool(b) => Self::Boolean(*b),
            Json::String(s) => Self::String(s.clone()),
            Json::Number(n) => match (n.as_i64(), n.as_f64()) {
                (Some(i), _) => Self::Integer(i),
                (None, Some(r)) => Self::Real(r),
                (None, None) => return Err(fail()),
            },
            Json::Array(pair) => match pair.as_slice() {
                [Json::String(tag), Json::String(text)] if tag == "uuid" => {
                    Self::Uuid(parse_uuid(text).ok_or_else(fail)?)
                }
                [Json::String(tag), Json::String(name)] if tag == "named-uuid" => {
                    Self::NamedUuid(name.clone())
                }
                _ => return Err(fail()),
            },
            Json::Null | Json::Object(_) => return Err(fail()),
        })
    }
}

/// Only the hyphenated form: the database writes no other.
fn parse_uuid(text: &str) -> Option<Uuid> {
    (text.len() == 36).then(|| Uuid::try_parse(text).ok()).flatten()
}

impl Value {
    /// The empty set, which is also the empty map and the absent optional scalar.
    pub const EMPTY: Self = Self::Set(Vec::new());

    /// Its JSON form.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Atom(atom) => atom.to_json(),
            Self::Set(atoms) => {
                json!(["set", atoms.iter().map(Atom::to_json).collect::<Vec<_>>()])
            }
            Self::Map(pairs) => {
                let pairs: Vec<Json> =
                    pairs.iter().map(|(k, v)| json!([k.to_json(), v.to_json()])).collect();
                json!(["map", pairs])
            }
        }
    }

    /// Reads its JSON form.
    pub fn from_json(json: &Json) -> Result<Self, ValueError> {
        if let Json::Array(parts) = json
            && let [Json::String(tag), Json::Array(items)] = parts.as_slice()
        {
            match tag.as_str() {
                "set" => {
                    let atoms: Result<_, _> = items.iter().map(Atom::from_json).collect();
                    return Ok(Self::Set(atoms?));
                }
                "map" => {
                    let pairs: Result<_, _> = items.iter().map(pair_from_json).collect();
                    return Ok(Self::Map(pairs?));
                }
                _ => return Err(ValueError::new("a set or a map", json)),
            }
        }
        Atom::from_json(json).map(Self::Atom)
    }

    /// The atoms of a set; a lone atom counts as a set of one.
    #[must_use]
    pub fn atoms(&self) -> Option<&[Atom]> {
        match self {
            Self::Atom(atom) => Some(std::slice::from_ref(atom)),
            Self::Set(atoms) => Some(atoms),
            Self::Map(_) => None,
        }
    }

    /// The pairs of a map; the empty set counts as an empty map.
    #[must_use]
    pub fn pairs(&self) -> Option<&[(Atom, Atom)]> {
        match self {
            Self::Map(pairs) => Some(pairs),
            Self::Set(atoms) if atoms.is_empty() => Some(&[]),
            Self::Set(_) | Self::Atom(_) => None,
        }
    }
}

fn pair_from_json(json: &Json) -> Result<(Atom, Atom), ValueError> {
    match json.as_array().map(Vec::as_slice) {
        Some([key, value]) => Ok((Atom::from_json(key)?, Atom::from_json(value)?)),
        _ => Err(ValueError::new("a pair", json)),
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_json().fmt(f)
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}
impl From<String> for Atom {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}
impl From<i64> for Atom {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}
impl From<bool> for Atom {
    fn from(yes: bool) -> Self {
        Self::Boolean(yes)
    }
}
impl From<Uuid> for Atom {
    fn from(uuid: Uuid) -> Self {
        Self::Uuid(uuid)
    }
}
impl<T: Into<Atom>> From<T> for Value {
    fn from(atom: T) -> Self {
        Self::Atom(atom.into())
    }
}
impl<T: Into<Atom>> From<Vec<T>> for Value {
    fn from(atoms: Vec<T>) -> Self {
        Self::Set(atoms.into_iter().map(Into::into).collect())
    }
}
impl<T: Into<Atom>> From<Option<T>> for Value {
    fn from(atom: Option<T>) -> Self {
        Self::Set(atom.into_iter().map(Into::into).collect())
    }
}
impl From<&BTreeMap<String, String>> for Value {
    fn from(map: &BTreeMap<String, String>) -> Self {
        Self::Map(map.iter().map(|(k, v)| (k.clone().into(), v.clone().into())).collect())
    }
}

#[cfg(test)]
mod tests;

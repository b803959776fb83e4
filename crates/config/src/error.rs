//! Everything that can be wrong with a configuration file.

use std::fmt;

/// One mistake in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is no YAML.
    #[error("{reason}")]
    Yaml {
        /// What the parser says, with line and column.
        reason: String,
    },
    /// The document is not a mapping of keys.
    #[error("the file must be a mapping of keys, not {found}")]
    NotAMapping {
        /// What it is.
        found: String,
    },
    /// A key nobody knows.
    #[error("{}unknown key {key}{}", At(*line), Meant(nearest.as_deref()))]
    UnknownKey {
        /// Line in the file, 0 when not known.
        line: u64,
        /// Dotted path of the key.
        key: String,
        /// The known key that looks most like it.
        nearest: Option<String>,
    },
    /// A key that is there already.
    #[error("{}{key} is there twice, first in line {first}", At(*line))]
    Twice {
        /// Line in the file, 0 when not known.
        line: u64,
        /// Dotted path of the key.
        key: String,
        /// Line of the first one.
        first: u64,
    },
    /// A feature gate nobody knows.
    #[error("{}unknown feature gate {gate}{}", At(*line), Meant(nearest.as_deref()))]
    UnknownGate {
        /// Line in the file, 0 when not known.
        line: u64,
        /// Name as written.
        gate: String,
        /// The known gate that looks most like it.
        nearest: Option<String>,
    },
    /// A value of the wrong type, out of range or malformed.
    #[error("{}{key}: {value} is not {allowed}", At(*line))]
    BadValue {
        /// Line in the file, 0 when not known.
        line: u64,
        /// Dotted path of the key.
        key: String,
        /// The value as written.
        value: String,
        /// What would be accepted.
        allowed: String,
    },
    /// A sound value that asks for something this version does not do.
    #[error("{}{key}: {reason}", At(*line))]
    NotBuilt {
        /// Line in the file, 0 when not known.
        line: u64,
        /// Dotted path of the key.
        key: String,
        /// What is missing, and what is accepted.
        reason: String,
    },
    /// Keys that do not go together.
    #[error("{keys}: {reason}")]
    Conflict {
        /// The keys concerned.
        keys: &'static str,
        /// Why not.
        reason: String,
    },
}

/// All mistakes of one file, in the file's order; one line each when printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.0.iter().enumerate() {
            f.write_str(if n == 0 { "" } else { "\n" })?;
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

struct At(u64);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            line => write!(f, "line {line}: "),
        }
    }
}

struct Meant<'a>(Option<&'a str>);

impl fmt::Display for Meant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, ", did you mean {name}?"),
            None => Ok(()),
        }
    }
}

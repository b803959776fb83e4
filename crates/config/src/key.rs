//! One row of the tables of configuration keys.
//!
//! Not here: the rows (`agent_keys`, `controller_keys`), reading a file by them (`values`).

use std::fmt;

use crate::kind::Kind;
use crate::{agent_keys, controller_keys};

/// The program that reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// antrea-agent.
    Agent,
    /// antrea-controller.
    Controller,
}

/// What this version makes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Built {
    /// Every allowed value works.
    Yes,
    /// Every allowed value is accepted and changes nothing, for the reason given.
    NoEffect(&'static str),
    /// Of the allowed values only these work; the second text says until when.
    Only(&'static [&'static str], &'static str),
    /// The feature is not there: only the default is accepted.
    No,
}

/// One configuration key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Dotted path from the top of the file.
    pub path: &'static str,
    /// What its value looks like.
    pub kind: Kind,
    /// The default, as YAML.
    pub default: &'static str,
    /// A second spelling of the default that installation files carry, as YAML.
    pub also: Option<&'static str>,
    /// What this version makes of it.
    pub built: Built,
    /// One sentence for the reader of the documentation.
    pub about: &'static str,
}

impl Key {
    pub(crate) const fn new(
        path: &'static str,
        kind: Kind,
        default: &'static str,
        built: Built,
        about: &'static str,
    ) -> Self {
        Self { path, kind, default, also: None, built, about }
    }

    pub(crate) const fn also(mut self, value: &'static str) -> Self {
        self.also = Some(value);
        self
    }

    /// The last part of the path.
    pub fn leaf(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }
}

impl Component {
    /// All keys of the component's file, in the order of the documentation.
    pub fn keys(self) -> &'static [Key] {
        match self {
            Self::Agent => agent_keys::KEYS,
            Self::Controller => controller_keys::KEYS,
        }
    }

    /// The row of a key.
    pub fn key(self, path: &str) -> Option<&'static Key> {
        self.keys().iter().find(|k| k.path == path)
    }

    /// The table of keys as text, as `--help` prints it.
    pub fn describe(self) -> String {
        let mut text = String::new();
        for key in self.keys() {
            text.push_str(&format!("{}: {}\n    {}\n", key.path, key.default, key.about));
            text.push_str(&format!("    {}; {}\n", key.kind.allowed(), key.built));
        }
        text
    }

    /// The table of keys as Markdown, for the documentation.
    pub fn describe_markdown(self) -> String {
        let mut text =
            String::from("| Key | Default | Allowed | Meaning | Built |\n|---|---|---|---|---|\n");
        for key in self.keys() {
            text.push_str(&format!(
                "| `{}` | `{}` | {} | {} | {} |\n",
                key.path,
                key.default,
                key.kind.allowed(),
                key.about,
                key.built
            ));
        }
        text
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agent => "antrea-agent",
            Self::Controller => "antrea-controller",
        })
    }
}

impl fmt::Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("built"),
            Self::NoEffect(reason) => write!(f, "accepted without effect: {reason}"),
            Self::Only(words, until) => {
                write!(f, "built: {}; the rest is not built {until}", words.join(", "))
            }
            Self::No => f.write_str("not built, only the default is accepted"),
        }
    }
}

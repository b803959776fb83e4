//! What a configuration value may look like, and the typed value that comes out.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use crate::yaml::Node;

/// The form of one key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number in a closed range.
    Int(i64, i64),
    /// Any number that is not negative.
    Number,
    /// Any text.
    Text,
    /// An absolute path.
    Path,
    /// An absolute path, or empty for none.
    OptionalPath,
    /// A Linux interface name: 1 to 15 characters, no slash, no white space.
    Interface,
    /// A Linux interface name, or empty for none.
    OptionalInterface,
    /// One of the words, in any case; kept as spelt here.
    Enum(&'static [&'static str]),
    /// A time span such as `125s`, `1m30s`, `500ms`.
    Duration,
    /// A prefix, or empty for none.
    Cidr,
    /// An IPv4 prefix, or empty for none.
    CidrV4,
    /// An IPv6 prefix, or empty for none.
    CidrV6,
    /// `address:port`, or empty for none.
    Socket,
    /// `first-last` port numbers.
    PortRange,
    /// Host, host:port or URL, or empty for none.
    Endpoint,
    /// A list of texts.
    TextList,
    /// A list of words out of these.
    EnumList(&'static [&'static str]),
    /// A list of whole numbers in a closed range.
    IntList(i64, i64),
    /// A list of prefixes.
    CidrList,
    /// A list of interfaces' names.
    InterfaceList,
    /// A list of mappings; read only by features that are not built.
    ObjectList,
    /// A mapping from gate name to boolean.
    Gates,
}

/// A value after it was checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The key has no value (only where the default is none).
    None,
    /// See [`Kind::Bool`].
    Bool(bool),
    /// See [`Kind::Int`].
    Int(i64),
    /// See [`Kind::Number`].
    Number(f64),
    /// Texts, paths, names, words and endpoints.
    Text(String),
    /// See [`Kind::Duration`].
    Duration(Duration),
    /// A prefix.
    Cidr(IpNet),
    /// Address and port.
    Socket(SocketAddr),
    /// See [`Kind::PortRange`].
    PortRange(u16, u16),
    /// List of texts or words.
    TextList(Vec<String>),
    /// List of numbers.
    IntList(Vec<i64>),
    /// List of prefixes.
    CidrList(Vec<IpNet>),
    /// Number of mappings in the list.
    ObjectList(usize),
    /// Gates as written.
    Gates(BTreeMap<String, bool>),
}

impl Kind {
    /// Checks a value; the error is what would have been accepted.
    pub fn check(self, node: &Node) -> Result<Value, String> {
        self.accept(node).ok_or_else(|| self.allowed())
    }

    /// What is wrong with a number or boolean in quotes, which make it text.
    pub(crate) fn unquoted(self, node: &Node) -> Option<String> {
        let Node::Text(text) = node else { return None };
        let plain = match self {
            Self::Int(..) => Node::Int(text.parse().ok()?),
            Self::Number => Node::Float(text.parse().ok()?),
            Self::Bool => Node::Bool(text.parse().ok()?),
            _ => return None,
        };
        self.accept(&plain)?;
        Some(format!("{}: in quotes it is text, write {text}", self.allowed()))
    }

    /// What is accepted, to be read after "is not".
    pub fn allowed(self) -> String {
        match self {
            Self::Bool => "true or false".into(),
            Self::Int(min, max) if max == i64::MAX => format!("a whole number from {min}"),
            Self::Int(min, max) => format!("a whole number from {min} to {max}"),
            Self::Number => "a number from 0".into(),
            Self::Text => "text (quote it)".into(),
            Self::Path | Self::OptionalPath => "an absolute path".into(),
            Self::Interface | Self::OptionalInterface => {
                "an interface name (1 to 15 characters, no slash, no white space)".into()
            }
            Self::Enum(words) => format!("one of {}", words.join(", ")),
            Self::Duration => "a duration such as 125s, 1m30s or 500ms".into(),
            Self::Cidr => "a prefix such as 10.96.0.0/12 or fd00::/108".into(),
            Self::CidrV4 => "an IPv4 prefix such as 10.96.0.0/12".into(),
            Self::CidrV6 => "an IPv6 prefix such as fd00:96::/108".into(),
            Self::Socket => "address:port such as 0.0.0.0:10256".into(),
            Self::PortRange => "a range of ports such as 61000-62000".into(),
            Self::Endpoint => "a host, host:port or URL".into(),
            Self::TextList => "a list of texts".into(),
            Self::EnumList(words) => format!("a list out of {}", words.join(", ")),
            Self::IntList(min, max) => format!("a list of whole numbers from {min} to {max}"),
            Self::CidrList => "a list of prefixes such as [10.0.0.0/8]".into(),
            Self::InterfaceList => "a list of interface names".into(),
            Self::ObjectList => "a list of mappings".into(),
            Self::Gates => "a mapping from feature gate to true or false".into(),
        }
    }

    fn accept(self, node: &Node) -> Option<Value> {
        Some(match (self, node) {
            (Self::Bool, Node::Bool(value)) => Value::Bool(*value),
            (Self::Int(min, max), Node::Int(value)) if (min..=max).contains(value) => {
                Value::Int(*value)
            }
            #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52")]
            (Self::Number, Node::Int(value)) if *value >= 0 => Value::Number(*value as f64),
            (Self::Number, Node::Float(value)) if *value >= 0.0 && value.is_finite() => {
                Value::Number(*value)
            }
            (Self::Text, Node::Text(text)) => Value::Text(text.clone()),
            (Self::OptionalPath, Node::Text(text)) if text.is_empty() => Value::None,
            (Self::Path | Self::OptionalPath, Node::Text(text))
                if text.starts_with('/') && !text.contains('\0') =>
            {
                Value::Text(text.clone())
            }
            (Self::OptionalInterface, Node::Text(text)) if text.is_empty() => Value::None,
            (Self::Interface | Self::OptionalInterface, Node::Text(text))
                if is_interface_name(text) =>
            {
                Value::Text(text.clone())
            }
            (Self::Enum(words), Node::Text(text)) => {
                Value::Text((*words.iter().find(|w| w.eq_ignore_ascii_case(text))?).to_owned())
            }
            (Self::Duration, Node::Text(text)) => Value::Duration(duration(text)?),
            (Self::Cidr | Self::CidrV4 | Self::CidrV6, Node::Text(text)) if text.is_empty() => {
                Value::None
            }
            (Self::Cidr, Node::Text(text)) => Value::Cidr(prefix(text)?),
            (Self::CidrV4, Node::Text(text)) => {
                Value::Cidr(prefix(text).filter(|p| matches!(p, IpNet::V4(_)))?)
            }
            (Self::CidrV6, Node::Text(text)) => {
                Value::Cidr(prefix(text).filter(|p| matches!(p, IpNet::V6(_)))?)
            }
            (Self::Socket, Node::Text(text)) if text.is_empty() => Value::None,
            (Self::Socket, Node::Text(text)) => Value::Socket(text.parse().ok()?),
            (Self::PortRange, Node::Text(text)) => {
                let (first, last) = text.split_once('-')?;
                let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
                if first == 0 || first > last {
                    return None;
                }
                Value::PortRange(first, last)
            }
            (Self::Endpoint, Node::Text(text)) => Value::Text(endpoint(text)?),
            (Self::TextList, Node::List(items)) => Value::TextList(texts(items)?),
            (Self::EnumList(words), Node::List(items)) => {
                let items = texts(items)?;
                if !items.iter().all(|i| words.iter().any(|w| w.eq_ignore_ascii_case(i))) {
                    return None;
                }
                Value::TextList(items)
            }
            (Self::IntList(min, max), Node::List(items)) => {
                let numbers = items.iter().map(|item| match item {
                    Node::Int(value) if (min..=max).contains(value) => Some(*value),
                    _ => None,
                });
                Value::IntList(numbers.collect::<Option<_>>()?)
            }
            (Self::CidrList, Node::List(items)) => Value::CidrList(
                texts(items)?.iter().map(|text| prefix(text)).collect::<Option<_>>()?,
            ),
            (Self::InterfaceList, Node::List(items)) => {
                Value::TextList(texts(items).filter(|t| t.iter().all(|n| is_interface_name(n)))?)
            }
            (Self::ObjectList, Node::List(items)) => {
                if !items.iter().all(|i| matches!(i, Node::Map(_))) {
                    return None;
                }
                Value::ObjectList(items.len())
            }
            // Each gate's own value is judged with its name.
            (Self::Gates, Node::Map(entries)) => {
                let gates = entries.iter().filter_map(|e| match e.node {
                    Node::Bool(on) => Some((e.key.clone(), on)),
                    _ => None,
                });
                Value::Gates(gates.collect())
            }
            _ => return None,
        })
    }
}

/// Whether Linux would take this as an interface name.
fn is_interface_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && name.chars().all(|c| c.is_ascii_graphic() && c != '/' && c != ':')
}

/// A prefix without host bits; a slip such as 10.0.0.1/8 is not guessed at.
fn prefix(text: &str) -> Option<IpNet> {
    text.parse().ok().filter(|p: &IpNet| p.trunc() == *p)
}

fn texts(items: &[Node]) -> Option<Vec<String>> {
    items
        .iter()
        .map(|item| match item {
            Node::Text(text) => Some(text.clone()),
            _ => None,
        })
        .collect()
}

/// Go's duration syntax without signs: numbers with a unit, one after the other.
fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        nanos += number
            * match &rest[..end] {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return None,
            };
        rest = &rest[end..];
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(nanos / 1e9).ok() }
}

/// Host, host:port, `[v6]:port`, bare IPv6 address or http(s) URL; empty stays empty.
fn endpoint(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    let host = match text.split_once("://") {
        Some(("http" | "https", rest)) => rest.trim_end_matches('/'),
        Some(_) => return None,
        None => text,
    };
    let ok_host = |h: &str| {
        !h.is_empty() && h.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
    };
    let ok_port = |p: &str| p.parse::<u16>().is_ok_and(|p| p != 0);
    let bracketed = host.strip_prefix('[').and_then(|h| h.split_once(']'));
    let sound = match (bracketed, host.rsplit_once(':')) {
        (Some((address, port)), _) => {
            address.parse::<std::net::Ipv6Addr>().is_ok()
                && (port.is_empty() || port.strip_prefix(':').is_some_and(ok_port))
        }
        _ if host.parse::<IpAddr>().is_ok() => true,
        (None, Some((name, port))) => ok_host(name) && ok_port(port),
        (None, None) => ok_host(host),
    };
    sound.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Node {
        Node::Text(value.into())
    }

    #[test]
    fn durations() {
        for (given, want) in [
            ("5s", Some(Duration::from_secs(5))),
            ("125s", Some(Duration::from_secs(125))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("1.5h", Some(Duration::from_secs(5400))),
            ("500ms", Some(Duration::from_millis(500))),
            ("0", Some(Duration::ZERO)),
            ("", None),
            ("5", None),
            ("s", None),
            ("5 s", None),
            ("-5s", None),
            ("5days", None),
            ("99999999999999999999999999999h", None),
        ] {
            assert_eq!(duration(given), want, "{given}");
        }
    }

    #[test]
    fn forms() {
        for (kind, node, accepted) in [
            (Kind::Int(1, 10), Node::Int(10), true),
            (Kind::Int(1, 10), Node::Int(11), false),
            (Kind::Int(1, 10), text("5"), false),
            (Kind::Bool, text("maybe"), false),
            (Kind::Number, Node::Float(1.5), true),
            (Kind::Number, Node::Float(f64::NAN), false),
            (Kind::Interface, text("antrea-gw0"), true),
            (Kind::Interface, text("a-name-too-long-"), false),
            (Kind::Interface, text("a/b"), false),
            (Kind::Enum(&["encap", "noEncap"]), text("NOENCAP"), true),
            (Kind::Enum(&["encap", "noEncap"]), text("other"), false),
            (Kind::Cidr, text("10.96.0.0/12"), true),
            (Kind::Cidr, text("10.96.0.1/12"), false),
            (Kind::Cidr, text(""), true),
            (Kind::CidrV4, text("fd00::/64"), false),
            (Kind::CidrV6, text("fd00::/64"), true),
            (Kind::Socket, text("0.0.0.0:10256"), true),
            (Kind::Socket, text("0.0.0.0"), false),
            (Kind::PortRange, text("61000-62000"), true),
            (Kind::PortRange, text("62000-61000"), false),
            (Kind::PortRange, text("0-70000"), false),
            (Kind::Endpoint, text("https://kube.example:6443"), true),
            (Kind::Endpoint, text("192.0.2.1:6443"), true),
            (Kind::Endpoint, text("[fd00::1]:6443"), true),
            (Kind::Endpoint, text("fd00::1"), true),
            (Kind::Endpoint, text("ftp://kube"), false),
            (Kind::Endpoint, text("kube:none"), false),
            (Kind::CidrList, Node::List(vec![text("10.0.0.0/8")]), true),
            (Kind::CidrList, text("10.0.0.0/8"), false),
            (Kind::TextList, Node::List(vec![Node::Int(1)]), false),
            (Kind::Path, text("relative"), false),
        ] {
            assert_eq!(kind.check(&node).is_ok(), accepted, "{kind:?} {node}");
        }
        assert_eq!(
            Kind::Enum(&["encap", "noEncap"]).check(&text("noencap")),
            Ok(Value::Text("noEncap".into())),
            "kept in our spelling"
        );
    }
}

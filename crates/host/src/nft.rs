//! The node's firewall and address translation: one `table inet antrea`, written as `nft` text.
//!
//! A [`Feature`] is some chains and named sets. Replacing features is one transaction: their chains
//! are emptied and filled again, what other features have in the table stays untouched. Writing
//! the text is pure; [`apply`] hands it to `nft -f -`.
//! Not here: which rules a node needs ([`node`] has the first of them), the drop chains per device
//! ([`crate::netfilter`]), other programs' tables.

pub mod host_frames;
pub mod node;
pub mod service;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;

use crate::command::{self, CommandError};

/// Family and name of our table.
pub const TABLE: &str = "inet antrea";
/// `nft` takes milliseconds; with tens of thousands of rules of others, seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why the table could not be changed or read.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// `nft` gave no answer.
    #[error("run nft")]
    Command(#[from] CommandError),
    /// `nft` or the kernel refused; nothing of the transaction was done.
    #[error("nft refused: {message}")]
    Refused {
        /// What `nft` printed.
        message: String,
    },
}

impl NftError {
    /// Whether it may go by itself: somebody else's transaction, a rule that is about to go. What this
    /// kernel or this `nft` does not know stays so.
    pub fn may_pass(&self) -> bool {
        const STAYS: [&str; 3] = ["not supported", "syntax error", "No such file or directory"];
        match self {
            Self::Command(_) => true,
            Self::Refused { message } => {
                message.contains("busy") || !STAYS.iter().any(|words| message.contains(words))
            }
        }
    }
}

/// Chains and sets that belong together and are replaced together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Named sets of addresses.
    pub sets: Vec<Set>,
    /// Named sets of ports.
    pub port_sets: Vec<PortSet>,
    /// Chains.
    pub chains: Vec<Chain>,
}

/// A named set of prefixes, one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Its family.
    pub family: SetFamily,
    /// Its elements; those of the other family are left out, overlapping ones are merged.
    pub elements: Vec<IpNet>,
}

/// Which addresses a set holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetFamily {
    /// IPv4 prefixes.
    Ipv4,
    /// IPv6 prefixes.
    Ipv6,
}

/// A named set of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSet {
    /// Its name.
    pub name: String,
    /// Its elements.
    pub elements: BTreeSet<(Transport, u16)>,
}

/// A protocol that has ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name; not a word of nft's language (`masquerade` is one).
    pub name: String,
    /// Where it is hooked; a chain without hook is jumped to.
    pub hook: Option<Hook>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// Where a chain sees packets. The policy is always accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// `filter`, `nat` or `route`.
    pub kind: &'static str,
    /// `prerouting`, `input`, `forward`, `output` or `postrouting`.
    pub hook: &'static str,
    /// Lower is earlier; by name (`raw`, `mangle`, `dstnat`, `filter`, `srcnat`) or number.
    pub priority: &'static str,
}

/// A rule: an `nft` statement and, if wanted, what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    statement: String,
    comment: Option<String>,
}

impl Rule {
    /// A rule by its statement. Names from outside go through [`quote`].
    pub fn new(statement: impl Into<String>) -> Self {
        Self { statement: statement.into(), comment: None }
    }

    /// The same with a comment.
    #[must_use]
    pub fn with_comment(self, comment: impl Into<String>) -> Self {
        Self { comment: Some(comment.into()), ..self }
    }
}

/// An interface name or comment as an `nft` string. What could end the string is left out.
pub fn quote(text: &str) -> String {
    let clean: String =
        text.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).take(127).collect();
    format!("\"{clean}\"")
}

/// The text that puts these features in the place of their earlier versions.
pub fn replace_text(features: &[Feature]) -> String {
    let mut text = format!("add table {TABLE}\n");
    for feature in features {
        // Chains are emptied before sets are, and filled after them: rules refer to sets.
        for chain in &feature.chains {
            let name = &chain.name;
            match chain.hook {
                Some(Hook { kind, hook, priority }) => put(
                    &mut text,
                    format_args!(
                        "add chain {TABLE} {name} {{ type {kind} hook {hook} priority {priority}; policy accept; }}"
                    ),
                ),
                None => put(&mut text, format_args!("add chain {TABLE} {name}")),
            }
            put(&mut text, format_args!("flush chain {TABLE} {name}"));
        }
        for set in &feature.sets {
            write_set(&mut text, set);
        }
        for set in &feature.port_sets {
            write_ports(&mut text, set);
        }
        for chain in &feature.chains {
            for rule in &chain.rules {
                let comment = rule.comment.as_deref().map(quote);
                let comment = comment.map(|text| format!(" comment {text}")).unwrap_or_default();
                let (name, statement) = (&chain.name, &rule.statement);
                put(&mut text, format_args!("add rule {TABLE} {name} {statement}{comment}"));
            }
        }
    }
    text
}

/// The text that removes these features, wherever they are there or not.
pub fn remove_text(features: &[Feature]) -> String {
    let mut text = format!("add table {TABLE}\n");
    let chains = || features.iter().flat_map(|feature| &feature.chains);
    for Chain { name, .. } in chains() {
        put(&mut text, format_args!("add chain {TABLE} {name}"));
        put(&mut text, format_args!("flush chain {TABLE} {name}"));
    }
    for Chain { name, .. } in chains() {
        put(&mut text, format_args!("delete chain {TABLE} {name}"));
    }
    for set in features.iter().flat_map(|feature| &feature.sets) {
        put(&mut text, format_args!("add set {TABLE} {}", declare(set)));
        put(&mut text, format_args!("delete set {TABLE} {}", set.name));
    }
    for set in features.iter().flat_map(|feature| &feature.port_sets) {
        put(&mut text, format_args!("add set {TABLE} {}", declare_ports(set)));
        put(&mut text, format_args!("delete set {TABLE} {}", set.name));
    }
    text
}

fn write_set(text: &mut String, set: &Set) {
    let name = &set.name;
    put(text, format_args!("add set {TABLE} {}", declare(set)));
    put(text, format_args!("flush set {TABLE} {name}"));
    let of_family: Vec<IpNet> = set
        .elements
        .iter()
        .filter(|net| net.addr().is_ipv4() == (set.family == SetFamily::Ipv4))
        .copied()
        .collect();
    // The kernel refuses overlapping intervals.
    let elements: Vec<String> =
        IpNet::aggregate(&of_family).iter().map(ToString::to_string).collect();
    if !elements.is_empty() {
        let elements = elements.join(", ");
        put(text, format_args!("add element {TABLE} {name} {{ {elements} }}"));
    }
}

fn write_ports(text: &mut String, set: &PortSet) {
    let name = &set.name;
    put(text, format_args!("add set {TABLE} {}", declare_ports(set)));
    put(text, format_args!("flush set {TABLE} {name}"));
    let elements: Vec<String> = set
        .elements
        .iter()
        .map(|(transport, port)| format!("{} . {port}", transport.name()))
        .collect();
    if !elements.is_empty() {
        let elements = elements.join(", ");
        put(text, format_args!("add element {TABLE} {name} {{ {elements} }}"));
    }
}

fn declare_ports(set: &PortSet) -> String {
    format!("{} {{ type inet_proto . inet_service; }}", set.name)
}

fn declare(set: &Set) -> String {
    let kind = match set.family {
        SetFamily::Ipv4 => "ipv4_addr",
        SetFamily::Ipv6 => "ipv6_addr",
    };
    format!("{} {{ type {kind}; flags interval; }}", set.name)
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a String takes any text");
}

/// Puts features in the place of their earlier versions, in one transaction.
pub async fn apply(features: &[Feature]) -> Result<(), NftError> {
    match run_script(&replace_text(features)).await {
        // A chain that a previous version of ours hooked elsewhere cannot be changed in place.
        Err(NftError::Refused { .. }) => {
            let text = remove_text(features) + &replace_text(features);
            run_script(&text).await
        }
        other => other,
    }
}

/// Removes features.
pub async fn remove(features: &[Feature]) -> Result<(), NftError> {
    run_script(&remove_text(features)).await
}

/// Removes the whole table; success when it is not there.
pub async fn delete_table() -> Result<(), NftError> {
    run_script(&format!("add table {TABLE}\ndelete table {TABLE}\n")).await
}

/// The table as `nft list table` prints it; `None` when it is not there.
pub async fn list() -> Result<Option<String>, NftError> {
    list_table(TABLE).await
}

async fn list_table(table: &str) -> Result<Option<String>, NftError> {
    let args: Vec<&str> = ["list", "table"].into_iter().chain(table.split(' ')).collect();
    let output = command::run(Path::new("nft"), &args, &[], b"", PATIENCE).await?;
    if output.success {
        return Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    if output.stderr.contains("No such file or directory") {
        return Ok(None);
    }
    Err(NftError::Refused { message: output.stderr })
}

/// Runs a script of ours as one transaction.
pub async fn run_script(text: &str) -> Result<(), NftError> {
    let output =
        command::run(Path::new("nft"), &["-f", "-"], &[], text.as_bytes(), PATIENCE).await?;
    if output.success { Ok(()) } else { Err(NftError::Refused { message: output.stderr }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_stays_so_and_what_is_busy_does_not() {
        let refused = |message: &str| NftError::Refused { message: message.into() }.may_pass();
        assert!(refused("Error: Could not process rule: Device or resource busy"));
        assert!(!refused("Error: Could not process rule: Operation not supported"));
        assert!(
            refused("Error: Device or resource busy\nError: Operation not supported"),
            "behind it"
        );
        assert!(!refused("Error: syntax error, unexpected string"));
    }

    #[test]
    fn quoted_text_cannot_end_its_string() {
        assert_eq!(quote("eth0"), "\"eth0\"");
        assert_eq!(quote("a\" accept\n\\"), "\"a accept\"");
    }

    #[test]
    fn sets_take_their_family_and_merge_overlaps() {
        let set = Set {
            name: "s".into(),
            family: SetFamily::Ipv4,
            elements: ["10.0.0.0/8", "10.1.0.0/16", "fd00::/8", "10.0.0.0/8"]
                .map(|net| net.parse().unwrap())
                .to_vec(),
        };
        let mut text = String::new();
        write_set(&mut text, &set);
        assert_eq!(text.lines().last().unwrap(), "add element inet antrea s { 10.0.0.0/8 }");
    }
}

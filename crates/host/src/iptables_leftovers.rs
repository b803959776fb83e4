//! Removes the iptables chains and ipsets that a Go agent of Antrea 2.7 leaves on a node which we
//! take over: our rules are in nftables, and theirs would masquerade and mark beside them.
//!
//! Chains are known by their names (`ANTREA-...`), sets too. One transaction for each table takes
//! the jumps to the chains away, then the chains; rules of others, also those between the jumps,
//! stay. What to remove is worked out by a pure function from what `iptables-save` prints.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::command::{self, CommandError};

const PATIENCE: Duration = Duration::from_secs(15);
/// What the names of the Go agent's chains begin with.
const CHAIN_PREFIX: &str = "ANTREA-";
/// What the names of its sets begin with.
const SET_PREFIXES: [&str; 3] = ["ANTREA-", "CLUSTER-NODE-IP", "LOCAL-FLEXIBLE-IPAM-POD-IP"];
/// Programs that print and replace rules: whichever of them the Go agent wrote with, and for both
/// families. Where a name is a link to another, the second look finds nothing.
const PROGRAMS: [[&str; 2]; 6] = [
    ["iptables-save", "iptables-restore"],
    ["ip6tables-save", "ip6tables-restore"],
    ["iptables-nft-save", "iptables-nft-restore"],
    ["ip6tables-nft-save", "ip6tables-nft-restore"],
    ["iptables-legacy-save", "iptables-legacy-restore"],
    ["ip6tables-legacy-save", "ip6tables-legacy-restore"],
];

/// Why something of the Go agent is still there.
#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    /// A program gave no answer.
    #[error("read what a Go agent left")]
    Command(#[from] CommandError),
    /// A program refused.
    #[error("{program}: {message}")]
    Refused {
        /// Which.
        program: &'static str,
        /// What it printed.
        message: String,
    },
}

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Chains, as `table/chain`; one that both families had is named twice.
    pub chains: Vec<String>,
    /// Sets.
    pub sets: Vec<String>,
}

/// Removes all of it in the calling process's network namespace. Nothing there, or no such
/// programs installed, is success.
pub async fn remove() -> Result<Removed, LeftoverError> {
    let mut removed = Removed::default();
    for [save, restore] in PROGRAMS {
        let Some(saved) = run(save, &[], "").await? else { continue };
        let Plan { script, chains } = Plan::of(&saved);
        if !chains.is_empty() {
            run(restore, &["--noflush", "--wait", "5"], &script).await?;
            removed.chains.extend(chains);
        }
    }
    // Sets only now: a rule that names one holds it.
    let names = run("ipset", &["list", "-name"], "").await?.unwrap_or_default();
    for name in names.lines().filter(|name| SET_PREFIXES.iter().any(|p| name.starts_with(p))) {
        run("ipset", &["destroy", name], "").await?;
        removed.sets.push(name.to_owned());
    }
    Ok(removed)
}

/// Output of a program; `None` when it is not there, or the kernel lacks what it reads.
async fn run(
    program: &'static str,
    args: &[&str],
    input: &str,
) -> Result<Option<String>, LeftoverError> {
    match command::run(Path::new(program), args, &[], input.as_bytes(), PATIENCE).await {
        Ok(output) if output.success => {
            Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
        }
        // A look that the kernel cannot answer finds nothing of anybody's.
        Ok(_) if input.is_empty() && !args.contains(&"destroy") => Ok(None),
        Ok(output) => Err(LeftoverError::Refused { program, message: output.stderr }),
        Err(CommandError::Missing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What is to be removed of one family.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Input of `iptables-restore --noflush`.
    script: String,
    chains: Vec<String>,
}

impl Plan {
    /// Works it out from the output of `iptables-save`.
    fn of(saved: &str) -> Self {
        let mut plan = Self::default();
        for section in saved.split_inclusive("COMMIT\n") {
            plan.table(section);
        }
        plan
    }

    fn table(&mut self, section: &str) {
        let Some(table) = section.lines().find_map(|line| line.strip_prefix('*')) else { return };
        let chain_of = |line: &str| line.strip_prefix(':')?.split(' ').next().map(str::to_owned);
        let chains: Vec<String> = section
            .lines()
            .filter_map(chain_of)
            .filter(|name| name.starts_with(CHAIN_PREFIX))
            .collect();
        if chains.is_empty() {
            return;
        }
        put(&mut self.script, format_args!("*{table}"));
        for rule in section.lines().filter_map(|line| line.strip_prefix("-A ")) {
            let jumps = target(rule).is_some_and(|target| target.starts_with(CHAIN_PREFIX));
            if jumps && !rule.starts_with(CHAIN_PREFIX) {
                put(&mut self.script, format_args!("-D {rule}"));
            }
        }
        // All are emptied before the first goes: they jump to each other.
        for verb in ["-F", "-X"] {
            for chain in &chains {
                put(&mut self.script, format_args!("{verb} {chain}"));
            }
        }
        put(&mut self.script, format_args!("COMMIT"));
        self.chains.extend(chains.iter().map(|chain| format!("{table}/{chain}")));
    }
}

/// Where a rule jumps or goes to: what follows the last `-j` or `-g` outside of quotes.
fn target(rule: &str) -> Option<&str> {
    // Every other part of a text split at its quotes is outside of them; a target is never quoted.
    let outside = rule.split('"').step_by(2);
    let mut words = outside.flat_map(str::split_whitespace);
    let mut found = None;
    while let Some(word) = words.next() {
        if matches!(word, "-j" | "-g") {
            found = words.next();
        }
    }
    found
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a String takes any text");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_go_before_chains_and_others_rules_stay() {
        let saved = "\
# Generated by iptables-save
*nat
:PREROUTING ACCEPT [0:0]
:ANTREA-POSTROUTING - [0:0]
:ANTREA-PREROUTING - [0:0]
:KUBE-SERVICES - [0:0]
-A PREROUTING -m comment --comment \"Antrea: jump to -j KUBE\" -j ANTREA-PREROUTING
-A PREROUTING -m comment --comment \"to -j ANTREA-PREROUTING\" -j KUBE-SERVICES
-A ANTREA-PREROUTING -j ANTREA-POSTROUTING
COMMIT
*filter
:FORWARD DROP [0:0]
-A FORWARD -i antrea-gw0 -j ACCEPT
COMMIT
";
        let plan = Plan::of(saved);
        assert_eq!(plan.chains, ["nat/ANTREA-POSTROUTING", "nat/ANTREA-PREROUTING"]);
        assert_eq!(
            plan.script,
            "\
*nat
-D PREROUTING -m comment --comment \"Antrea: jump to -j KUBE\" -j ANTREA-PREROUTING
-F ANTREA-POSTROUTING
-F ANTREA-PREROUTING
-X ANTREA-POSTROUTING
-X ANTREA-PREROUTING
COMMIT
"
        );
        assert_eq!(Plan::of("nonsense\n:ANTREA-X\n-A"), Plan::default());
    }
}

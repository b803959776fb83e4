//! Lets forwarded Pod traffic through where iptables' FORWARD policy is DROP (Docker sets it so).
//!
//! An accept in our own nftables table cannot undo a drop in iptables' chain: the packet has to
//! pass both. So there, and only there, accept rules with our comment stand at the top of FORWARD.
//! Not here: any other iptables rule.

use std::path::Path;
use std::time::Duration;

use crate::command::{self, CommandError};
use crate::link::is_valid_name;

const PATIENCE: Duration = Duration::from_secs(15);
const COMMENT: &str = "antrea: forward Pod traffic";
/// Seconds that iptables waits for its lock.
const LOCK_SECONDS: &str = "5";

/// Why FORWARD could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The program gave no answer.
    #[error("read iptables rules")]
    Command(#[from] CommandError),
    /// The program refused.
    #[error("{program} {args}: {message}")]
    Refused {
        /// `iptables` or `ip6tables`.
        program: &'static str,
        /// Its arguments.
        args: String,
        /// What it printed.
        message: String,
    },
}

/// Which iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `iptables`
    Ipv4,
    /// `ip6tables`
    Ipv6,
}

impl Family {
    fn program(self) -> &'static str {
        match self {
            Self::Ipv4 => "iptables",
            Self::Ipv6 => "ip6tables",
        }
    }
}

/// What [`allow`] found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// iptables is not installed, or its policy lets traffic through.
    NotNeeded,
    /// The rules were added.
    Added,
    /// The rules were there.
    Present,
}

/// Adds accept rules for the gateway interface if FORWARD drops what nobody accepts.
pub async fn allow(family: Family, gateway: &str) -> Result<Forward, ForwardError> {
    let Some(rules) = forward_rules(family).await? else { return Ok(Forward::NotNeeded) };
    if !is_valid_name(gateway) || !drops_by_policy(&rules) {
        return Ok(Forward::NotNeeded);
    }
    let mut outcome = Forward::Present;
    for direction in ["-i", "-o"] {
        if !has_rule(&rules, direction, gateway) {
            change(family, "-I", direction, gateway).await?;
            outcome = Forward::Added;
        }
    }
    Ok(outcome)
}

/// Removes what [`allow`] added, whatever the policy is now; success when there is nothing.
pub async fn disallow(family: Family, gateway: &str) -> Result<(), ForwardError> {
    let Some(rules) = forward_rules(family).await? else { return Ok(()) };
    for direction in ["-i", "-o"] {
        if has_rule(&rules, direction, gateway) {
            change(family, "-D", direction, gateway).await?;
        }
    }
    Ok(())
}

/// FORWARD as `iptables -S` prints it; `None` when the program or the table is not there.
async fn forward_rules(family: Family) -> Result<Option<String>, ForwardError> {
    match run(family, &["-w", LOCK_SECONDS, "-S", "FORWARD"]).await {
        Ok(text) => Ok(Some(text)),
        Err(ForwardError::Command(CommandError::Missing(_))) => Ok(None),
        // The kernel has no such table: nothing is filtered by it.
        Err(ForwardError::Refused { message, .. })
            if message.contains("Table does not exist") || message.contains("can't initialize") =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn change(
    family: Family,
    verb: &str,
    direction: &str,
    gateway: &str,
) -> Result<(), ForwardError> {
    let args = [
        "-w",
        LOCK_SECONDS,
        verb,
        "FORWARD",
        direction,
        gateway,
        "-m",
        "comment",
        "--comment",
        COMMENT,
        "-j",
        "ACCEPT",
    ];
    run(family, &args).await.map(|_| ())
}

async fn run(family: Family, args: &[&str]) -> Result<String, ForwardError> {
    let program = family.program();
    let output = command::run(Path::new(program), args, &[], b"", PATIENCE).await?;
    if output.success {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(ForwardError::Refused { program, args: args.join(" "), message: output.stderr })
}

fn drops_by_policy(rules: &str) -> bool {
    rules.lines().any(|line| line.trim() == "-P FORWARD DROP")
}

fn has_rule(rules: &str, direction: &str, gateway: &str) -> bool {
    let start = format!("-A FORWARD {direction} {gateway} ");
    rules.lines().any(|line| line.starts_with(&start) && line.contains(COMMENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_policy_and_own_rules() {
        let rules = "-P FORWARD DROP\n-A FORWARD -i antrea-gw0 -m comment --comment \"antrea: forward Pod traffic\" -j ACCEPT\n";
        assert!(drops_by_policy(rules));
        assert!(!drops_by_policy("-P FORWARD ACCEPT\n-A FORWARD -j DROP\n"));
        assert!(has_rule(rules, "-i", "antrea-gw0"));
        assert!(!has_rule(rules, "-o", "antrea-gw0"));
        assert!(!has_rule(rules, "-i", "antrea-gw"));
    }
}

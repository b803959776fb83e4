//! `antctl get`: what the agent of this node knows.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

mod local;

/// What is to be got.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List addresses of names that policies' rules name, as DNS answers told them
    ///
    /// Asks the agent of this node, over its API port on loopback; run it where the agent runs, as
    /// somebody who may read the agent's token.
    Fqdncache(FqdncacheArgs),
}

/// Arguments of `fqdncache`.
#[derive(Debug, Args)]
pub struct FqdncacheArgs {
    /// Only names that match this one, in which * stands for any string
    #[arg(short, long, value_name = "PATTERN")]
    domain: Option<String>,
    /// Form of the answer
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: Output,
    /// Address of the agent's API
    #[arg(short, long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10350")]
    server: SocketAddr,
    /// Folder in which the agent puts its token and its certificate
    #[arg(long, value_name = "DIR", default_value = "/var/run/antrea/apiserver")]
    token_dir: PathBuf,
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Columns for people.
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// An address of a name, as the agent tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    fqdn_name: String,
    ip_address: String,
    expiration_time: String,
}

/// Runs a command.
pub fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let Command::Fqdncache(args) = command;
    let answer = local::get(args.server, &args.token_dir, "/fqdncache")?;
    let mut known: Vec<Known> =
        serde_json::from_slice(&answer).context("read the agent's answer")?;
    if let Some(pattern) = &args.domain {
        known.retain(|known| matches(pattern, &known.fqdn_name));
    }
    print(&known, args.output, out)?;
    Ok(ExitCode::SUCCESS)
}

fn print(known: &[Known], output: Output, out: &mut dyn Write) -> anyhow::Result<()> {
    match output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(known)?)?,
        Output::Yaml if known.is_empty() => writeln!(out, "[]")?,
        Output::Yaml => write!(out, "{}", serde_saphyr::to_string(&known)?)?,
        Output::Table => {
            let rows = known
                .iter()
                .map(|known| [&*known.fqdn_name, &*known.ip_address, &*known.expiration_time]);
            let rows: Vec<[&str; 3]> =
                std::iter::once(["FQDN", "ADDRESS", "EXPIRATION TIME"]).chain(rows).collect();
            let width = |n: usize| rows.iter().map(|row| row[n].len()).max().unwrap_or(0);
            let (first, second) = (width(0), width(1));
            for [name, address, time] in &rows {
                let line = format!("{name:first$}  {address:second$}  {time}");
                writeln!(out, "{}", line.trim_end())?;
            }
        }
    }
    Ok(())
}

/// Whether a name fits a pattern; neither cares for case, nor for a dot at the end.
fn matches(pattern: &str, name: &str) -> bool {
    let plain = |text: &str| text.trim_end_matches('.').to_ascii_lowercase();
    let (pattern, name) = (plain(pattern), plain(name));
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        // The first place is the best: it leaves most for the rest.
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_string() {
        for (pattern, name, want) in [
            ("example.com", "example.com", true),
            ("Example.com.", "example.com", true),
            ("example.com", "examplescom", false),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*", "anything", true),
            ("*", "", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*b*b*", "abcb", true),
            ("*b*b*", "abc", false),
            ("db-*.example.*", "db-1.example.org", true),
            ("db-*.example.*", "xdb-1.example.org", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern:?} {name:?}");
        }
    }

    #[test]
    fn forms() {
        let known = |name: &str, ip: &str| Known {
            fqdn_name: name.to_owned(),
            ip_address: ip.to_owned(),
            expiration_time: "2026-01-01T00:00:00Z".to_owned(),
        };
        let all = [known("a.test", "2001:db8::1"), known("long.example.test", "10.0.0.1")];
        let shown = |all: &[Known], output| {
            let mut out = Vec::new();
            print(all, output, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            shown(&all, Output::Table),
            "FQDN               ADDRESS      EXPIRATION TIME\n\
             a.test             2001:db8::1  2026-01-01T00:00:00Z\n\
             long.example.test  10.0.0.1     2026-01-01T00:00:00Z\n"
        );
        assert_eq!(shown(&[], Output::Table), "FQDN  ADDRESS  EXPIRATION TIME\n");
        for output in [Output::Json, Output::Yaml] {
            let read: Vec<Known> = serde_saphyr::from_str(&shown(&all, output)).unwrap();
            assert_eq!(read, all, "{output:?}");
            let none: Vec<Known> = serde_saphyr::from_str(&shown(&[], output)).unwrap();
            assert!(none.is_empty(), "{output:?}");
        }
    }
}

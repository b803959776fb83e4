//! Kubernetes' programs from their Go modules.
//!
//! The module `k8s.io/kubernetes` names its own parts by paths within its repository, so it cannot
//! be built as it is: each part is replaced by the module that was published of it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace;

/// The oldest Go that builds Kubernetes' current versions.
const OLDEST_GO: (u32, u32) = (1, 24);
const KUBERNETES: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kubectl"];

/// Builds what is not there yet into `dir/bin`.
pub(super) fn programs(dir: &Path, version: &str, etcd: &str) -> Result<()> {
    let bin = dir.join("bin");
    let missing = |names: &[&str]| names.iter().any(|name| !bin.join(name).exists());
    if !missing(&["etcd"]) && !missing(&KUBERNETES) {
        return Ok(());
    }
    let go = require_go()?;
    println!(
        "building Kubernetes {version} and etcd {etcd} with Go {}.{}: some minutes",
        go.0, go.1
    );
    if missing(&["etcd"]) {
        let module = dir.join("etcd");
        write_module(&module, &format!("require go.etcd.io/etcd/server/v3 v{etcd}\n"))?;
        // The program is the root of its module and is called as that.
        build(&module, dir, &["-o", "bin/etcd"], &["go.etcd.io/etcd/server/v3"])?;
    }
    if missing(&KUBERNETES) {
        let module = dir.join("kubernetes");
        let theirs = module_file(version)?;
        write_module(&module, &requirements(version, &parts(&theirs))?)?;
        let flags = version_flags(version)?;
        let commands = KUBERNETES.map(|name| format!("k8s.io/kubernetes/cmd/{name}"));
        let commands = commands.each_ref().map(String::as_str);
        build(&module, dir, &["-ldflags", &flags, "-o", "bin/"], &commands)?;
    }
    Ok(())
}

/// The version of the Go that is installed.
fn require_go() -> Result<(u32, u32)> {
    let (major, minor) = OLDEST_GO;
    let advice = format!(
        "install Go {major}.{minor} or later (https://go.dev/dl), or name a \
                          folder with the programs: --bin-dir DIR"
    );
    let output = Command::new("go").arg("version").output();
    let Ok(output) = output else { bail!("go is not installed; {advice}") };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match go_version(&said) {
        Some(found) if found >= OLDEST_GO => Ok(found),
        _ => bail!("{} is too old; {advice}", said.trim()),
    }
}

/// Reads the answer of `go version`.
fn go_version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split_whitespace().nth(2)?.strip_prefix("go")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    // A candidate is called 1.25rc1.
    let minor = numbers.next()?;
    let end = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor[..end].parse().ok()?))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    #[serde(default)]
    go_mod: String,
    #[serde(default)]
    error: String,
}

/// The text of Kubernetes' own `go.mod`.
fn module_file(version: &str) -> Result<String> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", &format!("k8s.io/kubernetes@v{version}")])
        .current_dir(std::env::temp_dir())
        .output()
        .context("run go mod download")?;
    let answer: Download =
        serde_json::from_slice(&output.stdout).context("decode the answer of go mod download")?;
    if !answer.error.is_empty() {
        bail!("download Kubernetes {version}: {}", answer.error);
    }
    fs::read_to_string(&answer.go_mod).with_context(|| format!("read {}", answer.go_mod))
}

/// Names of the parts that a `go.mod` takes from its own repository.
fn parts(module_file: &str) -> Vec<&str> {
    let replaced = module_file.lines().filter(|line| line.contains("=> ./staging/"));
    replaced
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("k8s.io/")))
        .collect()
}

/// Version 1.34.2 of Kubernetes has parts of version 0.34.2.
fn version_of_parts(version: &str) -> Result<String> {
    let rest = version.strip_prefix("1.").filter(|rest| rest.contains('.'));
    rest.map(|rest| format!("v0.{rest}"))
        .with_context(|| format!("--version {version}: not a version such as 1.34.2"))
}

fn requirements(version: &str, parts: &[&str]) -> Result<String> {
    let of_parts = version_of_parts(version)?;
    let lines = parts.iter().map(|part| format!("replace {part} => {part} {of_parts}\n"));
    Ok(format!("require k8s.io/kubernetes v{version}\n") + &lines.collect::<String>())
}

/// What the programs call themselves.
fn version_flags(version: &str) -> Result<String> {
    let of_parts = version_of_parts(version)?;
    let minor = of_parts.split('.').nth(1).unwrap_or_default();
    let sets = [
        ("gitVersion", format!("v{version}")),
        ("gitMajor", "1".to_owned()),
        ("gitMinor", minor.to_owned()),
    ];
    let set =
        |(name, value): (&str, String)| format!("-X k8s.io/component-base/version.{name}={value}");
    Ok(sets.map(set).join(" "))
}

fn write_module(dir: &Path, requirements: &str) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let (major, minor) = OLDEST_GO;
    let text = format!("module programs\n\ngo {major}.{minor}.0\n\n{requirements}");
    fs::write(dir.join("go.mod"), text).context("write go.mod")
}

fn build(module: &Path, into: &Path, flags: &[&str], packages: &[&str]) -> Result<()> {
    let mut command = Command::new("go");
    // What `go.mod` lacks is added: nobody keeps it.
    command.args(["build", "-mod=mod"]).current_dir(module);
    for flag in flags {
        match flag.strip_prefix("bin/") {
            Some(name) => command.arg(format!("{}/bin/{name}", into.display())),
            None => command.arg(flag),
        };
    }
    workspace::run(command.args(packages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_go_is_understood() {
        for (said, want) in [
            ("go version go1.26.8 linux/amd64", Some((1, 26))),
            ("go version go1.25rc1 linux/arm64", Some((1, 25))),
            ("go version devel", None),
            ("", None),
        ] {
            assert_eq!(go_version(said), want, "{said}");
        }
    }

    #[test]
    fn parts_of_kubernetes_are_replaced_by_their_modules() {
        let text = "module k8s.io/kubernetes\nrequire k8s.io/utils v0.0.0-2025\nreplace (\n\
                    \tk8s.io/api => ./staging/src/k8s.io/api\n\
                    \tk8s.io/kubectl => ./staging/src/k8s.io/kubectl\n)\n";
        assert_eq!(parts(text), ["k8s.io/api", "k8s.io/kubectl"]);
        let wanted = requirements("1.34.2", &["k8s.io/api"]).unwrap();
        assert_eq!(
            wanted,
            "require k8s.io/kubernetes v1.34.2\nreplace k8s.io/api => k8s.io/api v0.34.2\n"
        );
        assert!(requirements("1.34", &[]).is_err() && requirements("v1.34.2", &[]).is_err());
    }
}

//! Up and down leave the machine as it was: also when up is killed half way.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::{Context, Outcome};
use crate::down;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::Layout;
use crate::netns;
use crate::preflight::program;
use crate::process;
use crate::state::Store;

/// What of the machine is compared, each as text.
type Snapshot = BTreeMap<String, String>;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let layout = Layout::beside(context.dir, "clean")?;
    let dir = layout.dir().to_owned();
    // What an earlier run left when it was killed is not the machine as it was.
    let left = Store::open(&layout).ok().or(Store::recover(&layout)?);
    if let Some(left) = left {
        down::run(&left, context.progress)?;
    }
    let before = snapshot(&layout)?;
    let lab = |args: &[&str]| -> Result<Child> {
        let me = std::env::current_exe().doing(|| "find our own program".into())?;
        Command::new(me)
            .arg("--dir")
            .arg(&dir)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .doing(|| "run antrea-lab".into())
    };
    let done = |args: &[&str]| -> Result<()> {
        let status = lab(args)?.wait().doing(|| "wait for antrea-lab".into())?;
        if status.success() {
            return Ok(());
        }
        Err(LabError::new(format!("antrea-lab {}: {status}", args.join(" "))))
    };
    let bin = context.bin_dir.display().to_string();
    let up = ["up", "--standalone", "--nodes", "2", "--bin-dir", &bin];

    done(&up)?;
    done(&["pod", "add", "node-1", "a"])?;
    done(&["pod", "add", "node-2", "b"])?;
    done(&["down"])?;
    compare("up, Pods, down", &before, &snapshot(&layout)?)?;

    done(&["up", "--nodes", "2", "--bin-dir", &bin])?;
    done(&["down"])?;
    compare("up with an API server, down", &before, &snapshot(&layout)?)?;

    // Killed half way: no chance to undo anything itself.
    let mut child = lab(&up)?;
    let half_way = wait_for(Duration::from_secs(20), "up has made namespaces", || {
        netns::exists(layout.node("node-1").netns()).then_some(())
    });
    child.kill().doing(|| "kill antrea-lab up".into())?;
    child.wait().doing(|| "wait for antrea-lab up".into())?;
    done(&["down"])?;
    half_way?;
    compare("up killed half way, down", &before, &snapshot(&layout)?)?;

    // The next `up` ends what the killed one left.
    let mut child = lab(&up)?;
    let half_way = wait_for(Duration::from_secs(20), "up has made namespaces", || {
        netns::exists(layout.node("node-1").netns()).then_some(())
    });
    child.kill().doing(|| "kill antrea-lab up".into())?;
    child.wait().doing(|| "wait for antrea-lab up".into())?;
    done(&up)?;
    done(&["down"])?;
    half_way?;
    compare("up killed half way, up, down", &before, &snapshot(&layout)?)?;

    // Its directory removed by hand: names and marks are enough.
    done(&up)?;
    fs::remove_dir_all(&dir).doing(|| "remove the lab's directory".into())?;
    done(&["down"])?;
    compare("down of a lab without its directory", &before, &snapshot(&layout)?)?;

    // Interrupted: it undoes everything itself.
    let mut child = lab(&up)?;
    wait_for(Duration::from_secs(20), "up has made namespaces", || {
        netns::exists(layout.node("node-1").netns()).then_some(())
    })?;
    let pid = i32::try_from(child.id()).doing(|| "read the pid".into())?;
    if let Some(id) = process::ProcessId::of(pid) {
        id.signal(nix::sys::signal::Signal::SIGINT);
    }
    let status = child.wait().doing(|| "wait for antrea-lab up".into())?;
    if status.success() {
        // It was faster than the signal.
        done(&["down"])?;
    } else if status.code() != Some(130) {
        return Err(LabError::new(format!("an interrupted antrea-lab up: {status}")));
    }
    compare("up interrupted", &before, &snapshot(&layout)?)?;
    Ok(Outcome::Passed(json!({ "compared": before.keys().collect::<Vec<_>>() })))
}

fn snapshot(layout: &Layout) -> Result<Snapshot> {
    let mut seen = Snapshot::new();
    for (name, program, args) in [
        ("links", "ip", &["-o", "link"][..]),
        ("addresses", "ip", &["-o", "address"]),
        ("routes", "ip", &["route", "show", "table", "all"]),
        ("routes of IPv6", "ip", &["-6", "route", "show", "table", "all"]),
        ("rules", "ip", &["rule"]),
        ("nft", "nft", &["list", "ruleset"]),
    ] {
        let output = crate::preflight::program(program).args(args).output();
        let output = output.doing(|| format!("run {program}"))?;
        seen.insert(name.into(), without_counters(&String::from_utf8_lossy(&output.stdout)));
    }
    let names: Vec<String> =
        netns::with_prefix(layout.prefix()).iter().map(|p| p.display().to_string()).collect();
    seen.insert("namespaces".into(), names.join("\n"));
    let mounts = fs::read_to_string("/proc/self/mounts").doing(|| "read mounts".into())?;
    let ours: Vec<&str> = mounts.lines().filter(|l| l.contains(layout.prefix())).collect();
    seen.insert("mounts".into(), ours.join("\n"));
    let left: Vec<String> =
        process::marked(layout.dir()).iter().map(|p| p.pid.to_string()).collect();
    seen.insert("processes".into(), left.join("\n"));
    let mut sysctls = Vec::new();
    collect_sysctls(Path::new("/proc/sys/net"), &mut sysctls);
    sysctls.sort();
    seen.insert("sysctls".into(), sysctls.join("\n"));
    let files = [layout.dir().to_owned(), layout.lock_file()];
    let left: Vec<_> =
        files.iter().filter(|f| f.exists()).map(|f| f.display().to_string()).collect();
    seen.insert("files".into(), left.join("\n"));
    if Path::new("/var/run/openvswitch/db.sock").exists() {
        let output = program("ovs-vsctl").arg("show").output();
        let output = output.doing(|| "run ovs-vsctl".into())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        seen.insert("the machine's own switch".into(), text);
    }
    Ok(seen)
}

/// Values that move by themselves say nothing.
fn without_counters(text: &str) -> String {
    let keep = |word: &&str| !word.ends_with("sec") && !word.chars().all(|c| c.is_ascii_digit());
    text.lines()
        .map(|line| line.split(' ').filter(keep).collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
}

fn collect_sysctls(dir: &Path, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            collect_sysctls(&path, found);
        } else if let Ok(value) = fs::read_to_string(&path)
            && !path.ends_with("nf_conntrack_count")
        {
            found.push(format!("{}={}", path.display(), value.trim()));
        }
    }
}

fn compare(when: &str, before: &Snapshot, after: &Snapshot) -> Result<()> {
    for (what, was) in before {
        let is = after.get(what).map(String::as_str).unwrap_or_default();
        if was == is {
            continue;
        }
        let new = is.lines().find(|l| !was.lines().any(|w| w == *l));
        let gone = was.lines().find(|l| !is.lines().any(|i| i == *l));
        return Err(LabError::new(format!(
            "after {when} the {what} differ: new {new:?}, gone {gone:?}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named() {
        let a = Snapshot::from([("links".into(), "1: lo".into())]);
        let b = Snapshot::from([("links".into(), "1: lo\n2: x".into())]);
        assert!(compare("up", &a, &a).is_ok());
        assert!(compare("up", &a, &b).unwrap_err().to_string().contains("2: x"));
    }
}

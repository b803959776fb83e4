//! What CI runs, stage by stage. Ends with a table of minutes and one `N passed, N failed` line.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{debian, docs, generate, shim, tidy, workspace};

/// Counts read from the closing lines of test programs.
#[derive(Clone, Copy, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

struct Stage {
    name: &'static str,
    took: Duration,
    outcome: Result<()>,
}

/// Runs all stages; later ones run even when an earlier one failed, so that one run shows all.
pub(crate) fn run() -> Result<()> {
    let mut tally = Tally::default();
    let mut stages = Vec::new();
    let mut stage = |name: &'static str, work: &mut dyn FnMut() -> Result<()>| {
        println!("\n=== {name}");
        let start = Instant::now();
        let outcome = work();
        if let Err(error) = &outcome {
            println!("=== {name} FAILED: {error:#}");
        }
        stages.push(Stage { name, took: start.elapsed(), outcome });
    };

    stage("fmt", &mut || workspace::run(&mut workspace::cargo(&["fmt", "--all", "--check"])));
    stage("tidy", &mut tidy::run);
    stage("gen --check", &mut || generate::run(generate::Mode::Check));
    stage("clippy", &mut || {
        workspace::run(&mut workspace::cargo(&[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    });
    // The programs are those of the tests' profile: what the stages below say does not depend on how
    // fast they are, and a second compilation of everything would take as long as all tests.
    stage("programs", &mut || {
        workspace::run(&mut workspace::cargo(&["build", "--locked", "--workspace", "--bins"]))?;
        // But for the one whose size and start are its point: that one is as it is shipped.
        shim::build(&bin_dir())
    });
    let root = is_root();
    stage("tests", &mut || {
        let mut arguments = vec!["test", "--locked", "--workspace", "--no-fail-fast"];
        if root {
            arguments.extend(["--", "--include-ignored"]);
        }
        counted(&mut workspace::cargo(&arguments), &mut tally)
    });
    if root {
        stage("lab", &mut lab);
    }
    stage("rustdoc", &mut || {
        let mut doc = workspace::cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
        workspace::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
    });
    if root {
        stage("docs", &mut || docs::run(&bin_dir()));
    }
    report(&stages, tally, root)
}

/// Where the programs are that the stages run.
fn bin_dir() -> PathBuf {
    workspace::target_dir().join("debug")
}

/// The demo, and every scenario; the runtime that one of them needs is not installed for it.
fn lab() -> Result<()> {
    let lab = bin_dir().join("antrea-lab");
    workspace::run(Command::new(&lab).arg("demo"))?;
    let kept = workspace::target_dir().join("debian");
    let tools = debian::search_path(&["containerd", "runc"], &kept)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(tools.into_iter().chain(std::env::split_paths(&path)))
        .context("add containerd to the search path")?;
    workspace::run(Command::new(&lab).arg("check").env("PATH", path))
}

fn counted(command: &mut Command, tally: &mut Tally) -> Result<()> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("start {command:?}"))?;
    let stdout = child.stdout.take().context("stdout of the tests")?;
    for line in BufReader::new(stdout).lines() {
        let line = line.context("read the tests' output")?;
        println!("{line}");
        if let Some(counts) = line.strip_prefix("test result: ") {
            tally.passed += count(counts, " passed");
            tally.failed += count(counts, " failed");
            tally.ignored += count(counts, " ignored");
        }
    }
    let status = child.wait().context("wait for the tests")?;
    if !status.success() {
        bail!("tests failed: {status}");
    }
    Ok(())
}

/// The number before `word` in a closing line such as `ok. 3 passed; 0 failed; 1 ignored`.
fn count(line: &str, word: &str) -> u64 {
    line.split([';', '.'])
        .filter_map(|part| part.trim_end().strip_suffix(word))
        .filter_map(|number| number.trim().parse::<u64>().ok())
        .next()
        .unwrap_or(0)
}

fn report(stages: &[Stage], tally: Tally, root: bool) -> Result<()> {
    println!("\n{:<14} {:>8}  outcome", "stage", "minutes");
    for stage in stages {
        let outcome = if stage.outcome.is_ok() { "passed" } else { "FAILED" };
        println!("{:<14} {:>8.1}  {outcome}", stage.name, stage.took.as_secs_f64() / 60.0);
    }
    let total: Duration = stages.iter().map(|stage| stage.took).sum();
    println!("{:<14} {:>8.1}", "all", total.as_secs_f64() / 60.0);
    let failed_stages = stages.iter().filter(|stage| stage.outcome.is_err()).count();
    if !root {
        println!("not root: {} tests were ignored, the lab was left out", tally.ignored);
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if failed_stages > 0 {
        bail!("{failed_stages} stage(s) failed");
    }
    if root && tally.ignored > 0 {
        bail!("{} test(s) were ignored although this is root", tally.ignored);
    }
    Ok(())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn closing_lines_are_counted() {
        let line =
            "ok. 12 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(count(line, " passed"), 12);
        assert_eq!(count(line, " failed"), 1);
        assert_eq!(count(line, " ignored"), 3);
    }
}

//! What CI runs, stage by stage. Ends with a table of minutes and one `N passed, N failed` line.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::digest::Digest;
use crate::{debian, docs, generate, shim, tidy, workspace};

/// How many tests of a program run at the same time.
const TEST_THREADS: &str = "--test-threads=4";

/// Counts read from the closing lines of test programs.
#[derive(Clone, Copy, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Tally {
    fn line(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, " passed");
            self.failed += count(counts, " failed");
            self.ignored += count(counts, " ignored");
        }
    }
}

struct Stage {
    name: &'static str,
    took: Duration,
    outcome: Result<()>,
}

/// Runs all stages; later ones run even when an earlier one failed, so that one run shows all.
pub(crate) fn run() -> Result<()> {
    let tally = RefCell::new(Tally::default());
    let digest = RefCell::new(Digest::default());
    let mut stages = Vec::new();
    // Runs to the end; what it prints is printed, counted, and looked through for failures.
    let followed = |command: &mut Command| {
        follow(command, &mut |line| {
            digest.borrow_mut().line(line);
            tally.borrow_mut().line(line);
        })
    };
    let mut stage = |name: &'static str, work: &mut dyn FnMut() -> Result<()>| {
        println!("\n=== {name}");
        let start = Instant::now();
        let outcome = work();
        if let Err(error) = &outcome {
            println!("=== {name} FAILED: {error:#}");
        }
        stages.push(Stage { name, took: start.elapsed(), outcome });
    };

    stage("fmt", &mut || followed(&mut workspace::cargo(&["fmt", "--all", "--check"])));
    stage("tidy", &mut tidy::run);
    stage("gen --check", &mut || generate::run(generate::Mode::Check));
    stage("clippy", &mut || {
        followed(&mut workspace::cargo(&[
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
    // fast they are, and a second compilation of everything would take as long as all tests. For the
    // same reason programs and tests are built by one command: apart, each would have its dependencies
    // compiled with features of its own.
    stage("programs", &mut || {
        let build = ["build", "--locked", "--workspace", "--all-targets"];
        followed(&mut workspace::cargo(&build))?;
        // But for the one whose size and start are its point: that one is as it is shipped.
        shim::build(&bin_dir())
    });
    let root = is_root();
    stage("tests", &mut || {
        // Many tests wait for a switch or a timeout rather than for a processor.
        let mut arguments = vec!["test", "--locked", "--workspace", "--no-fail-fast", "--"];
        arguments.push(TEST_THREADS);
        if root {
            arguments.push("--include-ignored");
        }
        followed(&mut workspace::cargo(&arguments))
    });
    if root {
        stage("lab", &mut || {
            // Testing has put the one of its own profile there.
            shim::build(&bin_dir())?;
            lab(&followed)
        });
    }
    stage("rustdoc", &mut || {
        let mut doc = workspace::cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
        followed(doc.env("RUSTDOCFLAGS", "-D warnings"))
    });
    if root {
        stage("docs", &mut || docs::run(&bin_dir(), &followed));
    }
    let tally = *tally.borrow();
    report(&stages, tally, digest.borrow().lines(), root)
}

/// Where the programs are that the stages run.
fn bin_dir() -> PathBuf {
    workspace::target_dir().join("debug")
}

/// The demo, and every scenario; the runtime that one of them needs is not installed for it.
fn lab(followed: &dyn Fn(&mut Command) -> Result<()>) -> Result<()> {
    let lab = bin_dir().join("antrea-lab");
    followed(Command::new(&lab).arg("demo"))?;
    let kept = workspace::target_dir().join("debian");
    let tools = debian::search_path(&["containerd", "runc"], &kept)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(tools.into_iter().chain(std::env::split_paths(&path)))
        .context("add containerd to the search path")?;
    followed(Command::new(&lab).arg("check").env("PATH", path))
}

/// Runs to the end and gives each line of either output to `each`, after it is printed.
fn follow(command: &mut Command, each: &mut dyn FnMut(&str)) -> Result<()> {
    // A page of commands is long; its beginning says which it is.
    let what: String = format!("{command:?}").chars().take(120).collect();
    let (reader, writer) = io::pipe().context("make a pipe")?;
    command.stdout(writer.try_clone().context("copy a pipe's end")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("start {what}"))?;
    // The command holds the pipe's ends too, and while it does there is no end of the output.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.with_context(|| format!("read what {what} prints"))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        each(&line);
    }
    let status = child.wait().with_context(|| format!("wait for {what}"))?;
    if !status.success() {
        bail!("{what} failed: {status}");
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

fn report(stages: &[Stage], tally: Tally, failures: &[String], root: bool) -> Result<()> {
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
        println!("\n=== what failed");
        for stage in stages {
            if let Err(error) = &stage.outcome {
                println!("{}: {error:#}", stage.name);
            }
        }
        failures.iter().for_each(|line| println!("{line}"));
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

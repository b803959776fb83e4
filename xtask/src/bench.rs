//! Measures the budgets: builds what is needed, runs each benchmark, and holds its figures against
//! them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace;

mod budgets;

/// Computations that are measured apart from any cluster: name, package, example, arguments.
const COMPUTATIONS: &[(&str, &str, &str, &[&str])] = &[
    ("policy-large", "policy", "large", &["small"]),
    ("policy-one-namespace", "policy", "large", &["one"]),
    ("flows", "switch", "bench_flows", &["100000", "15"]),
    ("services-switch", "switch", "bench_services", &[]),
];

/// What a lab that is made for it can tell (`antrea-lab bench`), and whether it is asked of the
/// programs as images carry them.
const LAB: &[(&str, bool)] =
    &[("network", false), ("policy", false), ("services", false), ("load", true), ("scale", false)];

fn names() -> impl Iterator<Item = &'static str> {
    COMPUTATIONS.iter().map(|(name, ..)| *name).chain(LAB.iter().map(|(name, _)| *name))
}

/// Runs the benchmarks whose name contains one of `only`, or all.
///
/// # Errors
/// When one fails, or a budget is missed.
pub(crate) fn run(only: &[String]) -> Result<()> {
    let chosen = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    if !names().any(chosen) {
        bail!("nothing is called {}: there are {:?}", only.join(", "), names().collect::<Vec<_>>());
    }
    let mut verdicts = Vec::new();
    let mut measure = |name: &str, command: &mut Command| -> Result<()> {
        let seen = budgets::judge(name, &figures(command)?);
        seen.iter().for_each(|verdict| println!("{verdict}"));
        verdicts.extend(seen);
        Ok(())
    };
    for (name, package, example, args) in COMPUTATIONS.iter().filter(|(name, ..)| chosen(name)) {
        let shown = args.join(" ");
        println!("{name}: cargo run --release -p {package} --example {example} -- {shown}");
        let build =
            ["run", "--quiet", "--release", "--locked", "-p", package, "--example", example];
        measure(name, workspace::cargo(&build).arg("--").args(*args))?;
    }
    let target = workspace::target_dir();
    let lab = target.join("release/antrea-lab");
    for (name, as_images) in LAB.iter().filter(|(name, _)| chosen(name)) {
        let bin_dir = target.join(if *as_images { "dist/bin" } else { "release" });
        for (file, make) in [(&lab, "build"), (&bin_dir.join("antrea-agent"), "dist")] {
            if !file.exists() {
                bail!("{} is not built: run `make {make}`", file.display());
            }
        }
        println!("{name}: antrea-lab bench {name} --bin-dir {}", bin_dir.display());
        let mut command = Command::new(&lab);
        measure(name, command.args(["bench", name, "--json", "--bin-dir"]).arg(bin_dir))?;
    }
    println!();
    verdicts.iter().for_each(|verdict| println!("{verdict}"));
    let n_missed = verdicts.iter().filter(|verdict| !verdict.is_kept()).count();
    if n_missed > 0 {
        bail!("{n_missed} of {} budgets missed", verdicts.len());
    }
    Ok(())
}

/// The figures that a command prints: the array of JSON that ends its output. What comes before is
/// shown.
fn figures(command: &mut Command) -> Result<Vec<Value>> {
    let shown = format!("{command:?}");
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("start {shown}"))?;
    let out = child.stdout.take().context("no output")?;
    let mut json = String::new();
    for line in BufReader::new(out).lines() {
        let line = line.with_context(|| format!("read what {shown} prints"))?;
        if json.is_empty() && !line.starts_with('[') {
            println!("  {line}");
        } else {
            json.push_str(&line);
        }
    }
    let status = child.wait().with_context(|| format!("wait for {shown}"))?;
    if !status.success() {
        bail!("{shown} failed: {status}");
    }
    let figures: Vec<Value> = serde_json::from_str(&json)
        .with_context(|| format!("{shown} prints no figures at its end: {json:?}"))?;
    for figure in &figures {
        let [name, how] = ["name", "how"].map(|key| figure[key].as_str().unwrap_or_default());
        println!("{name}\n  {}", figure["values"]);
        if !how.is_empty() {
            println!("  by: {how}");
        }
    }
    Ok(figures)
}

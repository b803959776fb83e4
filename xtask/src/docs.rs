//! Runs the commands of README and docs as written.
//!
//! A fenced block marked `sh` is run by `sh -eu` in the root of the checkout, with our programs on
//! the PATH; all blocks of one file run in order and share one working state. A block
//! marked `console` or anything else is only text. A block marked `sh no-run` shows a command that
//! cannot run here (it needs a real cluster, or would run the tests themselves).

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace;

/// How a command is run to its end.
pub(crate) type Start<'a> = dyn Fn(&mut Command) -> Result<()> + 'a;

/// Runs every runnable block of every page with the programs of a folder.
pub(crate) fn run(bin_dir: &Path, start: &Start<'_>) -> Result<()> {
    let mut pages = vec!["README.md".into()];
    pages.extend(workspace::tracked("docs", ".md")?);
    for page in pages {
        run_page(&page, bin_dir, start)?;
    }
    Ok(())
}

fn run_page(page: &Path, bin_dir: &Path, start: &Start<'_>) -> Result<()> {
    let text = fs::read_to_string(workspace::root().join(page))
        .with_context(|| format!("read {}", page.display()))?;
    let blocks = runnable(&text);
    if blocks.is_empty() {
        return Ok(());
    }
    println!("{}: {} block(s)", page.display(), blocks.len());
    let path = format!("{}:{}", bin_dir.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.args(["-eux", "-c", &blocks.join("\n")]).current_dir(workspace::root());
    start(command.env("PATH", path))
        .with_context(|| format!("a command of {} failed", page.display()))
}

/// The blocks fenced as exactly `sh`, in order.
fn runnable(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    let mut other = false;
    for line in text.lines() {
        match (line.trim_end(), &mut open) {
            ("```", Some(lines)) => {
                blocks.push(lines.join("\n"));
                open = None;
            }
            ("```", None) => other = !other,
            (_, Some(lines)) => lines.push(line),
            ("```sh", None) if !other => open = Some(Vec::new()),
            (fence, None) if fence.starts_with("```") => other = true,
            _ => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::runnable;

    #[test]
    fn only_plain_sh_blocks_run() {
        let page = "a\n```sh\none\ntwo\n```\n```console\n$ no\n```\n```sh no-run\nno\n```\n```sh\nthree\n```\n";
        assert_eq!(runnable(page), ["one\ntwo", "three"]);
    }
}

//! Runs the real program on small folders of manifests and compares what it says.
//!
//! Beside the manifests of a folder lies what the program prints: `connectivity.out`, and
//! `connectivity.err` where it has something to complain about. `UPDATE_GOLDEN=1` writes them anew.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a run of the program left.
struct Run {
    out: String,
    err: String,
    code: i32,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the program prints UTF-8")
}

/// Runs in the folder of fixtures, so that messages name short paths.
fn run(args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_antctl"))
        .args(args)
        .current_dir(fixtures())
        .output()
        .expect("the program was built with the test");
    Run {
        out: text(output.stdout),
        err: text(output.stderr),
        code: output.status.code().expect("it ended by itself"),
    }
}

#[track_caller]
fn check_golden(path: &Path, got: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        if got.is_empty() {
            let _ = std::fs::remove_file(path);
        } else {
            std::fs::write(path, got).expect("the fixtures are ours to write");
        }
    }
    let want = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(got, want, "{}", path.display());
}

#[test]
fn connectivity_of_every_folder() {
    let mut folders: Vec<_> = std::fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    assert!(folders.len() >= 12);
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let Run { out, err, code } = run(&["policy", "connectivity", "-f", name]);
        check_golden(&folder.join("connectivity.out"), &out);
        check_golden(&folder.join("connectivity.err"), &err);
        assert_eq!(code, i32::from(err.contains(": error: ")), "{name}: {err}");
    }
}

#[test]
fn json_says_the_same_as_text() {
    for name in ["shop", "ip-blocks", "kinds"] {
        let text = run(&["policy", "connectivity", "-f", name]).out;
        let json = run(&["policy", "connectivity", "-f", name, "-o", "json"]).out;
        let lines: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        let word = |line: &serde_json::Value, key: &str| line[key].as_str().unwrap().to_owned();
        let again: String = lines
            .iter()
            .map(|line| {
                format!("{} => {} : {}\n", word(line, "src"), word(line, "dst"), word(line, "conn"))
            })
            .collect();
        assert_eq!(again, text);
    }
}

#[test]
fn a_file_and_a_folder_make_one_cluster() {
    let parts = ["-f", "shop/workloads.yaml", "-f", "shop/policies.yaml"];
    let args: Vec<_> = ["policy", "connectivity"].into_iter().chain(parts).collect();
    assert_eq!(run(&args).out, run(&["policy", "connectivity", "-f", "shop"]).out);
}

#[test]
fn diff_names_the_rules_that_decided_and_decide() {
    let args = ["policy", "diff", "-f", "shop", "-f", "shop-changed"];
    let Run { out, err, code } = run(&args);
    assert_eq!((err.as_str(), code), ("", 0));
    check_golden(&fixtures().join("diff.out"), &out);
    let json = run(&[args.as_slice(), &["-o", "json"]].concat()).out;
    check_golden(&fixtures().join("diff.json"), &json);
    // There and back, additions and removals change places.
    let back = run(&["policy", "diff", "-f", "shop-changed", "-f", "shop"]).out;
    assert_eq!(out.matches("diff-type: added").count(), back.matches("diff-type: removed").count());
    assert_eq!(out.matches("diff-type: removed").count(), back.matches("diff-type: added").count());
    assert_eq!(run(&["policy", "diff", "-f", "shop", "-f", "shop"]).out, "");
}

#[test]
fn explain_names_rule_and_place() {
    let mut got = String::new();
    for (folder, from, to, port) in [
        ("shop", "shop/web", "shop/db", "TCP:5432"),
        ("shop", "shop/web", "shop/db", "TCP:5433"),
        ("shop", "shop/db", "shop/web", "TCP:8080"),
        ("shop", "192.0.2.1", "shop/web[Deployment]", "TCP:8080"),
        ("shop-changed", "watch/probe", "shop/db", "UDP:9"),
        ("upstream", "sys/monitor", "a/app", "tcp:9100"),
        ("upstream", "a/app", "169.254.169.254", "TCP:80"),
        ("tiers", "x/b", "x/a", "UDP:53"),
        ("tiers", "x/b", "x/a", "TCP:443"),
        ("icmp", "b", "a", "ICMP:8/0"),
        ("icmp", "b", "a", "GRE"),
        ("kinds", "x/dep-5d4f-aaaaa", "x/job", "TCP:80"),
    ] {
        let Run { out, err, code } =
            run(&["policy", "explain", "-f", folder, from, to, "-p", port]);
        assert_eq!((err.as_str(), code), ("", 0));
        got.push_str(&out);
        got.push('\n');
    }
    check_golden(&fixtures().join("explain.out"), &got);
}

#[test]
fn questions_that_cannot_be_answered_say_why() {
    for (args, reason) in [
        (&["policy", "connectivity", "-f", "nowhere"][..], "nowhere: No such file"),
        (&["policy", "diff", "-f", "shop"], "-f OLD -f NEW"),
        (
            &["policy", "explain", "-f", "shop", "shop/web", "shop/nobody", "-p", "TCP:1"],
            "shop/nobody is neither",
        ),
        (
            &["policy", "explain", "-f", "shop", "shop/web", "shop/db", "-p", "TCP"],
            "the port is missing",
        ),
        (
            &["policy", "explain", "-f", "shop", "shop/web", "shop/db", "-p", "TCP:70000"],
            "a number from 0 to 65535",
        ),
        (
            &["policy", "explain", "-f", "shop", "shop/web", "shop/db", "-p", "GRE:1"],
            "not a protocol with ports",
        ),
    ] {
        let Run { out, err, code } = run(args);
        assert!(err.contains(reason), "{args:?}: {err}");
        assert_eq!((out.as_str(), code), ("", 1), "{args:?}");
    }
    // Usage is clap's to explain.
    let Run { err, code, .. } = run(&["policy", "connectivity"]);
    assert!(code == 2 && err.contains("--filename"), "{err}");
}

#[test]
fn help_speaks_of_every_command() {
    let out = run(&["policy", "--help"]).out;
    for command in ["connectivity", "diff", "explain"] {
        assert!(out.contains(command));
        let help = run(&["policy", command, "--help"]).out;
        assert!(help.contains("--filename") && help.contains("--output"), "{help}");
    }
}

#[test]
fn an_empty_folder_has_nobody_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let Run { out, err, code } =
        run(&["policy", "connectivity", "-f", folder.path().to_str().unwrap()]);
    assert_eq!((out.as_str(), err.as_str(), code), ("", "", 0));
}

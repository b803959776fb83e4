//! Every scenario of `antrea-lab check`, as `make test` runs them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
#[ignore = "needs root: make test"]
fn every_scenario_passes() {
    let lab = Path::new(env!("CARGO_BIN_EXE_antrea-lab"));
    let bin_dir = lab.parent().unwrap();
    for program in ["antrea-agent", "antrea-cni", "antrea-controller"] {
        assert!(bin_dir.join(program).exists(), "{program} is not built: cargo build --workspace");
    }
    let output = Command::new(lab)
        .args(["--dir", "/run/antrea-lab-test", "check", "--json"])
        .output()
        .unwrap();
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    assert!(!rows.is_empty());
    for row in rows {
        // What a machine cannot try is named with its reason, and is no failure.
        assert_ne!(row["result"], "failed", "{}: {}", row["scenario"], row["reason"]);
    }
    assert!(output.status.success());
}

//! The program itself, where it cannot come up.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not inside #[test] functions")]

use std::process::{Command, Stdio};
use std::time::Duration;

/// Far less than the agent waits for Open vSwitch.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn an_agent_whose_socket_cannot_be_bound_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("file"), "").unwrap();
    let config = format!(
        "cniSocket: {}\novsRunDir: {}\napiPort: {}\n",
        path("file/cni.sock").display(),
        path("ovs").display(),
        free_port(),
    );
    std::fs::write(path("agent.conf"), config).unwrap();
    std::fs::write(path("nodes.yaml"), "nodes: []\n").unwrap();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_antrea-agent"))
        .arg("--config")
        .arg(path("agent.conf"))
        .arg("--cluster-file")
        .arg(path("nodes.yaml"))
        .arg("--state-dir")
        .arg(path("state"))
        .arg("--run-dir")
        .arg(path("run"))
        .env("NODE_NAME", "node-1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ended = None;
    let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        testkit::wait_until(SOON, "the agent ends", || {
            ended = agent.try_wait().unwrap();
            ended.is_some()
        });
    }));
    if waited.is_err() {
        agent.kill().unwrap();
    }
    let output = agent.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(ended.is_some_and(|status| !status.success()), "{said}");
    assert!(said.contains("CNI server: listen at"), "{said}");
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

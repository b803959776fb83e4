//! One Open vSwitch per node: database and switch as processes in the node's namespace.
//!
//! Bridges are the agent's business. The machine's own Open vSwitch is never touched: every tool
//! is told the node's sockets.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::NodeLayout;
use crate::process::{ProcessId, Start, last_words};
use crate::state::Store;
use crate::variant::Datapath;

/// The schema that Debian's package brings.
pub const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The bridge the agent makes.
pub const BRIDGE: &str = "br-int";
/// Role of the database process in the state file.
pub const ROLE_OVSDB: &str = "ovsdb-server";
/// Role of the switch process in the state file.
pub const ROLE_VSWITCHD: &str = "ovs-vswitchd";

const START_DEADLINE: Duration = Duration::from_secs(20);
/// How long a switch that runs may take to find a database that is there again: it tries every
/// eight seconds at the latest.
const RECONNECT_DEADLINE: Duration = Duration::from_secs(20);

/// Starts both processes for the first time and sets what belongs to the node's preparation.
///
/// # Errors
/// When the database cannot be made or a process does not come up.
pub fn start(store: &Store, node: &str) -> Result<()> {
    let layout = store.layout().node(node);
    let dir = layout.ovs();
    fs::create_dir_all(&dir).doing(|| format!("create {}", dir.display()))?;
    let conf = dir.join("conf.db");
    if !conf.exists() {
        let mut tool = Command::new("ovsdb-tool");
        tool.arg("create").arg(&conf).arg(SCHEMA);
        run(&mut tool).doing(|| format!("create the switch database of {node}"))?;
    }
    start_ovsdb(store, node)?;
    vsctl(&layout, &["--no-wait", "init"])?;
    let system_id = format!("external_ids:system-id={node}");
    let mut settings = vec![
        "--no-wait",
        "set",
        "Open_vSwitch",
        ".",
        &system_id,
        "other_config:n-handler-threads=1",
        "other_config:n-revalidator-threads=1",
    ];
    if store.get().variant.datapath == Datapath::Netdev {
        settings.push("external_ids:antrea-netdev-uplink=eth0");
    }
    vsctl(&layout, &settings)?;
    start_vswitchd(store, node)
}

/// Starts the database server and waits until it answers.
///
/// # Errors
/// When it does not come up.
pub fn start_ovsdb(store: &Store, node: &str) -> Result<()> {
    let layout = store.layout().node(node);
    let dir = layout.ovs();
    let log = layout.log(ROLE_OVSDB);
    let id = with_dirs(Start::new("ovsdb-server", &log), &dir)
        .owned_by(store.layout().dir())
        .in_netns(layout.netns())
        .arg(dir.join("conf.db").display().to_string())
        .arg(format!("--remote=punix:{}", layout.db_sock().display()))
        .arg(format!("--unixctl={}", dir.join("ovsdb-server.ctl").display()))
        .arg(format!("--pidfile={}", dir.join("ovsdb-server.pid").display()))
        .arg("-vconsole:info")
        .spawn()?;
    store.record_process(ROLE_OVSDB, Some(node), id)?;
    await_start(ROLE_OVSDB, node, id, &log, || {
        std::os::unix::net::UnixStream::connect(layout.db_sock()).is_ok()
    })
}

/// Waits until a switch that runs has found its database again, which it may take seconds to look
/// for, and does what is written there.
///
/// # Errors
/// When it does not in time, or its bridge does not answer.
pub fn await_switch(store: &Store, node: &str) -> Result<()> {
    let layout = store.layout().node(node);
    let mut attempt = 0;
    let what = format!("ovs-vswitchd on {node} has found its database again");
    wait_for(RECONNECT_DEADLINE, &what, || {
        attempt += 1;
        // ovs-vsctl waits for the switch after each change, and only then. It is told to give up
        // soon, so that whoever waits can be interrupted.
        let change = format!("external_ids:antrea-lab-awaits={attempt}");
        let waits = ["--timeout=2", "set", "Open_vSwitch", ".", &change];
        vsctl(&layout, &waits).is_ok().then_some(())
    })?;
    vsctl(&layout, &["remove", "Open_vSwitch", ".", "external_ids", "antrea-lab-awaits"])?;
    Ok(())
}

/// Starts the switch and waits until its control socket answers.
///
/// # Errors
/// When it does not come up.
pub fn start_vswitchd(store: &Store, node: &str) -> Result<()> {
    let layout = store.layout().node(node);
    let dir = layout.ovs();
    let log = layout.log(ROLE_VSWITCHD);
    let ctl = layout.vswitchd_ctl();
    let mut start = with_dirs(Start::new("ovs-vswitchd", &log), &dir)
        .owned_by(store.layout().dir())
        .in_netns(layout.netns())
        .arg(format!("unix:{}", layout.db_sock().display()))
        .arg(format!("--unixctl={}", ctl.display()))
        .arg(format!("--pidfile={}", dir.join("ovs-vswitchd.pid").display()))
        .arg("-vconsole:info");
    if store.get().variant.datapath == Datapath::Netdev {
        // The kernel's datapath, where there is one, is left to whoever uses it.
        start = start.arg("--disable-system");
    }
    let id = start.spawn()?;
    store.record_process(ROLE_VSWITCHD, Some(node), id)?;
    await_start(ROLE_VSWITCHD, node, id, &log, || {
        std::os::unix::net::UnixStream::connect(&ctl).is_ok()
    })
}

/// Runs `ovs-vsctl` on a node's database and gives back what it printed.
///
/// # Errors
/// When it fails; its own message is in the error.
pub fn vsctl(node: &NodeLayout, args: &[&str]) -> Result<String> {
    run(tool(node, "vsctl")?.args(args))
}

/// Runs an `ovs-ofctl` command on a node's bridge.
///
/// # Errors
/// When it fails; its own message is in the error.
pub fn ofctl(node: &NodeLayout, command: &str, args: &[&str]) -> Result<String> {
    ofctl_on(node, BRIDGE, command, args)
}

/// The same on another bridge of the node.
///
/// # Errors
/// As [`ofctl`].
pub fn ofctl_on(node: &NodeLayout, bridge: &str, command: &str, args: &[&str]) -> Result<String> {
    run(tool(node, "ofctl")?
        .arg(command)
        .arg(format!("unix:{}", node.mgmt(bridge).display()))
        .args(args))
}

/// Runs `ovs-appctl` on a node's switch.
///
/// # Errors
/// When it fails; its own message is in the error.
pub fn appctl(node: &NodeLayout, args: &[&str]) -> Result<String> {
    run(tool(node, "appctl")?.args(args))
}

/// The command line of one of the tools, told where the node's sockets are.
///
/// # Errors
/// When there is no such tool.
pub fn tool(node: &NodeLayout, name: &str) -> Result<Command> {
    let dir = node.ovs();
    let mut command = match name {
        "vsctl" => {
            let mut c = Command::new("ovs-vsctl");
            c.arg("--timeout=20").arg(format!("--db=unix:{}", node.db_sock().display()));
            c
        }
        "ofctl" => {
            let mut c = Command::new("ovs-ofctl");
            c.args(["-O", "OpenFlow15"]);
            c
        }
        "appctl" => {
            let mut c = Command::new("ovs-appctl");
            c.arg("-t").arg(node.vswitchd_ctl());
            c
        }
        other => {
            return Err(
                LabError::new(format!("no tool {other}")).hint("tools: vsctl, ofctl, appctl")
            );
        }
    };
    command.env("OVS_RUNDIR", &dir).env("OVS_DBDIR", &dir).env("OVS_LOGDIR", &dir);
    Ok(command)
}

fn with_dirs(start: Start, dir: &Path) -> Start {
    let dir = dir.display().to_string();
    start
        .env("OVS_RUNDIR", dir.clone())
        .env("OVS_DBDIR", dir.clone())
        .env("OVS_LOGDIR", dir.clone())
        .env("OVS_SYSCONFDIR", dir)
}

fn await_start(
    what: &str,
    node: &str,
    id: ProcessId,
    log: &Path,
    ready: impl Fn() -> bool,
) -> Result<()> {
    let came_up = wait_for(START_DEADLINE, &format!("{what} on {node} answers"), || {
        if ready() {
            return Some(true);
        }
        (!id.is_alive()).then_some(false)
    })?;
    if came_up {
        return Ok(());
    }
    Err(LabError::new(format!("{what} on {node} ended at start; {}", last_words(log, 5)))
        .hint(format!("its whole log is {}", log.display())))
}

fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .env("PATH", crate::preflight::search_path())
        // A Ctrl-C at the terminal is for us alone.
        .process_group(0)
        .output()
        .doing(|| format!("run {name}"))
        .map_err(|e| e.hint("install the package openvswitch-switch"))?;
    text_of(&name, output)
}

fn text_of(name: &str, output: Output) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(LabError::new(format!("{name}: {}", said.trim().replace('\n', "; "))))
}

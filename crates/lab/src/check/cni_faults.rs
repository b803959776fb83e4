//! Requests that cannot be served: the specified error, nothing left, and the retry succeeds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use super::leftovers::Holdings;
use super::{Context, Outcome};
use crate::cli::NodeComponent;
use crate::cni::{Attachment, CniFailure, NetworkList};
use crate::component::{kill, start};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::NodeLayout;
use crate::sandbox::{PodIdentity, Runtime, Sandbox};
use crate::{netns, state::Store};

/// Codes of the CNI specification.
const DECODE_FAILURE: u64 = 6;
const INVALID_NETNS: u64 = 8;
const INVALID_ENVIRONMENT: u64 = 4;

type Case = fn(&Stage<'_>) -> Result<()>;

struct Stage<'a> {
    store: &'a Store,
    runtime: Runtime,
    node: NodeLayout,
    list: NetworkList,
    before: Holdings,
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let runtime = Runtime::new(store.layout(), "node-1");
    let node = runtime.node().clone();
    let list = NetworkList::read(&node.cni_conf()).doing(|| "read the configuration".into())?;
    let before = Holdings::of(&node)?;
    let stage = Stage { store, runtime, node, list, before };
    let cases: [(&str, Case); 9] = [
        ("malformed stdin", malformed_stdin),
        ("missing environment", missing_environment),
        ("DEL of an unknown container", unknown_container),
        ("ADD into a dead namespace", dead_netns),
        ("ADD into the node's own namespace", own_netns),
        ("DEL without namespace", del_without_netns),
        ("duplicate ADD", duplicate_add),
        ("old DEL spares the new sandbox", late_del),
        ("ADD while the switch is down", switch_down),
    ];
    let mut failed = Vec::new();
    for (name, case) in cases {
        let outcome = case(&stage).and_then(|()| stage.nothing_left());
        if let Err(error) = outcome {
            failed.push(format!("{name}: {}", error.chain()));
        }
    }
    if failed.is_empty() {
        return Ok(Outcome::Passed(json!({ "cases": cases.len() })));
    }
    Err(LabError::new(failed.join("; ")))
}

impl Stage<'_> {
    fn nothing_left(&self) -> Result<()> {
        let clean = wait_for(Duration::from_secs(5), "nothing is left", || {
            Holdings::of(&self.node).ok().filter(|now| self.before.compare(now).is_ok())
        });
        clean.map(drop).or_else(|_| self.before.compare(&Holdings::of(&self.node)?))
    }

    /// A sandbox with its namespace, not attached.
    fn sandbox(&self, name: &str) -> Result<Sandbox> {
        let pod = PodIdentity {
            namespace: "check".into(),
            name: name.into(),
            uid: format!("faults-{name}"),
        };
        let sandbox = self.runtime.reserve(&pod, false, BTreeMap::new())?;
        netns::create(&sandbox.netns)?;
        Ok(sandbox)
    }

    fn end(&self, sandbox: &Sandbox) -> Result<()> {
        self.runtime.remove(sandbox).doing(|| "remove the sandbox".into())
    }

    fn add(&self, attachment: &Attachment) -> Result<serde_json::Value, CniFailure> {
        self.runtime.plugins().add(&self.list, attachment)
    }

    fn del(&self, attachment: &Attachment) -> Result<()> {
        self.runtime.plugins().del(&self.list, attachment, None).doing(|| "DEL".into())
    }
}

fn expect_code(result: Result<serde_json::Value, CniFailure>, codes: &[u64]) -> Result<()> {
    match result {
        Err(error) if error.code().is_some_and(|c| codes.is_empty() || codes.contains(&c)) => {
            Ok(())
        }
        Err(error) => Err(LabError::new(format!("wanted code {codes:?}, got: {error}"))),
        Ok(_) => Err(LabError::new(format!("wanted code {codes:?}, but it succeeded"))),
    }
}

fn malformed_stdin(stage: &Stage<'_>) -> Result<()> {
    let sandbox = stage.sandbox("malformed")?;
    let attachment = stage.runtime.attachment(&sandbox);
    let plugins = stage.runtime.plugins();
    for stdin in [&b"{not json"[..], b"", b"[]", b"\xff\xfe\x00"] {
        expect_code(plugins.run_raw("ADD", "antrea", stdin, &attachment), &[DECODE_FAILURE, 7])?;
    }
    stage.end(&sandbox)
}

fn missing_environment(stage: &Stage<'_>) -> Result<()> {
    let sandbox = stage.sandbox("environment")?;
    let good = stage.runtime.attachment(&sandbox);
    for bad in [
        Attachment { container_id: String::new(), ..good.clone() },
        Attachment { ifname: String::new(), ..good.clone() },
        Attachment { netns: String::new(), ..good.clone() },
        Attachment { ifname: "a/../b".into(), ..good.clone() },
    ] {
        expect_code(stage.add(&bad), &[INVALID_ENVIRONMENT])?;
    }
    stage.end(&sandbox)
}

fn unknown_container(stage: &Stage<'_>) -> Result<()> {
    let sandbox = stage.sandbox("unknown")?;
    let mut attachment = stage.runtime.attachment(&sandbox);
    attachment.container_id = "0123456789abcdef".into();
    stage.del(&attachment)?;
    stage.end(&sandbox)
}

fn dead_netns(stage: &Stage<'_>) -> Result<()> {
    let sandbox = stage.sandbox("dead")?;
    netns::remove(&sandbox.netns)?;
    let attachment = stage.runtime.attachment(&sandbox);
    expect_code(stage.add(&attachment), &[])?;
    stage.nothing_left()?;
    // The immediate retry with a namespace that lives.
    netns::create(&sandbox.netns)?;
    stage.add(&attachment).doing(|| "retry".into())?;
    stage.end(&sandbox)
}

fn own_netns(stage: &Stage<'_>) -> Result<()> {
    let sandbox = stage.sandbox("own")?;
    let mut attachment = stage.runtime.attachment(&sandbox);
    attachment.netns = stage.node.netns().display().to_string();
    expect_code(stage.add(&attachment), &[INVALID_NETNS])?;
    stage.nothing_left()?;
    stage.end(&sandbox)
}

fn del_without_netns(stage: &Stage<'_>) -> Result<()> {
    for path in ["", "/run/netns/antrea-lab-no-such"] {
        let sandbox = stage.sandbox("gone")?;
        let mut attachment = stage.runtime.attachment(&sandbox);
        stage.add(&attachment).doing(|| "ADD".into())?;
        netns::remove(&sandbox.netns)?;
        attachment.netns = path.into();
        stage.del(&attachment)?;
        stage.nothing_left()?;
        stage.del(&attachment).doing(|| "the second DEL".into())?;
        stage.runtime.forget(&sandbox)?;
    }
    Ok(())
}

fn duplicate_add(stage: &Stage<'_>) -> Result<()> {
    let sandbox = stage.sandbox("duplicate")?;
    let attachment = stage.runtime.attachment(&sandbox);
    let first = stage.add(&attachment).doing(|| "ADD".into())?;
    if let Ok(second) = stage.add(&attachment)
        && second["ips"] != first["ips"]
    {
        return Err(LabError::new(format!(
            "a second ADD gave {} after {}",
            second["ips"], first["ips"]
        )));
    }
    stage.del(&attachment)?;
    stage.end(&sandbox)
}

/// A Pod of the same name is made anew before the DEL of its former sandbox arrives.
fn late_del(stage: &Stage<'_>) -> Result<()> {
    let old = stage.sandbox("web-0")?;
    let old_attachment = stage.runtime.attachment(&old);
    stage.add(&old_attachment).doing(|| "first ADD".into())?;
    let new = stage.sandbox("web-0")?;
    let attachment = stage.runtime.attachment(&new);
    let result = stage.add(&attachment).doing(|| "second ADD".into())?;
    stage.del(&old_attachment).doing(|| "DEL of the first".into())?;
    stage
        .runtime
        .plugins()
        // Debian's bandwidth plugin crashes on CHECK without a limit: ours alone is asked.
        .check(&stage.list.clone().first_only(), &attachment, &result)
        .doing(|| "CHECK of the second after DEL of the first".into())?;
    stage.end(&new)?;
    stage.end(&old)
}

fn switch_down(stage: &Stage<'_>) -> Result<()> {
    let sandbox = stage.sandbox("switch")?;
    let attachment = stage.runtime.attachment(&sandbox);
    kill(stage.store, "node-1", NodeComponent::Vswitchd)?;
    let asked = Instant::now();
    let refused = expect_code(stage.add(&attachment), &[]);
    let waited = asked.elapsed();
    start(stage.store, "node-1", NodeComponent::Vswitchd)?;
    refused?;
    if waited > Duration::from_secs(60) {
        return Err(LabError::new(format!("the refusal took {:.0} s", waited.as_secs_f64())));
    }
    wait_for(Duration::from_secs(20), "the retry succeeds", || stage.add(&attachment).ok())?;
    stage.end(&sandbox)?;
    // The switch came up empty: its flows are compared once the agent has put them back.
    wait_for(Duration::from_secs(20), "the flows are back", || {
        Holdings::of(&stage.node).ok().filter(|now| stage.before.compare(now).is_ok())
    })
    .map(drop)
}

//! Moments in which a guard could be missing: before a new Pod's first flow, and after somebody
//! flushed the node's nftables rules.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Context;
use super::frames::{Mac, send};
use super::spoof::Block;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::NodeLayout;
use crate::netns;
use crate::preflight::program;
use crate::sandbox::{PodIdentity, Runtime};

/// New Pods that try to be faster than their flows.
const N_EARLY: usize = 5;
/// The MAC address that forged frames come from.
pub(super) const FORGED: Mac = [2, 0xba, 0xd0, 0, 0, 7];

/// A hostile Pod, in one family.
pub(super) trait Hostile {
    /// Sends frames as they are.
    fn send(&self, frames: &[Vec<u8>]) -> Result<()>;
    /// An honest packet reaches everyone.
    fn honest(&self, name: &str) -> Result<()>;
    /// A datagram from the Pod's own address to the outside, with `spoof:NAME;` in it, for the link
    /// that has this address.
    fn outbound(&self, to: Mac, name: &str) -> Vec<u8>;
    /// Whether it arrived outside.
    fn left(&self, name: &str) -> bool;
    /// Frames from [`FORGED`], as good as a Pod can make them that knows its neighbours; all that can
    /// carry text have `spoof:early;` in it.
    fn early(&self) -> Vec<Vec<u8>>;
    /// Whether one of those arrived anywhere.
    fn early_arrived(&self) -> bool;
    /// The gateway's MAC address.
    fn gateway(&self) -> Mac;
    /// The node's end of the Pod's link: its name, and its MAC address.
    fn veth(&self) -> (&str, Mac);
}

/// Programs that send from a Pod's namespace as soon as it has a link, while its ADD goes on.
pub(super) fn before_the_first_flow(context: &Context<'_>, stage: &dyn Hostile) -> Result<u64> {
    let store = context.store()?;
    let runtime = Runtime::new(store.layout(), "node-1");
    let (sent, early) = (AtomicU64::new(0), stage.early());
    for n in 0..N_EARLY {
        let name = format!("spoof-early-{n}");
        let pod = PodIdentity { namespace: "check".into(), uid: format!("check-{name}"), name };
        let mut sandbox = runtime.reserve(&pod, false, std::collections::BTreeMap::new())?;
        let over = AtomicBool::new(false);
        let path = sandbox.netns.clone();
        let attached = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    if netns::exists(&path) && send(&path, "eth0", &early).is_ok() {
                        sent.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
            let attached = runtime.attach(&mut sandbox, Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(20));
            over.store(true, Ordering::SeqCst);
            attached
        });
        let removed = runtime.remove(&sandbox);
        attached.and(removed).doing(|| format!("make Pod {}", pod.key()))?;
    }
    let sent = sent.load(Ordering::SeqCst);
    if sent == 0 {
        return Err(LabError::new("no Pod had its link for long enough to send anything"));
    }
    stage.honest("honest-early")?;
    if stage.early_arrived() {
        return Err(LabError::new("a forged frame arrived while its Pod's ADD was going on"));
    }
    Ok(sent)
}

/// After `nft flush ruleset` in the node's namespace: how soon the agent's rules are back, and what
/// went round the switch until then.
pub(super) fn after_a_flush(context: &Context<'_>, stage: &dyn Hostile) -> Result<Value> {
    let node = context.store()?.layout().node("node-1");
    let before = ruleset(&node)?;
    let mut detour = Detour { stage, n: 0 };
    let none_arrive = |detour: &mut Detour<'_>, block: &Block<'_>| -> Result<bool> {
        block.during(stage, || {
            let first = detour.n;
            for _ in 0..20 {
                detour.send()?;
            }
            std::thread::sleep(Duration::from_millis(200));
            Ok(detour.arrived(first) == 0)
        })
    };
    let block = Block::set(&node, stage)?;
    if !none_arrive(&mut detour, &block)? {
        return Err(LabError::new("frames to the veth's own MAC went round the switch"));
    }
    nft(&node, &["flush", "ruleset"])?;
    let (flushed, first) = (Instant::now(), detour.n);
    wait_for(Duration::from_secs(12), "the agent drops the kernel's copy of frames again", || {
        block.again().ok()?;
        detour.send().ok()?;
        (of_links(&ruleset(&node).ok()?) == of_links(&before)).then_some(())
    })?;
    let repaired = flushed.elapsed();
    drop(block);
    let (tried, arrived) = (detour.n - first, detour.arrived(first));
    wait_for(Duration::from_secs(10), "all nftables rules are back", || {
        (lines(&ruleset(&node).ok()?) == lines(&before)).then_some(())
    })?;
    let all_back = flushed.elapsed();
    let block = Block::set(&node, stage)?;
    if !none_arrive(&mut detour, &block)? {
        return Err(LabError::new("frames go round the switch though the rules are back"));
    }
    drop(block);
    Ok(json!({
        "dropChainsBackMs": repaired.as_millis(),
        "allRulesBackMs": all_back.as_millis(),
        "detoursTried": tried,
        "detoursArrived": arrived,
    }))
}

/// Numbered frames to the MAC of the Pod's own veth, for which the node's kernel is the receiver.
struct Detour<'a> {
    stage: &'a dyn Hostile,
    n: u64,
}

impl Detour<'_> {
    fn send(&mut self) -> Result<()> {
        let frame = self.stage.outbound(self.stage.veth().1, &Self::name(self.n));
        self.n += 1;
        self.stage.send(&[frame])
    }

    /// How many of those from number `first` on arrived.
    fn arrived(&self, first: u64) -> usize {
        (first..self.n).filter(|n| self.stage.left(&Self::name(*n))).count()
    }

    fn name(n: u64) -> String {
        format!("detour-{n}")
    }
}

/// Those rules that belong to single links, which drop the kernel's copy of frames; in any order.
fn of_links(ruleset: &str) -> Vec<&str> {
    let tables = ruleset.trim_end().split("\ntable ");
    let netdev = tables.filter(|t| t.trim_start_matches("table ").starts_with("netdev"));
    let mut lines: Vec<&str> = netdev.flat_map(str::lines).filter(|l| l.contains("hook")).collect();
    lines.sort_unstable();
    lines
}

/// All lines in any order: chains that are made again need not have their former place.
fn lines(ruleset: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = ruleset.lines().collect();
    lines.sort_unstable();
    lines
}

/// All rules, without counters and handles.
fn ruleset(node: &NodeLayout) -> Result<String> {
    nft(node, &["--stateless", "list", "ruleset"])
}

pub(super) fn nft(node: &NodeLayout, args: &[&str]) -> Result<String> {
    let output = netns::enter(node.netns(), || program("nft").args(args).output())?
        .doing(|| "run nft".into())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::new(format!("nft {}: {said}", args.join(" "))))
}

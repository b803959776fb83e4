//! Marks what the node itself sends to its Pods, so that the switch can tell it from what the node
//! forwards for others and masquerades: both have the gateway's address.
//!
//! A packet that the node made gets a packet mark in `table inet antrea`, which crosses into a
//! switch in the kernel; one in user space sees frames alone, so frames with that mark get an
//! Ethernet source of their own in `table netdev antrea-host`:
//!
//! ```text
//! table netdev antrea-host {
//!   chain frames {
//!     type filter hook egress device "antrea-gw0" priority 0
//!     meta mark & 0x80000000 == 0x80000000 ether saddr set 0a:00:00:00:80:01
//!   }
//! }
//! ```
//! The hook needs Linux 5.16.

use super::{Chain, Hook, NftError, Rule, list_table, quote, run_script};
use crate::mac::MacAddr;

const TABLE: &str = "netdev antrea-host";
const CHAIN: &str = "frames";
/// The bit of the packet mark.
const MARK: u32 = 0x8000_0000;

/// The chains of `table inet antrea`: one marks what the node makes, before it is known by which
/// interface it leaves, because its destination may still be translated; one takes the mark off what
/// does not leave by this interface. What comes to `output` with another's source is no packet of
/// the node's: IPVS sends there what it forwards.
pub(super) fn chains(gateway: &str) -> [Chain; 2] {
    let chain = |name: &str, hook, priority, statement: String| {
        let hook = Some(Hook { kind: "filter", hook, priority });
        let rules = vec![Rule::new(statement).with_comment("made by the node")];
        Chain { name: name.into(), hook, rules }
    };
    let mark = format!("fib saddr type local meta mark set meta mark | {MARK:#x}");
    let others = format!(
        "oifname != {} meta mark & {MARK:#x} == {MARK:#x} meta mark set meta mark & {:#x}",
        quote(gateway),
        !MARK
    );
    [
        chain("host-mark", "output", "mangle", mark),
        chain("host-unmark", "postrouting", "mangle", others),
    ]
}

fn replace_text(gateway: &str, mac: MacAddr) -> String {
    let device = quote(gateway);
    format!(
        "add table {TABLE}\n\
         add chain {TABLE} {CHAIN} {{ type filter hook egress device {device} priority 0; }}\n\
         flush chain {TABLE} {CHAIN}\n\
         add rule {TABLE} {CHAIN} meta mark & {MARK:#x} == {MARK:#x} ether saddr set {mac}\n"
    )
}

/// Our table as `nft list table` prints it; `None` when it is not there.
///
/// # Errors
/// When `nft` gives no answer or another one.
pub async fn list() -> Result<Option<String>, NftError> {
    list_table(TABLE).await
}

/// Gives marked frames that leave by the gateway this Ethernet source, from now on.
///
/// # Errors
/// When the kernel has no such hook, or no such interface.
pub async fn apply(gateway: &str, mac: MacAddr) -> Result<(), NftError> {
    let text = replace_text(gateway, mac);
    match run_script(&text).await {
        // A table of that name with another interface.
        Err(NftError::Refused { .. }) => {
            run_script(&format!("add table {TABLE}\ndelete table {TABLE}\n{text}")).await
        }
        done => done,
    }
}

/// Removes the table; success when it is not there.
///
/// # Errors
/// When `nft` fails.
pub async fn remove() -> Result<(), NftError> {
    run_script(&format!("add table {TABLE}\ndelete table {TABLE}\n")).await
}

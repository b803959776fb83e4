//! A Pod goes, the next one gets its address: no connection of the former one is inherited.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use serde_json::json;

use super::leftovers::conntrack_of;
use super::{Context, Outcome};
use crate::echo::{Answer, PORT};
use crate::error::{Doing, LabError, Result};
use crate::layout::NodeLayout;
use crate::netns;

/// Source port of every datagram: the connection's five numbers never change.
const SOURCE_PORT: u16 = 40_000;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let node = store.layout().node("node-2");
    let near = context.pod("node-2", "reuse-near")?;
    let far = context.pod("node-1", "reuse-far")?;
    let mut former = context.pod("node-2", "reuse-former")?;
    // One of each family, in the order in which the allocator has its ranges.
    let addresses = former.sandbox.addresses();
    let ask = |netns: &std::path::Path, want: &str| -> Result<()> {
        for address in &addresses {
            let answer = ask_from_fixed_port(netns, *address)?;
            if answer.pod != want {
                let Answer { pod, .. } = answer;
                return Err(LabError::new(format!("{pod} answered at {address}, not {want}")));
            }
        }
        Ok(())
    };
    for client in [&near, &far] {
        ask(&client.sandbox.netns, "check/reuse-former")?;
    }
    let mut n_held = 0;
    for address in &addresses {
        let held = conntrack_of(&node, &[*address].into())?;
        if held.is_empty() {
            let error = format!("the switch tracks no connection of {address}: nothing to inherit");
            return Err(LabError::new(error));
        }
        n_held += held.len();
    }
    former.remove()?;
    let left = conntrack_of(&node, &addresses.iter().copied().collect())?;
    if !left.is_empty() {
        return Err(LabError::new(format!(
            "{} connections of the removed Pod are still tracked, first {}",
            left.len(),
            left[0]
        )));
    }
    for (range, address) in addresses.iter().enumerate() {
        if !give_out_next(&node, range, *address)? {
            return Ok(Outcome::Impossible(
                "the address allocator keeps no record of the last address here".into(),
            ));
        }
    }
    let next = context.pod("node-2", "reuse-next")?;
    let given = next.sandbox.addresses();
    if given != addresses {
        return Err(LabError::new(format!("the next Pod got {given:?} and not {addresses:?}")));
    }
    for client in [&near, &far] {
        ask(&client.sandbox.netns, "check/reuse-next")?;
    }
    Ok(Outcome::Passed(
        json!({ "addresses": addresses, "trackedBefore": n_held, "trackedAfter": 0 }),
    ))
}

fn ask_from_fixed_port(netns: &std::path::Path, address: IpAddr) -> Result<Answer> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = netns::enter(netns, || UdpSocket::bind((any, SOURCE_PORT)))?
        .doing(|| format!("bind UDP port {SOURCE_PORT}"))?;
    socket.connect((address, PORT)).doing(|| format!("address {address}"))?;
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .doing(|| "set up the socket".into())?;
    let mut buffer = [0; 2048];
    for _ in 0..10 {
        // The refusal of an earlier datagram is no answer.
        if socket.send(b"who").is_ok()
            && let Ok(n) = socket.recv(&mut buffer)
        {
            return serde_json::from_slice(&buffer[..n]).doing(|| "decode the answer".into());
        }
    }
    Err(LabError::new(format!("{address} does not answer")))
}

/// Tells the allocator that the address before this one was the last it gave out of a range.
fn give_out_next(node: &NodeLayout, range: usize, address: IpAddr) -> Result<bool> {
    let before: IpAddr = match address {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) - 1).into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) - 1).into(),
    };
    let before = before.to_string();
    for dir in [node.cni_lib().join("antrea"), node.cni_lib().join("networks/antrea")] {
        let record = dir.join(format!("last_reserved_ip.{range}"));
        if record.exists() {
            fs::write(&record, &before).doing(|| format!("write {}", record.display()))?;
            return Ok(true);
        }
    }
    Ok(false)
}

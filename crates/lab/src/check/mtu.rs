//! A packet of exactly the Pod's MTU, not to be fragmented, goes to another node and back.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;

use super::frames::{Sniffer, mtu_of};
use super::{Context, Outcome, Pod};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::probe;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let a = context.pod("node-1", "mtu-1")?;
    let b = context.pod("node-2", "mtu-2")?;
    let mtu = mtu_of(&a.sandbox.netns, "eth0")?;
    let sniffer = Sniffer::start(&b.sandbox.netns, "eth0")?;
    let targets = b.targets();
    for target in &targets {
        crosses(&a, *target, mtu, &sniffer)?;
    }
    Ok(Outcome::Passed(json!({ "podMtu": mtu, "families": targets.len() })))
}

fn crosses(from: &Pod<'_>, target: SocketAddr, mtu: usize, sniffer: &Sniffer) -> Result<()> {
    let socket = probe::udp_socket(&from.sandbox.netns, target)?;
    socket.set_read_timeout(Some(Duration::from_secs(2))).doing(|| "set up the socket".into())?;
    // Linux sets DF on datagrams that fit; the headers of IP and UDP are not payload.
    let headers = if target.is_ipv4() { 20 + 8 } else { 40 + 8 };
    let mut request = b"seq ".to_vec();
    request.resize(mtu - headers, b'm');
    let mut buffer = vec![0; 65536];
    let answered = (0..3).any(|_| {
        socket.send(&request).is_ok() && socket.recv(&mut buffer).is_ok_and(|n| n == request.len())
    });
    if !answered {
        let to = target.ip();
        return Err(LabError::new(format!("a packet of {mtu} bytes to {to} is not answered")));
    }
    let is_whole = |frame: &[u8]| {
        let length = |at: usize| {
            frame.get(at..at + 2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])))
        };
        match frame.get(12..14) {
            Some([0x08, 0x00]) if target.is_ipv4() => {
                length(16) == Some(mtu) && frame.get(20).is_some_and(|flags| flags & 0x40 != 0)
            }
            // UDP follows at once: no header of a fragment between.
            Some([0x86, 0xdd]) if target.is_ipv6() => {
                length(18) == Some(mtu - 40) && frame.get(20) == Some(&17)
            }
            _ => false,
        }
    };
    // The sniffer may get to read it after the Pod has answered.
    let whole = wait_for(Duration::from_secs(5), "the packet is caught", || {
        sniffer.saw(is_whole).then_some(())
    });
    whole.map_err(|_| {
        LabError::new(format!("no whole packet of {mtu} bytes to {} arrived", target.ip()))
    })
}

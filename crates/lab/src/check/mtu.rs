//! A packet of exactly the Pod's MTU, not to be fragmented, goes to another node and back.

use std::time::Duration;

use serde_json::json;

use super::frames::{Sniffer, mtu_of};
use super::{Context, Outcome};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::probe;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let a = context.pod("node-1", "mtu-1")?;
    let b = context.pod("node-2", "mtu-2")?;
    let mtu = mtu_of(&a.sandbox.netns, "eth0")?;
    let sniffer = Sniffer::start(&b.sandbox.netns, "eth0")?;
    let socket = probe::udp_socket(&a.sandbox.netns, b.target()?)?;
    socket.set_read_timeout(Some(Duration::from_secs(2))).doing(|| "set up the socket".into())?;
    // Linux sets DF on datagrams that fit: 20 bytes of IPv4 and 8 of UDP are not payload.
    let mut request = b"seq ".to_vec();
    request.resize(mtu - 28, b'm');
    let mut buffer = vec![0; 65536];
    let answered = (0..3).any(|_| {
        socket.send(&request).is_ok() && socket.recv(&mut buffer).is_ok_and(|n| n == request.len())
    });
    if !answered {
        return Err(LabError::new(format!("a packet of {mtu} bytes is not answered across nodes")));
    }
    let is_whole = |frame: &[u8]| {
        let length = frame.get(16..18).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])));
        length == Some(mtu) && frame.get(20).is_some_and(|flags| flags & 0x40 != 0)
    };
    // The sniffer may get to read it after the Pod has answered.
    let whole = wait_for(Duration::from_secs(5), "the packet is caught", || {
        sniffer.saw(is_whole).then_some(())
    });
    if whole.is_err() {
        return Err(LabError::new(format!(
            "no whole packet of {mtu} bytes with DF set arrived at the other Pod"
        )));
    }
    Ok(Outcome::Passed(json!({ "podMtu": mtu })))
}

//! Packets that policy flows send to the agent: to be answered, to be logged.
//!
//! A task of its own, so that a storm of packets delays no policy; what nobody takes in time is lost.

use openflow::message::{PacketIn, PacketOut};
use openflow::{Action, OfPort};
use pipeline::fields::{GENERATED_REJECT, L3_FORWARDING};
use pipeline::policy::{PolicyPacket, read_packet_in};
use switch::bridge::Bridge;
use tokio::sync::mpsc;

use super::reject;

/// Packets that may wait to be logged.
const LOG_QUEUE: usize = 256;

/// A packet to be logged.
#[derive(Debug)]
pub(super) struct ToLog {
    pub(super) what: PolicyPacket,
    pub(super) packet: PacketIn,
}

/// Answers what is to be answered, and hands on what is to be logged.
pub(super) fn start(bridge: &Bridge) -> mpsc::Receiver<ToLog> {
    let (log_tx, log_rx) = mpsc::channel(LOG_QUEUE);
    let (bridge, mut packets) = (bridge.clone(), bridge.packet_ins());
    tokio::spawn(async move {
        loop {
            let packet = tokio::select! {
                packet = packets.recv() => packet,
                () = log_tx.closed() => return,
            };
            let Some(packet) = packet else { return };
            let Some(what) = read_packet_in(&packet) else { continue };
            if what.reject
                && let Some(frame) = reject::answer(&packet.data)
                && let Err(error) = bridge.packet_out(as_packet_out(frame)).await
            {
                tracing::debug!("answer a rejected packet: {}", crate::nodes::chain(&error));
            }
            if what.log {
                // Log lines may be lost.
                let _ = log_tx.try_send(ToLog { what, packet });
            }
        }
    });
    log_rx
}

/// The answer is routed as a packet of the receiver would be, past policies and connections.
fn as_packet_out(frame: Vec<u8>) -> PacketOut {
    let actions = vec![GENERATED_REJECT.load(), Action::resubmit(L3_FORWARDING)];
    PacketOut::new(OfPort::CONTROLLER, frame, actions)
}

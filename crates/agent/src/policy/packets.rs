//! Packets that policy flows send to the agent: to be answered, to be logged.
//!
//! A task of its own, so that a storm of packets delays no policy; what nobody takes in time is lost.

use openflow::message::PacketIn;
use pipeline::fields::packet_in;
use pipeline::policy::{PolicyPacket, read_packet_in};
use pipeline::{NodeConfig, reject};
use switch::bridge::Bridge;
use tokio::sync::mpsc;

/// Packets that may wait to be logged.
const LOG_QUEUE: usize = 256;

/// A packet to be logged.
#[derive(Debug)]
pub(super) struct ToLog {
    pub(super) what: PolicyPacket,
    pub(super) packet: PacketIn,
}

/// Answers what is to be answered, and hands on what is to be logged.
pub(super) fn start(bridge: &Bridge, node: NodeConfig) -> mpsc::Receiver<ToLog> {
    let (log_tx, log_rx) = mpsc::channel(LOG_QUEUE);
    let (bridge, mut packets) = (bridge.clone(), bridge.packet_ins_of(packet_in::NETWORK_POLICY));
    tokio::spawn(async move {
        loop {
            let packet = tokio::select! {
                packet = packets.recv() => packet,
                () = log_tx.closed() => return,
            };
            let Some(packet) = packet else { return };
            let Some(what) = read_packet_in(&packet) else { continue };
            if what.reject
                && let Ok(answer) = reject::answer(&node, &packet)
                && let Err(error) = bridge.packet_out(answer).await
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

//! Packets to Services without endpoints: their senders are told that nobody serves there.
//!
//! A task of its own, so that a storm of packets delays no Service; what nobody takes in time is lost.

use pipeline::fields::packet_in;
use pipeline::{NodeConfig, reject};
use switch::bridge::Bridge;

/// Answers until the bridge is not kept any more.
pub(super) async fn answer(bridge: Bridge, node: NodeConfig) {
    let mut packets = bridge.packet_ins_of(packet_in::NO_ENDPOINT);
    while let Some(packet) = packets.recv().await {
        if let Ok(answer) = reject::no_endpoint_answer(&node, &packet)
            && let Err(error) = bridge.packet_out(answer).await
        {
            let error = crate::nodes::chain(&error);
            tracing::debug!("answer a packet to a Service without endpoints: {error}");
        }
    }
}

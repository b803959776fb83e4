//! DNS answers to Pods whose rules name peers: each waits at the agent until what it tells is in
//! the flows, and then goes on to the Pod.
//!
//! What tells nothing goes on at once. An answer whose flows do not come in time is lost, as its
//! Pod could not use it, or would get round a rule by it; whoever asked asks again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use openflow::message::PacketIn;
use pipeline::fields::packet_in;
use pipeline::packet::{Headers, Segment};
use pipeline::policy::is_dns_answer;
use policy::dns::{self, Answer, Connection, Connections};
use switch::bridge::Bridge;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Answers that may wait to be taken in.
const QUEUE: usize = 1024;
/// Answers that may wait for flows.
const MAX_HELD: usize = 4096;
/// How long an answer may wait. Resolvers wait five seconds before they ask again.
const PATIENCE: Duration = Duration::from_secs(4);

/// What became of answers.
#[derive(Debug, Default)]
pub struct DnsCounts {
    /// Answers that told addresses of names that rules name.
    pub n_learned: AtomicU64,
    /// Answers that were lost, as there were too many or their flows did not come in time.
    pub n_lost: AtomicU64,
    /// Names that are known.
    pub n_names: AtomicUsize,
    /// Names that were forgotten, as there were too many.
    pub n_evicted: AtomicU64,
    n_held: AtomicUsize,
}

impl DnsCounts {
    fn lost(&self, why: &str) {
        let n_lost = self.n_lost.fetch_add(1, Ordering::Relaxed) + 1;
        if n_lost.is_power_of_two() {
            tracing::warn!(n_lost, "DNS answers are lost: {why}");
        }
    }
}

/// A packet that waits.
#[derive(Debug)]
pub(super) struct Held {
    packet: PacketIn,
    /// What it tells.
    pub(super) answers: Vec<Answer>,
    since: Instant,
}

/// Lets packets go on.
#[derive(Clone, Debug)]
pub(super) struct Release {
    resume_tx: mpsc::UnboundedSender<PacketIn>,
    pub(super) counts: Arc<DnsCounts>,
}

impl Release {
    /// Starts to send; ends with the last clone.
    pub(super) fn start(bridge: &Bridge, counts: Arc<DnsCounts>) -> Self {
        let (resume_tx, mut resume_rx) = mpsc::unbounded_channel::<PacketIn>();
        let bridge = bridge.clone();
        tokio::spawn(async move {
            while let Some(packet) = resume_rx.recv().await {
                if let Err(error) = bridge.resume(packet).await {
                    tracing::debug!("let a DNS answer go on: {}", crate::nodes::chain(&error));
                }
            }
        });
        Self { resume_tx, counts }
    }

    /// At once.
    pub(super) fn now(&self, held: Held) {
        let _ = self.resume_tx.send(held.packet);
    }

    /// Whether one more may wait for flows; if so, it has to come out of [`Release::after`].
    pub(super) fn may_wait(&self, held: &Held) -> bool {
        if held.since.elapsed() > PATIENCE {
            self.counts.lost("the agent is too slow");
            return false;
        }
        if self.counts.n_held.load(Ordering::Relaxed) >= MAX_HELD {
            self.counts.lost("too many wait for the switch");
            return false;
        }
        self.counts.n_held.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// After its flows were asked for.
    pub(super) fn after(&self, held: Held, flows: Flows) {
        self.counts.n_held.fetch_sub(1, Ordering::Relaxed);
        match flows {
            Flows::Refused => self.counts.lost("the switch refused their flows"),
            Flows::There if held.since.elapsed() > PATIENCE => {
                self.counts.lost("the switch is too slow");
            }
            Flows::There => self.now(held),
        }
    }
}

/// What became of the flows that an answer asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flows {
    /// They are on the switch.
    There,
    /// Some are not, and will not be.
    Refused,
}

/// Reads packets as they come. Gives those that tell something.
pub(super) fn start(bridge: &Bridge, release: Release) -> mpsc::Receiver<Held> {
    let (held_tx, held_rx) = mpsc::channel(QUEUE);
    let mut packets = bridge.packet_ins_of(packet_in::DNS);
    tokio::spawn(async move {
        let mut connections = Connections::default();
        loop {
            let packet = tokio::select! {
                packet = packets.recv() => packet,
                () = held_tx.closed() => return,
            };
            let Some(packet) = packet else { return };
            if !is_dns_answer(&packet) {
                continue;
            }
            let answers = read(&packet, &mut connections);
            let held = Held { packet, answers, since: Instant::now() };
            if held.answers.is_empty() {
                release.now(held);
            } else if held_tx.try_send(held).is_err() {
                release.counts.lost("they come too fast");
            }
        }
    });
    held_rx
}

/// The answers that a packet makes complete; none when it cannot be read.
fn read(packet: &PacketIn, connections: &mut Connections) -> Vec<Answer> {
    let Ok(headers) = Headers::read(&packet.data) else { return Vec::new() };
    let payload = headers.payload(&packet.data);
    let messages = match headers.segment {
        Segment::Udp { .. } => vec![payload.to_vec()],
        Segment::Tcp { src, dst, seq, flags, .. } => {
            let connection = Connection {
                server: SocketAddr::new(headers.src, src),
                client: SocketAddr::new(headers.dst, dst),
            };
            connections.push(connection, dns::Segment { seq, flags, payload })
        }
        _ => Vec::new(),
    };
    messages.iter().filter_map(|message| Answer::read(message).ok()).collect()
}

#[cfg(test)]
mod tests {
    use openflow::message::PacketInReason;
    use openflow::{Cookie, Match};
    use policy::dns::{Asked, Extent};

    use super::*;

    /// An answer of one address, 192.0.2.7, to a question for `a.b`.
    const MESSAGE: &[u8] = b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0\x01a\x01b\0\0\x01\0\x01\
        \xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x07";

    fn mk_packet(protocol: u8, segment: &[u8]) -> PacketIn {
        let len = u16::try_from(20 + segment.len()).unwrap();
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(len.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 53, 10, 0, 0, 1]);
        frame.extend(segment);
        frame.extend([0; 6]); // Fills the frame up.
        PacketIn {
            full_len: u32::try_from(frame.len()).unwrap(),
            data: frame.into(),
            table: pipeline::fields::ANTREA_POLICY_INGRESS_RULE,
            cookie: Cookie(0),
            reason: PacketInReason::Action,
            metadata: Match::new(),
            userdata: vec![packet_in::DNS].into(),
            continuation: Some(vec![1].into()),
        }
    }

    fn udp(payload: &[u8]) -> PacketIn {
        let mut segment = vec![0, 53, 0x9c, 0x40];
        segment.extend(u16::try_from(8 + payload.len()).unwrap().to_be_bytes());
        segment.extend([0, 0]);
        segment.extend(payload);
        mk_packet(17, &segment)
    }

    fn tcp(seq: u32, payload: &[u8]) -> PacketIn {
        let mut segment = vec![0, 53, 0x9c, 0x40];
        segment.extend(seq.to_be_bytes());
        segment.extend([0, 0, 0, 1, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        segment.extend(payload);
        mk_packet(6, &segment)
    }

    #[test]
    fn answers_are_read_from_datagrams_and_segments() {
        let want = Answer {
            name: "a.b".into(),
            asked: Some(Asked::A),
            addresses: vec![("192.0.2.7".parse().unwrap(), 60)],
            extent: Extent::Whole,
        };
        let mut connections = Connections::default();
        let want = [want];
        assert_eq!(read(&udp(MESSAGE), &mut connections), want);
        let mut stream = u16::try_from(MESSAGE.len()).unwrap().to_be_bytes().to_vec();
        stream.extend(MESSAGE);
        assert!(read(&tcp(7, &stream[..9]), &mut connections).is_empty(), "not whole yet");
        assert_eq!(read(&tcp(16, &stream[9..]), &mut connections), want);
        // The beginning of a fragmented datagram tells what is in it.
        let mut cut = udp(MESSAGE);
        cut.data = cut.data.slice(..cut.data.len() - 12);
        let answers = read(&cut, &mut connections);
        assert_eq!((answers[0].extent, answers[0].addresses.len()), (Extent::Beginning, 0));
    }

    /// Case B8: what cannot be read goes on to the Pod.
    #[test]
    fn what_tells_nothing_is_no_answer() {
        let mut connections = Connections::default();
        for packet in [udp(b""), udp(b"nonsense"), udp(&MESSAGE[..20]), mk_packet(1, &[8, 0])] {
            assert!(read(&packet, &mut connections).is_empty());
        }
    }
}

//! DNS messages in the segments of TCP connections.
//!
//! Segments come as the network brings them: again, out of order, with holes, from the middle of a
//! connection that began before anybody looked. Memory is bounded whatever comes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::Stream;

/// Connections that are followed at the same time; the one that was silent longest goes.
const MAX_CONNECTIONS: usize = 512;
/// Segments of one connection that wait for one before them.
const MAX_EARLY: usize = 32;
/// What all connections together may hold.
const MAX_BYTES: usize = 8 << 20;

/// One direction of a connection: from the server, to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    /// The server.
    pub server: SocketAddr,
    /// Who asked.
    pub client: SocketAddr,
}

/// What of a segment matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Sequence number.
    pub seq: u32,
    /// Flags, FIN lowest.
    pub flags: u8,
    /// What it carries.
    pub payload: &'a [u8],
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

#[derive(Debug, Default)]
struct State {
    /// Number of the next byte; unknown before the first.
    next: Option<u32>,
    stream: Stream,
    /// Segments after a hole.
    early: BTreeMap<u32, Vec<u8>>,
    /// When it was heard last.
    heard: u64,
}

impl State {
    fn n_bytes(&self) -> usize {
        self.stream.len() + self.early.values().map(Vec::len).sum::<usize>()
    }

    /// Takes bytes in; what is known already is left out, what comes too early is kept.
    fn push(&mut self, seq: u32, payload: &[u8]) -> Vec<Vec<u8>> {
        let next = *self.next.get_or_insert(seq);
        let known = next.wrapping_sub(seq);
        if known > u32::MAX / 2 {
            if self.early.len() < MAX_EARLY {
                self.early.insert(seq, payload.to_vec());
            }
            return Vec::new();
        }
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let Some(new) = payload.get(known..).filter(|new| !new.is_empty()) else {
            return Vec::new();
        };
        self.next = Some(next.wrapping_add(u32::try_from(new.len()).unwrap_or(u32::MAX)));
        self.stream.push(new)
    }

    /// Takes in what waited and can be read now.
    fn catch_up(&mut self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while let Some(next) = self.next {
            let due = |seq: &u32| next.wrapping_sub(*seq) <= u32::MAX / 2;
            let Some(seq) = self.early.keys().copied().find(due) else { break };
            let payload = self.early.remove(&seq).unwrap_or_default();
            messages.extend(self.push(seq, &payload));
        }
        messages
    }
}

/// Connections by which answers come.
#[derive(Debug, Default)]
pub struct Connections {
    states: BTreeMap<Connection, State>,
    n_bytes: usize,
    clock: u64,
}

impl Connections {
    /// Takes a segment in. Gives the messages that are whole now.
    pub fn push(&mut self, connection: Connection, segment: Segment<'_>) -> Vec<Vec<u8>> {
        self.clock += 1;
        if segment.flags & (SYN | RST) != 0 {
            self.forget(&connection);
        }
        if segment.flags & RST != 0 {
            return Vec::new();
        }
        let state = self.states.entry(connection).or_default();
        state.heard = self.clock;
        let before = state.n_bytes();
        let mut seq = segment.seq;
        if segment.flags & SYN != 0 {
            seq = seq.wrapping_add(1);
            state.next = Some(seq);
        }
        let mut messages = Vec::new();
        if !segment.payload.is_empty() {
            messages = state.push(seq, segment.payload);
            messages.extend(state.catch_up());
        }
        self.n_bytes = self.n_bytes - before + state.n_bytes();
        if segment.flags & FIN != 0 && state.early.is_empty() {
            self.forget(&connection);
        }
        while self.states.len() > MAX_CONNECTIONS || self.n_bytes > MAX_BYTES {
            let silent = self.states.iter().min_by_key(|(_, state)| state.heard);
            let Some(silent) = silent.map(|(connection, _)| *connection) else { break };
            self.forget(&silent);
        }
        messages
    }

    fn forget(&mut self, connection: &Connection) {
        if let Some(state) = self.states.remove(connection) {
            self.n_bytes -= state.n_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mk_connection(n: u16) -> Connection {
        Connection {
            server: "192.0.2.53:53".parse().unwrap(),
            client: SocketAddr::new("10.0.0.1".parse().unwrap(), n),
        }
    }

    fn mk_stream(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
            bytes.extend(message);
        }
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Case B8: however segments are cut, repeated and mixed, each message comes once, in order.
        #[test]
        fn messages_come_once_and_in_order(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
            first in any::<u32>(),
            cuts in prop::collection::vec((0usize..200, 1usize..60), 0..20),
        ) {
            let stream = mk_stream(&messages);
            let mut connections = Connections::default();
            let connection = mk_connection(1);
            let syn = Segment { seq: first, flags: SYN, payload: &[] };
            let mut got = connections.push(connection, syn);
            let mut push = |at: usize, len: usize| {
                let at = at.min(stream.len());
                let payload = &stream[at..stream.len().min(at + len)];
                let seq = first.wrapping_add(1).wrapping_add(u32::try_from(at).unwrap());
                got.extend(connections.push(connection, Segment { seq, flags: 0, payload }));
            };
            for (at, len) in cuts {
                push(at, len);
            }
            for at in (0..stream.len()).step_by(7) {
                push(at, 7);
            }
            prop_assert_eq!(got, messages);
        }

        #[test]
        fn memory_is_bounded(
            segments in prop::collection::vec((0u16..2000, any::<u32>(), any::<u8>(), 0usize..1500), 0..1500),
        ) {
            let mut connections = Connections::default();
            let zeros = [0xff; 1500];
            for (n, seq, flags, len) in segments {
                connections.push(mk_connection(n), Segment { seq, flags, payload: &zeros[..len] });
                prop_assert!(connections.states.len() <= MAX_CONNECTIONS);
                prop_assert!(connections.n_bytes <= MAX_BYTES);
            }
            let n_bytes: usize = connections.states.values().map(State::n_bytes).sum();
            prop_assert_eq!(connections.n_bytes, n_bytes);
        }
    }

    #[test]
    fn a_connection_that_began_before_is_read_from_its_next_message() {
        let mut connections = Connections::default();
        let stream = mk_stream(&[vec![7; 9]]);
        let segment = Segment { seq: 99, flags: FIN, payload: &stream };
        assert_eq!(connections.push(mk_connection(1), segment), [vec![7; 9]]);
        assert!(connections.states.is_empty(), "it is over");
        assert_eq!(connections.n_bytes, 0);
    }
}

//! Carries one direction of one connection.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{Direction, FaultKind, Seen, Shared, Which, end};

const READ_SIZE: usize = 64 << 10;

/// One direction of one connection.
pub(super) struct Pump {
    pub(super) from: UnixStream,
    pub(super) to: UnixStream,
    pub(super) connection: usize,
    pub(super) direction: Direction,
}

impl Pump {
    /// Carries messages until either side, or the fault, ends the connection.
    pub(super) fn run(mut self, shared: &Shared) {
        let mut stream = Vec::new();
        let mut buffer = vec![0; READ_SIZE];
        while let Ok(n @ 1..) = self.from.read(&mut buffer) {
            stream.extend_from_slice(&buffer[..n]);
            if !self.pass(shared, &mut stream) {
                break;
            }
        }
        end(&self.from, &self.to);
    }

    /// Passes on every whole message of the stream, those without a fault together. Returns whether
    /// the connection goes on.
    fn pass(&mut self, shared: &Shared, stream: &mut Vec<u8>) -> bool {
        let (mut begin, mut at) = (0, 0);
        while let Some(len) = shared.protocol.first_len(&stream[at..]) {
            let Some(fault) = self.note(shared, &stream[at..at + len]) else {
                at += len;
                continue;
            };
            let middle = at + len / 2;
            at += len;
            let (upto, goes_on) = match fault {
                FaultKind::Delay(_) | FaultKind::Swallow => (at - len, true),
                FaultKind::CutBefore => (at - len, false),
                FaultKind::Truncate => (middle, false),
                FaultKind::CutAfter => (at, false),
            };
            if self.to.write_all(&stream[begin..upto]).is_err() || !goes_on {
                return false;
            }
            begin = upto;
            match fault {
                FaultKind::Delay(delay) => wait(shared, delay),
                _ => begin = at,
            }
        }
        if self.to.write_all(&stream[begin..at]).is_err() {
            return false;
        }
        stream.drain(..at);
        true
    }

    /// Writes the message down. Returns what is to happen to it, if it is the one.
    fn note(&self, shared: &Shared, message: &[u8]) -> Option<FaultKind> {
        let name = shared.protocol.name(message);
        let mut state = shared.lock();
        let mut kind = None;
        if let Some(fault) = &state.fault
            && fault.direction == self.direction
        {
            let (is_meant, n) = match &fault.which {
                Which::Nth(n) => (true, *n),
                Which::NthNamed(meant, n) => (*meant == name, *n),
            };
            if is_meant {
                kind = (n == state.n_passed).then_some(fault.kind);
                state.n_passed += 1;
            }
        }
        if kind.is_some() {
            state.fault = None;
        }
        let (connection, direction) = (self.connection, self.direction);
        state.seen.push(Seen { connection, direction, name, fault: kind });
        kind
    }
}

/// Waits this long, but not longer than the proxy lives.
fn wait(shared: &Shared, delay: Duration) {
    let stopping = shared.stopped.wait_timeout_while(shared.lock(), delay, |s| !s.stopping);
    // A poisoned lock belongs to a thread that failed; there is nothing to hold back any more.
    drop(stopping);
}

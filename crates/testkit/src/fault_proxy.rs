//! A proxy between a program and a daemon's unix socket that spoils one message.
//!
//! It passes messages on as they are, whole and in order, until the one that its [`Fault`] names:
//! that one comes late, in half, not at all, or is the last one of its connection. Every later
//! message, and every later connection, is left alone. Which message is meant depends only on how
//! many went by before it, so a fault does the same in each run of the same session.
//!
//! Not here: where a message ends (`cut`).

mod cut;
mod pump;

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use cut::Protocol;

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the program to the daemon.
    ToServer,
    /// From the daemon to the program.
    ToClient,
}

/// Which message of a direction, counted from 0 over all connections since the fault was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The n-th.
    Nth(usize),
    /// The n-th with this name (see [`Protocol`]).
    NthNamed(String, usize),
}

/// What happens to the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It, and what follows it in its direction, comes this much later.
    Delay(Duration),
    /// The connection ends before it.
    CutBefore,
    /// The connection ends in its middle.
    Truncate,
    /// The connection ends after it.
    CutAfter,
    /// It does not arrive; what follows it does.
    Swallow,
}

impl FaultKind {
    /// One of each kind.
    #[must_use]
    pub const fn each(delay: Duration) -> [Self; 5] {
        [Self::Delay(delay), Self::CutBefore, Self::Truncate, Self::CutAfter, Self::Swallow]
    }
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which way the message goes.
    pub direction: Direction,
    /// Which one it is.
    pub which: Which,
    /// What happens to it.
    pub kind: FaultKind,
}

impl Fault {
    /// This happens to the n-th message of a direction.
    #[must_use]
    pub fn nth(direction: Direction, n: usize, kind: FaultKind) -> Self {
        Self { direction, which: Which::Nth(n), kind }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, which, kind } = self;
        write!(f, "{kind:?} at {which:?} {direction:?}")
    }
}

/// A message that came by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The connection it was on, counted from 0.
    pub connection: usize,
    /// Where it went.
    pub direction: Direction,
    /// What it is called (see [`Protocol`]).
    pub name: String,
    /// What was done to it, if it is the one.
    pub fault: Option<FaultKind>,
}

/// A running proxy. It ends, with all its connections, when this is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    dir: tempfile::TempDir,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// What the proxy's threads share.
#[derive(Debug)]
struct Shared {
    protocol: Protocol,
    server: PathBuf,
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct State {
    fault: Option<Fault>,
    /// Messages since the fault was set that it could have meant.
    n_passed: usize,
    seen: Vec<Seen>,
    connections: Vec<(UnixStream, UnixStream)>,
    pumps: Vec<JoinHandle<()>>,
    stopping: bool,
}

impl FaultProxy {
    /// Starts a proxy before the daemon's socket; panics when it cannot.
    #[must_use]
    #[track_caller]
    pub fn start(protocol: Protocol, server: &Path) -> Self {
        match Self::try_start(protocol, server) {
            Ok(proxy) => proxy,
            Err(error) => panic!("start a proxy before {}: {error}", server.display()),
        }
    }

    fn try_start(protocol: Protocol, server: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("proxy-").tempdir()?;
        let listener = UnixListener::bind(socket_in(dir.path()))?;
        let shared = Arc::new(Shared {
            protocol,
            server: server.to_owned(),
            state: Mutex::default(),
            stopped: Condvar::new(),
        });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Ok(Self { dir, shared, acceptor: Some(acceptor) })
    }

    /// Where the program has to connect.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket_in(self.dir.path())
    }

    /// Sets the fault. Messages count from now.
    pub fn arm(&self, fault: Fault) {
        let mut state = self.shared.lock();
        state.fault = Some(fault);
        state.n_passed = 0;
    }

    /// Whether the message that the fault names came by.
    #[must_use]
    pub fn has_struck(&self) -> bool {
        self.shared.lock().seen.iter().any(|seen| seen.fault.is_some())
    }

    /// Every message that came by, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        let pumps = {
            let mut state = self.shared.lock();
            state.stopping = true;
            for (client, server) in state.connections.drain(..) {
                end(&client, &server);
            }
            std::mem::take(&mut state.pumps)
        };
        self.shared.stopped.notify_all();
        // The acceptor looks up when somebody knocks. It cannot be told when it is gone already.
        let _ = UnixStream::connect(self.socket());
        for thread in self.acceptor.take().into_iter().chain(pumps) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn socket_in(dir: &Path) -> PathBuf {
    dir.join("sock")
}

/// Ends a pair of connections; what was written before can still be read.
fn end(one: &UnixStream, other: &UnixStream) {
    // Fails when the other side was first.
    let _ = one.shutdown(Shutdown::Both);
    let _ = other.shutdown(Shutdown::Both);
}

/// Serves connections until the proxy is dropped.
fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    let mut n_connections = 0;
    for client in listener.incoming() {
        if shared.lock().stopping {
            return;
        }
        // A daemon that is away is away for the program too: its connection ends at once.
        let Ok(client) = client else { continue };
        let Ok(server) = UnixStream::connect(&shared.server) else { continue };
        if connect(shared, client, server, n_connections).is_ok() {
            n_connections += 1;
        }
    }
}

/// Sets two threads to a new connection.
fn connect(
    shared: &Arc<Shared>,
    client: UnixStream,
    server: UnixStream,
    connection: usize,
) -> io::Result<()> {
    let up = pump::Pump {
        from: client.try_clone()?,
        to: server.try_clone()?,
        connection,
        direction: Direction::ToServer,
    };
    let down = pump::Pump {
        from: server.try_clone()?,
        to: client.try_clone()?,
        connection,
        direction: Direction::ToClient,
    };
    let mut state = shared.lock();
    if state.stopping {
        return Ok(());
    }
    state.connections.push((client, server));
    for pump in [up, down] {
        let shared = Arc::clone(shared);
        state.pumps.push(thread::spawn(move || pump.run(&shared)));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! A netlink socket: requests with acknowledgement, dumps, transactions of nfnetlink.
//!
//! The kernel does the work of a request inside `sendmsg`, so there is nothing to await: calls are
//! synchronous, an async caller uses [`Rtnl::call`]. A socket belongs for ever to the network
//! namespace it was opened in, wherever its user's thread is.
//! Not here: message contents ([`crate::link`], [`crate::route`] ...), notifications
//! ([`crate::monitor`]).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{ReceiveTimeout, SendTimeout};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::netns::{Netns, NetnsError};
use crate::uapi::*;
use crate::wire::{Attrs, Replies, Reply, Request, string, u32_at};

/// Larger than the 32 KiB that the kernel fills at most per datagram of a dump.
const RECEIVE_BUFFER: usize = 64 * 1024;
/// A reply is there when `sendmsg` returns; a longer silence is a fault, not slowness.
const REPLY_SECONDS: i64 = 10;
/// Attempts at a dump that the kernel marks as interrupted by changes.
const DUMP_ATTEMPTS: u32 = 20;

/// Why an exchange with the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// No socket.
    #[error("open netlink socket")]
    Open(#[source] io::Error),
    /// Sending or receiving failed.
    #[error("exchange netlink messages")]
    Io(#[source] io::Error),
    /// The kernel answered with an error.
    #[error("kernel answered {errno}{}", .text.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// The error number.
        errno: Errno,
        /// The kernel's own words, where it gives any.
        text: Option<String>,
    },
    /// The reply was not what the protocol says.
    #[error("malformed netlink reply")]
    Malformed,
    /// A dump was overtaken by changes each time.
    #[error("table changed during {DUMP_ATTEMPTS} reads in a row")]
    Unsteady,
    /// The namespace could not be entered.
    #[error("enter network namespace")]
    Netns(#[from] NetnsError),
    /// The thread that ran the exchange died.
    #[error("netlink call was abandoned")]
    Abandoned,
}

impl NetlinkError {
    /// The kernel's error number, when it was the kernel that refused.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

/// A netlink family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Route,
    Netfilter,
}

/// Opens a netlink socket in the calling thread's namespace, subscribed to `groups`.
pub(crate) fn open_socket(
    family: Family,
    groups: u32,
    flags: SockFlag,
) -> Result<OwnedFd, NetlinkError> {
    let protocol = match family {
        Family::Route => SockProtocol::NetlinkRoute,
        Family::Netfilter => SockProtocol::NetlinkNetFilter,
    };
    let open = || -> nix::Result<OwnedFd> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | flags,
            protocol,
        )?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(fd)
    };
    open().map_err(|errno| NetlinkError::Open(errno.into()))
}

/// A request and reply socket.
#[derive(Debug)]
pub(crate) struct Netlink {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    pub(crate) fn open(family: Family) -> Result<Self, NetlinkError> {
        let fd = open_socket(family, 0, SockFlag::empty())?;
        let timeout = TimeVal::seconds(REPLY_SECONDS);
        setsockopt(&fd, ReceiveTimeout, &timeout)
            .and_then(|()| setsockopt(&fd, SendTimeout, &timeout))
            .map_err(|errno| NetlinkError::Open(errno.into()))?;
        // Old kernels lack one or the other; both only make replies better.
        for option in [NETLINK_CAP_ACK, NETLINK_EXT_ACK] {
            switch_on(&fd, option);
        }
        if family == Family::Route {
            switch_on(&fd, NETLINK_GET_STRICT_CHK);
        }
        Ok(Self { inner: Mutex::new(Inner { fd, sequence: 0, buffer: vec![0; RECEIVE_BUFFER] }) })
    }

    /// Sends one request and waits for its acknowledgement.
    pub(crate) fn request(&self, request: Request) -> Result<(), NetlinkError> {
        self.get(request, |_| {})
    }

    /// Sends one request; `each` sees data messages that come before the acknowledgement.
    pub(crate) fn get(
        &self,
        mut request: Request,
        mut each: impl FnMut(Reply<'_>),
    ) -> Result<(), NetlinkError> {
        request.add_flags(NLM_F_ACK);
        let mut inner = self.lock();
        let sequence = inner.send(request)?;
        loop {
            let received = inner.receive(MsgFlags::empty())?;
            for reply in Replies(received).filter(|reply| reply.sequence == sequence) {
                match reply.kind {
                    NLMSG_ERROR => return outcome(reply),
                    _ => each(reply),
                }
            }
        }
    }

    /// Sends a dump request; `each` sees every object. A dump that changes overtook is repeated,
    /// after `restart` (which drops what `each` collected so far).
    pub(crate) fn dump<T>(
        &self,
        request: &Request,
        mut each: impl FnMut(Reply<'_>) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut found = Vec::new();
            if self.dump_once(request.clone(), |reply| found.extend(each(reply)))? {
                return Ok(found);
            }
        }
        Err(NetlinkError::Unsteady)
    }

    /// One dump; false when it was interrupted by changes.
    fn dump_once(
        &self,
        mut request: Request,
        mut each: impl FnMut(Reply<'_>),
    ) -> Result<bool, NetlinkError> {
        request.add_flags(NLM_F_DUMP);
        let mut inner = self.lock();
        let sequence = inner.send(request)?;
        let mut steady = true;
        loop {
            let received = inner.receive(MsgFlags::empty())?;
            for reply in Replies(received).filter(|reply| reply.sequence == sequence) {
                steady &= reply.flags & NLM_F_DUMP_INTR == 0;
                match reply.kind {
                    NLMSG_DONE => {
                        // A dump that failed half way closes with its error.
                        let code = u32_at(reply.payload, 0).unwrap_or(0).cast_signed();
                        return if code < 0 { Err(refused(code, None)) } else { Ok(steady) };
                    }
                    NLMSG_ERROR => {
                        outcome(reply)?;
                        return Ok(steady);
                    }
                    _ => each(reply),
                }
            }
        }
    }

    /// Sends several messages in one datagram (an nfnetlink transaction); the first error wins.
    ///
    /// `BATCH_BEGIN` and `BATCH_END` are added here.
    pub(crate) fn transaction(
        &self,
        subsystem: u16,
        requests: Vec<Request>,
    ) -> Result<(), NetlinkError> {
        let mut inner = self.lock();
        let mut datagram = Vec::with_capacity(64 + requests.len() * 128);
        let edge = |kind| {
            let mut request = Request::new(kind, 0);
            request.bytes(&nfgenmsg(NFPROTO_UNSPEC, subsystem));
            request
        };
        let first = inner.next_sequence();
        datagram.extend(edge(NFNL_MSG_BATCH_BEGIN).finish(first));
        let mut last = first;
        for mut request in requests {
            request.add_flags(NLM_F_ACK);
            last = inner.next_sequence();
            datagram.extend(request.finish(last));
        }
        let end = inner.next_sequence();
        datagram.extend(edge(NFNL_MSG_BATCH_END).finish(end));
        inner.send_bytes(&datagram)?;

        let mut acknowledged = false;
        let mut failure = None;
        // Everything is queued by now: read until the queue is empty, so that nothing is left for
        // the next exchange.
        loop {
            let received = match inner.receive(MsgFlags::MSG_DONTWAIT) {
                Ok(received) => received,
                Err(NetlinkError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            for reply in Replies(received) {
                if reply.kind != NLMSG_ERROR || !(first..=end).contains(&reply.sequence) {
                    continue;
                }
                if let Err(error) = outcome(reply) {
                    failure.get_or_insert(error);
                } else {
                    acknowledged |= reply.sequence == last;
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None if acknowledged => Ok(()),
            None => Err(NetlinkError::Malformed),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // A panic between send and receive leaves replies with an old sequence: they are skipped.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.sequence
    }

    fn send(&mut self, request: Request) -> Result<u32, NetlinkError> {
        let sequence = self.next_sequence();
        self.send_bytes(&request.finish(sequence))?;
        Ok(sequence)
    }

    fn send_bytes(&self, bytes: &[u8]) -> Result<(), NetlinkError> {
        loop {
            match send(self.fd.as_raw_fd(), bytes, MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(NetlinkError::Io(errno.into())),
            }
        }
    }

    fn receive(&mut self, flags: MsgFlags) -> Result<&[u8], NetlinkError> {
        loop {
            match recv(self.fd.as_raw_fd(), &mut self.buffer, flags) {
                Ok(0) => return Err(NetlinkError::Malformed),
                Ok(length) => return Ok(&self.buffer[..length]),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(NetlinkError::Io(errno.into())),
            }
        }
    }
}

/// The header of every nfnetlink message: family, version 0, resource id in network byte order.
pub(crate) fn nfgenmsg(family: u8, resource: u16) -> [u8; 4] {
    let resource = resource.to_be_bytes();
    [family, 0, resource[0], resource[1]]
}

fn outcome(reply: Reply<'_>) -> Result<(), NetlinkError> {
    let code = u32_at(reply.payload, 0).ok_or(NetlinkError::Malformed)?.cast_signed();
    if code == 0 {
        return Ok(());
    }
    let text = (reply.flags & NLM_F_ACK_TLVS != 0).then(|| error_text(reply)).flatten();
    Err(refused(code, text))
}

/// The kernel's words: behind the code stands the request's header, its body too unless capped.
fn error_text(reply: Reply<'_>) -> Option<String> {
    let request = usize::try_from(u32_at(reply.payload, 4)?).ok()?;
    let skipped = if reply.flags & NLM_F_CAPPED != 0 { crate::wire::HEADER } else { request };
    let attrs = Attrs::after(reply.payload, 4 + skipped.next_multiple_of(4));
    attrs.find(NLMSGERR_ATTR_MSG).map(string)
}

fn refused(code: i32, text: Option<String>) -> NetlinkError {
    NetlinkError::Refused { errno: Errno::from_raw(code.saturating_neg()), text }
}

#[allow(unsafe_code, reason = "nix has no netlink socket options")]
fn switch_on(fd: &OwnedFd, option: i32) {
    let one: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("4 fits");
    // SAFETY: the option's value is one `c_int` that lives until the call returns, of the length
    // given. A refusal is of no consequence, so the result is not looked at.
    unsafe {
        libc::setsockopt(fd.as_raw_fd(), SOL_NETLINK, option, (&raw const one).cast(), length);
    }
}

/// A handle on the links, addresses, routes and neighbours of one network namespace.
///
/// Cheap to clone; calls of clones take turns.
#[derive(Debug, Clone)]
pub struct Rtnl {
    netlink: Arc<Netlink>,
    netns: Arc<Netns>,
}

impl Rtnl {
    /// Opens a handle on the calling thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self {
            netlink: Arc::new(Netlink::open(Family::Route)?),
            netns: Arc::new(Netns::current()?),
        })
    }

    /// Opens a handle on another namespace; it stays there.
    pub fn open_in(netns: &Netns) -> Result<Self, NetlinkError> {
        let netlink = netns.run(|| Netlink::open(Family::Route))??;
        Ok(Self { netlink: Arc::new(netlink), netns: Arc::new(netns.try_clone()?) })
    }

    /// The namespace this handle works in.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Runs synchronous calls from async code, on tokio's blocking threads.
    pub async fn call<T, F>(&self, work: F) -> Result<T, NetlinkError>
    where
        T: Send + 'static,
        F: FnOnce(&Rtnl) -> T + Send + 'static,
    {
        let rtnl = self.clone();
        tokio::task::spawn_blocking(move || work(&rtnl)).await.map_err(|_| NetlinkError::Abandoned)
    }

    pub(crate) fn netlink(&self) -> &Netlink {
        &self.netlink
    }
}

//! Notifications of the kernel about links, addresses and routes of a namespace.
//!
//! A notification can be lost when too many come at once: [`Change::Lost`] asks the receiver to
//! list everything again. A caller therefore subscribes first, lists, then follows.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockFlag, recv};
use tokio::io::unix::AsyncFd;

use crate::address::{self, Address};
use crate::link::{self, Link};
use crate::netlink::{Family, NetlinkError, open_socket};
use crate::netns::Netns;
use crate::route::{self, Route};
use crate::uapi::*;
use crate::wire::Replies;

/// What to be told about; combine with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topics(u32);

impl Topics {
    /// Links made, changed, deleted.
    pub const LINKS: Self = Self(RTMGRP_LINK);
    /// Neighbour entries; they only wake the waiter, list them to see what changed.
    pub const NEIGHBOURS: Self = Self(RTMGRP_NEIGH);
    /// IPv4 and IPv6 addresses.
    pub const ADDRESSES: Self = Self(RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR);
    /// IPv4 and IPv6 routes.
    pub const ROUTES: Self = Self(RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE);
}

impl std::ops::BitOr for Topics {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A link was made or changed.
    LinkSet(Box<Link>),
    /// A link was deleted.
    LinkGone(Box<Link>),
    /// An address was added or changed.
    AddressSet(Address),
    /// An address was removed.
    AddressGone(Address),
    /// A route was added or replaced.
    RouteSet(Route),
    /// A route was removed.
    RouteGone(Route),
    /// Notifications were lost: list again.
    Lost,
}

/// A subscription.
#[derive(Debug)]
pub struct Monitor {
    fd: OwnedFd,
    buffer: Mutex<Vec<u8>>,
}

impl Monitor {
    /// Subscribes in a namespace.
    pub fn open_in(netns: &Netns, topics: Topics) -> Result<Self, NetlinkError> {
        let fd = netns.run(|| open_socket(Family::Route, topics.0, SockFlag::SOCK_NONBLOCK))??;
        Ok(Self { fd, buffer: Mutex::new(vec![0; 64 * 1024]) })
    }

    /// Waits for notifications and returns those that are there; none after `patience`.
    pub fn wait(&self, patience: Duration) -> Result<Vec<Change>, NetlinkError> {
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let mut waiting = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, timeout) {
            Ok(0) | Err(Errno::EINTR) => Ok(Vec::new()),
            Ok(_) => self.read().map(Option::unwrap_or_default),
            Err(errno) => Err(NetlinkError::Io(errno.into())),
        }
    }

    /// Turns this into a subscription for async code; needs a tokio runtime.
    #[allow(unsafe_code, reason = "tokio asks for a promise about the descriptor")]
    pub fn into_async(self) -> Result<AsyncMonitor, NetlinkError> {
        // SAFETY: a `Monitor` owns its descriptor, never replaces it and closes it only when
        // dropped; `as_raw_fd` always returns that one.
        let registered = unsafe { AsyncFd::register(self) };
        let inner = registered.map_err(|error| NetlinkError::Open(error.into()))?;
        Ok(AsyncMonitor { inner })
    }

    /// Reads one datagram; `None` when there is none.
    fn read(&self) -> Result<Option<Vec<Change>>, NetlinkError> {
        let mut buffer = self.buffer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => Ok(Some(
                Replies(&buffer[..length])
                    .filter_map(|reply| parse(reply.kind, reply.payload))
                    .collect(),
            )),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(Errno::ENOBUFS) => Ok(Some(vec![Change::Lost])),
            Err(errno) => Err(NetlinkError::Io(errno.into())),
        }
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}

/// A subscription for async code.
#[derive(Debug)]
pub struct AsyncMonitor {
    inner: AsyncFd<Monitor>,
}

impl AsyncMonitor {
    /// Waits for the next notifications. Safe to cancel.
    pub async fn next(&mut self) -> Result<Vec<Change>, NetlinkError> {
        loop {
            let mut guard = self.inner.readable().await.map_err(NetlinkError::Io)?;
            match guard.get_inner().read()? {
                Some(changes) if !changes.is_empty() => return Ok(changes),
                Some(_) => {}
                None => guard.clear_ready(),
            }
        }
    }
}

fn parse(kind: u16, payload: &[u8]) -> Option<Change> {
    match kind {
        RTM_NEWLINK => link::parse(payload).map(Box::new).map(Change::LinkSet),
        RTM_DELLINK => link::parse(payload).map(Box::new).map(Change::LinkGone),
        RTM_NEWADDR => address::parse(payload).map(Change::AddressSet),
        RTM_DELADDR => address::parse(payload).map(Change::AddressGone),
        RTM_NEWROUTE => route::parse(payload).map(Change::RouteSet),
        RTM_DELROUTE => route::parse(payload).map(Change::RouteGone),
        _ => None,
    }
}

impl From<NetlinkError> for io::Error {
    fn from(error: NetlinkError) -> Self {
        io::Error::other(error)
    }
}

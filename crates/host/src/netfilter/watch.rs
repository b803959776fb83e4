//! Wakes its owner when someone changes nftables in a namespace.
//!
//! It says that something changed, not what: the owner compares with [`super::DropChains::list`].
//! Own changes wake too, so a look that finds nothing to do ends the exchange.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockFlag, recv};
use tokio::io::unix::AsyncFd;

use crate::netlink::{Family, NetlinkError, open_socket};
use crate::netns::Netns;
use crate::uapi::NFTABLES_GROUP;

/// A subscription to changes of nftables.
#[derive(Debug)]
pub struct Watch {
    inner: AsyncFd<Socket>,
}

#[derive(Debug)]
struct Socket(OwnedFd);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Watch {
    /// Subscribes in a namespace; needs a tokio runtime.
    #[allow(unsafe_code, reason = "tokio asks for a promise about the descriptor")]
    pub fn open_in(netns: &Netns) -> Result<Self, NetlinkError> {
        let open = || open_socket(Family::Netfilter, NFTABLES_GROUP, SockFlag::SOCK_NONBLOCK);
        let socket = Socket(netns.run(open)??);
        // SAFETY: a `Socket` owns its descriptor, never replaces it and closes it only when
        // dropped; `as_raw_fd` always returns that one.
        let registered = unsafe { AsyncFd::register(socket) };
        let inner = registered.map_err(|error| NetlinkError::Open(error.into()))?;
        Ok(Self { inner })
    }

    /// Waits until something has changed since the last call (or since the subscription). Safe to
    /// cancel.
    pub async fn changed(&mut self) -> Result<(), NetlinkError> {
        let mut woken = false;
        loop {
            let mut guard = self.inner.readable().await.map_err(NetlinkError::Io)?;
            // What a notification says is not looked at; a lost one (ENOBUFS) wakes as well.
            match recv(guard.get_inner().as_raw_fd(), &mut [0; 64], MsgFlags::empty()) {
                Ok(_) | Err(Errno::ENOBUFS) => woken = true,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    guard.clear_ready();
                    if woken {
                        return Ok(());
                    }
                }
                Err(errno) => return Err(NetlinkError::Io(errno.into())),
            }
        }
    }
}

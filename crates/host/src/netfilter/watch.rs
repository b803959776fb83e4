//! Wakes its owner when someone changes nftables in a namespace.
//!
//! It says that something changed, not what: the owner compares with [`super::DropChains::list`] or
//! [`crate::nft::list`]. Own changes wake too, so a look that finds nothing to do ends the exchange.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockFlag, recv};
use tokio::io::unix::AsyncFd;

use crate::netlink::{Family, NetlinkError, open_socket};
use crate::netns::Netns;
use crate::uapi::{NFPROTO_INET, NFPROTO_NETDEV, NFTABLES_GROUP};

/// Length of an `nlmsghdr`.
const HEADER_LEN: usize = 16;

/// A subscription to changes of nftables.
#[derive(Debug)]
pub struct Watch {
    inner: AsyncFd<Socket>,
    family: u8,
}

/// Which tables a [`Watch`] is about: `inet` ones hold rules for both families, `netdev` ones for
/// single devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFamily {
    /// `NFPROTO_INET`
    Inet,
    /// `NFPROTO_NETDEV`
    Netdev,
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
    pub fn open_in(netns: &Netns, family: TableFamily) -> Result<Self, NetlinkError> {
        let open = || open_socket(Family::Netfilter, NFTABLES_GROUP, SockFlag::SOCK_NONBLOCK);
        let socket = Socket(netns.run(open)??);
        // SAFETY: a `Socket` owns its descriptor, never replaces it and closes it only when
        // dropped; `as_raw_fd` always returns that one.
        let registered = unsafe { AsyncFd::register(socket) };
        let inner = registered.map_err(|error| NetlinkError::Open(error.into()))?;
        let family = match family {
            TableFamily::Inet => NFPROTO_INET,
            TableFamily::Netdev => NFPROTO_NETDEV,
        };
        Ok(Self { inner, family })
    }

    /// Waits until something of the family has changed since the last call (or since the
    /// subscription). Safe to cancel.
    pub async fn changed(&mut self) -> Result<(), NetlinkError> {
        let mut woken = false;
        let mut buffer = [0; 8192];
        loop {
            let mut guard = self.inner.readable().await.map_err(NetlinkError::Io)?;
            // A lost notification (ENOBUFS), or one too long to be read whole, wakes as well.
            match recv(guard.get_inner().as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
                Ok(n_bytes) => {
                    woken |= buffer.get(..n_bytes).is_none_or(|all| concerns(all, self.family));
                }
                Err(Errno::ENOBUFS) => woken = true,
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

/// Whether one of the messages (`nlmsghdr`, then `nfgenmsg`, whose first byte is the family) is
/// about a table of the family.
fn concerns(mut messages: &[u8], family: u8) -> bool {
    while let Some(Ok(length)) = messages.get(..4).map(<[u8; 4]>::try_from) {
        if messages.get(HEADER_LEN) == Some(&family) {
            return true;
        }
        let length = usize::try_from(u32::from_ne_bytes(length)).unwrap_or(usize::MAX);
        // Messages begin at multiples of four.
        let next = length.max(HEADER_LEN).checked_next_multiple_of(4);
        messages = next.and_then(|next| messages.get(next..)).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_message(family: u8, n_attribute_bytes: usize) -> Vec<u8> {
        let length = HEADER_LEN + 4 + n_attribute_bytes;
        let mut message = u32::try_from(length).unwrap().to_ne_bytes().to_vec();
        message.resize(HEADER_LEN, 0);
        message.extend([family, 0, 0, 0]);
        message.resize(length.next_multiple_of(4), 0xff);
        message
    }

    #[test]
    fn every_message_of_a_notification_is_looked_at() {
        let both = [mk_message(NFPROTO_NETDEV, 5), mk_message(NFPROTO_INET, 0)].concat();
        assert!(concerns(&both, NFPROTO_INET) && concerns(&both, NFPROTO_NETDEV));
        assert!(!concerns(&mk_message(NFPROTO_NETDEV, 40), NFPROTO_INET));
        assert!(!concerns(&[], NFPROTO_INET));
        // Lengths that lie.
        assert!(!concerns(&[0; 64], NFPROTO_INET));
        assert!(!concerns(&[0xff; 64], NFPROTO_INET));
    }
}

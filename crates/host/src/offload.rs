//! Checksum offload of an interface, by the ethtool ioctl.
//!
//! Userspace Open vSwitch reads frames by AF_PACKET: a frame whose checksum was left to the
//! hardware would reach the other side without one. Switching it off takes segmentation offloads
//! along. Functions act in the calling thread's namespace; `_in` ones enter another.

use std::io;
use std::os::fd::AsRawFd;

use crate::link::is_valid_name;
use crate::netns::{Netns, NetnsError};
use crate::uapi::{ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM, SIOCETHTOOL};

/// Whether an offload is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// The device (or its far end) computes checksums.
    On,
    /// The kernel computes them before the frame leaves.
    Off,
}

/// Why an offload could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// The link is gone.
    #[error("link {0} not found")]
    NotFound(String),
    /// The kernel refused.
    #[error("{action} checksum offload of {link}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// On which link.
        link: String,
        /// Why not.
        source: io::Error,
    },
    /// The driver took the request and did not follow it.
    #[error("checksum offload of {0} stays on")]
    Stays(String),
    /// The namespace could not be entered.
    #[error("enter network namespace")]
    Netns(#[from] NetnsError),
}

/// Reads whether transmit checksums are offloaded.
pub fn tx_checksum(link: &str) -> Result<Offload, OffloadError> {
    let value = ethtool(link, "read", ETHTOOL_GTXCSUM, 0)?;
    Ok(if value == 0 { Offload::Off } else { Offload::On })
}

/// Switches transmit checksum offload off and reads back that it is.
pub fn disable_tx_checksum(link: &str) -> Result<(), OffloadError> {
    ethtool(link, "switch off", ETHTOOL_STXCSUM, 0)?;
    match tx_checksum(link)? {
        Offload::Off => Ok(()),
        Offload::On => Err(OffloadError::Stays(link.to_owned())),
    }
}

/// Switches transmit checksum offload on again.
pub fn enable_tx_checksum(link: &str) -> Result<(), OffloadError> {
    ethtool(link, "switch on", ETHTOOL_STXCSUM, 1).map(|_| ())
}

/// As [`tx_checksum`], in another namespace.
pub fn tx_checksum_in(netns: &Netns, link: &str) -> Result<Offload, OffloadError> {
    netns.run(|| tx_checksum(link))?
}

/// As [`disable_tx_checksum`], in another namespace.
pub fn disable_tx_checksum_in(netns: &Netns, link: &str) -> Result<(), OffloadError> {
    netns.run(|| disable_tx_checksum(link))?
}

/// ```text
///   ethtool_value  cmd:u32  data:u32
/// ```
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

#[allow(unsafe_code, reason = "ethtool is spoken by ioctl with a pointer inside the request")]
fn ethtool(link: &str, action: &'static str, cmd: u32, data: u32) -> Result<u32, OffloadError> {
    let refused = |source| OffloadError::Refused { action, link: link.to_owned(), source };
    if !is_valid_name(link) {
        return Err(OffloadError::NotFound(link.to_owned()));
    }
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(|errno| refused(errno.into()))?;
    let mut value = EthtoolValue { cmd, data };
    // SAFETY: `ifreq` is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The name has at most 15 bytes, so the closing NUL stays.
    for (to, from) in request.ifr_name.iter_mut().zip(link.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL reads the name and the pointer from one `ifreq`, and reads and writes one
    // `ethtool_value` behind it for these two commands; both live until the call returns.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if outcome == 0 {
        return Ok(value.data);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENODEV) {
        return Err(OffloadError::NotFound(link.to_owned()));
    }
    Err(refused(error))
}

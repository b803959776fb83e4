//! The bytes of netlink: one writer and one reader for rtnetlink, nfnetlink and ctnetlink.
//!
//! ```text
//!   nlmsghdr   len:u32  type:u16  flags:u16  seq:u32  pid:u32      (native byte order)
//!   attribute  len:u16  type:u16  payload, padded to 4 bytes; len counts header and payload
//! ```
//! Reading never panics and never reads past the slice: a truncated attribute ends the iteration.
//! Not here: sockets ([`crate::netlink`]), the meaning of attributes (each user module).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::uapi::{NLA_F_NESTED, NLA_TYPE_MASK, NLM_F_REQUEST};

/// Length of `nlmsghdr`.
pub(crate) const HEADER: usize = 16;

/// Address family on the wire.
pub(crate) const AF_UNSPEC: u8 = 0;
/// IPv4.
pub(crate) const AF_INET: u8 = 2;
/// IPv6.
pub(crate) const AF_INET6: u8 = 10;

/// The family of an address.
pub(crate) fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

/// One netlink request being written.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    buffer: Vec<u8>,
}

impl Request {
    /// Starts a message; `NLM_F_REQUEST` is added, length and sequence are filled in later.
    pub(crate) fn new(kind: u16, flags: u16) -> Self {
        let mut buffer = Vec::with_capacity(256);
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(&kind.to_ne_bytes());
        buffer.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        buffer.extend_from_slice(&[0; 8]);
        Self { buffer }
    }

    /// Adds further flags.
    pub(crate) fn add_flags(&mut self, flags: u16) {
        let now = u16::from_ne_bytes([self.buffer[6], self.buffer[7]]);
        self.buffer[6..8].copy_from_slice(&(now | flags).to_ne_bytes());
    }

    /// Appends the family's fixed header.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.buffer.extend_from_slice(bytes);
        self.pad()
    }

    /// Appends one attribute.
    pub(crate) fn attr(&mut self, kind: u16, payload: &[u8]) -> &mut Self {
        let length = u16::try_from(payload.len() + 4)
            .expect("callers check the length of names and comments");
        self.buffer.extend_from_slice(&length.to_ne_bytes());
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        self.buffer.extend_from_slice(payload);
        self.pad()
    }

    pub(crate) fn attr_u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.attr(kind, &[value])
    }

    pub(crate) fn attr_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Big endian, as all of nfnetlink's numbers are.
    pub(crate) fn attr_be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attr(kind, &value.to_be_bytes())
    }

    /// Appends a string with its closing NUL.
    pub(crate) fn attr_str(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = Vec::with_capacity(value.len() + 1);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
        self.attr(kind, &bytes)
    }

    pub(crate) fn attr_ip(&mut self, kind: u16, value: IpAddr) -> &mut Self {
        match value {
            IpAddr::V4(v4) => self.attr(kind, &v4.octets()),
            IpAddr::V6(v6) => self.attr(kind, &v6.octets()),
        }
    }

    /// Appends an attribute that holds what `fill` writes.
    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 2]);
        self.buffer.extend_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
        fill(self);
        let length = u16::try_from(self.buffer.len() - start)
            .expect("nested attributes hold a few names and numbers");
        self.buffer[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Fills in length and sequence number; the message is complete.
    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.buffer.len()).expect("a message is far below 4 GiB");
        self.buffer[0..4].copy_from_slice(&length.to_ne_bytes());
        self.buffer[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.buffer
    }

    fn pad(&mut self) -> &mut Self {
        self.buffer.resize(self.buffer.len().next_multiple_of(4), 0);
        self
    }
}

/// One received message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

/// Splits what one `recv` returned into messages; stops at the first malformed one.
pub(crate) struct Replies<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Replies<'a> {
    type Item = Reply<'a>;

    fn next(&mut self) -> Option<Reply<'a>> {
        let header = self.0.get(..HEADER)?;
        let length = usize::try_from(u32_at(header, 0)?).ok()?;
        let payload = self.0.get(HEADER..length)?;
        let reply = Reply {
            kind: u16_at(header, 4)?,
            flags: u16_at(header, 6)?,
            sequence: u32_at(header, 8)?,
            payload,
        };
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(reply)
    }
}

/// Walks attributes; the type comes without its flag bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attrs<'a>(pub(crate) &'a [u8]);

impl<'a> Attrs<'a> {
    /// The attributes behind a fixed header of `header` bytes.
    pub(crate) fn after(payload: &'a [u8], header: usize) -> Self {
        Self(payload.get(header..).unwrap_or_default())
    }

    /// The payload of the first attribute of this type.
    pub(crate) fn find(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find_map(|(seen, payload)| (seen == kind).then_some(payload))
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & NLA_TYPE_MASK;
        let payload = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    }
}

/// A native-endian `u16` at an offset.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

/// A native-endian `u32` at an offset.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

/// A native-endian `u64` at an offset.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}

/// A big-endian `u32` at the start.
pub(crate) fn be32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// A big-endian `u16` at the start.
pub(crate) fn be16(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?))
}

/// A string up to its NUL.
pub(crate) fn string(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// An address of 4 or 16 bytes.
pub(crate) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut request = Request::new(16, 4);
        request.bytes(&[1, 2, 3, 4]).attr_str(3, "eth0").attr_u32(4, 1450).nest(18, |nested| {
            nested.attr_u8(1, 7);
        });
        let bytes = request.finish(9);
        let reply = Replies(&bytes).next().unwrap();
        assert_eq!((reply.kind, reply.flags, reply.sequence), (16, 5, 9));
        let attrs = Attrs::after(reply.payload, 4);
        assert_eq!(string(attrs.find(3).unwrap()), "eth0");
        assert_eq!(u32_at(attrs.find(4).unwrap(), 0), Some(1450));
        assert_eq!(Attrs(attrs.find(18).unwrap()).find(1), Some(&[7][..]));
        assert_eq!(attrs.count(), 3);
    }

    #[test]
    fn truncated_input_ends_the_walk() {
        let mut request = Request::new(16, 0);
        request.attr_u32(4, 1450).attr_str(3, "eth0");
        let bytes = request.finish(1);
        for end in 0..bytes.len() {
            assert_eq!(Replies(&bytes[..end]).count(), 0, "{end} bytes");
            let _ = Attrs::after(&bytes[..end], HEADER).count();
        }
        // A length below the header's own size must not loop for ever.
        assert_eq!(Attrs(&[0, 0, 1, 0, 9, 9, 9, 9]).count(), 0);
        assert_eq!(Replies(&[0; 64]).count(), 0);
    }
}

//! Ethernet addresses and interface indexes: the two numbers every other module passes around.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// A random unicast address from the locally administered range.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 6];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        bytes[0] = (bytes[0] & 0xfe) | 0x02;
        Ok(Self(bytes))
    }

    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl From<[u8; 6]> for MacAddr {
    fn from(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }
}

impl From<MacAddr> for [u8; 6] {
    fn from(mac: MacAddr) -> Self {
        mac.0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address")]
pub struct BadMac(String);

impl FromStr for MacAddr {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let bad = || BadMac(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts
                .next()
                .filter(|part| part.len() <= 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
                .ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(bytes)) }
    }
}

/// Index of an interface within its network namespace. Not an ofport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfIndex(pub u32);

impl IfIndex {
    /// The loopback of every namespace.
    pub const LOOPBACK: Self = Self(1);
}

impl fmt::Display for IfIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_text_goes_both_ways() {
        let mac = MacAddr([0x0a, 0, 0, 0, 0x80, 0x01]);
        assert_eq!(mac.to_string(), "0a:00:00:00:80:01");
        assert_eq!("0a:0:00:00:80:1".parse(), Ok(mac));
        for bad in [
            "",
            "0a:00:00:00:80",
            "0a:00:00:00:80:01:02",
            "0a:00:00:00:80:g1",
            "+1:0:0:0:0:0",
            "0a-00-00-00-80-01",
        ] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn random_macs_are_local_unicast() {
        let mac = MacAddr::random().unwrap();
        assert_eq!(mac.0[0] & 0x03, 0x02);
    }
}

//! Port ranges as values under masks, exactly.

use serde::{Deserialize, Serialize};

/// Ports from `first` to `last`, both included; none when `last` is less than `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PortRange {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

/// The ports that equal `port` in the bits of `mask`; mask 0 takes every port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortMask {
    /// The value; bits outside the mask are 0.
    pub port: u16,
    /// The bits that count.
    pub mask: u16,
}

impl PortMask {
    /// Every port.
    pub const ANY: Self = Self { port: 0, mask: 0 };

    /// One port.
    #[must_use]
    pub const fn exact(port: u16) -> Self {
        Self { port, mask: u16::MAX }
    }

    /// Whether it takes the port.
    #[must_use]
    pub const fn takes(self, port: u16) -> bool {
        port & self.mask == self.port
    }
}

impl PortRange {
    /// One port.
    #[must_use]
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// The fewest masks that together take the range, each port by one of them.
    #[must_use]
    pub fn masks(self) -> Vec<PortMask> {
        let mut masks = Vec::new();
        let (mut first, last) = (u32::from(self.first), u32::from(self.last));
        while first <= last {
            // The largest aligned block that begins here and does not pass the end.
            let mut size = if first == 0 { 1 << 16 } else { first & first.wrapping_neg() };
            while first + size - 1 > last {
                size >>= 1;
            }
            let low = |value: u32| u16::try_from(value & 0xffff).unwrap_or(u16::MAX);
            masks.push(PortMask { port: low(first), mask: low(!(size - 1)) });
            first += size;
        }
        masks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All 65,536 ports, each range.
    #[track_caller]
    fn check(first: u16, last: u16) -> usize {
        let masks = PortRange { first, last }.masks();
        let mut taken = vec![0u8; 1 << 16];
        for mask in &masks {
            assert_eq!(mask.port & !mask.mask, 0, "{mask:?} is normal");
            for port in 0..=u16::MAX {
                taken[usize::from(port)] += u8::from(mask.takes(port));
            }
        }
        for port in 0..=u16::MAX {
            let want = u8::from((first..=last).contains(&port));
            assert_eq!(taken[usize::from(port)], want, "port {port} of {first}-{last}");
        }
        masks.len()
    }

    #[test]
    fn ranges_are_exact() {
        for (first, last, n_masks) in [
            (80, 80, 1),
            (0, u16::MAX, 1),
            (1, u16::MAX, 16),
            (32000, 32768, 3),
            (1001, 1999, 9),
            (1, 65534, 30),
            (32768, u16::MAX, 1),
            (9, 8, 0),
        ] {
            assert_eq!(check(first, last), n_masks, "{first}-{last}");
        }
    }

    #[test]
    fn random_ranges_are_exact() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u16::try_from(state >> 48).unwrap()
        };
        for _ in 0..40 {
            let (a, b) = (next(), next());
            check(a.min(b), a.max(b));
        }
    }
}

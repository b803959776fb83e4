//! One prefix cut into equal parts, of which some are taken.
//!
//! Parts are given out in a round: the search begins behind the part given out last, so that a
//! part that came back rests as long as possible. A part may be taken more than once, because
//! nodes come with prefixes that somebody else gave them.

use std::ops::Range;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Why a pool cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// One or two prefixes are needed.
    #[error("{0} cluster prefixes given, one or two are needed")]
    Count(usize),
    /// Two prefixes of one family.
    #[error("{0} and {1} are of one family")]
    SameFamily(IpNet, IpNet),
    /// The parts do not fit, or there would be too many.
    #[error("parts of length {part} cannot be cut out of {cidr}: the length may be {min} to {max}")]
    PartLength {
        /// The prefix to cut.
        cidr: IpNet,
        /// Length of the parts.
        part: u8,
        /// Least length.
        min: u8,
        /// Greatest length.
        max: u8,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct CidrSet {
    cidr: IpNet,
    part: u8,
    /// How often each part is taken.
    taken: Vec<u32>,
    n_free: usize,
    /// Where the next search begins.
    next: usize,
}

/// At most 2^16 parts.
const MAX_BITS: u8 = 16;

impl CidrSet {
    /// Cuts `cidr` into parts of prefix length `part`.
    pub fn new(cidr: IpNet, part: u8) -> Result<Self, PoolError> {
        let cidr = cidr.trunc();
        let min = cidr.prefix_len();
        let max = cidr.max_prefix_len().min(min.saturating_add(MAX_BITS));
        if !(min..=max).contains(&part) {
            return Err(PoolError::PartLength { cidr, part, min, max });
        }
        let n = 1 << (part - min);
        Ok(Self { cidr, part, taken: vec![0; n], n_free: n, next: 0 })
    }

    /// The prefix that is cut.
    #[must_use]
    pub fn cidr(&self) -> IpNet {
        self.cidr
    }

    /// How many parts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Whether there is no part; never, a prefix has at least one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// How many parts are free.
    #[must_use]
    pub fn n_free(&self) -> usize {
        self.n_free
    }

    /// Takes a free part; none when all are taken.
    pub fn allocate(&mut self) -> Option<IpNet> {
        if self.n_free == 0 {
            return None;
        }
        let n = self.taken.len();
        let at = (self.next..n).chain(0..self.next).find(|at| self.taken[*at] == 0)?;
        self.taken[at] = 1;
        self.n_free -= 1;
        self.next = (at + 1) % n;
        Some(self.part_at(at))
    }

    /// Takes every part that `cidr` touches, once more if it is taken already.
    pub fn occupy(&mut self, cidr: IpNet) {
        for at in self.parts_of(cidr) {
            self.n_free -= usize::from(self.taken[at] == 0);
            self.taken[at] = self.taken[at].saturating_add(1);
        }
    }

    /// Gives back what [`CidrSet::occupy`] or [`CidrSet::allocate`] took for `cidr`.
    pub fn release(&mut self, cidr: IpNet) {
        for at in self.parts_of(cidr) {
            self.n_free += usize::from(self.taken[at] == 1);
            self.taken[at] = self.taken[at].saturating_sub(1);
        }
    }

    /// Whether any part that `cidr` touches is taken.
    #[must_use]
    pub fn is_taken(&self, cidr: IpNet) -> bool {
        self.parts_of(cidr).any(|at| self.taken[at] > 0)
    }

    /// Whether any part that `cidr` touches is taken more than once.
    pub(crate) fn is_shared(&self, cidr: IpNet) -> bool {
        self.parts_of(cidr).any(|at| self.taken[at] > 1)
    }

    /// Whether `cidr` is of this prefix' family and overlaps it.
    #[must_use]
    pub fn touches(&self, cidr: IpNet) -> bool {
        overlap(self.cidr, cidr)
    }

    /// The parts that `cidr` touches.
    fn parts_of(&self, cidr: IpNet) -> Range<usize> {
        if !self.touches(cidr) {
            return 0..0;
        }
        if cidr.prefix_len() <= self.cidr.prefix_len() {
            return 0..self.taken.len();
        }
        let first = self.part_of(cidr);
        let span = 1usize << self.part.saturating_sub(cidr.prefix_len());
        first..(first + span).min(self.taken.len())
    }

    /// The part that the first address of `cidr` is in.
    fn part_of(&self, cidr: IpNet) -> usize {
        let width = self.cidr.max_prefix_len();
        let shift = u32::from(width - self.part);
        let offset = bits(cidr) - bits(self.cidr);
        let at = if shift >= 128 { 0 } else { offset >> shift };
        usize::try_from(at).unwrap_or(usize::MAX).min(self.taken.len())
    }

    fn part_at(&self, at: usize) -> IpNet {
        let shift = u32::from(self.cidr.max_prefix_len() - self.part);
        let offset = (at as u128).checked_shl(shift).unwrap_or(0);
        let first = bits(self.cidr) + offset;
        match self.cidr {
            IpNet::V4(_) => {
                let first = u32::try_from(first).unwrap_or(u32::MAX);
                IpNet::V4(Ipv4Net::new_assert(first.into(), self.part))
            }
            IpNet::V6(_) => IpNet::V6(Ipv6Net::new_assert(first.into(), self.part)),
        }
    }
}

/// The first address of a prefix as a number.
fn bits(cidr: IpNet) -> u128 {
    match cidr {
        IpNet::V4(cidr) => u32::from(cidr.network()).into(),
        IpNet::V6(cidr) => u128::from(cidr.network()),
    }
}

/// Whether two prefixes share an address.
pub(crate) fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b) || b.contains(&a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn parts_are_given_out_in_a_round() {
        let mut set = CidrSet::new(net("10.0.0.0/22"), 24).unwrap();
        assert_eq!(set.allocate(), Some(net("10.0.0.0/24")));
        assert_eq!(set.allocate(), Some(net("10.0.1.0/24")));
        set.release(net("10.0.0.0/24"));
        assert_eq!(set.allocate(), Some(net("10.0.2.0/24")), "not the one just returned");
        assert_eq!(set.allocate(), Some(net("10.0.3.0/24")));
        assert_eq!(set.allocate(), Some(net("10.0.0.0/24")));
        assert_eq!(set.allocate(), None);
    }

    #[test]
    fn lengths() {
        for (cidr, part, good) in [
            ("10.0.0.0/16", 24, true),
            ("10.0.0.0/24", 24, true),
            ("10.0.0.0/24", 23, false),
            ("10.0.0.0/8", 24, true),
            ("10.0.0.0/7", 24, false),
            ("10.0.0.0/30", 33, false),
            ("0.0.0.0/0", 16, true),
            ("fd00::/48", 64, true),
            ("fd00::/40", 64, false),
            ("::/0", 16, true),
            ("fd00::/126", 128, true),
        ] {
            let set = CidrSet::new(net(cidr), part);
            assert_eq!(set.is_ok(), good, "{cidr} by {part}");
            if let Ok(mut set) = set {
                let part = set.allocate().unwrap();
                assert!(net(cidr).contains(&part), "{part}");
                assert!(set.is_taken(part));
            }
        }
    }

    #[test]
    fn other_sizes_take_what_they_touch() {
        let mut set = CidrSet::new(net("10.0.0.0/22"), 24).unwrap();
        set.occupy(net("10.0.1.128/25"));
        set.occupy(net("10.0.2.0/23"));
        set.occupy(net("10.9.0.0/24"));
        set.occupy(net("fd00::/64"));
        assert_eq!((set.n_free(), set.allocate()), (1, Some(net("10.0.0.0/24"))));
        set.release(net("10.0.2.0/23"));
        assert_eq!(set.n_free(), 2);
        set.occupy(net("0.0.0.0/0"));
        assert_eq!(set.n_free(), 0);
        assert_eq!(set.allocate(), None);
    }

    #[test]
    fn a_part_taken_twice_is_free_after_two_returns() {
        let mut set = CidrSet::new(net("fd00::/63"), 64).unwrap();
        let part = net("fd00::/64");
        set.occupy(part);
        set.occupy(part);
        set.release(part);
        assert!(set.is_taken(part));
        set.release(part);
        assert!(!set.is_taken(part));
        set.release(part);
        assert_eq!(set.n_free(), 2, "one return too many does no harm");
    }
}

//! Sets of ports and of kinds of traffic, exact to the single port.

use std::fmt;

use apis::common::Protocol;

/// A set of 16-bit numbers: ranges in order, neither overlapping nor touching.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortSet(Vec<(u16, u16)>);

impl PortSet {
    /// All 65,536 numbers.
    pub fn full() -> Self {
        Self(vec![(0, u16::MAX)])
    }

    /// The numbers from one to another; none if they are the wrong way round.
    pub fn range(first: u16, last: u16) -> Self {
        if first > last { Self::default() } else { Self(vec![(first, last)]) }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether everything is in it.
    pub fn is_full(&self) -> bool {
        self.0 == [(0, u16::MAX)]
    }

    /// Whether a number is in it.
    pub fn contains(&self, number: u16) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= number);
        after > 0 && self.0[after - 1].1 >= number
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        let mut ranges = [self.0.as_slice(), &other.0].concat();
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if u32::from(first) <= u32::from(before.1) + 1 => {
                    before.1 = before.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// What is in both.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut common = Vec::new();
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                common.push((first, last));
            }
            if a.1 < b.1 {
                ours.next()
            } else {
                theirs.next()
            };
        }
        Self(common)
    }

    /// What is in this one only.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        for &(first, last) in &self.0 {
            // One beyond the largest number has to be said.
            let (mut from, to) = (u32::from(first), u32::from(last));
            for &(cut_first, cut_last) in &other.0 {
                let (cut_first, cut_last) = (u32::from(cut_first), u32::from(cut_last));
                if cut_last < from || cut_first > to {
                    continue;
                }
                if cut_first > from {
                    rest.push((narrow(from), narrow(cut_first - 1)));
                }
                from = cut_last + 1;
            }
            if from <= to {
                rest.push((narrow(from), last));
            }
        }
        Self(rest)
    }
}

/// A number that lies between two 16-bit ones.
fn narrow(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

impl FromIterator<(u16, u16)> for PortSet {
    fn from_iter<I: IntoIterator<Item = (u16, u16)>>(ranges: I) -> Self {
        ranges
            .into_iter()
            .fold(Self::default(), |set, (first, last)| set.union(&Self::range(first, last)))
    }
}

/// A set of traffic: by destination port for protocols that have one, by type and code for ICMP.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionSet {
    /// TCP by destination port.
    pub tcp: PortSet,
    /// UDP by destination port.
    pub udp: PortSet,
    /// SCTP by destination port.
    pub sctp: PortSet,
    /// ICMP by type (high byte) and code (low byte).
    pub icmp: PortSet,
    /// Every other protocol.
    pub other: bool,
}

impl ConnectionSet {
    /// All traffic.
    pub fn full() -> Self {
        Self {
            tcp: PortSet::full(),
            udp: PortSet::full(),
            sctp: PortSet::full(),
            icmp: PortSet::full(),
            other: true,
        }
    }

    /// Traffic of one protocol; none of a protocol that is not told apart.
    pub fn of(protocol: &Protocol, ports: PortSet) -> Self {
        let mut set = Self::default();
        match protocol {
            Protocol::Tcp => set.tcp = ports,
            Protocol::Udp => set.udp = ports,
            Protocol::Sctp => set.sctp = ports,
            Protocol::Icmp => set.icmp = ports,
            Protocol::Igmp | Protocol::Unknown(_) => {}
        }
        set
    }

    /// Whether there is no traffic in it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether all traffic is in it.
    pub fn is_full(&self) -> bool {
        self.other && self.parts().iter().all(|(_, ports)| ports.is_full())
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, PortSet::union, self.other || other.other)
    }

    /// What is in both.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        self.combine(other, PortSet::intersect, self.other && other.other)
    }

    /// What is in this one only.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        self.combine(other, PortSet::subtract, self.other && !other.other)
    }

    /// The set without what people do not ask about: ICMP and other protocols are taken to go where
    /// nothing else is kept out.
    #[must_use]
    pub fn with_ports_only(&self) -> Self {
        let all =
            [&self.tcp, &self.udp, &self.sctp].iter().all(|ports| without_zero_is_full(ports));
        let icmp = if all { PortSet::full() } else { PortSet::default() };
        Self { icmp, other: all, ..self.clone() }
    }

    fn combine(
        &self,
        other: &Self,
        ports: fn(&PortSet, &PortSet) -> PortSet,
        others: bool,
    ) -> Self {
        Self {
            tcp: ports(&self.tcp, &other.tcp),
            udp: ports(&self.udp, &other.udp),
            sctp: ports(&self.sctp, &other.sctp),
            icmp: ports(&self.icmp, &other.icmp),
            other: others,
        }
    }

    fn parts(&self) -> [(&'static str, &PortSet); 4] {
        [("ICMP", &self.icmp), ("SCTP", &self.sctp), ("TCP", &self.tcp), ("UDP", &self.udp)]
    }
}

/// Nobody listens on port 0.
fn without_zero_is_full(ports: &PortSet) -> bool {
    matches!(ports.ranges(), [(0 | 1, u16::MAX)])
}

/// `All Connections`, `No Connections`, or protocols in alphabetical order with their ports, as in
/// `TCP 80,443-445,UDP 53`. Port 0 is not spoken of. ICMP is `ICMP`, or has `type` or `type/code`.
impl fmt::Display for ConnectionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = [&self.tcp, &self.udp, &self.sctp];
        if ports.iter().all(|ports| without_zero_is_full(ports)) && self.icmp.is_full() {
            return f.write_str("All Connections");
        }
        let mut words = Vec::new();
        for (protocol, ports) in self.parts() {
            let list = match protocol {
                "ICMP" if ports.is_full() => Vec::new(),
                "ICMP" => ports.ranges().iter().flat_map(|range| icmp_words(*range)).collect(),
                _ => ports.ranges().iter().filter_map(|range| port_words(*range)).collect(),
            };
            if !list.is_empty() {
                words.push(format!("{protocol} {}", list.join(",")));
            } else if protocol == "ICMP" && !ports.is_empty() {
                words.push(protocol.to_owned());
            }
        }
        match words.is_empty() {
            true => f.write_str("No Connections"),
            false => f.write_str(&words.join(",")),
        }
    }
}

fn port_words((first, last): (u16, u16)) -> Option<String> {
    match (first.max(1), last) {
        (_, 0) => None,
        (first, last) if first == last => Some(first.to_string()),
        (first, last) => Some(format!("{first}-{last}")),
    }
}

fn icmp_words((first, last): (u16, u16)) -> Vec<String> {
    let [first_type, first_code] = first.to_be_bytes();
    let [last_type, last_code] = last.to_be_bytes();
    let codes = |type_: u8, from: u8, to: u8| match (from, to) {
        (0, u8::MAX) => type_.to_string(),
        (from, to) if from == to => format!("{type_}/{from}"),
        (from, to) => format!("{type_}/{from}-{to}"),
    };
    (first_type..=last_type)
        .map(|type_| {
            let from = if type_ == first_type { first_code } else { 0 };
            let to = if type_ == last_type { last_code } else { u8::MAX };
            codes(type_, from, to)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mk_set() -> impl Strategy<Value = PortSet> {
        // Small numbers and the largest: where ranges meet and where they end.
        let number = prop_oneof![0_u16..20, 65_530_u16..=65_535];
        proptest::collection::vec((number.clone(), number), 0..5)
            .prop_map(|ranges| ranges.into_iter().collect())
    }

    proptest! {
        #[test]
        fn sets_behave_number_by_number(a in mk_set(), b in mk_set()) {
            let (union, both, rest) = (a.union(&b), a.intersect(&b), a.subtract(&b));
            for number in (0..=25).chain(65_525..=65_535) {
                let (in_a, in_b) = (a.contains(number), b.contains(number));
                prop_assert_eq!(union.contains(number), in_a || in_b);
                prop_assert_eq!(both.contains(number), in_a && in_b);
                prop_assert_eq!(rest.contains(number), in_a && !in_b);
            }
            // One set has one form, so that equal sets are equal.
            prop_assert_eq!(&rest.union(&both), &a);
            prop_assert_eq!(PortSet::full().subtract(&PortSet::full().subtract(&a)), a);
        }
    }

    #[test]
    fn words() {
        let tcp = |ranges: &[(u16, u16)]| ConnectionSet {
            tcp: ranges.iter().copied().collect(),
            ..ConnectionSet::default()
        };
        let echo = ConnectionSet {
            icmp: PortSet::range(0x0800, 0x0800).union(&PortSet::range(0x0b00, 0x0bff)),
            ..ConnectionSet::default()
        };
        let any_icmp = ConnectionSet { icmp: PortSet::full(), ..ConnectionSet::default() };
        for (set, want) in [
            (ConnectionSet::full(), "All Connections"),
            (ConnectionSet::default(), "No Connections"),
            (tcp(&[(443, 445), (80, 80)]), "TCP 80,443-445"),
            (tcp(&[(0, u16::MAX)]), "TCP 1-65535"),
            (tcp(&[(0, 1)]), "TCP 1"),
            (tcp(&[(0, 0)]), "No Connections"),
            (
                ConnectionSet::full().subtract(&tcp(&[(81, 81)])).with_ports_only(),
                "SCTP 1-65535,TCP 1-80,82-65535,UDP 1-65535",
            ),
            (echo, "ICMP 8/0,11"),
            (any_icmp.union(&tcp(&[(22, 22)])), "ICMP,TCP 22"),
        ] {
            assert_eq!(set.to_string(), want);
        }
    }
}

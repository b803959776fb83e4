//! Meters: rate limits that flows and controller actions refer to.

use bitflags::bitflags;

use crate::ids::MeterId;

bitflags! {
    /// How a meter counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct MeterFlags: u16 {
        /// Rates in kbit/s.
        const KBPS = 1;
        /// Rates in packets/s.
        const PKTPS = 1 << 1;
        /// Bands have a burst size.
        const BURST = 1 << 2;
        /// Keep statistics.
        const STATS = 1 << 3;
    }
}

/// A meter and its bands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meter {
    /// Its number.
    pub id: MeterId,
    /// How it counts.
    pub flags: MeterFlags,
    /// Its bands; the one with the highest rate below the measured one applies.
    pub bands: Vec<Band>,
}

/// One band of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Band {
    /// The rate above which the band applies.
    pub rate: u32,
    /// Burst size, with [`MeterFlags::BURST`].
    pub burst: u32,
    /// What happens to a packet.
    pub kind: BandKind,
}

/// What a band does to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BandKind {
    /// Drop it.
    Drop,
    /// Raise its drop precedence.
    DscpRemark {
        /// By how much.
        prec_level: u8,
    },
}

impl Meter {
    /// A meter that drops what exceeds `rate` packets per second.
    #[must_use]
    pub fn packets_per_second(id: MeterId, rate: u32, burst: u32) -> Self {
        Self {
            id,
            flags: MeterFlags::PKTPS | MeterFlags::BURST | MeterFlags::STATS,
            bands: vec![Band { rate, burst, kind: BandKind::Drop }],
        }
    }

    /// A meter that drops what exceeds `rate` kbit/s.
    #[must_use]
    pub fn kbit_per_second(id: MeterId, rate: u32, burst: u32) -> Self {
        Self {
            id,
            flags: MeterFlags::KBPS | MeterFlags::BURST | MeterFlags::STATS,
            bands: vec![Band { rate, burst, kind: BandKind::Drop }],
        }
    }
}

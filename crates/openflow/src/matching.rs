//! Which packets a flow takes.
//!
//! A [`Match`] is kept normal: values are masked, fields in wire order, views (`vlan_vid`, `xreg`,
//! `xxreg`) folded into what they are views of. Two matches that the switch treats as the same
//! compare equal.

mod builders;
pub(crate) mod check;

use crate::error::CheckError;
use crate::field::Field;
use crate::subfield::ones;

/// A value and which of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Masked {
    /// The value; bits outside the mask are 0.
    pub value: u128,
    /// The bits that count.
    pub mask: u128,
}

/// A set of conditions that a packet has to meet all of. The empty match takes every packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Match {
    /// Sorted by field, each once, no mask 0.
    fields: Vec<(Field, Masked)>,
}

impl Match {
    /// The match that takes every packet.
    #[must_use]
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// With `field` equal to `value`. A second condition on the same bits replaces the first.
    #[must_use]
    pub fn with(mut self, field: Field, value: u128) -> Self {
        self.set(field, value);
        self
    }

    /// With `field` equal to `value` in the bits of `mask`.
    #[must_use]
    pub fn with_masked(mut self, field: Field, value: u128, mask: u128) -> Self {
        self.set_masked(field, value, mask);
        self
    }

    /// Sets `field` to be equal to `value`.
    pub fn set(&mut self, field: Field, value: u128) {
        self.set_masked(field, value, u128::MAX);
    }

    /// Sets `field` to be equal to `value` in the bits of `mask`, whatever it was before. Bits
    /// that the field does not have are dropped.
    pub fn set_masked(&mut self, field: Field, value: u128, mask: u128) {
        let mask = mask & ones(field.info().bits);
        let value = value & mask;
        match field {
            Field::InPort16 => {
                let port = if value >= 0xff00 { value | 0xffff_0000 } else { value };
                self.put(Field::InPort, port, if mask == 0 { 0 } else { u128::from(u32::MAX) });
            }
            Field::VlanVid => {
                let kept = self.get(Field::VlanTci).map_or((0, 0), |m| (m.value, m.mask));
                self.put(Field::VlanTci, (kept.0 & !0x1fff) | value, (kept.1 & !0x1fff) | mask);
            }
            Field::VlanPcp => {
                let kept = self.get(Field::VlanTci).map_or((0, 0), |m| (m.value, m.mask));
                self.put(
                    Field::VlanTci,
                    (kept.0 & 0x1fff) | (value << 13),
                    (kept.1 & 0x1fff) | (mask << 13),
                );
            }
            Field::XReg(n) => {
                let n = n & 7;
                self.put(Field::Reg(2 * n), value >> 32, mask >> 32);
                self.put(Field::Reg(2 * n + 1), value & ones(32), mask & ones(32));
            }
            Field::XxReg(n) => {
                let n = n & 3;
                for i in 0..4 {
                    let shift = 32 * (3 - u32::from(i));
                    self.put(
                        Field::Reg(4 * n + i),
                        (value >> shift) & ones(32),
                        (mask >> shift) & ones(32),
                    );
                }
            }
            // Without a tag there is no priority: so the switch gives it back.
            Field::VlanTci if value == 0 && mask == 0xffff => self.put(field, 0, 0x1fff),
            _ => self.put(field, value, mask),
        }
    }

    /// Adds a condition on some bits of `field` to those it has.
    pub fn add_masked(&mut self, field: Field, value: u128, mask: u128) {
        let kept = self.get(field).map_or((0, 0), |m| (m.value, m.mask));
        self.set_masked(field, (kept.0 & !mask) | (value & mask), kept.1 | mask);
    }

    /// Takes every condition on `field` away.
    pub fn unset(&mut self, field: Field) {
        self.set_masked(field, 0, 0);
    }

    fn put(&mut self, field: Field, value: u128, mask: u128) {
        let place = self.fields.binary_search_by_key(&field, |(f, _)| *f);
        match (place, mask) {
            (Ok(at), 0) => {
                self.fields.remove(at);
            }
            (Err(_), 0) => {}
            (Ok(at), _) => self.fields[at].1 = Masked { value, mask },
            (Err(at), _) => self.fields.insert(at, (field, Masked { value, mask })),
        }
    }

    /// The condition on `field`, if there is one.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<Masked> {
        let plain = |field| {
            self.fields.binary_search_by_key(&field, |(f, _)| *f).ok().map(|at| self.fields[at].1)
        };
        let part = |n: u8| plain(Field::Reg(n)).unwrap_or(Masked { value: 0, mask: 0 });
        let found = match field {
            Field::InPort16 => {
                plain(Field::InPort).map(|m| Masked { value: m.value & 0xffff, mask: 0xffff })?
            }
            Field::VlanVid => plain(Field::VlanTci)
                .map(|m| Masked { value: m.value & 0x1fff, mask: m.mask & 0x1fff })?,
            Field::VlanPcp => plain(Field::VlanTci)
                .map(|m| Masked { value: m.value >> 13, mask: m.mask >> 13 })?,
            Field::XReg(n) => join(&[part(2 * (n & 7)), part(2 * (n & 7) + 1)]),
            Field::XxReg(n) => {
                let n = 4 * (n & 3);
                join(&[part(n), part(n + 1), part(n + 2), part(n + 3)])
            }
            _ => plain(field)?,
        };
        (found.mask != 0).then_some(found)
    }

    /// The value of `field`, if the whole field has to be equal to it.
    #[must_use]
    pub fn exact(&self, field: Field) -> Option<u128> {
        self.get(field).filter(|m| m.mask == ones(field.info().bits)).map(|m| m.value)
    }

    /// Every condition, in wire order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Field, Masked)> + '_ {
        self.fields.iter().copied()
    }

    /// How many fields are matched.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether every packet is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Whether the fields exist, may be masked as they are, and have their prerequisites.
    pub fn check(&self) -> Result<(), CheckError> {
        check::check(self)
    }
}

/// Registers read as one bigger one, most significant first.
fn join(parts: &[Masked]) -> Masked {
    parts.iter().fold(Masked { value: 0, mask: 0 }, |all, part| Masked {
        value: (all.value << 32) | part.value,
        mask: (all.mask << 32) | part.mask,
    })
}

impl Masked {
    /// Whether the whole of `field` has to be equal to the value.
    #[must_use]
    pub fn is_exact(&self, field: Field) -> bool {
        self.mask == ones(field.info().bits)
    }
}

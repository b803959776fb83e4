//! A run of bits inside a match field.

use crate::error::CheckError;
use crate::field::Field;

/// `n_bits` bits of `field`, beginning with bit `offset` (0 = least significant). Displays as
/// `NXM_NX_REG0[0..3]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subfield {
    /// The field.
    pub field: Field,
    /// Its first bit.
    pub offset: u16,
    /// How many bits.
    pub n_bits: u16,
}

impl Subfield {
    /// Bits `first..=last` of `field`, as `field[first..last]` is written.
    #[must_use]
    pub const fn new(field: Field, first: u16, last: u16) -> Self {
        assert!(first <= last && last < 128, "a subfield's first bit comes before its last");
        Self { field, offset: first, n_bits: last - first + 1 }
    }

    /// Bits `first..=last` of register `reg`.
    #[must_use]
    pub const fn reg(reg: u8, first: u16, last: u16) -> Self {
        assert!(reg < 16 && last < 32, "there are 16 registers of 32 bits");
        Self::new(Field::Reg(reg), first, last)
    }

    /// One bit of register `reg`.
    #[must_use]
    pub const fn reg_bit(reg: u8, bit: u16) -> Self {
        Self::reg(reg, bit, bit)
    }

    /// All of `field`.
    #[must_use]
    pub fn whole(field: Field) -> Self {
        Self { field, offset: 0, n_bits: width(field) }
    }

    /// The subfield's bits as a mask of the field.
    #[must_use]
    pub const fn mask(&self) -> u128 {
        ones(self.n_bits) << self.offset
    }

    /// `value` moved to the subfield's place in the field; bits that do not fit are dropped.
    #[must_use]
    pub const fn place(&self, value: u128) -> u128 {
        (value & ones(self.n_bits)) << self.offset
    }

    /// The subfield's value in a value of the whole field.
    #[must_use]
    pub const fn extract(&self, whole: u128) -> u128 {
        (whole >> self.offset) & ones(self.n_bits)
    }

    /// Whether it is the whole field.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.n_bits == width(self.field)
    }

    /// Whether the bits exist.
    pub fn check(&self) -> Result<(), CheckError> {
        let bits = width(self.field);
        let end = u32::from(self.offset) + u32::from(self.n_bits);
        if self.n_bits == 0 || end > u32::from(bits) {
            return Err(CheckError::OutOfField {
                field: self.field,
                first: self.offset,
                last: end.saturating_sub(1),
                bits,
            });
        }
        Ok(())
    }
}

/// Bits that a subfield of `field` can be of: of a VLAN id all but the one that tells it is there.
fn width(field: Field) -> u16 {
    if field == Field::VlanVid { 12 } else { field.info().bits }
}

/// The lowest `n` bits set.
pub(crate) const fn ones(n: u16) -> u128 {
    if n >= 128 { u128::MAX } else { (1 << n) - 1 }
}

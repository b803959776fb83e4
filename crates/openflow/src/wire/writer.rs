//! Appending big-endian numbers, and lengths that are known later.

use crate::error::EncodeError;

/// What an encoder appends to.
pub(crate) type Out = Vec<u8>;

pub(crate) trait Put {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    fn zeros(&mut self, n: usize);
    /// The low `n` bytes of `value`.
    fn number(&mut self, value: u128, n: usize);
    /// Pads with zeros until the bytes since `start` are a multiple of `to`.
    fn pad_from(&mut self, start: usize, to: usize);
    /// Writes the length of what was appended since `start` into the 16 bits at `start + at`.
    fn patch_len(&mut self, start: usize, at: usize, what: &'static str)
    -> Result<(), EncodeError>;
}

impl Put for Out {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn zeros(&mut self, n: usize) {
        self.resize(self.len() + n, 0);
    }

    fn number(&mut self, value: u128, n: usize) {
        let bytes = value.to_be_bytes();
        self.extend_from_slice(&bytes[16 - n.min(16)..]);
    }

    fn pad_from(&mut self, start: usize, to: usize) {
        let len = self.len() - start;
        self.zeros(len.next_multiple_of(to) - len);
    }

    fn patch_len(
        &mut self,
        start: usize,
        at: usize,
        what: &'static str,
    ) -> Result<(), EncodeError> {
        let len = self.len() - start;
        let short = u16::try_from(len).map_err(|_| EncodeError::TooLong {
            what,
            len,
            max: usize::from(u16::MAX),
        })?;
        self[start + at..start + at + 2].copy_from_slice(&short.to_be_bytes());
        Ok(())
    }
}

/// The length of a slice that has to fit into 16 bits.
pub(crate) fn len16(len: usize, what: &'static str) -> Result<u16, EncodeError> {
    u16::try_from(len).map_err(|_| EncodeError::TooLong { what, len, max: usize::from(u16::MAX) })
}

//! A cursor over untrusted bytes.

use crate::error::DecodeError;

/// Reads big-endian numbers; knows what it reads, for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, what }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// A name padded with zeros to `n` bytes, the last of them a zero. What is no UTF-8 is
    /// replaced, what does not fit then is cut off.
    pub(crate) fn name(&mut self, n: usize) -> Result<String, DecodeError> {
        let bytes = self.take(n)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(n);
        let mut name = String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned();
        while name.len() >= n {
            name.pop();
        }
        Ok(name)
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn peek(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        match self.bytes.split_at_checked(n) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => {
                Err(DecodeError::Truncated { what: self.what, needed: n, have: self.bytes.len() })
            }
        }
    }

    pub(crate) fn skip(&mut self, n: usize) -> Result<(), DecodeError> {
        self.take(n).map(|_| ())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(*head)
            }
            None => {
                Err(DecodeError::Truncated { what: self.what, needed: N, have: self.bytes.len() })
            }
        }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, DecodeError> {
        self.array().map(u128::from_be_bytes)
    }

    /// A number of up to 16 bytes.
    pub(crate) fn number(&mut self, n: usize) -> Result<u128, DecodeError> {
        Ok(self.take(n)?.iter().fold(0u128, |all, byte| (all << 8) | u128::from(*byte)))
    }

    /// The next `len` bytes as a reader of their own.
    pub(crate) fn sub(&mut self, len: usize, what: &'static str) -> Result<Self, DecodeError> {
        self.take(len).map(|bytes| Self::new(bytes, what))
    }

    /// A part that gives its own length, header included, in 16 bits at `at`, and is padded to
    /// a multiple of `pad` bytes. The header is left in the part's reader.
    pub(crate) fn part(
        &mut self,
        at: usize,
        pad: usize,
        what: &'static str,
    ) -> Result<Self, DecodeError> {
        let len = match self.bytes.get(at..at + 2) {
            Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
            _ => {
                return Err(DecodeError::Truncated {
                    what,
                    needed: at + 2,
                    have: self.bytes.len(),
                });
            }
        };
        if len < at + 2 {
            return Err(DecodeError::BadLength { what, len });
        }
        let part = self.sub(len, what)?;
        let padding = len.next_multiple_of(pad) - len;
        self.skip(padding.min(self.bytes.len()))?;
        Ok(part)
    }
}

//! Cuts a byte stream into messages.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::DecodeError;

/// Collects the bytes of a connection and gives them back message by message.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: BytesMut,
}

impl Framer {
    /// A framer without bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what was read from the connection.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Where a read can put its bytes directly.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next whole message, if there is one. After an error the stream cannot be trusted
    /// any more: close it.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some(&[_, _, high, low]) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len < 8 {
            return Err(DecodeError::BadLength { what: "message", len });
        }
        if self.buffer.len() < len {
            self.buffer.reserve(len - self.buffer.len());
            return Ok(None);
        }
        Ok(Some(self.buffer.split_to(len).freeze()))
    }

    /// How many bytes wait for the rest of their message.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.buffer.remaining()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_whatever_the_pieces() {
        let one = [6, 2, 0, 8, 0, 0, 0, 1];
        let two = [6, 3, 0, 10, 0, 0, 0, 2, 7, 7];
        let stream = [&one[..], &two[..]].concat();
        for size in 1..=stream.len() {
            let mut framer = Framer::new();
            let mut seen = Vec::new();
            for piece in stream.chunks(size) {
                framer.push(piece);
                while let Some(message) = framer.next_message().unwrap() {
                    seen.push(message.to_vec());
                }
            }
            assert_eq!(seen, [one.to_vec(), two.to_vec()], "pieces of {size}");
            assert_eq!(framer.pending(), 0);
        }
    }

    #[test]
    fn a_length_below_the_header_is_refused() {
        let mut framer = Framer::new();
        framer.push(&[6, 2, 0, 7]);
        assert_eq!(framer.next_message(), Err(DecodeError::BadLength { what: "message", len: 7 }));
    }
}

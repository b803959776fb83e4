//! Cuts a stream of JSON objects that follow each other without delimiter.
//!
//! Looks at each byte once: nesting depth, strings and escapes. What a whole object holds is the
//! parser's business.

use serde_json::Value as Json;

/// Longest message taken unless told otherwise. A monitor's first answer for thousands of ports
/// is some megabytes.
const DEFAULT_MAX: usize = 64 << 20;

/// Why a stream cannot be cut any further; close it.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// A message longer than allowed.
    #[error("message exceeds {max} bytes")]
    TooLong {
        /// What is allowed.
        max: usize,
    },
    /// A byte that begins no object.
    #[error("unexpected byte {0:#04x} between messages")]
    Stray(u8),
    /// An object that is no JSON.
    #[error("malformed JSON")]
    Json(#[from] serde_json::Error),
}

/// Collects bytes and gives back whole JSON objects.
#[derive(Debug)]
pub struct Splitter {
    buffer: Vec<u8>,
    /// Up to where the buffer was looked at.
    seen: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
    max: usize,
}

impl Default for Splitter {
    fn default() -> Self {
        Self::new()
    }
}

impl Splitter {
    /// A splitter without bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max(DEFAULT_MAX)
    }

    /// A splitter that refuses messages longer than `max` bytes.
    #[must_use]
    pub fn with_max(max: usize) -> Self {
        Self { buffer: Vec::new(), seen: 0, depth: 0, in_string: false, escaped: false, max }
    }

    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, if there is one.
    pub fn next_message(&mut self) -> Result<Option<Json>, SplitError> {
        while let Some(&byte) = self.buffer.get(self.seen) {
            if self.depth == 0 {
                match byte {
                    b' ' | b'\t' | b'\r' | b'\n' => {}
                    b'{' => {
                        self.buffer.drain(..self.seen);
                        self.seen = 0;
                        self.depth = 1;
                    }
                    other => return Err(SplitError::Stray(other)),
                }
                self.seen += 1;
                continue;
            }
            self.seen += 1;
            if self.seen > self.max {
                return Err(SplitError::TooLong { max: self.max });
            }
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
            if self.depth == 0 {
                let message = serde_json::from_slice(&self.buffer[..self.seen]);
                self.buffer.drain(..self.seen);
                self.seen = 0;
                return Ok(Some(message?));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn cut(stream: &[u8], size: usize, max: usize) -> Result<Vec<Json>, SplitError> {
        let mut splitter = Splitter::with_max(max);
        let mut messages = Vec::new();
        for piece in stream.chunks(size) {
            splitter.push(piece);
            while let Some(message) = splitter.next_message()? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    #[test]
    fn messages_come_out_whole_whatever_the_pieces() {
        let stream = br#"{"a":"}\"{\\"} {"b":[{"c":[]}]}
{"d":"\\\""}"#;
        let want = vec![json!({"a": "}\"{\\"}), json!({"b": [{"c": []}]}), json!({"d": "\\\""})];
        for size in 1..=stream.len() {
            assert_eq!(cut(stream, size, 100).unwrap(), want, "pieces of {size}");
        }
    }

    #[test]
    fn long_messages_and_stray_bytes_are_refused() {
        let long = format!("{{\"a\":\"{}", "x".repeat(200));
        assert!(matches!(cut(long.as_bytes(), 7, 100), Err(SplitError::TooLong { max: 100 })));
        assert!(matches!(cut(b"{}x", 1, 100), Err(SplitError::Stray(b'x'))));
        assert!(matches!(cut(b"{]", 1, 100), Err(SplitError::Json(_))));
        let deep = [&b"{\"a\":"[..], &[b'['; 5000], &[b']'; 5000], b"}"].concat();
        assert!(matches!(cut(&deep, 100, 100_000), Err(SplitError::Json(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_cut_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = cut(&bytes, 13, 200);
            let braced = [&b"{"[..], &bytes].concat();
            let _ = cut(&braced, 13, 200);
        }

        #[test]
        fn strings_of_any_text_survive(texts in prop::collection::vec(any::<String>(), 1..5), size in 1usize..40) {
            let want: Vec<Json> = texts.iter().map(|text| json!({ text: [text] })).collect();
            let stream: String = want.iter().map(Json::to_string).collect();
            prop_assert_eq!(cut(stream.as_bytes(), size, 1 << 20).unwrap(), want);
        }
    }
}

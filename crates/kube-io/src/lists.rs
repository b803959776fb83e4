//! Lists in protobuf, read item by item while they come in.
//!
//! ```text
//! "k8s\0" | Unknown { 1: TypeMeta, 2: List { 1: ListMeta, 2: item, 2: item, ... }, ... }
//! ```
//!
//! Pure: bytes go in as they arrive, in pieces of any size; whole items come out. No item is copied
//! unless it arrived in several pieces, and none is kept. Not here: what an item holds.

use apis::controlplane::wire::{DecodeError, Envelope, Reader};

/// What every encoded object begins with.
const MAGIC: &[u8; 4] = b"k8s\0";
/// A field that is longer is no object.
const MAX_FIELD: usize = 256 << 20;

/// What a list says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListMeta {
    /// The version of the whole.
    pub resource_version: String,
    /// Asks for the rest; empty at the end.
    pub continue_token: String,
}

/// Reads one page of a list.
pub(crate) struct ListReader {
    /// Kind of the list, with its version.
    expected: (String, String),
    at: At,
    /// The begin of a field whose end has not come yet.
    begun: Vec<u8>,
    meta: ListMeta,
}

/// Where in the answer the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Magic,
    /// Between fields of the envelope; whether the list has come.
    Envelope {
        done: bool,
    },
    /// Between fields of the list, of which so many bytes are left.
    List {
        left: usize,
    },
}

/// What was done with the begin of some bytes.
enum Step {
    /// So many of them are taken.
    Took(usize),
    /// So many are needed.
    Needs(usize),
}

impl ListReader {
    /// A page of a list of objects of a kind.
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        Self {
            expected: (api_version.to_owned(), format!("{kind}List")),
            at: At::Magic,
            begun: Vec::new(),
            meta: ListMeta::default(),
        }
    }

    /// Takes bytes, and gives each item that they complete to `item`.
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        mut item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        while !bytes.is_empty() {
            if self.begun.is_empty() {
                match self.step(bytes, &mut item)? {
                    Step::Took(n) => bytes = &bytes[n..],
                    Step::Needs(_) => {
                        self.begun.extend_from_slice(bytes);
                        return Ok(());
                    }
                }
                continue;
            }
            let begun = std::mem::take(&mut self.begun);
            let step = self.step(&begun, &mut item);
            self.begun = begun;
            match step? {
                Step::Took(n) => drop(self.begun.drain(..n)),
                Step::Needs(n) => {
                    let more = n.saturating_sub(self.begun.len()).clamp(1, bytes.len());
                    self.begun.extend_from_slice(&bytes[..more]);
                    bytes = &bytes[more..];
                }
            }
        }
        self.flush(item)
    }

    /// Takes what the last bytes may have completed.
    fn flush(
        &mut self,
        mut item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        while !self.begun.is_empty() {
            let begun = std::mem::take(&mut self.begun);
            let step = self.step(&begun, &mut item);
            self.begun = begun;
            match step? {
                Step::Took(n) => drop(self.begun.drain(..n)),
                Step::Needs(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// What the list says of itself, when all of it has come.
    pub(crate) fn finish(self) -> Result<ListMeta, DecodeError> {
        match self.at {
            At::Envelope { done: true } if self.begun.is_empty() => Ok(self.meta),
            _ => Err(DecodeError::Truncated),
        }
    }

    /// Reads one thing off the begin of the bytes.
    fn step(
        &mut self,
        bytes: &[u8],
        item: &mut impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<Step, DecodeError> {
        match self.at {
            At::Magic => {
                if !MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) {
                    return Err(DecodeError::Magic);
                }
                if bytes.len() < MAGIC.len() {
                    return Ok(Step::Needs(MAGIC.len()));
                }
                self.at = At::Envelope { done: false };
                Ok(Step::Took(MAGIC.len()))
            }
            At::Envelope { done } => {
                let Some(head) = Head::read(bytes)? else { return Ok(Step::Needs(0)) };
                if head.field == 2 && !done && head.is_bytes {
                    self.at = At::List { left: head.length }.after();
                    return Ok(Step::Took(head.size));
                }
                let Some(field) = head.whole(bytes) else {
                    return Ok(Step::Needs(head.size + head.length));
                };
                if head.field == 1 {
                    self.check_kind(field)?;
                }
                Ok(Step::Took(field.len()))
            }
            At::List { left } => {
                let window = &bytes[..bytes.len().min(left)];
                let head = match Head::read(window)? {
                    Some(head) if head.size + head.length <= left => head,
                    None if window.len() < left => return Ok(Step::Needs(0)),
                    _ => return Err(DecodeError::Truncated),
                };
                let total = head.size + head.length;
                let Some(field) = head.whole(window) else { return Ok(Step::Needs(total)) };
                match (head.field, head.is_bytes) {
                    (1, true) => self.read_meta(&field[head.size..])?,
                    (2, true) => item(&field[head.size..])?,
                    (1 | 2, false) => {
                        return Err(DecodeError::Field { field: head.field, what: "bytes" });
                    }
                    _ => {}
                }
                self.at = At::List { left: left - total }.after();
                Ok(Step::Took(total))
            }
        }
    }

    /// Makes sure that this is the list that was asked for.
    fn check_kind(&self, type_meta: &[u8]) -> Result<(), DecodeError> {
        let bytes = [MAGIC, type_meta].concat();
        Envelope::parse(&bytes)?.expect(&self.expected.0, &self.expected.1)
    }

    fn read_meta(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut fields = Reader::new(bytes);
        while let Some((field, value)) = fields.next()? {
            match field {
                2 => value.text(field)?.clone_into(&mut self.meta.resource_version),
                3 => value.text(field)?.clone_into(&mut self.meta.continue_token),
                _ => {}
            }
        }
        Ok(())
    }
}

impl At {
    /// A list without a byte left is over.
    fn after(self) -> Self {
        match self {
            Self::List { left: 0 } => Self::Envelope { done: true },
            other => other,
        }
    }
}

/// The begin of a field.
struct Head {
    field: u32,
    /// Whether it is one with a length.
    is_bytes: bool,
    /// Bytes of the begin itself.
    size: usize,
    /// Bytes that follow.
    length: usize,
}

impl Head {
    /// Reads the begin of a field; nothing when not all of it has come.
    fn read(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let Some((tag, n)) = varint(bytes)? else { return Ok(None) };
        let field = u32::try_from(tag >> 3).map_err(|_| DecodeError::Number)?;
        let (is_bytes, size, length) = match tag & 7 {
            0 => match varint(&bytes[n..])? {
                Some((_, length)) => (false, n, length),
                None => return Ok(None),
            },
            1 => (false, n, 8),
            5 => (false, n, 4),
            2 => match varint(&bytes[n..])? {
                Some((length, more)) => {
                    let length = usize::try_from(length).ok().filter(|n| *n <= MAX_FIELD);
                    (true, n + more, length.ok_or(DecodeError::Truncated)?)
                }
                None => return Ok(None),
            },
            _ => return Err(DecodeError::Field { field, what: "wire type" }),
        };
        Ok(Some(Self { field, is_bytes, size, length }))
    }

    /// The whole field, if it has come.
    fn whole<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(..self.size + self.length)
    }
}

/// A number and how many bytes it has; nothing when not all of them have come.
fn varint(bytes: &[u8]) -> Result<Option<(u64, usize)>, DecodeError> {
    let mut value = 0_u64;
    for (n, byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if n == 9 && bits > 1 {
            return Err(DecodeError::Number);
        }
        value |= bits << (7 * n);
        if *byte < 0x80 {
            return Ok(Some((value, n + 1)));
        }
    }
    if bytes.len() >= 10 { Err(DecodeError::Number) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use apiserver::protobuf::write::{self, Message};
    use serde_json::json;

    use super::*;

    fn mk_list(items: &[&[u8]]) -> Vec<u8> {
        let metadata = json!({"resourceVersion": "7", "continue": "next", "remainingItemCount": 3});
        let items: Vec<bytes::Bytes> = items.iter().map(|i| i.to_vec().into()).collect();
        let list = Message::default().number(9, 300).done();
        let list = [list, write::list(&metadata, &items)].concat();
        let mut answer = write::envelope("v1", "PodList", &list).to_vec();
        // As Go writes it.
        answer.extend_from_slice(&[3 << 3 | 2, 0, 4 << 3 | 2, 0]);
        answer
    }

    fn read(pieces: &[&[u8]]) -> Result<(Vec<Vec<u8>>, ListMeta), DecodeError> {
        let (mut reader, mut items) = (ListReader::new("v1", "Pod"), Vec::new());
        for piece in pieces {
            reader.push(piece, |item| {
                items.push(item.to_vec());
                Ok(())
            })?;
        }
        Ok((items, reader.finish()?))
    }

    #[test]
    fn items_come_out_whole_however_the_bytes_come_in() {
        let long = [7; 300];
        let answer = mk_list(&[b"", b"one", &long]);
        let want = (
            vec![vec![], b"one".to_vec(), long.to_vec()],
            ListMeta { resource_version: "7".into(), continue_token: "next".into() },
        );
        assert_eq!(read(&[&answer]), Ok(want.clone()));
        for size in 1..answer.len() {
            let pieces: Vec<&[u8]> = answer.chunks(size).collect();
            assert_eq!(read(&pieces), Ok(want.clone()), "pieces of {size}");
        }
        let empty = (Vec::new(), ListMeta::default());
        assert_eq!(read(&[&write::envelope("v1", "PodList", b"")]), Ok(empty));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let answer = mk_list(&[b"one"]);
        for end in 0..answer.len() - 4 {
            assert!(read(&[&answer[..end]]).is_err(), "{end} bytes");
        }
        for (bytes, want) in [
            (b"{\"kind\"".to_vec(), DecodeError::Magic),
            (b"k8".to_vec(), DecodeError::Truncated),
            (b"k8s\0\x12\x01\x12".to_vec(), DecodeError::Truncated),
            (b"k8s\0\x12\x02\x12\x05hello".to_vec(), DecodeError::Truncated),
            (b"k8s\0\x12\xff\xff\xff\xff\x7f".to_vec(), DecodeError::Truncated),
            (b"k8s\0\x12\x02\x10\x01".to_vec(), DecodeError::Field { field: 2, what: "bytes" }),
            (b"k8s\0\x07".to_vec(), DecodeError::Field { field: 0, what: "wire type" }),
        ] {
            assert_eq!(read(&[&bytes]), Err(want), "{bytes:?}");
        }
        let other = write::envelope("v1", "NodeList", b"");
        assert!(matches!(read(&[&other]), Err(DecodeError::Kind { .. })));
    }

    #[test]
    fn an_item_that_is_refused_ends_it() {
        let mut reader = ListReader::new("v1", "Pod");
        let refused = reader.push(&mk_list(&[b"one"]), |_| Err(DecodeError::Number));
        assert_eq!(refused, Err(DecodeError::Number));
    }
}

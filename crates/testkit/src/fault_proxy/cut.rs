//! Where messages end in a stream, and what they are called.
//!
//! Written apart from the framers of the codecs, which are among what the proxy is to judge.

/// What is spoken on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OpenFlow. A message is named by the number of its type; a bundle control by that, a dot, and
    /// the number of its own type: `33.0` opens a bundle, `33.4` commits it.
    OpenFlow,
    /// JSON-RPC as OVSDB uses it. A request or notification is named by its method, an answer is
    /// called `reply`.
    Ovsdb,
}

/// Type of a bundle control message, and where its own type is.
const BUNDLE_CONTROL: u8 = 33;
const BUNDLE_CONTROL_TYPE: usize = 12;

impl Protocol {
    /// How many bytes of `stream` the first message has, when it is there in whole. What is no
    /// message at all goes by as it is.
    pub(super) fn first_len(self, stream: &[u8]) -> Option<usize> {
        match self {
            Self::OpenFlow => {
                let &[_, _, high, low] = stream.first_chunk::<4>()?;
                let len = usize::from(u16::from_be_bytes([high, low])).max(4);
                (stream.len() >= len).then_some(len)
            }
            Self::Ovsdb => json_len(stream),
        }
    }

    /// What a message is called.
    pub(super) fn name(self, message: &[u8]) -> String {
        match self {
            Self::OpenFlow => match (message.get(1), message.get(BUNDLE_CONTROL_TYPE + 1)) {
                (Some(&BUNDLE_CONTROL), Some(kind)) => format!("{BUNDLE_CONTROL}.{kind}"),
                (Some(kind), _) => kind.to_string(),
                (None, _) => String::new(),
            },
            Self::Ovsdb => method(message).unwrap_or("reply").to_owned(),
        }
    }
}

/// Length of the JSON object at the beginning of a stream, white space before it included.
fn json_len(stream: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    for (index, byte) in stream.iter().enumerate() {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_string = false,
            (true, _) => {}
            (false, b'"') => in_string = true,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(index + 1);
                }
            }
            (false, _) => {}
        }
    }
    None
}

/// The method of a request. No value that we send or get has such a key inside.
fn method(message: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(message).ok()?;
    let (_, after) = text.split_once("\"method\"")?;
    let (_, value) = after.trim_start().strip_prefix(':')?.split_once('"')?;
    value.split_once('"').map(|(method, _)| method)
}

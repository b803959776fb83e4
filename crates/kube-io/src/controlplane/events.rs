//! Frames of a watch, and what they say.

use std::collections::BTreeMap;

use apis::controlplane::wire::{self, Envelope, WatchEvent, WireObject};
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;

use crate::error::CallError;

/// What the controller's inputs were read up to, by the name of the annotation that tells it.
pub type AsOf = BTreeMap<String, String>;

/// Annotation of the bookmark behind a watch's initial objects.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Frames that are longer are no frames.
const MAX_FRAME: usize = 256 << 20;

/// What a stream of one kind tells. `T` is the kind, `P` what changes of it come as.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<T, P> {
    /// These are all the objects there are, as of these inputs.
    Replaced {
        /// The objects.
        objects: Vec<T>,
        /// What they were made from.
        as_of: AsOf,
    },
    /// The object is new here, or replaces the one of its name.
    Added(T),
    /// The object changed.
    Modified(P),
    /// The object of this name is not for this node any more.
    Deleted(String),
    /// All changes that these inputs made have been told.
    Bookmark {
        /// The inputs.
        as_of: AsOf,
    },
    /// The stream broke; it is taken up again, and what is known stays valid until then.
    Failed(String),
}

/// The frames of an answer's body.
pub(crate) struct Frames {
    body: Body,
    buffer: BytesMut,
}

impl Frames {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new() }
    }

    /// Takes a whole frame off the buffer.
    fn take(&mut self) -> Result<Option<Bytes>, String> {
        let Some(head) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(format!("a frame of {length} bytes"));
        }
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// The next frame; `None` when the server has ended the watch.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            match self.body.frame().await {
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err("the stream ends inside a frame".to_owned()),
                Some(Err(error)) => {
                    return Err(with_causes(&error));
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A frame's content, decoded.
#[derive(Debug)]
pub(super) enum Heard<T, P> {
    Added(T),
    Modified(P),
    Deleted(String),
    Bookmark {
        as_of: AsOf,
        /// Whether it ends the initial objects.
        ends_initial: bool,
    },
    /// The server cannot continue from our version.
    Expired,
    /// The server ends the watch with an error.
    Refused(CallError),
}

/// Decodes a frame; gives the version that it brings us to, too.
pub(super) fn hear<T: WireObject, P: WireObject>(
    frame: &[u8],
) -> Result<(Heard<T, P>, Option<String>), wire::DecodeError> {
    let event = WatchEvent::decode(frame)?;
    let version = |meta: &ObjectMeta| meta.resource_version.clone().filter(|v| !v.is_empty());
    Ok(match event.type_ {
        "ADDED" => {
            let object: T = wire::decode(event.object)?;
            let version = version(object.metadata());
            (Heard::Added(object), version)
        }
        "MODIFIED" if Envelope::parse(event.object)?.kind == P::KIND => {
            let patch: P = wire::decode(event.object)?;
            let version = version(patch.metadata());
            (Heard::Modified(patch), version)
        }
        "MODIFIED" => {
            let object: T = wire::decode(event.object)?;
            let version = version(object.metadata());
            (Heard::Added(object), version)
        }
        "DELETED" => {
            let object: T = wire::decode(event.object)?;
            let version = version(object.metadata());
            (Heard::Deleted(object.metadata().name.clone().unwrap_or_default()), version)
        }
        "BOOKMARK" => {
            let object: T = wire::decode(event.object)?;
            let mut as_of = object.metadata().annotations.clone().unwrap_or_default();
            let ends_initial = as_of.remove(INITIAL_EVENTS_END).is_some_and(|text| text == "true");
            (Heard::Bookmark { as_of, ends_initial }, version(object.metadata()))
        }
        _ => {
            let refused = CallError::from(wire::decode_status(event.object)?);
            match refused {
                CallError::Status { code: 410, .. } => (Heard::Expired, None),
                refused => (Heard::Refused(refused), None),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use apis::controlplane::NetworkPolicy;

    use super::*;

    #[tokio::test]
    async fn frames_are_cut_by_their_lengths() {
        for (bytes, want) in [
            (&b""[..], Ok(vec![])),
            (b"\0\0\0\x02ab\0\0\0\0", Ok(vec!["ab", ""])),
            (b"\0\0\0\x02a", Err("the stream ends inside a frame")),
            (b"\xff\0\0\0a", Err("a frame of 4278190080 bytes")),
        ] {
            let mut frames = Frames::new(Body::from(bytes.to_vec()));
            let mut seen = Vec::new();
            let result = loop {
                match frames.next().await {
                    Ok(Some(frame)) => seen.push(String::from_utf8(frame.to_vec()).unwrap()),
                    Ok(None) => break Ok(seen),
                    Err(why) => break Err(why),
                }
            };
            let want = want.map(|all: Vec<&str>| all.into_iter().map(str::to_owned).collect());
            assert_eq!(result, want.map_err(str::to_owned), "{bytes:?}");
        }
    }

    #[test]
    fn untrusted_frames_are_errors() {
        for frame in [&b""[..], b"\x0a", b"\x0a\x05ADDED", b"\x0a\x05ADDED\x12\x02\x0a\x00"] {
            assert!(hear::<NetworkPolicy, NetworkPolicy>(frame).is_err(), "{frame:?}");
        }
    }
}

//! What an open watch tells, in either encoding.

use apis::controlplane::wire::{self, DecodeError, Envelope, Reader};
use bytes::{Buf, BytesMut};
use http::Response;
use http_body_util::BodyExt;
use kube::Resource;
use kube::client::Body;
use serde::de::DeserializeOwned;

use super::{Form, Read};
use crate::call::Media;
use crate::controlplane::Frames as Messages;
use crate::error::CallError;
use crate::watch::{Keyed, WatchEvent};

/// The answer to a watch, read event by event.
pub(crate) enum Frames {
    /// Messages behind their lengths.
    Messages(Messages),
    /// A line of JSON each.
    Lines(Lines),
}

/// What an event says.
pub(crate) enum Heard<V: Keyed> {
    /// The object exists and looks like this.
    Applied(V),
    /// It is gone.
    Deleted(V::Key),
    /// Nothing but how far all is told.
    Bookmark,
    /// The server ends the watch with an error.
    Refused(CallError),
}

impl<V: Keyed> Heard<V> {
    /// What it tells of objects.
    pub(super) fn into_event(self) -> Option<WatchEvent<V>> {
        match self {
            Self::Applied(object) => Some(WatchEvent::Applied(object)),
            Self::Deleted(key) => Some(WatchEvent::Deleted(key)),
            Self::Bookmark | Self::Refused(_) => None,
        }
    }
}

impl Frames {
    /// Reads an answer by what it says it is.
    pub(crate) fn of(answer: Response<Body>) -> Self {
        match Media::of(&answer) {
            Media::Protobuf => Self::Messages(Messages::new(answer.into_body())),
            Media::Json => Self::Lines(Lines { body: answer.into_body(), buffer: BytesMut::new() }),
        }
    }

    /// The next event and the version that it brings us to; `None` when the server has ended the
    /// watch. May be dropped while it waits.
    pub(crate) async fn next<K, V>(
        &mut self,
        form: &Form<K, V>,
    ) -> Result<Option<(Heard<V>, String)>, CallError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        V: Keyed,
    {
        match (self, form.of_message) {
            (Self::Messages(frames), Some(read)) => {
                let frame = frames.next().await.map_err(broken)?;
                let (api_version, kind) = (K::api_version(&()), K::kind(&()));
                let heard = frame.map(|frame| of_message(&frame, &api_version, &kind, read));
                heard.transpose().map_err(CallError::Message)
            }
            (Self::Messages(_), None) => Err(CallError::Message(DecodeError::Magic)),
            (Self::Lines(lines), _) => {
                let line = lines.next().await?;
                line.map(|line| of_line(&line, form.of_json)).transpose()
            }
        }
    }
}

fn broken(why: String) -> CallError {
    CallError::Transport(why.into())
}

/// Reads an event in protobuf.
fn of_message<V: Keyed>(
    frame: &[u8],
    api_version: &str,
    kind: &str,
    read: Read<V>,
) -> Result<(Heard<V>, String), DecodeError> {
    let event = wire::WatchEvent::decode(frame)?;
    if event.type_ == "ERROR" {
        let status = wire::decode_status(event.object)?;
        return Ok((Heard::Refused(status.into()), String::new()));
    }
    let object = Envelope::parse(event.object)?;
    object.expect(api_version, kind)?;
    let heard = match event.type_ {
        "ADDED" | "MODIFIED" => Heard::Applied(read(object.raw)?),
        "DELETED" => Heard::Deleted(read(object.raw)?.key()),
        "BOOKMARK" => Heard::Bookmark,
        _ => return Err(DecodeError::Field { field: 1, what: "type of an event" }),
    };
    Ok((heard, version_of(object.raw)?))
}

/// The resource version of an object.
fn version_of(message: &[u8]) -> Result<String, DecodeError> {
    let (mut version, mut fields) = (String::new(), Reader::new(message));
    while let Some((field, value)) = fields.next()? {
        if field != 1 {
            continue;
        }
        let mut meta = Reader::new(value.bytes(field)?);
        while let Some((field, value)) = meta.next()? {
            if field == 6 {
                value.text(field)?.clone_into(&mut version);
            }
        }
    }
    Ok(version)
}

/// Reads an event in JSON.
fn of_line<K, V>(line: &[u8], view: fn(K) -> V) -> Result<(Heard<V>, String), CallError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
    V: Keyed,
{
    use kube::api::WatchEvent as Line;
    let of = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
    Ok(match serde_json::from_slice(line).map_err(CallError::Decode)? {
        Line::Added(object) | Line::Modified(object) => {
            let now = of(&object);
            (Heard::Applied(view(object)), now)
        }
        Line::Deleted(object) => {
            let now = of(&object);
            (Heard::Deleted(view(object).key()), now)
        }
        Line::Bookmark(bookmark) => (Heard::Bookmark, bookmark.metadata.resource_version),
        Line::Error(status) => (Heard::Refused((*status).into()), String::new()),
    })
}

/// Lines of an answer's body.
pub(crate) struct Lines {
    body: Body,
    buffer: BytesMut,
}

impl Lines {
    /// The next line that holds something; `None` at the end.
    async fn next(&mut self) -> Result<Option<BytesMut>, CallError> {
        // What was looked through already holds no end of a line.
        let mut from = 0;
        loop {
            if let Some(end) = self.buffer[from..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(from + end);
                self.buffer.advance(1);
                from = 0;
                if !line.trim_ascii().is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            from = self.buffer.len();
            match self.body.frame().await {
                None if self.buffer.trim_ascii().is_empty() => return Ok(None),
                None => return Err(broken("the stream ends inside an event".to_owned())),
                Some(Err(error)) => return Err(CallError::Transport(Box::new(error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

//! Response bodies: whole, streamed, or none.
//!
//! Not here: what is written into them (`rest`, `watch`, `discovery`).

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Frame;
use serde::Serialize;

/// Why a body ended before its end; the connection is closed then.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of every answer.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// An answer.
pub type Response = hyper::Response<Body>;

/// A body that is known whole.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// No body.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is produced while it is read.
pub fn stream<S>(chunks: S) -> Body
where
    S: Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
{
    StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data))).boxed_unsync()
}

/// A JSON answer.
pub fn json<T: Serialize>(code: u16, value: &T) -> Response {
    let bytes = serde_json::to_vec(value).unwrap_or_else(|_| b"{}".to_vec());
    with_type(code, "application/json", bytes)
}

/// A plain text answer.
pub fn text(code: u16, text: impl Into<Bytes>) -> Response {
    with_type(code, "text/plain; charset=utf-8", text)
}

/// An answer with the given media type.
pub fn with_type(code: u16, media_type: &str, bytes: impl Into<Bytes>) -> Response {
    build(code, &[("content-type", media_type)], full(bytes))
}

/// An answer from its parts. A header that cannot be written as one is left out.
pub fn build(code: u16, headers: &[(&str, &str)], body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() =
        hyper::StatusCode::from_u16(code).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        let (Ok(name), Ok(value)) = (
            hyper::header::HeaderName::from_bytes(name.as_bytes()),
            hyper::header::HeaderValue::from_str(value),
        ) else {
            continue;
        };
        response.headers_mut().append(name, value);
    }
    response
}

//! Lists with pages, and the start of watches.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{encode, namespace, source};
use crate::body::{self, Response};
use crate::negotiate::Form;
use crate::query::{At, ListOptions, ListVerb};
use crate::resource::Call;
use crate::source::{Listed, Shared, Source, View};
use crate::status::ApiError;
use crate::store::{VersionError, prefix};
use crate::watch::{self, Start, WatchRequest};

fn options(call: &Call, verb: ListVerb) -> Result<ListOptions, ApiError> {
    let options = ListOptions::parse(&call.info.query, verb)?;
    let offered: Vec<&str> = call.resource.fields.iter().map(String::as_str).collect();
    options.fields.check(&offered)?;
    Ok(options)
}

/// What a reader sees of a source.
fn view(call: &Call, source: &dyn Source, options: &ListOptions) -> Result<View, ApiError> {
    let mut view = View {
        namespace: namespace(call).to_owned(),
        labels: options.labels.clone(),
        fields: options.fields.clone(),
        node: None,
    };
    source.admit(&call.user, &mut view)?;
    Ok(view)
}

/// The selectors of a deletecollection.
pub(super) fn selection(call: &Call) -> Result<View, ApiError> {
    let options = options(call, ListVerb::List)?;
    Ok(View { labels: options.labels, fields: options.fields, ..View::default() })
}

/// Where the next page of a list starts.
#[derive(Debug, PartialEq, Eq)]
struct Continue {
    /// Version of the list; `None` takes the newest.
    version: Option<u64>,
    /// Key after which it goes on.
    start: String,
}

impl Continue {
    fn encode(&self) -> String {
        let version = self.version.map_or(json!(-1), |version| json!(version));
        let token = json!({
            "v": "meta.k8s.io/v1", "rv": version, "start": format!("{}\0", self.start)
        });
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(token: &str) -> Result<Self, ApiError> {
        let bad = |why: String| {
            ApiError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let lenient = NO_PAD.with_decode_allow_trailing_bits(true);
        let bytes = GeneralPurpose::new(&base64::alphabet::URL_SAFE, lenient)
            .decode(token.trim_end_matches('='))
            .map_err(|error| bad(error.to_string()))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| match bytes.first() {
            Some(byte) if !matches!(byte, b'{' | b'[' | b'"' | b' '..=b'~') => {
                bad(format!("invalid character '\\u{byte:04x}' looking for beginning of value"))
            }
            _ => bad(error.to_string()),
        })?;
        let start = value["start"].as_str().ok_or_else(|| bad("no start".to_owned()))?;
        let start = start.trim_start_matches('/').trim_end_matches('\0').to_owned();
        Ok(Self { version: value["rv"].as_u64(), start })
    }
}

fn version_error(error: VersionError, asked: u64) -> ApiError {
    match error {
        VersionError::TooOld { .. } => {
            ApiError::expired("The resourceVersion for the provided list is too old.")
        }
        VersionError::Ahead { current } => ApiError::version_ahead(asked, current),
    }
}

/// A list.
pub(super) fn list(call: &Call, form: Form) -> Result<Response, ApiError> {
    let options = options(call, ListVerb::List)?;
    let source = source(call);
    let view = view(call, &*source, &options)?;
    let token = options.continue_token.as_deref().map(Continue::decode).transpose()?;
    let at = match &token {
        Some(token) => token.version.map_or(At::Latest, At::Exact),
        None => options.at,
    };
    let Listed { version, objects, .. } = match (source.list(&view, at), &token) {
        (Ok(listed), _) => listed,
        (Err(VersionError::TooOld { .. }), Some(token)) => {
            let fresh = Continue { version: None, start: token.start.clone() };
            let mut error = ApiError::expired(
                "The provided continue parameter is too old to display a consistent list \
                 result. You can start a new list without the continue parameter, or use the \
                 continue token in this response to retrieve the remainder of the results. \
                 Continuing with the provided token results in an inconsistent list - objects \
                 that were created, modified, or deleted between the time the first chunk was \
                 returned and now may show up in the list.",
            );
            error.continue_token = Some(fresh.encode());
            return Err(error);
        }
        (Err(error), _) => {
            let asked = match at {
                At::Exact(version) | At::NotOlderThan(version) => version,
                At::Latest | At::Any => 0,
            };
            return Err(version_error(error, asked));
        }
    };

    let limit = match options.at {
        At::Any if token.is_none() => 0, // A cache answers: it has no pages.
        _ => options.limit,
    };
    let prefix = prefix(&view.namespace);
    let inner = |object: &Shared| {
        let key = object.key();
        key.strip_prefix(&prefix).unwrap_or(&key).to_owned()
    };
    let start = match &token {
        Some(token) => objects.partition_point(|object| inner(object) <= token.start),
        None => 0,
    };
    let rest = &objects[start..];
    let page = if limit == 0 { rest.len() } else { limit.min(rest.len()) };
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if page < rest.len() {
        let start = format!("/{}", inner(&rest[page - 1]));
        let next = Continue { version: Some(version), start };
        metadata["continue"] = json!(next.encode());
        if view.labels.is_empty() && view.fields.is_empty() {
            metadata["remainingItemCount"] = json!(rest.len() - page);
        }
    }
    encode::list(call, form, metadata, &rest[..page])
}

/// The start of a watch.
pub(super) fn watch(call: &Call, form: Form) -> Result<Response, ApiError> {
    let options = options(call, ListVerb::Watch)?;
    let source = source(call);
    let view = view(call, &*source, &options)?;
    let start = match (options.initial_events, options.at) {
        (Some(true), _) => Start::WithObjects { marked: options.bookmarks },
        (Some(false), At::Latest | At::Any) => Start::Now,
        (None, At::Latest | At::Any) => Start::WithObjects { marked: false },
        (_, At::Exact(version) | At::NotOlderThan(version)) => Start::After(version),
    };
    // Watches end now and then, so that clients spread over servers; not all at once.
    let usual = Duration::from_secs(1800 + u64::from(rand::random::<u16>() % 1800));
    let (encode, media_type) = encode::events(call, form)?;
    let events = watch::stream(WatchRequest {
        source,
        view,
        start,
        bookmarks: options.bookmarks,
        timeout: options.timeout.unwrap_or(usual),
        stop: call.api.stopping.clone(),
        encode,
    });
    let headers = [("content-type", media_type), ("cache-control", "no-cache, private")];
    Ok(body::build(200, &headers, body::stream(events)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_tokens_are_opaque_and_checked() {
        for token in [
            Continue { version: Some(558), start: "c1".to_owned() },
            Continue { version: None, start: "ns/c1".to_owned() },
        ] {
            assert_eq!(Continue::decode(&token.encode()).unwrap(), token);
        }
        assert_eq!(
            Continue::decode("garbage").unwrap_err().message,
            "invalid continue token: continue key is not valid: invalid character '\\u0081' \
             looking for beginning of value"
        );
        assert!(Continue::decode("!!").is_err());
    }
}

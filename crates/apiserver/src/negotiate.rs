//! Which form of answer a client accepts, and in which form it sends.

use crate::protobuf;
use crate::status::ApiError;

/// Media types we write.
const OFFERED: &str = "application/json, application/yaml";
/// Media types we write for kinds that have a protobuf form.
const OFFERED_TOO: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Encodings that a resource has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// JSON and YAML.
    Text,
    /// JSON, YAML and protobuf.
    TextAndProtobuf,
}

/// Encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes protobuf: objects and lists in the envelope, watches in frames.
    Protobuf,
}

/// What an answer shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All of it.
    Whole,
    /// Its metadata.
    Partial,
    /// A list's items' metadata.
    PartialList,
    /// Rows for people.
    Table,
    /// Aggregated discovery.
    Discovery,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Its encoding.
    pub encoding: Encoding,
    /// What it shows.
    pub view: View,
}

/// Picks the first form that we can give out of an `Accept` header.
pub fn accept(header: Option<&str>, offer: Offer) -> Result<Form, ApiError> {
    let header = header.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("*/*");
    let mut ranges: Vec<(f32, &str)> =
        header.split(',').map(|range| (quality(range), range.trim())).collect();
    ranges.sort_by(|a, b| b.0.total_cmp(&a.0)); // Stable: equal ones keep their order.
    let mut known_type = false;
    for (_, range) in ranges {
        let mut parts = range.split(';').map(str::trim);
        let encoding = match parts.next().unwrap_or("") {
            "application/json" | "application/*" | "*/*" => Encoding::Json,
            "application/yaml" | "application/x-yaml" => Encoding::Yaml,
            protobuf::MEDIA_TYPE if offer == Offer::TextAndProtobuf => Encoding::Protobuf,
            _ => continue,
        };
        known_type = true;
        let parameter = |name: &str| {
            range.split(';').skip(1).find_map(|part| {
                let (key, value) = part.trim().split_once('=')?;
                (key == name).then_some(value)
            })
        };
        let view = match (parameter("as"), parameter("g"), parameter("v")) {
            (None, ..) => View::Whole,
            _ if encoding == Encoding::Protobuf => continue,
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) => View::Table,
            (Some("PartialObjectMetadata"), Some("meta.k8s.io"), Some("v1")) => View::Partial,
            (Some("PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1")) => {
                View::PartialList
            }
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => {
                View::Discovery
            }
            _ => continue,
        };
        return Ok(Form { encoding, view });
    }
    let offered = match offer {
        Offer::Text => OFFERED,
        Offer::TextAndProtobuf => OFFERED_TOO,
    };
    if known_type {
        let message = format!("only the following media types are accepted: {offered}");
        return Err(ApiError::not_acceptable(message));
    }
    Err(ApiError::no_representation(offered))
}

fn quality(range: &str) -> f32 {
    range
        .split(';')
        .find_map(|part| part.trim().strip_prefix("q="))
        .and_then(|text| text.parse().ok())
        .unwrap_or(1.0)
}

/// Parses a body by its media type into JSON.
pub fn parse_body(media_type: Option<&str>, body: &[u8]) -> Result<serde_json::Value, ApiError> {
    let media_type = media_type.unwrap_or("application/json");
    let media_type = media_type.split(';').next().unwrap_or("").trim();
    match media_type {
        "" | "application/json" => {
            serde_json::from_slice(body).map_err(|error| ApiError::bad_request(error.to_string()))
        }
        "application/yaml" | "application/x-yaml" => {
            let text = std::str::from_utf8(body)
                .map_err(|_| ApiError::bad_request("the YAML is not UTF-8"))?;
            serde_saphyr::from_str(text)
                .map_err(|error| ApiError::bad_request(format!("error parsing YAML: {error}")))
        }
        _ => Err(ApiError::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: \
             {OFFERED}"
        ))),
    }
}

/// Writes a value as YAML with sorted keys.
pub fn to_yaml(value: &serde_json::Value) -> String {
    serde_saphyr::to_string(&sorted(value)).unwrap_or_default()
}

fn sorted(value: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().map(|(k, v)| (k.clone(), sorted(v))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_known_form_is_picked() {
        for (header, want) in [
            ("", Ok((Encoding::Json, View::Whole))),
            ("*/*", Ok((Encoding::Json, View::Whole))),
            ("application/yaml", Ok((Encoding::Yaml, View::Whole))),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Ok((Encoding::Json, View::Whole)),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Ok((Encoding::Json, View::Table)),
            ),
            (
                "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
                Ok((Encoding::Json, View::Whole)),
            ),
            (
                "application/json;q=0.5,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                Ok((Encoding::Json, View::Discovery)),
            ),
            ("text/csv", Err(406)),
            ("application/json;as=Foo;v=v1;g=meta.k8s.io", Err(406)),
        ] {
            let got =
                accept(Some(header), Offer::Text).map(|f| (f.encoding, f.view)).map_err(|e| e.code);
            assert_eq!(got, want, "{header}");
        }
        let protobuf = "application/vnd.kubernetes.protobuf;stream=watch,application/json";
        let got = accept(Some(protobuf), Offer::TextAndProtobuf).unwrap();
        assert_eq!((got.encoding, got.view), (Encoding::Protobuf, View::Whole));
        let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,*/*";
        let got = accept(Some(table), Offer::TextAndProtobuf).unwrap();
        assert_eq!((got.encoding, got.view), (Encoding::Json, View::Whole));
    }

    #[test]
    fn bodies_may_be_json_or_yaml() {
        let want = serde_json::json!({"a": {"b": [1, "x"]}});
        assert_eq!(parse_body(None, br#"{"a":{"b":[1,"x"]}}"#).unwrap(), want);
        assert_eq!(parse_body(Some("application/yaml"), b"a: {b: [1, x]}").unwrap(), want);
        assert_eq!(parse_body(Some("text/plain"), b"a").unwrap_err().code, 415);
        assert_eq!(parse_body(None, b"{").unwrap_err().code, 400);
        assert_eq!(to_yaml(&serde_json::json!({"b": 1, "a": "x"})), "a: x\nb: 1\n");
    }
}

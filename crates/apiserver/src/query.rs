//! Query parameters, and the options that verbs take from them.
//!
//! A parameter that no verb of ours understands is refused, never ignored.

use std::time::Duration;

use crate::names::GroupKind;
use crate::patch::apply::Conflicts;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{ApiError, FieldError};

/// The parameters of a URL, decoded, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part of a URL after the question mark.
    pub fn parse(text: &str) -> Self {
        let decode = |text: &str| percent_decode(&text.replace('+', " "));
        Self(
            text.split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (decode(name), decode(value)))
                .collect(),
        )
    }

    /// First value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// All parameters.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether a parameter is switched on.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(value) if !matches!(value, "false" | "0" | "no"))
    }

    /// A number, or the error that says that it is none.
    pub fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        }
    }

    /// Refuses parameters that are neither in `known` nor ones that every request may carry.
    pub fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        const EVERYWHERE: [&str; 3] = ["pretty", "timeout", "fieldManager"];
        for (name, _) in &self.0 {
            if !known.contains(&name.as_str()) && !EVERYWHERE.contains(&name.as_str()) {
                return Err(ApiError::bad_request(format!(
                    "query parameter {name:?} is not supported here"
                )));
            }
        }
        Ok(())
    }
}

/// Resolves `%41` in a path or query; what is no escape stays as it is.
pub fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escape = (first == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escape {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes text so that it can stand in a query.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Which version of a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest.
    Latest,
    /// Any: what a cache holds.
    Any,
    /// That one or a newer one.
    NotOlderThan(u64),
    /// Exactly that one.
    Exact(u64),
}

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// Labels that objects must have.
    pub labels: LabelSelector,
    /// Fields that objects must have.
    pub fields: FieldSelector,
    /// Version asked for.
    pub at: At,
    /// Page size; 0 is no limit.
    pub limit: usize,
    /// Where the next page starts.
    pub continue_token: Option<String>,
    /// Whether a watch starts with the objects that exist.
    pub initial_events: Option<bool>,
    /// Whether a watch sends bookmarks.
    pub bookmarks: bool,
    /// When a watch ends by itself.
    pub timeout: Option<Duration>,
}

/// Parameters of list and watch.
const LIST_PARAMETERS: [&str; 14] = [
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "watch",
    "follow",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "timeoutSeconds",
    "includeObject",
    "dryRun",
    "propagationPolicy",
];

fn parse_version(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: \
             strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

impl ListOptions {
    /// Reads the options of a list (`watch` false) or a watch from a query.
    pub fn parse(query: &Query, verb: ListVerb) -> Result<Self, ApiError> {
        query
            .only(&[&LIST_PARAMETERS[..], &["gracePeriodSeconds", "orphanDependents"]].concat())?;
        let watch = verb == ListVerb::Watch;
        let version = query.get("resourceVersion").filter(|text| !text.is_empty());
        let matching = query.get("resourceVersionMatch").unwrap_or("");
        let initial = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
        validate(version, matching, initial, query.get("continue"), watch)?;
        let number = version.map(parse_version).transpose()?;
        let continue_token =
            query.get("continue").filter(|text| !text.is_empty()).map(str::to_owned);
        if continue_token.is_some() && number.is_some_and(|number| number != 0) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let at = match (number, matching) {
            (None, _) => At::Latest,
            (Some(number), "Exact") => At::Exact(number),
            (Some(0), _) => At::Any,
            (Some(number), _) => At::NotOlderThan(number),
        };
        let timeout = query.number("timeoutSeconds")?.and_then(|n| u64::try_from(n).ok());
        Ok(Self {
            labels: LabelSelector::parse(query.get("labelSelector").unwrap_or(""))?,
            fields: FieldSelector::parse(query.get("fieldSelector").unwrap_or(""))?,
            at,
            limit: query.number("limit")?.and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
            continue_token,
            initial_events: initial,
            bookmarks: query.flag("allowWatchBookmarks"),
            timeout: timeout.map(Duration::from_secs),
        })
    }
}

/// Which verb reads [`ListOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListVerb {
    /// A list, or a deletecollection.
    List,
    /// A watch.
    Watch,
}

fn options_invalid(kind: &str, errors: Vec<FieldError>) -> ApiError {
    ApiError::invalid(&GroupKind::new("meta.k8s.io", kind), "", errors)
}

fn validate(
    version: Option<&str>,
    matching: &str,
    initial: Option<bool>,
    token: Option<&str>,
    watch: bool,
) -> Result<(), ApiError> {
    const FIELD: &str = "resourceVersionMatch";
    let mut errors = Vec::new();
    if watch {
        match initial {
            Some(_) if matching != "NotOlderThan" => errors.push(FieldError::forbidden(
                FIELD,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
            None if !matching.is_empty() => errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            _ => {}
        }
        if !matching.is_empty() && matching != "NotOlderThan" {
            errors.push(FieldError::unsupported(FIELD, matching, &["NotOlderThan"]));
        }
    } else {
        if !matching.is_empty() {
            if version.is_none() {
                errors.push(FieldError::forbidden(
                    FIELD,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if token.is_some_and(|token| !token.is_empty()) {
                errors.push(FieldError::forbidden(
                    FIELD,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                let supported = ["Exact", "NotOlderThan", ""];
                errors.push(FieldError::unsupported(FIELD, matching, &supported));
            }
            if matching == "Exact" && version == Some("0") {
                errors.push(FieldError::forbidden(
                    FIELD,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if initial.is_some() {
            errors.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(options_invalid("ListOptions", errors)) }
}

/// What to do about fields that a kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// Tell, in a `Warning` header.
    Warn,
    /// Refuse.
    Strict,
}

/// Options of create, update and patch.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Go through all checks but store nothing.
    pub dry_run: bool,
    /// What to do about unknown fields.
    pub field_validation: FieldValidation,
}

/// Who an apply is for, and whether it takes what others own.
pub fn parse_apply(query: &Query) -> Result<(&str, Conflicts), ApiError> {
    let manager = query.get("fieldManager").unwrap_or("");
    if manager.is_empty() {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(options_invalid("PatchOptions", vec![error]));
    }
    match query.get("force").unwrap_or("false") {
        "true" | "1" => Ok((manager, Conflicts::Force)),
        "false" | "0" => Ok((manager, Conflicts::Refuse)),
        other => Err(ApiError::bad_request(format!("force: {other:?} is neither true nor false"))),
    }
}

/// Parses `dryRun`; `kind` names the options in the error.
pub fn parse_dry_run<'a>(
    values: impl Iterator<Item = &'a str>,
    kind: &str,
) -> Result<bool, ApiError> {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        let error = FieldError::unsupported("dryRun", &values, &["All"]);
        return Err(options_invalid(kind, vec![error]));
    }
    Ok(!values.is_empty())
}

impl WriteOptions {
    /// Reads the options of a write; `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    pub fn parse(query: &Query, kind: &str) -> Result<Self, ApiError> {
        query.only(&["dryRun", "fieldValidation", "force", "overwrite"])?;
        let field_validation = match query.get("fieldValidation").unwrap_or("") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                let error = FieldError::unsupported("fieldValidation", other, &supported);
                return Err(options_invalid(kind, vec![error]));
            }
        };
        Ok(Self { dry_run: parse_dry_run(query.all("dryRun"), kind)?, field_validation })
    }
}

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

/// Options of a delete.
#[derive(Clone, Debug)]
pub struct DeleteOptions {
    /// Go through all checks but remove nothing.
    pub dry_run: bool,
    /// Seconds that the object gets to end.
    pub grace: Option<i64>,
    /// The object must have this UID.
    pub uid: Option<String>,
    /// The object must have this version.
    pub resource_version: Option<String>,
    /// What becomes of dependents.
    pub propagation: Propagation,
}

impl DeleteOptions {
    /// Reads the options from the query and, where there is one, the body.
    pub fn parse(query: &Query, body: Option<&serde_json::Value>) -> Result<Self, ApiError> {
        const KIND: &str = "DeleteOptions";
        let null = serde_json::Value::Null;
        let body = body.unwrap_or(&null);
        if let Some(kind) = body["kind"].as_str()
            && kind != KIND
        {
            return Err(ApiError::bad_request(format!("delete takes {KIND}, not {kind}")));
        }
        let policy = body["propagationPolicy"].as_str().or(query.get("propagationPolicy"));
        let orphan = body["orphanDependents"]
            .as_bool()
            .or_else(|| query.get("orphanDependents").map(|_| query.flag("orphanDependents")));
        let invalid = |error| options_invalid(KIND, vec![error]);
        let propagation = match (policy, orphan) {
            (Some(policy), Some(_)) => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                return Err(invalid(FieldError::invalid("propagationPolicy", policy, why)));
            }
            (None, Some(true)) | (Some("Orphan"), None) => Propagation::Orphan,
            (Some("Foreground"), None) => Propagation::Foreground,
            (None | Some("Background"), _) => Propagation::Background,
            (Some(other), None) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                let error = FieldError::unsupported("propagationPolicy", other, &supported);
                return Err(invalid(error));
            }
        };
        let dry_run = match body["dryRun"].as_array() {
            Some(values) => parse_dry_run(values.iter().map(|v| v.as_str().unwrap_or("")), KIND)?,
            None => parse_dry_run(query.all("dryRun"), KIND)?,
        };
        let text = |name: &str| body["preconditions"][name].as_str().map(str::to_owned);
        Ok(Self {
            dry_run,
            grace: match body["gracePeriodSeconds"].as_i64() {
                Some(seconds) => Some(seconds),
                None => query.number("gracePeriodSeconds")?,
            },
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            propagation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_and_unknown_parameters_named() {
        let query = Query::parse("a=b%20c&watch&x=%zz&a=d+e");
        assert_eq!(query.get("a"), Some("b c"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["b c", "d e"]);
        assert!(query.flag("watch"));
        assert_eq!(query.get("x"), Some("%zz"));
        assert!(query.only(&["a", "watch"]).unwrap_err().message.contains("\"x\""));
        assert_eq!(percent_decode(&percent_encode("a b/ü%")), "a b/ü%");
    }
}

//! Rules about metadata that all kinds share.

use serde_json::Value;

use crate::meta;
use crate::resource::{NameRule, Resource, Scope};
use crate::status::FieldError;

const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
    '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or \
    '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
    'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const KEY_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_lower_alnum(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Whether text is a DNS label of at most 63 characters.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(is_lower_alnum)
        && text.ends_with(is_lower_alnum)
        && text.chars().all(|c| is_lower_alnum(c) || c == '-')
}

/// Whether text is a DNS subdomain of at most 253 characters.
pub(crate) fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(is_lower_alnum)
            && part.ends_with(is_lower_alnum)
            && part.chars().all(|c| is_lower_alnum(c) || c == '-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

fn is_word(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// What is wrong with a key of labels or annotations.
fn key_problem(text: &str) -> Option<&'static str> {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    if domain.is_some_and(|domain| !is_subdomain(domain)) {
        return Some(SUBDOMAIN);
    }
    (!is_word(name)).then_some(KEY_NAME)
}

/// What is wrong with a DNS label.
pub fn label_problem(text: &str) -> Option<&'static str> {
    name_problem(NameRule::Label, text)
}

/// What is wrong with a name.
pub(crate) fn name_problem(rule: NameRule, name: &str) -> Option<&'static str> {
    let (fits, why) = match rule {
        NameRule::Label => (is_label(name), LABEL_1123),
        NameRule::Label1035 => {
            (is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase()), LABEL_1035)
        }
        NameRule::Subdomain => (is_subdomain(name), SUBDOMAIN),
        NameRule::PathSegment => (
            !matches!(name, "." | "..") && !name.contains(['/', '%']),
            "may not be '.' or '..' or contain '/' or '%'",
        ),
    };
    (!fits).then_some(why)
}

/// Rules for a new object's metadata.
pub(super) fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = meta::name(object);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = name_problem(resource.strategy.name_rule(), name) {
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
    if resource.scope == Scope::Namespaced && meta::namespace(object).is_empty() {
        errors.push(FieldError::required("metadata.namespace", ""));
    }
    common(object, &mut errors);
    finalizers(object, &mut errors);
    errors
}

/// Rules for a changed object's metadata.
pub(super) fn validate_update(_: &Resource, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let new_finalizers: Vec<&str> = meta::finalizers(object)
        .into_iter()
        .filter(|name| !meta::finalizers(old).contains(name))
        .collect();
    let added_late = meta::is_deleting(old) && !new_finalizers.is_empty();
    // Both passes over an update report finalizers, as clients of Kubernetes are used to.
    for _ in 0..2 {
        if added_late {
            let list: Vec<String> = new_finalizers.iter().map(|name| format!("{name:?}")).collect();
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                &format!(
                    "no new finalizers can be added if the object is being deleted, found new \
                     finalizers []string{{{}}}",
                    list.join(", ")
                ),
            ));
        }
        finalizers(object, &mut errors);
    }
    common(object, &mut errors);
    errors
}

fn common(object: &Value, errors: &mut Vec<FieldError>) {
    let metadata = &object["metadata"];
    let labels: Vec<_> = metadata["labels"].as_object().into_iter().flatten().collect();
    for (key, value) in labels {
        if let Some(why) = key_problem(key) {
            errors.push(FieldError::invalid("metadata.labels", key, why));
        }
        let value = value.as_str().unwrap_or("");
        if !value.is_empty() && !is_word(value) {
            errors.push(FieldError::invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        if let Some(why) = key_problem(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", key, why));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > 262_144 {
        errors.push(FieldError::too_long("metadata.annotations", 262_144));
    }
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or("").is_empty() {
                let path = match field {
                    "apiVersion" => "metadata.ownerReferences.apiVersion".to_owned(),
                    field => format!("metadata.ownerReferences.{field}"),
                };
                errors.push(FieldError::invalid(&path, "", "must not be empty"));
            }
        }
    }
}

fn finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    for (index, name) in meta::finalizers(object).into_iter().enumerate() {
        let field = format!("metadata.finalizers[{index}]");
        if let Some(why) = key_problem(name) {
            errors.push(FieldError::invalid(&field, name, why));
        } else if !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&field, name, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_rule() {
        for (rule, name, fits) in [
            (NameRule::Label, "a-1", true),
            (NameRule::Label, "a.b", false),
            (NameRule::Label, "-a", false),
            (NameRule::Label, "Bad_Name", false),
            (NameRule::Label1035, "1a", false),
            (NameRule::Subdomain, "a.b-c.d", true),
            (NameRule::Subdomain, "a..b", false),
            (NameRule::Subdomain, "", false),
            (NameRule::PathSegment, "system:node", true),
            (NameRule::PathSegment, "a/b", false),
        ] {
            assert_eq!(name_problem(rule, name).is_none(), fits, "{rule:?} {name}");
        }
        assert!(key_problem("example.test/a_B.c").is_none());
        assert!(key_problem("bad key").is_some());
        assert!(key_problem("UPPER.test/a").is_some());
    }
}

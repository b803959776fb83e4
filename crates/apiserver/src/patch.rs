//! The three patch formats: JSON patch, merge patch, strategic merge patch; and server-side apply.

pub mod apply;
mod ownership;
mod strategic;

use serde_json::Value;

use crate::schema::Struct;
use crate::status::ApiError;

/// How a patch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchFormat {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Merge patch that knows the keys of lists.
    Strategic,
}

impl PatchFormat {
    /// The format of a media type; strategic patches exist for built-in kinds only.
    pub fn of(media_type: &str, strategic: Strategic) -> Option<Self> {
        match (media_type, strategic) {
            ("application/json-patch+json", _) => Some(Self::Json),
            ("application/merge-patch+json", _) => Some(Self::Merge),
            ("application/strategic-merge-patch+json", Strategic::Supported) => {
                Some(Self::Strategic)
            }
            _ => None,
        }
    }
}

/// Whether a resource takes strategic merge patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategic {
    /// It does.
    Supported,
    /// It does not.
    Refused,
}

/// Applies a patch to an object.
pub fn apply(
    format: PatchFormat,
    shape: &Struct,
    object: &Value,
    body: &[u8],
) -> Result<Value, ApiError> {
    let patch: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    let mut result = object.clone();
    match format {
        PatchFormat::Json => {
            if !patch.is_array() {
                let kind = if patch.is_object() { "object" } else { "value" };
                return Err(ApiError::bad_request(format!(
                    "error decoding patch: json: cannot unmarshal {kind} into Go value of type \
                     []handlers.jsonPatchOp"
                )));
            }
            let patch: json_patch::Patch = serde_json::from_value(patch)
                .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
            json_patch::patch(&mut result, &patch).map_err(|_| ApiError::patch_failed())?;
        }
        PatchFormat::Merge | PatchFormat::Strategic if !patch.is_object() => {
            return Err(ApiError::bad_request("error decoding patch: it must be an object"));
        }
        PatchFormat::Merge => json_patch::merge(&mut result, &patch),
        PatchFormat::Strategic => strategic::merge(&mut result, &patch, shape)?,
    }
    if !result.is_object() {
        return Err(ApiError::patch_failed());
    }
    Ok(result)
}

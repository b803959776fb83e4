//! One object, or a patch of one, in the form in which it is sent.

use std::sync::Arc;

use apis::controlplane::wire::{self, WireObject};
use apis::controlplane::{
    AddressGroup, AddressGroupPatch, AppliedToGroup, AppliedToGroupPatch, GroupMember,
    NetworkPolicy, Object, Typed,
};
use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::translate::ObjectKind;

/// An object as it is sent. Its resource version is left to the server, which alone knows the epoch
/// that goes before the count.
#[derive(Clone, Debug)]
pub struct Item {
    name: Arc<str>,
    count: u32,
    generation: Option<i64>,
    form: Form,
    /// The protobuf message without its first field, the metadata.
    body: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Policy,
    Address,
    AppliedTo,
    AddressPatch,
    AppliedToPatch,
}

/// Bytes without room for more.
fn exact(bytes: Vec<u8>) -> Bytes {
    bytes.into_boxed_slice().into()
}

impl Item {
    /// A policy whose encoded body is known.
    pub(super) fn policy(
        name: &Arc<str>,
        count: u32,
        generation: Option<i64>,
        body: Bytes,
    ) -> Self {
        Self { name: Arc::clone(name), count, generation, form: Form::Policy, body }
    }

    /// A group.
    pub(super) fn group(
        kind: ObjectKind,
        name: &str,
        count: u32,
        group_members: Vec<GroupMember>,
    ) -> Self {
        let metadata = ObjectMeta::default();
        let (form, body) = match kind {
            ObjectKind::AppliedToGroup => {
                let group = AppliedToGroup { metadata, group_members };
                (Form::AppliedTo, wire::encode_message(&group))
            }
            _ => {
                let group = AddressGroup { metadata, group_members };
                (Form::Address, wire::encode_message(&group))
            }
        };
        Self { name: name.into(), count, generation: None, form, body: exact(body) }
    }

    /// A change of a group's members.
    pub(super) fn patch(
        kind: ObjectKind,
        name: &str,
        count: u32,
        added_group_members: Vec<GroupMember>,
        removed_group_members: Vec<GroupMember>,
    ) -> Self {
        let metadata = ObjectMeta::default();
        let (form, body) = match kind {
            ObjectKind::AppliedToGroup => {
                let patch =
                    AppliedToGroupPatch { metadata, added_group_members, removed_group_members };
                (Form::AppliedToPatch, wire::encode_message(&patch))
            }
            _ => {
                let patch =
                    AddressGroupPatch { metadata, added_group_members, removed_group_members };
                (Form::AddressPatch, wire::encode_message(&patch))
            }
        };
        Self { name: name.into(), count, generation: None, form, body: exact(body) }
    }

    /// An object of which nothing is told but its name, as when it is gone.
    pub(super) fn bare(kind: ObjectKind, name: &Arc<str>, count: u32) -> Self {
        let form = match kind {
            ObjectKind::NetworkPolicy => Form::Policy,
            ObjectKind::AppliedToGroup => Form::AppliedTo,
            ObjectKind::AddressGroup => Form::Address,
        };
        Self { name: Arc::clone(name), count, generation: None, form, body: Bytes::new() }
    }

    /// Name of the object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Count of its last change.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Its kind.
    pub fn kind(&self) -> &'static str {
        match self.form {
            Form::Policy => NetworkPolicy::KIND,
            Form::Address => AddressGroup::KIND,
            Form::AppliedTo => AppliedToGroup::KIND,
            Form::AddressPatch => AddressGroupPatch::KIND,
            Form::AppliedToPatch => AppliedToGroupPatch::KIND,
        }
    }

    fn metadata(&self, version: u64) -> ObjectMeta {
        ObjectMeta {
            name: Some((*self.name).to_owned()),
            generation: self.generation,
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        }
    }

    /// The protobuf message, without an envelope.
    pub fn protobuf(&self, version: u64) -> Bytes {
        let head = AddressGroup { metadata: self.metadata(version), group_members: Vec::new() };
        let mut message = wire::encode_message(&head);
        message.extend_from_slice(&self.body);
        message.into()
    }

    /// The whole object as JSON.
    pub fn json(&self, version: u64) -> Bytes {
        match self.form {
            Form::Policy => self.json_of::<NetworkPolicy>(version),
            Form::Address => self.json_of::<AddressGroup>(version),
            Form::AppliedTo => self.json_of::<AppliedToGroup>(version),
            Form::AddressPatch => self.json_of::<AddressGroupPatch>(version),
            Form::AppliedToPatch => self.json_of::<AppliedToGroupPatch>(version),
        }
    }

    fn json_of<T: WireObject>(&self, version: u64) -> Bytes {
        let object = wire::decode_message::<T>(&self.protobuf(version));
        let object = object.expect("the message was encoded by the same code");
        serde_json::to_vec(&Typed::new(&object)).unwrap_or_default().into()
    }

    /// Whether both were encoded at once.
    #[cfg(test)]
    pub(super) fn shares_body_with(&self, other: &Self) -> bool {
        !self.body.is_empty() && self.body.as_ptr() == other.body.as_ptr()
    }

    /// The object itself.
    #[cfg(test)]
    pub(super) fn decode<T: WireObject>(&self) -> T {
        wire::decode_message(&self.protobuf(1)).unwrap()
    }
}

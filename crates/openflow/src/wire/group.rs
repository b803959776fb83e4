//! Groups: mods and descriptions.
//!
//! ```text
//! mod:    command 16 | type 8 | 0 x 8 | group 32 | bucket bytes 16 | 0 x 16 | bucket id 32
//!         | buckets | properties
//! bucket: length 16 | action bytes 16 | id 32 | actions | properties
//! ```
//! OpenFlow 1.5.1, section 7.3.4.3. The selection method is a property of Netronome's that OVS
//! uses.

use super::action_decode::{self, Depth};
use super::reader::Reader;
use super::writer::{Out, Put};
use super::{NETRONOME, action_encode, oxm};
use crate::error::{DecodeError, EncodeError};
use crate::group::{Bucket, BucketId, Group, GroupType, SelectionMethod};
use crate::ids::{GroupId, OfPort};
use crate::message::{Descriptions, GroupMod, Undecoded};
use crate::subfield::ones;

const ADD: u16 = 0;
const MODIFY: u16 = 1;
const DELETE: u16 = 2;
const INSERT_BUCKET: u16 = 3;
const REMOVE_BUCKET: u16 = 5;
const ADD_OR_MODIFY: u16 = 0x8000;

const WEIGHT: u16 = 0;
const WATCH_PORT: u16 = 1;
const WATCH_GROUP: u16 = 2;
const EXPERIMENTER: u16 = 0xffff;

fn type_number(group_type: GroupType) -> u8 {
    match group_type {
        GroupType::All => 0,
        GroupType::Select => 1,
        GroupType::Indirect => 2,
        GroupType::FastFailover => 3,
    }
}

fn read_type(number: u8) -> Result<GroupType, DecodeError> {
    match number {
        0 => Ok(GroupType::All),
        1 => Ok(GroupType::Select),
        2 => Ok(GroupType::Indirect),
        3 => Ok(GroupType::FastFailover),
        other => Err(DecodeError::Unknown { what: "group type", number: other.into() }),
    }
}

pub(crate) fn put_mod(out: &mut Out, group_mod: &GroupMod) -> Result<(), EncodeError> {
    let none = BucketId::ALL;
    match group_mod {
        GroupMod::Add(group) => put_whole(out, ADD, group),
        GroupMod::Modify(group) => put_whole(out, MODIFY, group),
        GroupMod::AddOrModify(group) => put_whole(out, ADD_OR_MODIFY, group),
        GroupMod::Delete(id) => put_parts(out, DELETE, GroupType::All, *id, none, &[]),
        GroupMod::InsertBuckets { group, group_type, after, buckets } => {
            put_parts(out, INSERT_BUCKET, *group_type, *group, *after, buckets)
        }
        GroupMod::RemoveBucket { group, group_type, bucket } => {
            put_parts(out, REMOVE_BUCKET, *group_type, *group, *bucket, &[])
        }
    }
}

fn put_whole(out: &mut Out, command: u16, group: &Group) -> Result<(), EncodeError> {
    let start = out.len();
    put_parts(out, command, group.group_type, group.id, BucketId::ALL, &group.buckets)?;
    put_selection(out, group.selection.as_ref())?;
    check_dump_len(out.len() - start - MOD_HEADER, group.buckets.len())
}

/// What comes before the buckets of a change.
const MOD_HEADER: usize = 16;
/// What a description has beside buckets and selection method: the headers of message and list (16)
/// and its own (16).
const DUMP_OVERHEAD: usize = 16 + 16;
/// What a change in a bundle has: the message around it (16), its own header (8) and its beginning.
const BUNDLE_OVERHEAD: usize = 16 + 8 + MOD_HEADER;
/// What statistics have beside 16 bytes for each bucket: the headers of message and list (16) and
/// their own (40).
const STATS_OVERHEAD: usize = 16 + 40;

/// Whether a bundle can hold the group, and a switch can tell it again: Open vSwitch takes one whose
/// description is too long and then cuts it off somewhere.
fn check_dump_len(len: usize, n_buckets: usize) -> Result<(), EncodeError> {
    let max = usize::from(u16::MAX);
    let most = max - DUMP_OVERHEAD.max(BUNDLE_OVERHEAD);
    if len > most {
        return Err(EncodeError::TooLong { what: "buckets of a group", len, max: most });
    }
    let len = n_buckets.saturating_mul(16);
    if len > max - STATS_OVERHEAD {
        return Err(EncodeError::TooLong {
            what: "bucket statistics of a group",
            len,
            max: max - STATS_OVERHEAD,
        });
    }
    Ok(())
}

/// [`Group::check_len`].
pub(crate) fn check_len(group: &Group) -> Result<(), EncodeError> {
    let mut out = Vec::new();
    for bucket in &group.buckets {
        put_bucket(&mut out, group.group_type, bucket)?;
    }
    put_selection(&mut out, group.selection.as_ref())?;
    check_dump_len(out.len(), group.buckets.len())
}

fn put_parts(
    out: &mut Out,
    command: u16,
    group_type: GroupType,
    id: GroupId,
    bucket: BucketId,
    buckets: &[Bucket],
) -> Result<(), EncodeError> {
    out.u16(command);
    out.u8(type_number(group_type));
    out.u8(0);
    out.u32(id.0);
    let len_at = out.len();
    out.u32(0);
    out.u32(bucket.0);
    put_buckets(out, len_at, group_type, buckets)
}

/// Appends buckets and writes their length into the 16 bits at `len_at`.
fn put_buckets(
    out: &mut Out,
    len_at: usize,
    group_type: GroupType,
    buckets: &[Bucket],
) -> Result<(), EncodeError> {
    let start = out.len();
    for bucket in buckets {
        put_bucket(out, group_type, bucket)?;
    }
    let len = super::writer::len16(out.len() - start, "bucket list")?;
    out[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

fn put_bucket(out: &mut Out, group_type: GroupType, bucket: &Bucket) -> Result<(), EncodeError> {
    let start = out.len();
    out.u32(0);
    out.u32(bucket.id.0);
    let actions_at = out.len();
    action_encode::put_list(out, &bucket.actions)?;
    let actions_len = super::writer::len16(out.len() - actions_at, "bucket actions")?;
    out[start + 2..start + 4].copy_from_slice(&actions_len.to_be_bytes());
    if group_type == GroupType::Select || bucket.weight != 0 {
        out.u16(WEIGHT);
        out.u16(8);
        out.u16(bucket.weight);
        out.u16(0);
    }
    if bucket.watch_port != OfPort::ANY {
        out.u16(WATCH_PORT);
        out.u16(8);
        out.u32(bucket.watch_port.0);
    }
    if bucket.watch_group != GroupId::ANY {
        out.u16(WATCH_GROUP);
        out.u16(8);
        out.u32(bucket.watch_group.0);
    }
    out.patch_len(start, 0, "bucket")
}

fn put_selection(out: &mut Out, method: Option<&SelectionMethod>) -> Result<(), EncodeError> {
    let Some(method) = method else { return Ok(()) };
    let name = method.name.as_bytes();
    if name.is_empty() || name.len() > 15 || name.contains(&0) {
        return Err(EncodeError::Inexpressible {
            what: "selection method",
            reason: "its name has 1 to 15 bytes",
        });
    }
    let start = out.len();
    out.u16(EXPERIMENTER);
    out.u16(0);
    out.u32(NETRONOME);
    out.u32(1);
    out.zeros(4);
    out.extend_from_slice(name);
    out.zeros(16 - name.len());
    out.u64(method.param);
    for field in &method.fields {
        let info = field.info();
        oxm::put_header(out, *field, 0);
        out.number(ones(info.bits), info.bytes.into());
    }
    out.patch_len(start, 2, "selection method")?;
    out.pad_from(start, 8);
    Ok(())
}

pub(crate) fn read_mod(reader: &mut Reader<'_>) -> Result<GroupMod, DecodeError> {
    let command = reader.u16()?;
    let group_type = read_type(reader.u8()?)?;
    reader.skip(1)?;
    let id = GroupId(reader.u32()?);
    let buckets_len = reader.u16()?;
    reader.skip(2)?;
    let bucket = BucketId(reader.u32()?);
    let buckets = read_buckets(reader.sub(buckets_len.into(), "bucket list")?)?;
    let selection = read_selection(reader)?;
    let group = Group { id, group_type, selection, buckets };
    Ok(match command {
        ADD => GroupMod::Add(group),
        MODIFY => GroupMod::Modify(group),
        ADD_OR_MODIFY => GroupMod::AddOrModify(group),
        DELETE => GroupMod::Delete(id),
        INSERT_BUCKET => {
            GroupMod::InsertBuckets { group: id, group_type, after: bucket, buckets: group.buckets }
        }
        REMOVE_BUCKET => GroupMod::RemoveBucket { group: id, group_type, bucket },
        _ => return Err(DecodeError::Unknown { what: "group command", number: command.into() }),
    })
}

fn read_buckets(mut reader: Reader<'_>) -> Result<Vec<Bucket>, DecodeError> {
    let mut buckets = Vec::new();
    while !reader.is_empty() {
        buckets.push(read_bucket(&mut reader.part(0, 1, "bucket")?)?);
    }
    Ok(buckets)
}

fn read_bucket(part: &mut Reader<'_>) -> Result<Bucket, DecodeError> {
    part.skip(2)?;
    let actions_len = part.u16()?;
    let id = BucketId(part.u32()?);
    let mut actions = part.sub(actions_len.into(), "bucket actions")?;
    let mut bucket = Bucket {
        id,
        weight: 0,
        watch_port: OfPort::ANY,
        watch_group: GroupId::ANY,
        actions: action_decode::read_list(&mut actions, Depth::TOP)?,
    };
    while !part.is_empty() {
        let mut property = part.part(2, 8, "bucket property")?;
        let kind = property.u16()?;
        property.skip(2)?;
        match kind {
            WEIGHT => bucket.weight = property.u16()?,
            WATCH_PORT => bucket.watch_port = OfPort(property.u32()?),
            WATCH_GROUP => bucket.watch_group = GroupId(property.u32()?),
            _ => {
                return Err(DecodeError::Unknown { what: "bucket property", number: kind.into() });
            }
        }
    }
    Ok(bucket)
}

fn read_selection(reader: &mut Reader<'_>) -> Result<Option<SelectionMethod>, DecodeError> {
    let mut selection = None;
    while !reader.is_empty() {
        let mut property = reader.part(2, 8, "group property")?;
        let kind = property.u16()?;
        property.skip(2)?;
        let experimenter = if kind == EXPERIMENTER { property.u32()? } else { 0 };
        if experimenter != NETRONOME || property.u32()? != 1 {
            return Err(DecodeError::Unknown { what: "group property", number: kind.into() });
        }
        property.skip(4)?;
        let name = property.name(16)?;
        let param = property.u64()?;
        let mut fields = Vec::new();
        while !property.is_empty() {
            fields.push(oxm::read(&mut property)?.0);
        }
        if !name.is_empty() {
            selection = Some(SelectionMethod { name, param, fields });
        }
    }
    Ok(selection)
}

/// Group descriptions until the reader is empty.
pub(crate) fn read_descriptions(
    reader: &mut Reader<'_>,
) -> Result<Descriptions<Group, GroupId>, DecodeError> {
    let mut groups = Descriptions::from(Vec::new());
    while !reader.is_empty() {
        let mut part = reader.part(0, 1, "group description")?;
        part.skip(2)?;
        let group_type = part.u8()?;
        part.skip(1)?;
        let id = GroupId(part.u32()?);
        match read_content(&mut part, id, group_type) {
            Ok(group) => groups.known.push(group),
            Err(error) => groups.undecoded.push(Undecoded { id, error }),
        }
    }
    Ok(groups)
}

fn read_content(part: &mut Reader<'_>, id: GroupId, group_type: u8) -> Result<Group, DecodeError> {
    let group_type = read_type(group_type)?;
    let buckets_len = part.u16()?;
    part.skip(6)?;
    let buckets = read_buckets(part.sub(buckets_len.into(), "bucket list")?)?;
    let selection = read_selection(part)?;
    Ok(Group { id, group_type, selection, buckets })
}

pub(crate) fn put_description(out: &mut Out, group: &Group) -> Result<(), EncodeError> {
    let start = out.len();
    out.u16(0);
    out.u8(type_number(group.group_type));
    out.u8(0);
    out.u32(group.id.0);
    let len_at = out.len();
    out.zeros(8);
    put_buckets(out, len_at, group.group_type, &group.buckets)?;
    put_selection(out, group.selection.as_ref())?;
    out.patch_len(start, 0, "group description")
}

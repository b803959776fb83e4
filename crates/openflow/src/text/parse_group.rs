//! Groups and meters, and changes of them.

use std::str::FromStr;

use super::value::number;
use super::{lexer, parse_action};
use crate::error::ParseError;
use crate::field::Field;
use crate::group::{Bucket, BucketId, Group, GroupType, SelectionMethod};
use crate::ids::{GroupId, MeterId, OfPort};
use crate::message::{GroupMod, MeterMod};
use crate::meter::{Band, BandKind, Meter, MeterFlags};

impl FromStr for Group {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parts = Parts::parse(text)?;
        if parts.command_bucket.is_some() {
            return Err(ParseError::new("command_bucket_id belongs to a change of buckets", text));
        }
        Ok(Self {
            id: parts.id,
            group_type: parts.group_type.ok_or_else(|| ParseError::new("type is missing", text))?,
            selection: parts.selection,
            buckets: parts.buckets,
        })
    }
}

/// What the text of a group or of a change of its buckets consists of.
struct Parts {
    id: GroupId,
    group_type: Option<GroupType>,
    command_bucket: Option<BucketId>,
    selection: Option<SelectionMethod>,
    buckets: Vec<Bucket>,
    /// Whether one of the buckets has a weight.
    weighted: bool,
}

impl Parts {
    fn parse(text: &str) -> Result<Self, ParseError> {
        let mut pieces = text.trim().split("bucket=");
        let head = pieces.next().unwrap_or_default();
        let mut id = None;
        let mut group_type = None;
        let mut command_bucket = None;
        let mut method = SelectionMethod { name: String::new(), param: 0, fields: Vec::new() };
        for item in lexer::items(head)? {
            if let Some(fields) = item.strip_prefix("fields(").and_then(|i| i.strip_suffix(')')) {
                for name in lexer::items(fields)? {
                    method.fields.push(field(name)?);
                }
                continue;
            }
            let (name, value) = item.split_once(['=', ':']).unwrap_or((item, ""));
            match name {
                "command_bucket_id" => command_bucket = Some(bucket_id(value)?),
                "group_id" => id = Some(GroupId(number(value)?)),
                "type" => group_type = Some(kind(value)?),
                "selection_method" => method.name = value.to_owned(),
                "selection_method_param" => method.param = number(value)?,
                "fields" => method.fields.push(field(value)?),
                _ => return Err(ParseError::new("unknown part of a group", item)),
            }
        }
        let buckets = (0u32..)
            .zip(pieces)
            .map(|(n, piece)| bucket(n, piece))
            .collect::<Result<Vec<_>, _>>()?;
        let weighted = buckets.iter().any(|(_, given)| given.is_some());
        let weight = u16::from(group_type == Some(GroupType::Select));
        let buckets = buckets
            .into_iter()
            .map(|(bucket, given)| Bucket { weight: given.unwrap_or(weight), ..bucket })
            .collect();
        Ok(Self {
            id: id.ok_or_else(|| ParseError::new("group_id is missing", text))?,
            group_type,
            command_bucket,
            selection: (!method.name.is_empty()).then_some(method),
            buckets,
            weighted,
        })
    }
}

/// A bucket's number, or its place.
fn bucket_id(text: &str) -> Result<BucketId, ParseError> {
    match text {
        "first" => Ok(BucketId::FIRST),
        "last" => Ok(BucketId::LAST),
        "all" => Ok(BucketId::ALL),
        number => Ok(BucketId(super::value::number(number)?)),
    }
}

/// Cuts the command off a change.
fn command(text: &str) -> (String, &str) {
    let text = text.trim_start();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word.to_ascii_lowercase(), rest)
}

/// Takes what `ovs-ofctl` prints (`INSERT_BUCKET command_bucket_id:last,group_id=4,...`) and what
/// it reads in a file of changes (`insert_bucket group_id=4,command_bucket_id=last,...`). Changes
/// of buckets do not tell the group's type: it is `select` when a bucket has a weight, else `all`;
/// the switch does not look at it.
impl FromStr for GroupMod {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (command, rest) = command(text);
        match command.as_str() {
            "add" => return Ok(Self::Add(rest.parse()?)),
            "mod" | "modify" => return Ok(Self::Modify(rest.parse()?)),
            "add_or_mod" => return Ok(Self::AddOrModify(rest.parse()?)),
            "del" | "delete" | "insert_bucket" | "remove_bucket" => {}
            _ => return Err(ParseError::new("unknown change of a group", text)),
        }
        let parts = Parts::parse(rest)?;
        let (group, weighted) = (parts.id, parts.weighted);
        let of_weight = if weighted { GroupType::Select } else { GroupType::All };
        let group_type = parts.group_type.unwrap_or(of_weight);
        let needed = || ParseError::new("command_bucket_id is missing", text);
        match command.as_str() {
            "del" | "delete" if parts.buckets.is_empty() => Ok(Self::Delete(group)),
            "insert_bucket" => {
                let mut buckets = parts.buckets;
                // As in a whole group, but the type was not known before the weights were.
                for bucket in &mut buckets {
                    if weighted && bucket.weight == 0 && parts.group_type.is_none() {
                        bucket.weight = 1;
                    }
                }
                let after = parts.command_bucket.ok_or_else(needed)?;
                Ok(Self::InsertBuckets { group, group_type, after, buckets })
            }
            "remove_bucket" if parts.buckets.is_empty() => {
                let bucket = parts.command_bucket.ok_or_else(needed)?;
                Ok(Self::RemoveBucket { group, group_type, bucket })
            }
            _ => Err(ParseError::new("this change takes no buckets", text)),
        }
    }
}

impl FromStr for MeterMod {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (command, rest) = command(text);
        let meter: Meter = rest.parse()?;
        match command.as_str() {
            "add" => Ok(Self::Add(meter)),
            "mod" | "modify" => Ok(Self::Modify(meter)),
            "del" | "delete" => Ok(Self::Delete(meter.id)),
            _ => Err(ParseError::new("unknown change of a meter", text)),
        }
    }
}

fn field(name: &str) -> Result<Field, ParseError> {
    Field::by_name(name).ok_or_else(|| ParseError::new("unknown field", name))
}

fn kind(name: &str) -> Result<GroupType, ParseError> {
    match name {
        "all" => Ok(GroupType::All),
        "select" => Ok(GroupType::Select),
        "indirect" => Ok(GroupType::Indirect),
        "ff" | "fast_failover" => Ok(GroupType::FastFailover),
        _ => Err(ParseError::new("unknown group type", name)),
    }
}

/// A bucket, and its weight if one is given.
fn bucket(n: u32, text: &str) -> Result<(Bucket, Option<u16>), ParseError> {
    let mut weight = None;
    let mut bucket = Bucket {
        id: BucketId(n),
        weight: 0,
        watch_port: OfPort::ANY,
        watch_group: GroupId::ANY,
        actions: Vec::new(),
    };
    let (head, actions) = match text.find("actions=") {
        Some(at) => (&text[..at], &text[at + "actions=".len()..]),
        None => (text, ""),
    };
    for item in lexer::items(head)? {
        let (name, value) = item.split_once([':', '=']).unwrap_or((item, ""));
        match name {
            "bucket_id" => bucket.id = BucketId(number(value)?),
            "weight" => weight = Some(number(value)?),
            "watch_port" => bucket.watch_port = value.parse()?,
            "watch_group" => bucket.watch_group = GroupId(number(value)?),
            _ => bucket.actions.extend(parse_action::actions(item)?),
        }
    }
    bucket.actions.extend(parse_action::actions(actions)?);
    Ok((bucket, weight))
}

impl FromStr for Meter {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (head, bands) = text.split_once("bands=").unwrap_or((text, ""));
        let mut id = None;
        let mut meter = Self { id: MeterId(0), flags: MeterFlags::empty(), bands: Vec::new() };
        for item in lexer::items(head)? {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            match name {
                "meter" => id = Some(value.parse()?),
                "kbps" => meter.flags |= MeterFlags::KBPS,
                "pktps" => meter.flags |= MeterFlags::PKTPS,
                "burst" => meter.flags |= MeterFlags::BURST,
                "stats" => meter.flags |= MeterFlags::STATS,
                _ => return Err(ParseError::new("unknown part of a meter", item)),
            }
        }
        for item in lexer::items(bands)? {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            if name == "type" {
                let kind = match value {
                    "drop" => BandKind::Drop,
                    "dscp_remark" => BandKind::DscpRemark { prec_level: 0 },
                    _ => return Err(ParseError::new("unknown band type", value)),
                };
                meter.bands.push(Band { rate: 0, burst: 0, kind });
                continue;
            }
            let Some(band) = meter.bands.last_mut() else {
                return Err(ParseError::new("a band starts with its type", item));
            };
            match (name, &mut band.kind) {
                ("rate", _) => band.rate = number(value)?,
                ("burst_size", _) if meter.flags.contains(MeterFlags::BURST) => {
                    band.burst = number(value)?;
                }
                ("burst_size", _) => return Err(ParseError::new("needs the flag burst", item)),
                ("prec_level", BandKind::DscpRemark { prec_level }) => {
                    *prec_level = number(value)?;
                }
                _ => return Err(ParseError::new("unknown part of a band", item)),
            }
        }
        meter.id = id.ok_or_else(|| ParseError::new("meter is missing", text))?;
        Ok(meter)
    }
}

impl FromStr for MeterId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "all" => Ok(Self::ALL),
            "controller" => Ok(Self::CONTROLLER),
            "slowpath" => Ok(Self::SLOW_PATH),
            number => Ok(Self(super::value::number(number)?)),
        }
    }
}

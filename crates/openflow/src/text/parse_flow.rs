//! Flows, groups and meters.

use std::str::FromStr;

use super::value::number;
use super::{lexer, parse_action, parse_match};
use crate::error::ParseError;
use crate::field::Field;
use crate::flow::{Flow, FlowFlags};
use crate::group::{Bucket, BucketId, Group, GroupType, SelectionMethod};
use crate::ids::{Cookie, GroupId, MeterId, OfPort, TableId};
use crate::matching::Match;
use crate::meter::{Band, BandKind, Meter, MeterFlags};

/// What a dump tells beside the flow.
const COUNTERS: &[&str] = &["duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

impl FromStr for Flow {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (head, actions) = match text.find("actions=") {
            Some(at) => (&text[..at], &text[at + "actions=".len()..]),
            None => (text, ""),
        };
        let mut flow = Self::new(TableId(0), Self::DEFAULT_PRIORITY, Match::new());
        let mut conditions = Vec::new();
        for item in lexer::items(head)? {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            match name {
                "table" => flow.table = TableId(number(value)?),
                "priority" => flow.priority = number(value)?,
                "cookie" => flow.cookie = Cookie(number(value)?),
                "idle_timeout" => flow.idle_timeout = number(value)?,
                "hard_timeout" => flow.hard_timeout = number(value)?,
                "importance" => flow.importance = number(value)?,
                "send_flow_rem" => flow.flags |= FlowFlags::SEND_FLOW_REM,
                "check_overlap" => flow.flags |= FlowFlags::CHECK_OVERLAP,
                "reset_counts" => flow.flags |= FlowFlags::RESET_COUNTS,
                "no_packet_counts" => flow.flags |= FlowFlags::NO_PACKET_COUNTS,
                "no_byte_counts" => flow.flags |= FlowFlags::NO_BYTE_COUNTS,
                name if COUNTERS.contains(&name) => {}
                _ => conditions.push(item),
            }
        }
        parse_match::from_items(&mut flow.matching, &conditions)?;
        flow.actions = parse_action::actions(actions)?;
        Ok(flow)
    }
}

impl FromStr for Group {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut pieces = text.trim().split("bucket=");
        let head = pieces.next().unwrap_or_default();
        let mut id = None;
        let mut group_type = None;
        let mut method = SelectionMethod { name: String::new(), param: 0, fields: Vec::new() };
        for item in lexer::items(head)? {
            if let Some(fields) = item.strip_prefix("fields(").and_then(|i| i.strip_suffix(')')) {
                for name in lexer::items(fields)? {
                    method.fields.push(field(name)?);
                }
                continue;
            }
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            match name {
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
        let weight = u16::from(group_type == Some(GroupType::Select));
        let buckets = buckets
            .into_iter()
            .map(|(bucket, given)| Bucket { weight: given.unwrap_or(weight), ..bucket })
            .collect();
        Ok(Self {
            id: id.ok_or_else(|| ParseError::new("group_id is missing", text))?,
            group_type: group_type.ok_or_else(|| ParseError::new("type is missing", text))?,
            selection: (!method.name.is_empty()).then_some(method),
            buckets,
        })
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
        let mut meter = Self { id: MeterId(0), flags: MeterFlags::empty(), bands: Vec::new() };
        for item in lexer::items(head)? {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            match name {
                "meter" => meter.id = MeterId(number(value)?),
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
                ("burst_size", _) => band.burst = number(value)?,
                ("prec_level", BandKind::DscpRemark { prec_level }) => {
                    *prec_level = number(value)?;
                }
                _ => return Err(ParseError::new("unknown part of a band", item)),
            }
        }
        Ok(meter)
    }
}

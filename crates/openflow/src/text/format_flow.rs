//! Flows, keys, groups and meters.

use std::fmt;

use super::format_action::ActionList;
use super::format_match::{Parts, write};
use crate::flow::{Flow, FlowFlags, FlowKey};
use crate::group::{Bucket, BucketId, Group, GroupType};
use crate::ids::{GroupId, OfPort};
use crate::matching::Match;
use crate::meter::{BandKind, Meter, MeterFlags};

const FLAGS: &[(FlowFlags, &str)] = &[
    (FlowFlags::SEND_FLOW_REM, "send_flow_rem"),
    (FlowFlags::CHECK_OVERLAP, "check_overlap"),
    (FlowFlags::RESET_COUNTS, "reset_counts"),
    (FlowFlags::NO_PACKET_COUNTS, "no_packet_counts"),
    (FlowFlags::NO_BYTE_COUNTS, "no_byte_counts"),
];

fn write_rule(f: &mut fmt::Formatter<'_>, priority: u16, matching: &Match) -> fmt::Result {
    let mut parts = Parts { f, first: true };
    if priority != Flow::DEFAULT_PRIORITY {
        parts.part(format_args!("priority={priority}"))?;
    }
    write(&mut parts, matching)?;
    if !parts.first {
        f.write_str(" ")?;
    }
    Ok(())
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cookie.0 != 0 {
            write!(f, "cookie={}, ", self.cookie)?;
        }
        write!(f, "table={}, ", self.table)?;
        if self.idle_timeout != 0 {
            write!(f, "idle_timeout={}, ", self.idle_timeout)?;
        }
        if self.hard_timeout != 0 {
            write!(f, "hard_timeout={}, ", self.hard_timeout)?;
        }
        for (flag, name) in FLAGS {
            if self.flags.contains(*flag) {
                write!(f, "{name} ")?;
            }
        }
        if self.importance != 0 {
            write!(f, "importance={}, ", self.importance)?;
        }
        write_rule(f, self.priority, &self.matching)?;
        write!(f, "actions={}", ActionList(&self.actions))
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Parts { f, first: true };
        parts.part(format_args!("table={}", self.table))?;
        if self.priority != Flow::DEFAULT_PRIORITY {
            parts.part(format_args!("priority={}", self.priority))?;
        }
        write(&mut parts, &self.matching)
    }
}

impl fmt::Display for GroupType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Select => "select",
            Self::Indirect => "indirect",
            Self::FastFailover => "ff",
        })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group_id={},type={}", self.id, self.group_type)?;
        if let Some(method) = &self.selection {
            write!(f, ",selection_method={}", method.name)?;
            if method.param != 0 {
                write!(f, ",selection_method_param={}", method.param)?;
            }
            match method.fields.as_slice() {
                [] => {}
                [one] => write!(f, ",fields={}", one.info().name)?,
                [first, rest @ ..] => {
                    write!(f, ",fields({}", first.info().name)?;
                    for field in rest {
                        write!(f, ",{}", field.info().name)?;
                    }
                    f.write_str(")")?;
                }
            }
        }
        self.buckets.iter().try_for_each(|bucket| write_bucket(f, self.group_type, bucket))
    }
}

fn write_bucket(f: &mut fmt::Formatter<'_>, kind: GroupType, bucket: &Bucket) -> fmt::Result {
    f.write_str(",bucket=")?;
    if bucket.id.0 <= BucketId::MAX.0 {
        write!(f, "bucket_id:{},", bucket.id.0)?;
    }
    if kind == GroupType::Select && bucket.weight != 1 {
        write!(f, "weight:{},", bucket.weight)?;
    }
    if bucket.watch_port != OfPort::ANY {
        write!(f, "watch_port:{},", bucket.watch_port)?;
    }
    if bucket.watch_group != GroupId::ANY {
        write!(f, "watch_group:{},", bucket.watch_group)?;
    }
    write!(f, "actions={}", ActionList(&bucket.actions))
}

impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "meter={}", self.id)?;
        for (flag, name) in [
            (MeterFlags::KBPS, "kbps"),
            (MeterFlags::PKTPS, "pktps"),
            (MeterFlags::BURST, "burst"),
            (MeterFlags::STATS, "stats"),
        ] {
            if self.flags.contains(flag) {
                write!(f, " {name}")?;
            }
        }
        f.write_str(" bands=")?;
        for band in &self.bands {
            match band.kind {
                BandKind::Drop => f.write_str("\ntype=drop")?,
                BandKind::DscpRemark { .. } => f.write_str("\ntype=dscp_remark")?,
            }
            write!(f, " rate={}", band.rate)?;
            if self.flags.contains(MeterFlags::BURST) {
                write!(f, " burst_size={}", band.burst)?;
            }
            if let BandKind::DscpRemark { prec_level } = band.kind {
                write!(f, " prec_level={prec_level}")?;
            }
        }
        Ok(())
    }
}

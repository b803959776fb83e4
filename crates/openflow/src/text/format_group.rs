//! Groups and meters, and changes of them.

use std::fmt;

use super::format_action::ActionList;
use crate::group::{Bucket, BucketId, Group, GroupType};
use crate::ids::{GroupId, OfPort};
use crate::message::{GroupMod, MeterMod};
use crate::meter::{BandKind, Meter, MeterFlags};

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

/// As `ovs-ofctl` prints it; a change of buckets does not tell the type of the group.
impl fmt::Display for GroupMod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(group) => write!(f, "ADD {group}"),
            Self::Modify(group) => write!(f, "MOD {group}"),
            Self::AddOrModify(group) => write!(f, "ADD_OR_MOD {group}"),
            Self::Delete(group) => write!(f, "DEL group_id={group},type=all"),
            Self::InsertBuckets { group, group_type, after, buckets } => {
                write!(f, "INSERT_BUCKET command_bucket_id:{after},group_id={group}")?;
                buckets.iter().try_for_each(|bucket| write_bucket(f, *group_type, bucket))
            }
            Self::RemoveBucket { group, bucket, .. } => {
                write!(f, "REMOVE_BUCKET command_bucket_id:{bucket},group_id={group}")
            }
        }
    }
}

impl fmt::Display for BucketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FIRST => f.write_str("first"),
            Self::LAST => f.write_str("last"),
            Self::ALL => f.write_str("all"),
            Self(number) => number.fmt(f),
        }
    }
}

impl fmt::Display for MeterMod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(meter) => write!(f, "ADD {meter}"),
            Self::Modify(meter) => write!(f, "MOD {meter}"),
            Self::Delete(meter) => write!(f, "DEL meter={meter} bands="),
        }
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

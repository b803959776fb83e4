//! Small messages: hello, features, configuration, role, bundle control, error.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::reader::Reader;
use super::writer::{Out, Put};
use crate::error::{DecodeError, EncodeError};
use crate::message::{
    BundleControl, BundleControlType, BundleFlags, BundleId, ControllerRole, ErrorCode,
    ErrorMessage, Features, Hello, Role, RoleReason, RoleStatus, SwitchConfig,
};

const EXPERIMENTER_ERROR: u16 = 0xffff;
const VERSION_BITMAP: u16 = 1;

pub(super) fn put_hello(out: &mut Out, hello: &Hello) -> Result<(), EncodeError> {
    let Some(highest) = hello.versions.iter().max() else { return Ok(()) };
    let mut bitmaps = [0u32; 8];
    for version in &hello.versions {
        bitmaps[usize::from(version / 32)] |= 1 << (version % 32);
    }
    let start = out.len();
    out.u16(VERSION_BITMAP);
    out.u16(0);
    bitmaps.iter().take(usize::from(highest / 32) + 1).for_each(|bitmap| out.u32(*bitmap));
    out.patch_len(start, 2, "hello element")?;
    out.pad_from(start, 8);
    Ok(())
}

pub(super) fn read_hello(version: u8, reader: &mut Reader<'_>) -> Result<Hello, DecodeError> {
    let mut versions = BTreeSet::new();
    while !reader.is_empty() {
        let mut element = reader.part(2, 8, "hello element")?;
        let kind = element.u16()?;
        element.skip(2)?;
        if kind == VERSION_BITMAP {
            for base in [0u8, 32, 64, 96, 128, 160, 192, 224] {
                if element.is_empty() {
                    break;
                }
                let bitmap = element.u32()?;
                versions.extend((0..32).filter(|bit| bitmap & (1 << bit) != 0).map(|b| base + b));
            }
        }
    }
    Ok(Hello { version, versions: versions.into_iter().collect() })
}

pub(super) fn put_features(out: &mut Out, features: &Features) {
    out.u64(features.datapath_id);
    out.u32(features.n_buffers);
    out.u8(features.n_tables);
    out.u8(features.auxiliary_id);
    out.zeros(2);
    out.u32(features.capabilities);
    out.u32(0);
}

pub(super) fn read_features(reader: &mut Reader<'_>) -> Result<Features, DecodeError> {
    let datapath_id = reader.u64()?;
    let n_buffers = reader.u32()?;
    let n_tables = reader.u8()?;
    let auxiliary_id = reader.u8()?;
    reader.skip(2)?;
    let capabilities = reader.u32()?;
    Ok(Features { datapath_id, n_buffers, n_tables, auxiliary_id, capabilities })
}

pub(super) fn put_config(out: &mut Out, config: &SwitchConfig) {
    out.u16(config.flags);
    out.u16(config.miss_send_len);
}

pub(super) fn read_config(reader: &mut Reader<'_>) -> Result<SwitchConfig, DecodeError> {
    Ok(SwitchConfig { flags: reader.u16()?, miss_send_len: reader.u16()? })
}

fn role_number(role: Role) -> u32 {
    match role {
        Role::NoChange => 0,
        Role::Equal => 1,
        Role::Master => 2,
        Role::Slave => 3,
    }
}

fn role_of(number: u32) -> Result<Role, DecodeError> {
    match number {
        0 => Ok(Role::NoChange),
        1 => Ok(Role::Equal),
        2 => Ok(Role::Master),
        3 => Ok(Role::Slave),
        other => Err(DecodeError::Unknown { what: "role", number: other.into() }),
    }
}

pub(super) fn put_role_status(out: &mut Out, status: &RoleStatus) {
    out.u32(role_number(status.role));
    out.u8(match status.reason {
        RoleReason::MasterRequest => 0,
        RoleReason::Config => 1,
        RoleReason::Experimenter => 2,
    });
    out.zeros(3);
    out.u64(status.generation_id);
}

pub(super) fn read_role_status(reader: &mut Reader<'_>) -> Result<RoleStatus, DecodeError> {
    let role = role_of(reader.u32()?)?;
    let reason = match reader.u8()? {
        0 => RoleReason::MasterRequest,
        1 => RoleReason::Config,
        2 => RoleReason::Experimenter,
        other => return Err(DecodeError::Unknown { what: "role reason", number: other.into() }),
    };
    reader.skip(3)?;
    Ok(RoleStatus { role, reason, generation_id: reader.u64()? })
}

pub(super) fn put_role(out: &mut Out, role: &ControllerRole) {
    out.u32(role_number(role.role));
    out.u32(0);
    out.u64(role.generation_id);
}

pub(super) fn read_role(reader: &mut Reader<'_>) -> Result<ControllerRole, DecodeError> {
    let role = role_of(reader.u32()?)?;
    reader.skip(4)?;
    Ok(ControllerRole { role, generation_id: reader.u64()? })
}

pub(super) fn put_bundle_control(out: &mut Out, control: &BundleControl) {
    out.u32(control.bundle.0);
    out.u16(match control.kind {
        BundleControlType::OpenRequest => 0,
        BundleControlType::OpenReply => 1,
        BundleControlType::CloseRequest => 2,
        BundleControlType::CloseReply => 3,
        BundleControlType::CommitRequest => 4,
        BundleControlType::CommitReply => 5,
        BundleControlType::DiscardRequest => 6,
        BundleControlType::DiscardReply => 7,
    });
    out.u16(control.flags.bits());
}

pub(super) fn read_bundle_control(reader: &mut Reader<'_>) -> Result<BundleControl, DecodeError> {
    let bundle = BundleId(reader.u32()?);
    let kind = match reader.u16()? {
        0 => BundleControlType::OpenRequest,
        1 => BundleControlType::OpenReply,
        2 => BundleControlType::CloseRequest,
        3 => BundleControlType::CloseReply,
        4 => BundleControlType::CommitRequest,
        5 => BundleControlType::CommitReply,
        6 => BundleControlType::DiscardRequest,
        7 => BundleControlType::DiscardReply,
        other => {
            return Err(DecodeError::Unknown { what: "bundle control", number: other.into() });
        }
    };
    Ok(BundleControl { bundle, kind, flags: read_bundle_flags(reader.u16()?)? })
}

pub(super) fn read_bundle_flags(flags: u16) -> Result<BundleFlags, DecodeError> {
    BundleFlags::from_bits(flags)
        .ok_or(DecodeError::BadValue { what: "bundle flags", value: flags.into() })
}

pub(super) fn put_error(out: &mut Out, error: &ErrorMessage) {
    match error.code.experimenter {
        None => {
            out.u16(error.code.error_type);
            out.u16(error.code.code);
        }
        Some(experimenter) => {
            out.u16(EXPERIMENTER_ERROR);
            out.u16(error.code.code);
            out.u32(experimenter);
        }
    }
    out.extend_from_slice(&error.data);
}

pub(super) fn read_error(reader: &mut Reader<'_>) -> Result<ErrorMessage, DecodeError> {
    let error_type = reader.u16()?;
    let code = reader.u16()?;
    let experimenter = if error_type == EXPERIMENTER_ERROR { Some(reader.u32()?) } else { None };
    Ok(ErrorMessage {
        code: ErrorCode { error_type, code, experimenter },
        data: Bytes::copy_from_slice(reader.rest()),
    })
}

//! Port descriptions (OpenFlow 1.5.1, section 7.2.1).

use super::reader::Reader;
use super::writer::{Out, Put};
use crate::error::{DecodeError, EncodeError};
use crate::ids::OfPort;
use crate::mac::MacAddr;
use crate::message::{PortConfig, PortDesc, PortMod, PortReason, PortState, PortStatus};

const ETHERNET: u16 = 0;

pub(super) fn put(out: &mut Out, desc: &PortDesc) -> Result<(), EncodeError> {
    let name = desc.name.as_bytes();
    if name.len() > 15 {
        return Err(EncodeError::TooLong { what: "port name", len: name.len(), max: 15 });
    }
    let start = out.len();
    out.u32(desc.port.0);
    out.u32(0);
    out.extend_from_slice(&desc.mac.0);
    out.u16(0);
    out.extend_from_slice(name);
    out.zeros(16 - name.len());
    out.u32(desc.config.bits());
    out.u32(desc.state.bits());
    if let Some(speed) = desc.speed_kbps {
        out.u16(ETHERNET);
        out.u16(32);
        out.zeros(4 + 16);
        out.u32(speed);
        out.u32(0);
    }
    out.patch_len(start, 4, "port description")
}

pub(super) fn read_list(reader: &mut Reader<'_>) -> Result<Vec<PortDesc>, DecodeError> {
    let mut ports = Vec::new();
    while !reader.is_empty() {
        ports.push(read(reader)?);
    }
    Ok(ports)
}

fn read(reader: &mut Reader<'_>) -> Result<PortDesc, DecodeError> {
    let mut part = reader.part(4, 1, "port description")?;
    let port = OfPort(part.u32()?);
    part.skip(4)?;
    let mut mac = [0; 6];
    mac.copy_from_slice(part.take(6)?);
    part.skip(2)?;
    let name = part.name(16)?;
    let config = PortConfig::from_bits_retain(part.u32()?);
    let state = PortState::from_bits_retain(part.u32()?);
    let mut speed_kbps = None;
    while !part.is_empty() {
        let mut property = part.part(2, 8, "port property")?;
        let kind = property.u16()?;
        property.skip(2)?;
        if kind == ETHERNET {
            property.skip(4 + 16)?;
            speed_kbps = Some(property.u32()?);
        }
    }
    Ok(PortDesc { port, mac: MacAddr(mac), name, config, state, speed_kbps })
}

pub(crate) fn put_status(out: &mut Out, status: &PortStatus) -> Result<(), EncodeError> {
    out.u8(match status.reason {
        PortReason::Add => 0,
        PortReason::Delete => 1,
        PortReason::Modify => 2,
    });
    out.zeros(7);
    put(out, &status.desc)
}

pub(crate) fn read_status(reader: &mut Reader<'_>) -> Result<PortStatus, DecodeError> {
    let reason = match reader.u8()? {
        0 => PortReason::Add,
        1 => PortReason::Delete,
        2 => PortReason::Modify,
        other => {
            return Err(DecodeError::Unknown { what: "port reason", number: other.into() });
        }
    };
    reader.skip(7)?;
    Ok(PortStatus { reason, desc: read(reader)? })
}

pub(crate) fn put_mod(out: &mut Out, port_mod: &PortMod) {
    out.u32(port_mod.port.0);
    out.u32(0);
    out.extend_from_slice(&port_mod.mac.0);
    out.u16(0);
    out.u32(port_mod.config.bits());
    out.u32(port_mod.mask.bits());
}

/// What the port advertises is left out.
pub(crate) fn read_mod(reader: &mut Reader<'_>) -> Result<PortMod, DecodeError> {
    let port = OfPort(reader.u32()?);
    reader.skip(4)?;
    let mut mac = [0; 6];
    mac.copy_from_slice(reader.take(6)?);
    reader.skip(2)?;
    let config = PortConfig::from_bits_retain(reader.u32()?);
    let mask = PortConfig::from_bits_retain(reader.u32()?);
    Ok(PortMod { port, mac: MacAddr(mac), config, mask })
}

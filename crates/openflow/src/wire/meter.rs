//! Meters: mods and descriptions (OpenFlow 1.5.1, section 7.3.4.5).

use super::reader::Reader;
use super::writer::{Out, Put};
use crate::error::{DecodeError, EncodeError};
use crate::ids::MeterId;
use crate::message::{Descriptions, MeterMod, Undecoded};
use crate::meter::{Band, BandKind, Meter, MeterFlags};

const DROP: u16 = 1;
const DSCP_REMARK: u16 = 2;

pub(crate) fn put_mod(out: &mut Out, meter_mod: &MeterMod) {
    let (command, flags, id, bands) = match meter_mod {
        MeterMod::Add(meter) => (0, meter.flags, meter.id, meter.bands.as_slice()),
        MeterMod::Modify(meter) => (1, meter.flags, meter.id, meter.bands.as_slice()),
        MeterMod::Delete(id) => (2, MeterFlags::empty(), *id, &[][..]),
    };
    out.u16(command);
    out.u16(flags.bits());
    out.u32(id.0);
    put_bands(out, bands);
}

fn put_bands(out: &mut Out, bands: &[Band]) {
    for band in bands {
        out.u16(match band.kind {
            BandKind::Drop => DROP,
            BandKind::DscpRemark { .. } => DSCP_REMARK,
        });
        out.u16(16);
        out.u32(band.rate);
        out.u32(band.burst);
        match band.kind {
            BandKind::Drop => out.zeros(4),
            BandKind::DscpRemark { prec_level } => {
                out.u8(prec_level);
                out.zeros(3);
            }
        }
    }
}

fn read_bands(reader: &mut Reader<'_>) -> Result<Vec<Band>, DecodeError> {
    let mut bands = Vec::new();
    while !reader.is_empty() {
        let mut part = reader.part(2, 1, "meter band")?;
        let kind = part.u16()?;
        part.skip(2)?;
        let rate = part.u32()?;
        let burst = part.u32()?;
        let kind = match kind {
            DROP => BandKind::Drop,
            DSCP_REMARK => BandKind::DscpRemark { prec_level: part.u8()? },
            _ => return Err(DecodeError::Unknown { what: "meter band", number: kind.into() }),
        };
        bands.push(Band { rate, burst, kind });
    }
    Ok(bands)
}

fn read_flags(flags: u16) -> Result<MeterFlags, DecodeError> {
    MeterFlags::from_bits(flags)
        .ok_or(DecodeError::BadValue { what: "meter flags", value: flags.into() })
}

pub(crate) fn read_mod(reader: &mut Reader<'_>) -> Result<MeterMod, DecodeError> {
    let command = reader.u16()?;
    let flags = read_flags(reader.u16()?)?;
    let id = MeterId(reader.u32()?);
    let bands = read_bands(reader)?;
    match command {
        0 => Ok(MeterMod::Add(Meter { id, flags, bands })),
        1 => Ok(MeterMod::Modify(Meter { id, flags, bands })),
        2 => Ok(MeterMod::Delete(id)),
        _ => Err(DecodeError::Unknown { what: "meter command", number: command.into() }),
    }
}

pub(crate) fn put_description(out: &mut Out, meter: &Meter) -> Result<(), EncodeError> {
    let start = out.len();
    out.u16(0);
    out.u16(meter.flags.bits());
    out.u32(meter.id.0);
    put_bands(out, &meter.bands);
    out.patch_len(start, 0, "meter description")
}

/// Meter descriptions until the reader is empty.
pub(crate) fn read_descriptions(
    reader: &mut Reader<'_>,
) -> Result<Descriptions<Meter, MeterId>, DecodeError> {
    let mut meters = Descriptions::from(Vec::new());
    while !reader.is_empty() {
        let mut part = reader.part(0, 1, "meter description")?;
        part.skip(2)?;
        let flags = part.u16()?;
        let id = MeterId(part.u32()?);
        match read_flags(flags).and_then(|flags| Ok((flags, read_bands(&mut part)?))) {
            Ok((flags, bands)) => meters.known.push(Meter { id, flags, bands }),
            Err(error) => meters.undecoded.push(Undecoded { id, error }),
        }
    }
    Ok(meters)
}

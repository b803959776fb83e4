//! Asynchronous configuration (OpenFlow 1.5.1, section 7.3.10).

use super::reader::Reader;
use super::writer::{Out, Put};
use crate::error::DecodeError;
use crate::message::AsyncConfig;

pub(crate) fn put(out: &mut Out, config: &AsyncConfig) {
    let masks = [
        config.packet_in_slave,
        config.packet_in_master,
        config.port_status_slave,
        config.port_status_master,
        config.flow_removed_slave,
        config.flow_removed_master,
        config.role_status_slave,
        config.role_status_master,
        config.table_status_slave,
        config.table_status_master,
        config.request_forward_slave,
        config.request_forward_master,
    ];
    for (kind, mask) in (0u16..).zip(masks) {
        if let Some(mask) = mask {
            out.u16(kind);
            out.u16(8);
            out.u32(mask);
        }
    }
}

pub(crate) fn read(reader: &mut Reader<'_>) -> Result<AsyncConfig, DecodeError> {
    let mut config = AsyncConfig::default();
    while !reader.is_empty() {
        let mut property = reader.part(2, 8, "asynchronous property")?;
        let kind = property.u16()?;
        property.skip(2)?;
        let place = match kind {
            0 => &mut config.packet_in_slave,
            1 => &mut config.packet_in_master,
            2 => &mut config.port_status_slave,
            3 => &mut config.port_status_master,
            4 => &mut config.flow_removed_slave,
            5 => &mut config.flow_removed_master,
            6 => &mut config.role_status_slave,
            7 => &mut config.role_status_master,
            8 => &mut config.table_status_slave,
            9 => &mut config.table_status_master,
            10 => &mut config.request_forward_slave,
            11 => &mut config.request_forward_master,
            _ => {
                return Err(DecodeError::Unknown {
                    what: "asynchronous property",
                    number: kind.into(),
                });
            }
        };
        *place = Some(property.u32()?);
    }
    Ok(config)
}

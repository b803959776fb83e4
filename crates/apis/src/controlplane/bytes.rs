//! Addresses as JSON has them here: the address' raw bytes in base64.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use k8s_openapi::ByteString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The 4 or 16 bytes of an address.
pub(super) fn of_addr(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address of 4 or 16 bytes; an IPv4 address may have been written in either form.
pub(super) fn to_addr(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    let v6 = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
    Some(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4))
}

/// Serde form of a list of addresses.
pub(super) mod addrs {
    use super::{ByteString, Deserialize, Deserializer, IpAddr, Serializer, of_addr, to_addr};

    pub(crate) fn serialize<S: Serializer>(addrs: &[IpAddr], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(addrs.iter().map(|addr| ByteString(of_addr(*addr))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpAddr>, D::Error> {
        let addrs = <Vec<ByteString>>::deserialize(from)?;
        addrs.iter().map(|bytes| to_addr(&bytes.0).ok_or_else(super::no_addr)).collect()
    }
}

/// Serde form of a network.
pub(super) mod net {
    use super::{Deserialize, Deserializer, IpNet, Net, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(net: &IpNet, out: S) -> Result<S::Ok, S::Error> {
        Net::from(*net).serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<IpNet, D::Error> {
        Net::deserialize(from)?.to_net().ok_or_else(super::no_net)
    }
}

/// Serde form of a list of networks.
pub(super) mod nets {
    use super::{Deserialize, Deserializer, IpNet, Net, Serializer};

    pub(crate) fn serialize<S: Serializer>(nets: &[IpNet], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(nets.iter().map(|net| Net::from(*net)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
        let nets = <Vec<Net>>::deserialize(from)?;
        nets.iter().map(|net| net.to_net().ok_or_else(super::no_net)).collect()
    }
}

/// A network as it is written: address and length apart.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Net {
    ip: ByteString,
    #[serde(default)]
    prefix_length: i32,
}

impl From<IpNet> for Net {
    fn from(net: IpNet) -> Self {
        Self { ip: ByteString(of_addr(net.addr())), prefix_length: net.prefix_len().into() }
    }
}

impl Net {
    fn to_net(&self) -> Option<IpNet> {
        to_net(&self.ip.0, self.prefix_length)
    }
}

/// The network of an address' bytes and a length, if the length fits the family.
pub(super) fn to_net(ip: &[u8], prefix_length: i32) -> Option<IpNet> {
    let addr = to_addr(ip)?;
    let mut length = u8::try_from(prefix_length).ok()?;
    if addr.is_ipv4() && ip.len() == 16 && length >= 96 {
        length -= 96;
    }
    IpNet::new(addr, length).ok()
}

fn no_addr<E: serde::de::Error>() -> E {
    E::custom("an address has 4 or 16 bytes")
}

fn no_net<E: serde::de::Error>() -> E {
    E::custom("not a network: address of 4 or 16 bytes, and a length of its family")
}

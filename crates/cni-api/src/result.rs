//! The result of ADD, in the form of every version of the specification.
//!
//! In memory there is one form, the newest. [`CniResult::to_value`] writes an older one and
//! [`CniResult::from_value`] reads any. Versions before 0.3.0 know no interfaces and one address
//! of each family: writing such a result loses what they have no place for.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{SpecVersion, UnknownVersion};

/// Why a result does not decode.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// It has the wrong form.
    #[error("decode result")]
    Decode(#[from] serde_json::Error),
    /// It names a version we do not speak.
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    /// An address points at an interface that the result does not have.
    #[error("address {address} belongs to interface {index}, of {n_interfaces}")]
    NoSuchInterface {
        /// The address.
        address: IpNet,
        /// The index it gives.
        index: usize,
        /// How many interfaces the result has.
        n_interfaces: usize,
    },
}

/// What an ADD made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniResult {
    /// Interfaces, those on the host included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpConfig>,
    /// Routes inside the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Name service settings.
    #[serde(default, skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
}

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its MAC address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Its MTU, from 1.1.0 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Path of its network namespace; empty means the host's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    /// Index of its interface in the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// The address with its prefix length.
    pub address: IpNet,
    /// The way out of its subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination.
    pub dst: IpNet,
    /// Next hop; the address' gateway when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// `mtu`, `advmss`, `priority`, `table` and `scope`, which came with 1.1.0.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Route {
    /// A route with the fields that every version knows.
    pub fn new(dst: IpNet, gw: Option<IpAddr>) -> Self {
        Self { dst, gw, rest: Map::new() }
    }
}

/// Name service settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses of name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Domains searched for short names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Resolver options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Dns {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The one address of a family in results before 0.3.0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OldIp {
    ip: IpNet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

/// A result before 0.3.0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OldResult {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip4: Option<OldIp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip6: Option<OldIp>,
    #[serde(default, skip_serializing_if = "Dns::is_empty")]
    dns: Dns,
}

impl CniResult {
    /// Decodes a result. A version in it goes before `default_version`, that of the configuration.
    pub fn from_value(value: &Value, default_version: SpecVersion) -> Result<Self, ResultError> {
        let version = match value.get("cniVersion").and_then(Value::as_str) {
            Some(text) => text.parse()?,
            None => default_version,
        };
        if version < SpecVersion::V0_3_0 {
            return Ok(OldResult::deserialize(value)?.into());
        }
        let result = Self::deserialize(value)?;
        let n_interfaces = result.interfaces.len();
        for ip in &result.ips {
            // Before 1.0.0 some plugins wrote 0 without listing interfaces.
            if let Some(index) = ip.interface.filter(|index| *index >= n_interfaces.max(1)) {
                let address = ip.address;
                return Err(ResultError::NoSuchInterface { address, index, n_interfaces });
            }
        }
        Ok(result)
    }

    /// The result in the form of `version`, ready to print.
    pub fn to_value(&self, version: SpecVersion) -> Value {
        let mut value =
            if version < SpecVersion::V0_3_0 { json!(OldResult::from(self)) } else { json!(self) };
        if version < SpecVersion::V1_0_0 {
            for_each_in(&mut value, "ips", |ip| {
                let is_v6 = ip.get("address").and_then(Value::as_str).is_some_and(has_colon);
                ip.insert("version".into(), if is_v6 { "6" } else { "4" }.into());
            });
        }
        if version < SpecVersion::V1_1_0 {
            for_each_in(&mut value, "interfaces", |interface| {
                interface.remove("mtu");
            });
            for_each_in(&mut value, "routes", |route| {
                route.retain(|key, _| key == "dst" || key == "gw");
            });
        }
        if let Value::Object(fields) = &mut value {
            // 0.3.0 and later readers expect the key even when nothing is set.
            fields.entry("dns").or_insert_with(|| json!({}));
            fields.insert("cniVersion".into(), version.as_str().into());
        }
        value
    }
}

fn has_colon(text: &str) -> bool {
    text.contains(':')
}

fn for_each_in(value: &mut Value, key: &str, mut change: impl FnMut(&mut Map<String, Value>)) {
    let Some(Value::Array(items)) = value.get_mut(key) else { return };
    items.iter_mut().filter_map(Value::as_object_mut).for_each(&mut change);
}

impl From<&CniResult> for OldResult {
    fn from(result: &CniResult) -> Self {
        let of_family = |is_v4: bool| {
            let ip = result.ips.iter().find(|ip| ip.address.addr().is_ipv4() == is_v4)?;
            let routes = result.routes.iter().filter(|r| r.dst.addr().is_ipv4() == is_v4);
            let routes = routes.map(|r| Route::new(r.dst, r.gw)).collect();
            Some(OldIp { ip: ip.address, gateway: ip.gateway, routes })
        };
        Self { ip4: of_family(true), ip6: of_family(false), dns: result.dns.clone() }
    }
}

impl From<OldResult> for CniResult {
    fn from(old: OldResult) -> Self {
        let mut result = Self { dns: old.dns, ..Self::default() };
        for ip in [old.ip4, old.ip6].into_iter().flatten() {
            result.ips.push(IpConfig { interface: None, address: ip.ip, gateway: ip.gateway });
            result.routes.extend(ip.routes);
        }
        result
    }
}

#[cfg(test)]
mod tests;

//! What an IPAM plugin answers, in any version of the CNI specification.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::IpamError;

/// The addresses an attachment got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpamResult {
    /// Addresses with their gateways.
    #[serde(default)]
    pub ips: Vec<IpConfig>,
    /// Routes to install in the Pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteConfig>,
    /// Resolver settings.
    #[serde(default)]
    pub dns: Dns,
}

/// One address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    /// Address and prefix length.
    pub address: IpNet,
    /// The subnet's gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteConfig {
    /// Destination.
    pub dst: IpNet,
    /// Next hop; the address's gateway when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

/// Resolver settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// Local domain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Search list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The form that results had before CNI 0.3.
#[derive(Debug, Deserialize)]
struct OldFamily {
    ip: IpNet,
    gateway: Option<IpAddr>,
    #[serde(default)]
    routes: Vec<RouteConfig>,
}

#[derive(Debug, Deserialize)]
struct OldResult {
    ip4: Option<OldFamily>,
    ip6: Option<OldFamily>,
}

impl IpamResult {
    /// Reads a result of any version.
    pub fn parse(bytes: &[u8]) -> Result<Self, IpamError> {
        let mut result: Self = serde_json::from_slice(bytes)?;
        let old: OldResult = serde_json::from_slice(bytes)?;
        for family in [old.ip4, old.ip6].into_iter().flatten() {
            result.ips.push(IpConfig { address: family.ip, gateway: family.gateway });
            result.routes.extend(family.routes);
        }
        Ok(result)
    }
}

impl Dns {
    /// Reads the text of a `resolv.conf`.
    pub fn from_resolv_conf(text: &str) -> Self {
        let mut dns = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let key = words.next().unwrap_or_default();
            let mut rest = words.map(str::to_owned);
            match key {
                "nameserver" => dns.nameservers.extend(rest.next()),
                "domain" => dns.domain = rest.next().unwrap_or_default(),
                "search" => dns.search.extend(rest),
                "options" => dns.options.extend(rest),
                _ => {}
            }
        }
        dns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_every_version_are_read() {
        let new = br#"{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.2/29","gateway":"10.1.2.1"}],
            "routes":[{"dst":"0.0.0.0/0"}],"dns":{}}"#;
        let middle = br#"{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.2.2/29",
            "gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}"#;
        let old = br#"{"cniVersion":"0.2.0","ip4":{"ip":"10.1.2.2/29","gateway":"10.1.2.1",
            "routes":[{"dst":"0.0.0.0/0"}]},"dns":{}}"#;
        let want = IpamResult::parse(new).unwrap();
        assert_eq!(want.ips.len(), 1);
        assert_eq!(IpamResult::parse(middle).unwrap(), want);
        assert_eq!(IpamResult::parse(old).unwrap(), want);
    }

    #[test]
    fn resolv_conf_is_read() {
        let dns = Dns::from_resolv_conf(
            "# c\nnameserver 10.96.0.10\nnameserver fd00::a\nsearch a.local b.local\noptions ndots:5\ndomain d\n",
        );
        assert_eq!(dns.nameservers, ["10.96.0.10", "fd00::a"]);
        assert_eq!((dns.search.len(), dns.options.len(), dns.domain.as_str()), (2, 1, "d"));
    }
}

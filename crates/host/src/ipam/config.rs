//! The network configuration as `host-local` reads it, and its ranges made complete and checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::host_local::Attachment;
use super::result::RouteConfig;
use super::{HOST_LOCAL, IpamError};

const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

/// A CNI network configuration, the parts that concern IPAM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetConf {
    /// CNI version that the result is to have.
    #[serde(default)]
    pub cni_version: String,
    /// The network: leases are kept per network.
    #[serde(default)]
    pub name: String,
    /// The IPAM section.
    pub ipam: IpamConfig,
    /// What the runtime wants, by capability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_config: Option<Wishes>,
    /// What the runtime wants, by convention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Args>,
}

/// The `args` of a network configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Args {
    /// Those meant for CNI plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<Wishes>,
}

/// Addresses that someone asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    /// Addresses, with or without prefix length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    /// Further range sets, tried before those of the configuration.
    #[serde(default, rename = "ipRanges", skip_serializing_if = "Vec::is_empty")]
    pub ip_ranges: Vec<Vec<RangeConfig>>,
}

/// The `ipam` section.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpamConfig {
    /// Name of the plugin.
    #[serde(rename = "type")]
    pub kind: String,
    /// One range set per address that an interface gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Vec<RangeConfig>>,
    /// The older way to give one range.
    #[serde(flatten)]
    pub range: RangeConfig,
    /// Routes to hand on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteConfig>,
    /// Where leases are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    /// A resolver configuration to read DNS settings from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolv_conf: Option<PathBuf>,
}

/// A range of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RangeConfig {
    /// The subnet that the range is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<IpNet>,
    /// First address to give; the subnet's first host by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_start: Option<IpAddr>,
    /// Last address to give; the subnet's last host by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_end: Option<IpAddr>,
    /// The gateway, never given; the subnet's first host by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

impl NetConf {
    /// Reads a network configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self, IpamError> {
        let conf: Self = serde_json::from_slice(bytes)?;
        check_name(&conf.name)?;
        Ok(conf)
    }

    /// A `host-local` configuration that gives each attachment one address of each Pod CIDR.
    pub fn for_pod_cidrs(cni_version: &str, name: &str, pod_cidrs: &[IpNet]) -> Self {
        let range =
            |net: &IpNet| vec![RangeConfig { subnet: Some(net.trunc()), ..RangeConfig::default() }];
        Self {
            cni_version: cni_version.to_owned(),
            name: name.to_owned(),
            ipam: IpamConfig {
                kind: HOST_LOCAL.to_owned(),
                ranges: pod_cidrs.iter().map(range).collect(),
                ..IpamConfig::default()
            },
            runtime_config: None,
            args: None,
        }
    }

    /// The same with another place for lease files.
    #[must_use]
    pub fn with_data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.ipam.data_dir = Some(dir.into());
        self
    }

    /// The text for a plugin's standard input.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and addresses always serialize")
    }

    /// Where this network's leases are.
    pub fn lease_dir(&self) -> PathBuf {
        let root = self.ipam.data_dir.clone().filter(|dir| !dir.as_os_str().is_empty());
        root.unwrap_or_else(|| DEFAULT_DATA_DIR.into()).join(&self.name)
    }

    /// The range sets, complete and checked.
    pub(super) fn range_sets(&self) -> Result<Vec<RangeSet>, IpamError> {
        let extra = self.runtime_config.as_ref().map(|wishes| wishes.ip_ranges.clone());
        let mut sets = extra.unwrap_or_default();
        if self.ipam.range.subnet.is_some() {
            sets.push(vec![self.ipam.range.clone()]);
        }
        sets.extend(self.ipam.ranges.iter().cloned());
        if sets.is_empty() {
            return Err(IpamError::Config("no IP ranges specified".into()));
        }
        let sets: Vec<RangeSet> =
            sets.iter().map(|set| RangeSet::new(set)).collect::<Result<_, _>>()?;
        for (index, set) in sets.iter().enumerate() {
            if let Some(other) = sets[..index].iter().position(|other| set.overlaps(other)) {
                return Err(IpamError::Config(format!("range set {index} overlaps with {other}")));
            }
        }
        Ok(sets)
    }

    /// Addresses that the runtime asks for: `CNI_ARGS` first, then both parts of the
    /// configuration.
    pub(super) fn wishes(&self, cni_args: &str) -> Result<Vec<IpAddr>, IpamError> {
        let from_env = cni_args
            .split(';')
            .filter_map(|pair| pair.split_once('='))
            .filter(|(key, _)| *key == "IP")
            .flat_map(|(_, value)| value.split(','))
            .map(|text| {
                parse_ip(text)
                    .ok_or_else(|| IpamError::Environment(format!("{text:?} is no address")))
            });
        let in_args = self.args.iter().flat_map(|args| &args.cni);
        let from_conf =
            in_args.chain(&self.runtime_config).flat_map(|wishes| &wishes.ips).map(|text| {
                parse_ip(text).ok_or_else(|| IpamError::Config(format!("{text:?} is no address")))
            });
        let mut wishes = Vec::new();
        for ip in from_env.chain(from_conf) {
            let ip = ip?;
            if !wishes.contains(&ip) {
                wishes.push(ip);
            }
        }
        Ok(wishes)
    }
}

/// The plugin that a network configuration names.
pub(super) fn plugin_name(conf: &[u8]) -> Result<String, IpamError> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "type", default)]
        kind: String,
    }
    #[derive(Deserialize)]
    struct Conf {
        ipam: Option<Named>,
    }
    let conf: Conf = serde_json::from_slice(conf)?;
    let name = conf.ipam.map(|ipam| ipam.kind).unwrap_or_default();
    if name.is_empty() {
        return Err(IpamError::Config("no IPAM plugin is named".into()));
    }
    Ok(name)
}

/// Adds the list that the GC verb takes.
pub(super) fn with_valid_attachments(
    conf: &[u8],
    valid: &[Attachment],
) -> Result<Vec<u8>, IpamError> {
    let mut conf: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(conf)?;
    let valid: Vec<_> = valid
        .iter()
        .map(|one| serde_json::json!({"containerID": one.container_id, "ifname": one.ifname}))
        .collect();
    conf.insert("cni.dev/valid-attachments".into(), valid.into());
    Ok(serde_json::to_vec(&conf)?)
}

/// A network's name becomes a directory: what the CNI specification allows, and nothing else.
fn check_name(name: &str) -> Result<(), IpamError> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(inner) {
        return Ok(());
    }
    Err(IpamError::Config(format!("{name:?} is not a network name")))
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    text.parse().ok().or_else(|| text.parse::<IpNet>().ok().map(|net| net.addr()))
}

/// A range, complete: bounds inclusive, as numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) subnet: IpNet,
    pub(super) gateway: IpAddr,
    pub(super) start: u128,
    pub(super) end: u128,
}

impl Range {
    fn new(config: &RangeConfig) -> Result<Self, IpamError> {
        let invalid = |text: String| Err(IpamError::Config(text));
        let Some(subnet) = config.subnet else { return invalid("a range has no subnet".into()) };
        if subnet.addr() != subnet.network() {
            return invalid(format!(
                "subnet {subnet} has host bits set, the network is {}",
                subnet.trunc()
            ));
        }
        if subnet.prefix_len() + 2 > subnet.max_prefix_len() {
            return invalid(format!("subnet {subnet} is too small to allocate from"));
        }
        let first = number(subnet.network());
        // The last host: on IPv4 the address before broadcast.
        let last = number(subnet.broadcast()) - u128::from(subnet.addr().is_ipv4());
        let bound = |ip: Option<IpAddr>, default: u128, what: &str| match ip {
            None => Ok(default),
            Some(ip) if subnet.contains(&ip) => Ok(number(ip)),
            Some(ip) => Err(IpamError::Config(format!("{what} {ip} is not in {subnet}"))),
        };
        let start = bound(config.range_start, first + 1, "rangeStart")?;
        let end = bound(config.range_end, last, "rangeEnd")?;
        if start > end {
            return invalid(format!("range of {subnet} starts behind its end"));
        }
        if let Some(gateway) = config.gateway
            && gateway.is_ipv4() != subnet.addr().is_ipv4()
        {
            return invalid(format!("gateway {gateway} is not of the family of {subnet}"));
        }
        let gateway = config.gateway.unwrap_or_else(|| address(first + 1, subnet.addr().is_ipv4()));
        Ok(Self { subnet, gateway, start, end })
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.subnet.addr().is_ipv4()
            && (self.start..=self.end).contains(&number(ip))
    }

    pub(super) fn ip(&self, number: u128) -> IpAddr {
        address(number, self.subnet.addr().is_ipv4())
    }
}

/// Ranges of one family; an attachment gets one address of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RangeSet(pub(super) Vec<Range>);

impl RangeSet {
    fn new(configs: &[RangeConfig]) -> Result<Self, IpamError> {
        if configs.is_empty() {
            return Err(IpamError::Config("a range set is empty".into()));
        }
        let ranges: Vec<Range> = configs.iter().map(Range::new).collect::<Result<_, _>>()?;
        let is_ipv4 = ranges[0].subnet.addr().is_ipv4();
        if ranges.iter().any(|range| range.subnet.addr().is_ipv4() != is_ipv4) {
            return Err(IpamError::Config("a range set mixes address families".into()));
        }
        for (index, range) in ranges.iter().enumerate() {
            if ranges[..index].iter().any(|other| overlap(range, other)) {
                return Err(IpamError::Config(format!("ranges of {} overlap", range.subnet)));
            }
        }
        Ok(Self(ranges))
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().any(|range| other.0.iter().any(|other| overlap(range, other)))
    }

    pub(super) fn range_of(&self, ip: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(ip))
    }

    /// Every address, from the one after `last` round to `last` itself, gateways left out.
    pub(super) fn round_robin(
        &self,
        last: Option<IpAddr>,
    ) -> impl Iterator<Item = (IpAddr, &Range)> {
        let resume = last.and_then(|ip| {
            let index = self.0.iter().position(|range| range.contains(ip))?;
            Some((index, number(ip)))
        });
        let (index, at) = resume.unwrap_or((0, self.0[0].start.wrapping_sub(1)));
        let n_ranges = self.0.len();
        let first = &self.0[index];
        let rest_of_first = at.wrapping_add(1)..=first.end;
        let others = (1..n_ranges).map(move |step| &self.0[(index + step) % n_ranges]);
        rest_of_first
            .map(move |number| (number, first))
            .chain(others.flat_map(|range| (range.start..=range.end).map(move |n| (n, range))))
            .chain((first.start..=at.min(first.end)).map(move |number| (number, first)))
            .map(|(number, range)| (range.ip(number), range))
            .filter(|(ip, range)| *ip != range.gateway)
    }
}

impl std::fmt::Display for RangeSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}-{}", range.ip(range.start), range.ip(range.end))?;
        }
        Ok(())
    }
}

fn overlap(a: &Range, b: &Range) -> bool {
    a.subnet.addr().is_ipv4() == b.subnet.addr().is_ipv4() && a.start <= b.end && b.start <= a.end
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

fn address(number: u128, is_ipv4: bool) -> IpAddr {
    if is_ipv4 {
        let low = u32::try_from(number).expect("IPv4 ranges hold 32-bit numbers");
        Ipv4Addr::from(low).into()
    } else {
        Ipv6Addr::from(number).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_conf(ipam: &str) -> NetConf {
        NetConf::parse(
            format!(r#"{{"name":"n","ipam":{{"type":"host-local",{ipam}}}}}"#).as_bytes(),
        )
        .unwrap()
    }

    #[test]
    fn ranges_are_completed_as_host_local_does() {
        for (ipam, want) in [
            (r#""subnet":"10.1.2.0/29""#, "10.1.2.1-10.1.2.6"),
            (
                r#""ranges":[[{"subnet":"10.1.2.0/29","rangeStart":"10.1.2.3"}]]"#,
                "10.1.2.3-10.1.2.6",
            ),
            (r#""ranges":[[{"subnet":"fd00::/126"}]]"#, "fd00::1-fd00::3"),
            (
                r#""ranges":[[{"subnet":"10.0.0.0/30"},{"subnet":"10.0.1.0/30","rangeEnd":"10.0.1.1"}]]"#,
                "10.0.0.1-10.0.0.2,10.0.1.1-10.0.1.1",
            ),
        ] {
            assert_eq!(mk_conf(ipam).range_sets().unwrap()[0].to_string(), want, "{ipam}");
        }
    }

    #[test]
    fn unusable_ranges_are_refused_with_the_reason() {
        for (ipam, want) in [
            (r#""routes":[]"#, "no IP ranges"),
            (r#""ranges":[[]]"#, "is empty"),
            (r#""ranges":[[{"rangeStart":"10.0.0.1"}]]"#, "no subnet"),
            (r#""subnet":"10.1.2.1/24""#, "host bits"),
            (r#""subnet":"10.1.2.0/31""#, "too small"),
            (r#""subnet":"10.1.2.0/24","rangeEnd":"10.1.3.1""#, "not in"),
            (r#""subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.8""#, "behind"),
            (r#""subnet":"10.1.2.0/24","gateway":"fd00::1""#, "family"),
            (r#""ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"fd00::/64"}]]"#, "mixes"),
            (r#""ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.2.0/25"}]]"#, "overlaps"),
            (r#""ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"10.1.2.0/25"}]]"#, "overlap"),
        ] {
            let error = mk_conf(ipam).range_sets().unwrap_err();
            assert_eq!(error.code(), 7);
            assert!(error.to_string().contains(want), "{ipam}: {error}");
        }
    }

    #[test]
    fn bad_names_and_json_are_refused() {
        for name in ["", "../x", "a/b", ".", "a b"] {
            let text = format!(r#"{{"name":"{name}","ipam":{{"type":"host-local"}}}}"#);
            assert_eq!(NetConf::parse(text.as_bytes()).unwrap_err().code(), 7, "{name}");
        }
        assert_eq!(NetConf::parse(b"{").unwrap_err().code(), 6);
        assert_eq!(plugin_name(b"{}").unwrap_err().code(), 7);
    }

    #[test]
    fn round_robin_goes_once_round_and_skips_gateways() {
        let conf = mk_conf(r#""ranges":[[{"subnet":"10.0.0.0/29"},{"subnet":"10.0.1.0/30"}]]"#);
        let set = &conf.range_sets().unwrap()[0];
        let walk = |last: Option<&str>| {
            let last = last.map(|text| text.parse().unwrap());
            let walked: Vec<String> = set.round_robin(last).map(|(ip, _)| ip.to_string()).collect();
            walked.join(" ")
        };
        assert_eq!(walk(None), "10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.1.2");
        assert_eq!(walk(Some("10.0.0.4")), "10.0.0.5 10.0.0.6 10.0.1.2 10.0.0.2 10.0.0.3 10.0.0.4");
        assert_eq!(walk(Some("10.0.1.2")), "10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.1.2");
        assert_eq!(walk(Some("192.0.2.1")), walk(None), "a foreign last address starts anew");
    }

    #[test]
    fn wishes_come_from_three_places() {
        let text = br#"{"name":"n","ipam":{"type":"host-local"},
            "args":{"cni":{"ips":["10.0.0.4"]}},"runtimeConfig":{"ips":["10.0.0.5/24"]}}"#;
        let conf = NetConf::parse(text).unwrap();
        let wishes = conf.wishes("IgnoreUnknown=1;IP=10.0.0.3;K8S_POD_NAME=web-0").unwrap();
        let wishes: Vec<String> = wishes.iter().map(ToString::to_string).collect();
        assert_eq!(wishes, ["10.0.0.3", "10.0.0.4", "10.0.0.5"]);
        assert_eq!(conf.wishes("IP=x").unwrap_err().code(), 4);
    }
}

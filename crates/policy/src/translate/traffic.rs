//! Ports and networks of rules. What cannot be read matches nothing: it is left out and reported,
//! and a rule that has nothing left is left out too, never taken for one without conditions.

use apis::controlplane::{IpBlock, Protocol, Service};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which traffic a rule is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Services {
    /// All of it.
    Any,
    /// That of these; none if the list is empty.
    Of(Vec<Service>),
}

/// Ports as the API has them, of any kind of policy.
pub(super) struct PortSpec<'a> {
    pub(super) protocol: Option<&'a str>,
    pub(super) port: Option<&'a IntOrString>,
    pub(super) end_port: Option<i32>,
    pub(super) source_port: Option<i32>,
    pub(super) source_end_port: Option<i32>,
}

impl PortSpec<'_> {
    /// The form for agents.
    pub(super) fn service(&self) -> Result<Service, String> {
        let protocol = match self.protocol.unwrap_or("TCP") {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            other => return Err(format!("unknown protocol {other:?}")),
        };
        match self.port {
            Some(IntOrString::Int(port)) => {
                check_port("port", *port)?;
                check_range("endPort", *port, self.end_port)?;
            }
            Some(IntOrString::String(name)) => {
                if name.is_empty() {
                    return Err("the port's name is empty".into());
                }
                if self.end_port.is_some() {
                    return Err("endPort needs a port by number".into());
                }
            }
            None if self.end_port.is_some() => return Err("endPort needs a port".into()),
            None => {}
        }
        match self.source_port {
            Some(port) => {
                check_port("sourcePort", port)?;
                check_range("sourceEndPort", port, self.source_end_port)?;
            }
            None if self.source_end_port.is_some() => {
                return Err("sourceEndPort needs a sourcePort".into());
            }
            None => {}
        }
        Ok(Service {
            protocol: Some(protocol),
            port: self.port.cloned(),
            end_port: self.end_port,
            src_port: self.source_port,
            src_end_port: self.source_end_port,
            ..Service::default()
        })
    }
}

fn check_port(field: &str, port: i32) -> Result<(), String> {
    match port {
        1..=65535 => Ok(()),
        port => Err(format!("{field} {port} is no port number")),
    }
}

fn check_range(field: &str, start: i32, end: Option<i32>) -> Result<(), String> {
    match end {
        Some(end) if end < start || end > 65535 => {
            Err(format!("{field} {end} is no end of a range that begins at {start}"))
        }
        _ => Ok(()),
    }
}

/// Whether a service names its port.
pub(super) fn has_named_port(services: &Services) -> bool {
    match services {
        Services::Any => false,
        Services::Of(services) => {
            services.iter().any(|service| matches!(service.port, Some(IntOrString::String(_))))
        }
    }
}

/// Every address.
pub(super) fn anywhere() -> Vec<IpBlock> {
    let all = |net: IpNet| IpBlock { cidr: net, except: Vec::new() };
    vec![all(IpNet::V4(ipnet::Ipv4Net::default())), all(IpNet::V6(ipnet::Ipv6Net::default()))]
}

/// A network without some parts. An exception that cannot be read must not vanish: without it the
/// block would match more.
pub(super) fn ip_block<'a>(
    cidr: &str,
    except: impl IntoIterator<Item = &'a str>,
) -> Result<IpBlock, String> {
    let cidr = parse_net(cidr)?;
    let mut parts = Vec::new();
    for part in except {
        let part = parse_net(part).map_err(|error| format!("except: {error}"))?;
        if part.contains(&cidr) {
            return Err(format!("{part} excludes all of {cidr}"));
        }
        if cidr.contains(&part) {
            parts.push(part);
        }
    }
    parts.sort();
    parts.dedup();
    Ok(IpBlock { cidr, except: parts })
}

fn parse_net(text: &str) -> Result<IpNet, String> {
    let net: IpNet = text.parse().map_err(|_| format!("{text:?} is no network"))?;
    Ok(net.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec<'a>(protocol: Option<&'a str>, port: Option<&'a IntOrString>) -> PortSpec<'a> {
        PortSpec { protocol, port, end_port: None, source_port: None, source_end_port: None }
    }

    #[test]
    fn ports_are_exact_or_nothing() {
        let (http, name) = (IntOrString::Int(80), IntOrString::String("web".into()));
        let plain = spec(None, Some(&http)).service().unwrap();
        assert_eq!(plain.protocol, Some(Protocol::Tcp));
        assert_eq!(plain.port, Some(IntOrString::Int(80)));
        assert_eq!(spec(Some("UDP"), None).service().unwrap().port, None);
        for bad in [
            spec(Some("ICMP"), None),
            spec(Some("tcp"), Some(&http)),
            spec(None, Some(&IntOrString::Int(0))),
            spec(None, Some(&IntOrString::Int(65536))),
            spec(None, Some(&IntOrString::String(String::new()))),
            PortSpec { end_port: Some(79), ..spec(None, Some(&http)) },
            PortSpec { end_port: Some(90), ..spec(None, Some(&name)) },
            PortSpec { end_port: Some(90), ..spec(None, None) },
            PortSpec { source_end_port: Some(90), ..spec(None, Some(&http)) },
            PortSpec { source_port: Some(-1), ..spec(None, Some(&http)) },
        ] {
            assert!(bad.service().is_err());
        }
    }

    #[test]
    fn an_exception_never_vanishes() {
        let block = ip_block("10.1.2.3/16", ["10.1.0.0/24", "10.2.0.0/16", "fd00::/8"]).unwrap();
        assert_eq!(block.cidr.to_string(), "10.1.0.0/16");
        assert_eq!(block.except, ["10.1.0.0/24".parse::<IpNet>().unwrap()]);
        for (cidr, except) in
            [("10.0.0.0/8", "nonsense"), ("nonsense", "10.0.0.0/8"), ("10.0.0.0/8", "0.0.0.0/0")]
        {
            assert!(ip_block(cidr, [except]).is_err(), "{cidr} {except}");
        }
    }
}

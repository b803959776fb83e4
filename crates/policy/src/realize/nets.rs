//! Prefixes without parts of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The fewest prefixes that together are `net` without all of `except`.
pub(super) fn difference(net: IpNet, except: &[IpNet]) -> Vec<IpNet> {
    let net = net.trunc();
    let holes: Vec<IpNet> = except
        .iter()
        .map(IpNet::trunc)
        .filter(|hole| hole.contains(&net) || net.contains(hole))
        .collect();
    let mut left = Vec::new();
    carve(net, &holes, &mut left);
    left
}

/// Halves `net` until each part is free of holes or within one.
fn carve(net: IpNet, holes: &[IpNet], left: &mut Vec<IpNet>) {
    if holes.iter().any(|hole| hole.contains(&net)) {
        return;
    }
    let inside: Vec<IpNet> = holes.iter().filter(|hole| net.contains(*hole)).copied().collect();
    if inside.is_empty() {
        left.push(net);
        return;
    }
    for half in halves(net) {
        carve(half, &inside, left);
    }
}

/// The two halves; none of a single address, which either is a hole or has none.
fn halves(net: IpNet) -> Vec<IpNet> {
    let len = net.prefix_len() + 1;
    if len > net.max_prefix_len() {
        return Vec::new();
    }
    let second = match net.network() {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from(u32::from(ip) | 1 << (32 - u32::from(len)))),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from(u128::from(ip) | 1 << (128 - u32::from(len)))),
    };
    [net.network(), second].into_iter().filter_map(|ip| prefix(ip, len)).collect()
}

fn prefix(ip: IpAddr, len: u8) -> Option<IpNet> {
    match ip {
        IpAddr::V4(ip) => Ipv4Net::new(ip, len).ok().map(IpNet::V4),
        IpAddr::V6(ip) => Ipv6Net::new(ip, len).ok().map(IpNet::V6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(net: &str, except: &[&str], want: &[&str]) {
        let except: Vec<IpNet> = except.iter().map(|net| net.parse().unwrap()).collect();
        let got: Vec<String> =
            difference(net.parse().unwrap(), &except).iter().map(ToString::to_string).collect();
        assert_eq!(got, want, "{net} without {except:?}");
    }

    #[test]
    fn differences() {
        check("10.0.0.0/8", &[], &["10.0.0.0/8"]);
        check("10.0.0.7/24", &[], &["10.0.0.0/24"]);
        check("10.0.0.0/30", &["10.0.0.1/32"], &["10.0.0.0/32", "10.0.0.2/31"]);
        check("10.0.0.0/30", &["10.0.0.0/31", "10.0.0.1/32"], &["10.0.0.2/31"]);
        check("10.0.0.0/24", &["10.0.0.0/8"], &[]);
        check("10.0.0.0/24", &["10.0.0.0/24"], &[]);
        check("10.0.0.1/32", &["10.0.0.1/32"], &[]);
        check("10.0.0.0/24", &["192.168.0.0/16", "::/0"], &["10.0.0.0/24"]);
        check("fd00::/127", &["fd00::1/128"], &["fd00::/128"]);
        assert_eq!(
            difference("0.0.0.0/0".parse().unwrap(), &["10.42.0.0/16".parse().unwrap()]).len(),
            16
        );
        assert_eq!(
            difference("::/0".parse().unwrap(), &["fd00::1/128".parse().unwrap()]).len(),
            128
        );
    }
}

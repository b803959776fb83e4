//! Turns the uplink's MTU into the MTU of Pods and of the gateway.
//!
//! Pure. Not here: reading the uplink (`host::uplink`), setting the MTU (`cni`, `gateway`).

use std::net::IpAddr;

use antrea_config::TunnelType;

/// Encryption of what leaves the node; reserved, and already part of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Packets leave as they are.
    None,
    /// ESP in transport mode around the tunnel.
    Esp,
    /// WireGuard instead of the tunnel.
    WireGuard,
}

/// Largest MTU ever given to a Pod, in bytes; Linux veth pairs take no more than 65,535.
pub const MAX_MTU: u32 = 65_000;

/// Bytes that the way between nodes adds to a Pod's packet; `checksum` is `tunnelCsum`.
pub fn overhead(
    tunnel: Option<TunnelType>,
    checksum: bool,
    encryption: Encryption,
    underlay: IpAddr,
) -> u32 {
    let tunnel = match tunnel {
        // Outer IPv4 20, UDP 8, Geneve or VXLAN 8, inner Ethernet 14.
        Some(TunnelType::Geneve | TunnelType::Vxlan) => 50,
        // Outer IPv4 20, GRE with key 8, inner Ethernet 14. UDP has a checksum anyway, GRE 4 bytes more.
        Some(TunnelType::Gre) => 42 + if checksum { 4 } else { 0 },
        // Outer IPv4 20, TCP header 20, STT header 18, inner Ethernet 14.
        Some(TunnelType::Stt) => 72,
        None => 0,
    };
    let crypt = match encryption {
        Encryption::None => tunnel,
        Encryption::Esp => tunnel + 38,
        // WireGuard carries the inner IP packet itself: the tunnel's bytes are not there.
        Encryption::WireGuard => 60,
    };
    let ipv6 = if underlay.is_ipv6() && crypt > 0 { 20 } else { 0 };
    crypt + ipv6
}

/// MTU for Pods and the gateway, in bytes: `configured` when given, else what is left of the
/// uplink's.
pub fn pod_mtu(configured: Option<u32>, uplink_mtu: u32, overhead: u32) -> u32 {
    configured.unwrap_or_else(|| uplink_mtu.saturating_sub(overhead).min(MAX_MTU))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_per_tunnel_family_and_encryption() {
        let v4: IpAddr = "172.30.0.1".parse().unwrap();
        let v6: IpAddr = "fd00:30::1".parse().unwrap();
        let (geneve, vxlan, gre) =
            (Some(TunnelType::Geneve), Some(TunnelType::Vxlan), Some(TunnelType::Gre));
        for (name, tunnel, encryption, underlay, want) in [
            ("geneve over IPv4", geneve, Encryption::None, v4, 50),
            ("vxlan over IPv6", vxlan, Encryption::None, v6, 70),
            ("gre over IPv4", gre, Encryption::None, v4, 42),
            ("no tunnel, IPv6", None, Encryption::None, v6, 0),
            ("geneve in ESP", geneve, Encryption::Esp, v4, 88),
            ("wireguard over IPv4", geneve, Encryption::WireGuard, v4, 60),
            ("wireguard over IPv6", geneve, Encryption::WireGuard, v6, 80),
            ("vxlan over IPv4", vxlan, Encryption::None, v4, 50),
            ("gre over IPv6", gre, Encryption::None, v6, 62),
            ("vxlan in ESP over IPv6", vxlan, Encryption::Esp, v6, 108),
            ("gre in ESP", gre, Encryption::Esp, v4, 80),
        ] {
            assert_eq!(overhead(tunnel, false, encryption, underlay), want, "{name}");
        }
        assert_eq!(overhead(geneve, true, Encryption::None, v4), 50);
        assert_eq!(overhead(gre, true, Encryption::None, v4), 46);
    }

    #[test]
    fn configured_mtu_wins_and_large_uplinks_are_capped() {
        for (name, configured, uplink, want) in [
            ("discovered", None, 1500, 1450),
            ("jumbo frames", None, 9001, 8951),
            ("small uplink", None, 1450, 1400),
            ("configured", Some(1400), 9001, 1400),
            ("loopback-sized uplink", None, 65_536, MAX_MTU),
        ] {
            assert_eq!(pod_mtu(configured, uplink, 50), want, "{name}");
        }
    }
}

use std::net::UdpSocket;

use host::conntrack::{Conntrack, Filter};
use testkit::netns::{in_netns, sh};

/// UDP from one loopback address to others, tracked; what goes to 127.0.0.9 in zone 77.
fn mk_flows() {
    sh(r"nft -f - <<'END'
table inet t {
  chain pre { type filter hook output priority raw; ip daddr 127.0.0.9 ct zone set 77; }
  chain nat { type nat hook output priority -100; ip daddr 127.0.0.8 dnat ip to 127.0.0.7; }
  chain post { type filter hook postrouting priority 0; ct state new accept; }
}
END");
    for (from, to) in [
        ("127.0.0.2:1002", "127.0.0.3:53"),
        ("127.0.0.2:1002", "127.0.0.4:53"),
        ("127.0.0.5:1005", "127.0.0.2:53"),
        ("127.0.0.5:1005", "127.0.0.8:53"),
        ("127.0.0.6:1006", "127.0.0.9:53"),
        ("[::1]:1007", "[::1]:53"),
    ] {
        UdpSocket::bind(from).unwrap().send_to(b"x", to).unwrap();
    }
}

fn listed() -> usize {
    sh("conntrack -L -f ipv4 2>/dev/null; conntrack -L -f ipv6 2>/dev/null")
        .lines()
        .filter(|line| line.contains("udp") && line.contains("dport=53"))
        .count()
}

#[test]
#[ignore = "needs root: make test"]
fn entries_are_deleted_by_address_in_either_direction_and_by_zone() {
    in_netns(|| {
        sh("sysctl -q -w net.ipv6.conf.all.disable_ipv6=0");
        mk_flows();
        let conntrack = Conntrack::open().unwrap();
        let all = Filter { protocol: Some(17), dst_port: Some(53), ..Filter::default() };
        let entries = conntrack.list(&all).unwrap();
        assert_eq!(entries.len(), listed(), "{entries:#?}");
        assert_eq!(entries.len(), 6);
        let zoned: Vec<_> = entries.iter().filter(|entry| entry.zone == 77).collect();
        assert_eq!(zoned.len(), 1);
        assert_eq!(zoned[0].original.dst.to_string(), "127.0.0.9");

        let delete =
            |text: &str| conntrack.delete(&Filter::address(text.parse().unwrap())).unwrap();
        assert_eq!(delete("127.0.0.99"), 0);
        assert_eq!(delete("127.0.0.2"), 3, "as source and as destination");
        assert_eq!(listed(), 3);
        assert_eq!(delete("127.0.0.7"), 1, "the translated address is only in the reply");
        assert_eq!(conntrack.delete(&Filter::zone(78)).unwrap(), 0);
        assert_eq!(conntrack.delete(&Filter::zone(77)).unwrap(), 1);
        assert_eq!(
            super::block_on(conntrack.delete_async(Filter::address("::1".parse().unwrap())))
                .unwrap(),
            1
        );
        assert_eq!(listed(), 0);
    });
}

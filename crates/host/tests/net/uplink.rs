use std::process::{Command, Stdio};

use host::uplink::{self, Transport, UplinkError};
use host::{Rtnl, link};
use testkit::netns::{NamedNetns, in_netns, sh};

use super::{SOON, eventually};

/// eth0 wired to an outside namespace, with addresses and routes of several kinds.
fn mk_node(out: &NamedNetns) {
    sh("sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0");
    out.sh("sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0");
    sh(&format!(
        "ip link add eth0 type veth peer name out0 netns {}; ip link set eth0 up; \
         ip addr add 172.30.0.1/24 dev eth0; ip addr add 172.30.0.201/32 dev eth0; \
         ip addr add fd00:30::1/64 dev eth0 nodad; \
         ip addr add 172.30.9.1/24 dev eth0 valid_lft 5000 preferred_lft 4000",
        out.name()
    ));
    out.sh("ip link set out0 up; ip addr add 172.30.0.100/24 dev out0; ip addr add fd00:30::100/64 dev out0 nodad; ip addr add 198.51.100.1/32 dev lo");
    sh("ip route add default via 172.30.0.100; ip -6 route add default via fd00:30::100; \
        ip route add 192.0.2.0/24 via 172.30.0.100 src 172.30.0.201 metric 7 mtu 1400; \
        ip route add 203.0.113.0/24 dev eth0 proto static; \
        ip route add 10.5.0.0/16 via 172.30.0.100 table 99; \
        ip -6 route add 2001:db8::/32 via fd00:30::100 metric 3; \
        ip route add 10.6.0.1/32 via 10.6.0.1 dev eth0 onlink");
}

/// What `ip` shows of addresses and routes, without the names of links and remaining lifetimes.
fn picture(dev: &str) -> String {
    let shown = sh(&format!(
        "ip -o addr show dev {dev} scope global | grep -o 'inet.*'; \
         ip route show table all dev {dev}; true"
    ));
    let of_the_kernel =
        |line: &&str| ["table local", "fe80::", "multicast"].iter().any(|word| line.contains(word));
    let mut lines: Vec<String> = shown
        .lines()
        .filter(|line| !of_the_kernel(line))
        .map(|line| {
            let line = line.split("valid_lft").next().unwrap();
            line.replace(dev, "DEV").split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

#[test]
#[ignore = "needs root: make test"]
fn addresses_and_routes_move_and_come_back() {
    let out = NamedNetns::new("host-uplink").unwrap();
    in_netns(|| {
        mk_node(&out);
        sh("ip link add br-phy type bridge; ip link set br-phy address 02:00:00:00:00:77");
        let rtnl = Rtnl::open().unwrap();
        let eth0 = link::get_by_name(&rtnl, "eth0").unwrap().index;
        let br_phy = link::get_by_name(&rtnl, "br-phy").unwrap().index;
        link::wait_up(&rtnl, "eth0", SOON).unwrap();
        let before = picture("eth0");
        assert_eq!(before.matches("inet").count(), 4, "{before}");
        sh("ping -c 1 -W 2 198.51.100.1");

        // What OVS does with its own means: the NIC becomes a port of the bridge.
        sh("ip link set eth0 master br-phy");
        let moved = uplink::move_to(&rtnl, eth0, br_phy).unwrap();
        assert_eq!(moved.name, "br-phy");
        let (v4, v6) = moved.primary();
        assert_eq!(v4.unwrap().to_string(), "172.30.0.1/24");
        assert_eq!(v6.unwrap().to_string(), "fd00:30::1/64");
        assert_eq!(picture("br-phy"), before);
        assert_eq!(picture("eth0"), "");
        let lease = sh("ip -o addr show dev br-phy to 172.30.9.1");
        assert!(lease.contains("valid_lft 49") || lease.contains("valid_lft 5000"), "{lease}");
        sh("ping -c 1 -W 2 198.51.100.1; ping -6 -c 1 -W 2 fd00:30::100");

        // Once more: nothing left to do.
        uplink::move_to(&rtnl, eth0, br_phy).unwrap();
        assert_eq!(picture("br-phy"), before);

        sh("ip link set eth0 nomaster");
        uplink::move_to(&rtnl, br_phy, eth0).unwrap();
        assert_eq!(picture("eth0"), before);
        assert_eq!(picture("br-phy"), "");
        sh("ping -c 1 -W 2 198.51.100.1");
    });
}

/// A link that goes down and up after any change of the move, and so loses what it was given, has
/// all of it in the end.
#[test]
#[ignore = "needs root: make test"]
fn a_link_that_goes_down_during_the_move_has_all_in_the_end() {
    let mut n_moments = 0;
    // As long as the move makes a change more, it is disturbed there too.
    while has_all_when_disturbed_after(n_moments) {
        n_moments += 1;
    }
    // Four addresses brought over, seven routes, and the addresses taken from the old link.
    assert_eq!(n_moments, 15);
}

/// Moves, and takes the new link down and up once, after so many changes. False when the move
/// makes no more than that.
fn has_all_when_disturbed_after(n_changes: usize) -> bool {
    let out = NamedNetns::new("host-uplink").unwrap();
    in_netns(|| {
        mk_node(&out);
        sh("ip link add br-phy type bridge; ip link set br-phy up; ip link set eth0 master br-phy");
        let rtnl = Rtnl::open().unwrap();
        let eth0 = link::get_by_name(&rtnl, "eth0").unwrap().index;
        let br_phy = link::get_by_name(&rtnl, "br-phy").unwrap().index;
        link::wait_up(&rtnl, "eth0", SOON).unwrap();
        let before = picture("eth0");
        let n_lines = || picture("br-phy").lines().count();
        let (mut n_seen, mut lost) = (0, 0);
        let mut flap = || {
            if n_seen == n_changes {
                let had = n_lines();
                sh("ip link set br-phy down; ip link set br-phy up");
                lost = had - n_lines();
            }
            n_seen += 1;
        };
        uplink::move_stepwise(&rtnl, eth0, br_phy, &mut flap).unwrap();
        assert_eq!(picture("br-phy"), before, "after {n_changes} changes");
        assert_eq!(picture("eth0"), "", "after {n_changes} changes");
        let disturbed = n_seen > n_changes;
        // The last moments come when there is most to lose.
        assert!(!disturbed || n_changes < 5 || lost > 0, "nothing was lost after {n_changes}");
        disturbed
    })
}

/// One packet per 10 ms in both directions while the addresses move: all arrive.
#[test]
#[ignore = "needs root: make test"]
fn traffic_goes_on_during_a_move() {
    let out = NamedNetns::new("host-uplink").unwrap();
    in_netns(|| {
        mk_node(&out);
        let rtnl = Rtnl::open().unwrap();
        let eth0 = link::get_by_name(&rtnl, "eth0").unwrap();
        let br_phy = link::create_bridge(&rtnl, "br-phy").unwrap();
        link::set_mac(&rtnl, br_phy, eth0.mac.unwrap()).unwrap();
        link::set_up(&rtnl, br_phy).unwrap();
        sh("ping -c 1 -W 5 172.30.0.100 && ping -c 1 -W 5 198.51.100.1");
        let start = |mut command: Command, to: &str| {
            let args = ["-c", "100", "-i", "0.01", "-q", to];
            command.args(args).stdout(Stdio::piped()).spawn().unwrap()
        };
        let inwards = start(out.command("ping"), "172.30.0.1");
        let outwards = start(Command::new("ping"), "198.51.100.1");
        let rx = || link::get_by_index(&rtnl, eth0.index).unwrap().stats.rx_packets;
        let before = rx();
        eventually("packets flow", || {
            if rx() > before + 20 { Ok(()) } else { Err(format!("{} packets", rx() - before)) }
        });
        link::set_master(&rtnl, eth0.index, Some(br_phy)).unwrap();
        uplink::move_to(&rtnl, eth0.index, br_phy).unwrap();
        for ping in [inwards, outwards] {
            let output = ping.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains(" 0% packet loss"), "{said}");
        }
    });
}

/// Stopped after any number of steps, the next run ends where an undisturbed one does.
#[test]
#[ignore = "needs root: make test"]
fn a_half_done_move_is_finished_by_the_next() {
    for half_done in [
        "ip addr add 172.30.0.1/24 dev br-phy",
        "ip addr add 172.30.0.1/24 dev br-phy; ip addr add 172.30.0.201/32 dev br-phy; ip addr del 172.30.0.201/32 dev eth0",
        "ip addr add 172.30.0.1/24 dev br-phy; ip route replace default via 172.30.0.100 dev br-phy",
        "ip addr add fd00:30::1/64 dev br-phy nodad; ip -6 route replace default via fd00:30::100 dev br-phy",
    ] {
        let out = NamedNetns::new("host-uplink").unwrap();
        in_netns(|| {
            mk_node(&out);
            sh(
                "ip link add br-phy type bridge; ip link set br-phy up; ip link set eth0 master br-phy",
            );
            let rtnl = Rtnl::open().unwrap();
            link::wait_up(&rtnl, "eth0", SOON).unwrap();
            let before = picture("eth0");
            sh(half_done);
            let index = |name: &str| link::get_by_name(&rtnl, name).unwrap().index;
            uplink::move_to(&rtnl, index("eth0"), index("br-phy")).unwrap();
            assert_eq!(picture("br-phy"), before, "{half_done}");
            assert_eq!(picture("eth0"), "", "{half_done}");
        });
    }
}

#[test]
#[ignore = "needs root: make test"]
fn the_interface_is_found_by_name_prefix_or_address() {
    let out = NamedNetns::new("host-uplink").unwrap();
    in_netns(|| {
        mk_node(&out);
        let rtnl = Rtnl::open().unwrap();
        let by_name = uplink::find(&rtnl, &Transport::Name("eth0".into())).unwrap();
        assert_eq!(by_name.mtu, 1500);
        assert_eq!(by_name.mac, link::get_by_name(&rtnl, "eth0").unwrap().mac);
        assert_eq!(by_name.addresses.len(), 4);
        for by in [
            Transport::Cidrs(vec![
                "192.168.0.0/16".parse().unwrap(),
                "172.30.0.0/24".parse().unwrap(),
            ]),
            Transport::NodeIps(vec!["172.30.0.1".parse().unwrap()]),
            Transport::NodeIps(vec!["fd00:30::1".parse().unwrap()]),
        ] {
            assert_eq!(uplink::find(&rtnl, &by).unwrap().index, by_name.index, "{by:?}");
        }
        for by in [
            Transport::Name("eth9".into()),
            Transport::Cidrs(vec!["192.168.0.0/16".parse().unwrap()]),
            Transport::NodeIps(vec!["172.30.0.7".parse().unwrap()]),
        ] {
            let error = uplink::find(&rtnl, &by).unwrap_err();
            assert!(matches!(error, UplinkError::NotFound(_)), "{error}");
        }
    });
}

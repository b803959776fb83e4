use host::link::{self, LinkError, LinkKind, VethSpec};
use host::monitor::{Change, Monitor, Topics};
use host::{MacAddr, Netns, Rtnl};
use testkit::netns::{NamedNetns, in_netns, sh};

use super::{SOON, block_on};

const POD_MAC: MacAddr = MacAddr([0x0a, 0, 0, 0, 0, 0x21]);

#[test]
#[ignore = "needs root: make test"]
fn a_veth_is_complete_and_down_and_its_far_end_is_only_in_the_pod() {
    let pod = NamedNetns::new("host-veth").unwrap();
    in_netns(|| {
        let rtnl = Rtnl::open().unwrap();
        let pod_netns = Netns::open(pod.path()).unwrap();
        let bridge = link::create_bridge(&rtnl, "antrea-null").unwrap();
        let spec = VethSpec {
            host_name: "web-1f3c",
            host_mac: None,
            pod_netns: &pod_netns,
            pod_name: "eth0",
            pod_mac: Some(POD_MAC),
            mtu: 1450,
            master: Some(bridge),
        };
        let veth = link::create_veth(&rtnl, &spec).unwrap();

        let seen = sh("ip -o -d link show web-1f3c");
        for want in ["mtu 1450", "state DOWN", "master antrea-null", "veth"] {
            assert!(seen.contains(want), "no {want} in {seen}");
        }
        assert!(!seen.contains(",UP"), "{seen}");
        assert!(!sh("ip -o link").contains(&POD_MAC.to_string()));
        let inside = pod.sh("ip -o link show eth0");
        assert!(inside.contains("mtu 1450") && inside.contains(&POD_MAC.to_string()), "{inside}");
        assert!(inside.starts_with(&format!("{}:", veth.pod.0)), "{inside}");

        let found = link::get_by_name(&rtnl, "web-1f3c").unwrap();
        assert_eq!(found.kind, LinkKind::Veth);
        assert_eq!((found.master, found.peer, found.up), (Some(bridge), Some(veth.pod), false));
        assert!(found.peer_netnsid.is_some());
        assert_eq!(found.mac, Some(veth.host_mac));

        let again = link::create_veth(&rtnl, &spec);
        assert!(matches!(&again, Err(LinkError::Exists(name)) if name == "web-1f3c"), "{again:?}");
        let other = link::create_veth(&rtnl, &VethSpec { host_name: "web-2", ..spec });
        assert!(matches!(&other, Err(LinkError::Exists(name)) if name == "eth0"), "{other:?}");
        link::delete(&rtnl, veth.host).unwrap();
        link::delete(&rtnl, veth.host).unwrap();
        assert_eq!(link::find_by_name(&rtnl, "web-1f3c").unwrap(), None);
        assert!(!pod.sh("ip -o link").contains("eth0"));
    });
}

#[test]
#[ignore = "needs root: make test"]
fn the_host_end_gets_no_ipv6_address_of_its_own() {
    in_netns(|| {
        sh("sysctl -q -w net.ipv6.conf.default.disable_ipv6=0");
        let rtnl = Rtnl::open().unwrap();
        let veth = link::create_veth_pair(&rtnl, "quiet", "loud", 1450).unwrap();
        link::set_up_without_ipv6_address(&rtnl, veth.host).unwrap();
        link::set_up(&rtnl, veth.pod).unwrap();
        link::wait_up(&rtnl, "quiet", SOON).unwrap();
        link::wait_up(&rtnl, "loud", SOON).unwrap();
        super::eventually("the ordinary end has its link-local address", || {
            let seen = sh("ip -o -6 addr show dev loud");
            if seen.contains("fe80::") { Ok(()) } else { Err(seen) }
        });
        assert_eq!(sh("ip -o -6 addr show dev quiet"), "");
        // An MTU below 1280 takes IPv6 off the link: there is no mode to set, and no error.
        let small = link::create_veth_pair(&rtnl, "small", "small1", 1000).unwrap();
        link::set_up_without_ipv6_address(&rtnl, small.host).unwrap();
        assert!(sh("ip -o link show small").contains(",UP"));
    });
}

#[test]
#[ignore = "needs root: make test"]
fn links_are_changed_and_found() {
    in_netns(|| {
        let rtnl = Rtnl::open().unwrap();
        let veth = link::create_veth_pair(&rtnl, "a0", "b0", 1500).unwrap();
        let index = veth.host;
        link::set_mtu(&rtnl, index, 1400).unwrap();
        link::set_mac(&rtnl, index, POD_MAC).unwrap();
        link::rename(&rtnl, index, "c0.100").unwrap();
        link::set_alias(&rtnl, index, "antrea: ns/web-0").unwrap();
        let bridge = link::create_bridge(&rtnl, "br0").unwrap();
        link::set_master(&rtnl, index, Some(bridge)).unwrap();
        let seen = sh("ip -d link show c0.100");
        for want in ["mtu 1400", "0a:00:00:00:00:21", "alias antrea: ns/web-0", "master br0"] {
            assert!(seen.contains(want), "no {want} in {seen}");
        }
        let found = link::get_by_index(&rtnl, index).unwrap();
        assert_eq!(found.alias.as_deref(), Some("antrea: ns/web-0"));
        assert_eq!(link::get_by_index(&rtnl, bridge).unwrap().kind, LinkKind::Bridge);
        link::set_master(&rtnl, index, None).unwrap();
        assert_eq!(link::get_by_index(&rtnl, index).unwrap().master, None);
        link::set_up(&rtnl, index).unwrap();
        assert!(link::get_by_index(&rtnl, index).unwrap().up);
        link::set_down(&rtnl, index).unwrap();
        assert!(!link::get_by_index(&rtnl, index).unwrap().up);
        let names: Vec<_> = link::list(&rtnl).unwrap().into_iter().map(|l| l.name).collect();
        assert_eq!(names, ["lo", "b0", "c0.100", "br0"]);
        assert!(link::list(&rtnl).unwrap()[0].loopback);

        let missing = host::IfIndex(9999);
        assert!(matches!(link::set_mtu(&rtnl, missing, 1400), Err(LinkError::NotFound(_))));
        assert!(matches!(link::find_by_name(&rtnl, "far/too"), Err(LinkError::BadName(_))));
        // The kernel's own words come along.
        let error = link::set_mtu(&rtnl, index, 70_000).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("EINVAL") && source.contains("mtu"), "{source}");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn waiting_ends_when_the_link_comes_or_time_is_over() {
    in_netns(|| {
        let rtnl = Rtnl::open().unwrap();
        let late = link::wait_up(&rtnl, "tap0", std::time::Duration::from_millis(20));
        let text = late.unwrap_err().to_string();
        assert!(text.contains("tap0") && text.contains("not there"), "{text}");
        std::thread::scope(|scope| {
            let (rtnl, netns) = (&rtnl, Netns::current().unwrap());
            let waiter = scope.spawn(move || link::wait_up(rtnl, "tap0", SOON));
            netns.run(|| sh("ip tuntap add tap0 mode tap && ip link set tap0 up")).unwrap();
            // A tap without a process behind it has no carrier: up alone is not enough.
            let plain = link::wait_for(rtnl, "tap0", SOON, |link| link.up).unwrap();
            assert_eq!(plain.kind, LinkKind::Tun);
            assert!(!plain.carrier);
            netns.run(|| sh("ip link del tap0 && ip link add tap0 type bridge && ip link set tap0 up && ip link add p type veth peer q && ip link set p master tap0 up && ip link set q up")).unwrap();
            assert!(waiter.join().unwrap().unwrap().carrier);
        });
    });
}

#[test]
#[ignore = "needs root: make test"]
fn changes_are_notified() {
    in_netns(|| {
        let netns = Netns::current().unwrap();
        let monitor =
            Monitor::open_in(&netns, Topics::LINKS | Topics::ADDRESSES | Topics::ROUTES).unwrap();
        block_on(async {
            let mut monitor = monitor.into_async().unwrap();
            sh(
                "ip link add br0 type bridge && ip link set br0 up && ip addr add 10.9.0.1/24 dev br0 && ip link del br0",
            );
            let mut seen = Vec::new();
            let follow = async {
                loop {
                    for change in monitor.next().await.unwrap() {
                        let gone = matches!(&change, Change::LinkGone(link) if link.name == "br0");
                        seen.push(change);
                        if gone {
                            return;
                        }
                    }
                }
            };
            tokio::time::timeout(SOON, follow).await.unwrap();
            assert!(seen.iter().any(|c| matches!(c, Change::LinkSet(l) if l.name == "br0")));
            let net = "10.9.0.1/24".parse().unwrap();
            assert!(seen.iter().any(|c| matches!(c, Change::AddressSet(a) if a.net == net)));
            let net = "10.9.0.0/24".parse().unwrap();
            assert!(seen.iter().any(|c| matches!(c, Change::RouteSet(r) if r.dst == net)));
        });
    });
}

#[test]
#[ignore = "needs root: make test"]
fn counters_are_those_of_ip() {
    in_netns(|| {
        let rtnl = Rtnl::open().unwrap();
        sh("ping -c 3 -i 0.01 127.0.0.1");
        let stats = link::get_by_index(&rtnl, host::IfIndex::LOOPBACK).unwrap().stats;
        assert!(stats.rx_packets >= 6 && stats.rx_bytes == stats.tx_bytes, "{stats:?}");
        let seen = sh("ip -s -o link show lo");
        assert!(seen.contains(&stats.rx_bytes.to_string()), "{stats:?} {seen}");
    });
}

/// Many at once: nothing gets into the wrong namespace, no descriptor and no link is left.
#[test]
#[ignore = "needs root: make test"]
fn parallel_pods_leave_nothing_behind() {
    const PODS: usize = 24;
    in_netns(|| {
        let host_netns = Netns::current().unwrap();
        let rtnl = Rtnl::open().unwrap();
        let n_fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let round = |number: usize| {
            std::thread::scope(|scope| {
                for pod in 0..PODS {
                    let (rtnl, host_netns) = (&rtnl, &host_netns);
                    scope.spawn(move || {
                        let name = format!("hp-{}-{pod}", std::process::id());
                        let pod_netns = host::netns::create_named(&name).unwrap();
                        let host_name = format!("h{pod}");
                        let mac = MacAddr([
                            2,
                            0,
                            0,
                            0,
                            u8::try_from(number).unwrap(),
                            u8::try_from(pod).unwrap(),
                        ]);
                        let spec = VethSpec {
                            host_name: &host_name,
                            host_mac: None,
                            pod_netns: &pod_netns,
                            pod_name: "eth0",
                            pod_mac: Some(mac),
                            mtu: 1450,
                            master: None,
                        };
                        let veth = link::create_veth(rtnl, &spec).unwrap();
                        let inside = Rtnl::open_in(&pod_netns).unwrap();
                        assert_eq!(link::get_by_name(&inside, "eth0").unwrap().mac, Some(mac));
                        assert!(!inside.netns().same_as(host_netns));
                        link::delete(rtnl, veth.host).unwrap();
                        host::netns::delete_named(&name).unwrap();
                    });
                }
            });
        };
        round(0);
        let before = n_fds();
        round(1);
        round(2);
        // Other tests of this process open some at the same time; a leak here would be dozens.
        assert!(n_fds() < before + PODS, "{before} descriptors became {}", n_fds());
        assert_eq!(link::list(&rtnl).unwrap().len(), 1);
    });
}

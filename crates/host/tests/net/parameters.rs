use host::offload::{self, Offload, OffloadError};
use host::sysctl::{Family, Sysctl, SysctlError};
use host::{Netns, Rtnl, link};
use testkit::netns::{NamedNetns, in_netns, sh};

#[test]
#[ignore = "needs root: make test"]
fn parameters_are_per_namespace() {
    let pod = NamedNetns::new("host-sysctl").unwrap();
    in_netns(|| {
        let rtnl = Rtnl::open().unwrap();
        let veth = link::create_veth_pair(&rtnl, "eth0.100", "far0", 1500).unwrap();
        let rp_filter = Sysctl::conf(Family::Ipv4, "eth0.100", "rp_filter");
        rp_filter.set("0").unwrap();
        assert_eq!(rp_filter.set("2").unwrap(), "0");
        assert_eq!(sh("cat /proc/sys/net/ipv4/conf/eth0.100/rp_filter").trim(), "2");
        assert_eq!(rp_filter.set_if_lower(1).unwrap(), None);
        rp_filter.set("0").unwrap();
        assert_eq!(rp_filter.set_if_lower(1).unwrap(), Some(0));
        assert_eq!(rp_filter.get_number().unwrap(), 1);

        let forward = Sysctl::new("net/ipv4/ip_forward");
        let pod_netns = Netns::open(pod.path()).unwrap();
        let before = forward.get().unwrap();
        pod_netns.run(|| forward.set("1")).unwrap().unwrap();
        assert_eq!(pod.sh("sysctl -n net.ipv4.ip_forward").trim(), "1");
        assert_eq!(forward.get().unwrap(), before);

        link::delete(&rtnl, veth.host).unwrap();
        assert!(matches!(rp_filter.set("0"), Err(SysctlError::NotFound(_))));
        let refused = forward.set("many").unwrap_err();
        assert!(refused.to_string().contains("net/ipv4/ip_forward"), "{refused}");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn checksum_offload_is_switched_off_and_on() {
    let pod = NamedNetns::new("host-offload").unwrap();
    in_netns(|| {
        let rtnl = Rtnl::open().unwrap();
        let pod_netns = Netns::open(pod.path()).unwrap();
        let spec = link::VethSpec {
            host_name: "gw0",
            host_mac: None,
            pod_netns: &pod_netns,
            pod_name: "eth0",
            pod_mac: None,
            mtu: 1450,
            master: None,
        };
        link::create_veth(&rtnl, &spec).unwrap();
        assert_eq!(offload::tx_checksum_in(&pod_netns, "eth0").unwrap(), Offload::On);
        offload::disable_tx_checksum_in(&pod_netns, "eth0").unwrap();
        offload::disable_tx_checksum_in(&pod_netns, "eth0").unwrap();
        let seen = pod.sh("ethtool -k eth0");
        assert!(seen.contains("tx-checksumming: off"), "{seen}");
        assert!(seen.contains("tx-tcp-segmentation: off"), "{seen}");
        assert!(sh("ethtool -k gw0").contains("tx-checksumming: on"));
        pod_netns.run(|| offload::enable_tx_checksum("eth0")).unwrap().unwrap();
        assert_eq!(offload::tx_checksum_in(&pod_netns, "eth0").unwrap(), Offload::On);
        for missing in ["nosuch0", "name-too-long-for-it"] {
            let outcome = offload::disable_tx_checksum(missing);
            assert!(matches!(outcome, Err(OffloadError::NotFound(_))), "{outcome:?}");
        }
    });
}

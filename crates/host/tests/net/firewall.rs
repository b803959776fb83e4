use host::iptables_forward::{self, Family, Forward};
use host::iptables_leftovers;
use host::mac::MacAddr;
use host::netfilter::{DropChain, DropChains, NetfilterError, TableFamily, Watch};
use host::nft::node::{Masquerade, NodeRules};
use host::{Netns, Rtnl, address, link, nft};
use testkit::netns::{NamedNetns, in_netns, sh, try_sh};

use super::{SOON, block_on, eventually};

#[test]
#[ignore = "needs root: make test"]
fn a_drop_chain_takes_the_kernels_copy_and_nft_shows_it() {
    let pod = NamedNetns::new("host-drop").unwrap();
    in_netns(|| {
        let rtnl = Rtnl::open().unwrap();
        let pod_netns = Netns::open(pod.path()).unwrap();
        let spec = link::VethSpec {
            host_name: "web-1f3c",
            host_mac: None,
            pod_netns: &pod_netns,
            pod_name: "eth0",
            pod_mac: None,
            mtu: 1450,
            master: None,
        };
        let veth = link::create_veth(&rtnl, &spec).unwrap();
        let drops = DropChains::open().unwrap();
        drops.add("web-1f3c").unwrap();
        drops.add("web-1f3c").unwrap();
        let inside = Rtnl::open_in(&pod_netns).unwrap();
        link::set_up(&rtnl, veth.host).unwrap();
        link::set_up(&inside, veth.pod).unwrap();
        link::wait_up(&rtnl, "web-1f3c", SOON).unwrap();
        address::add(&rtnl, veth.host, "10.77.1.1/24".parse().unwrap()).unwrap();
        address::add(&inside, veth.pod, "10.77.1.2/24".parse().unwrap()).unwrap();

        let seen = sh("nft list ruleset");
        for want in [
            "table netdev antrea",
            "chain drop-web-1f3c",
            "comment \"kernel copy of what OVS takes\"",
            "hook ingress device \"web-1f3c\" priority filter; policy drop;",
        ] {
            assert!(seen.contains(want), "no {want:?} in\n{seen}");
        }
        let listed = drops.list().unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(
            (listed[0].device.as_str(), listed[0].hooked.as_slice()),
            ("web-1f3c", &["web-1f3c".to_owned()][..])
        );

        let ping = || {
            let (status, out, _) = pod.run(|| try_sh("ping -c 1 -W 1 10.77.1.1")).unwrap();
            (status.success(), out)
        };
        let (answered, out) = ping();
        assert!(!answered, "{out}");
        drops.delete("web-1f3c").unwrap();
        drops.delete("web-1f3c").unwrap();
        eventually("the node answers without the chain", || {
            let (answered, out) = ping();
            if answered { Ok(()) } else { Err(out) }
        });

        // A device of the same name that comes back is hooked again.
        drops.add("web-1f3c").unwrap();
        link::delete(&rtnl, veth.host).unwrap();
        let veth = link::create_veth(&rtnl, &spec).unwrap();
        drops.add("web-1f3c").unwrap();
        let inside = Rtnl::open_in(&pod_netns).unwrap();
        link::set_up(&rtnl, veth.host).unwrap();
        link::set_up(&inside, veth.pod).unwrap();
        link::wait_up(&rtnl, "web-1f3c", SOON).unwrap();
        address::add(&rtnl, veth.host, "10.77.1.1/24".parse().unwrap()).unwrap();
        address::add(&inside, veth.pod, "10.77.1.2/24".parse().unwrap()).unwrap();
        let (answered, out) = ping();
        assert!(!answered, "{out}");

        // So is one whose chain someone hooked elsewhere.
        sh("nft delete chain netdev antrea drop-web-1f3c");
        sh(
            "nft 'add chain netdev antrea drop-web-1f3c { type filter hook ingress device lo priority 5; }'",
        );
        drops.add("web-1f3c").unwrap();
        assert_eq!(drops.list().unwrap(), listed);
        let (answered, out) = ping();
        assert!(!answered, "{out}");

        drops.delete_all().unwrap();
        drops.delete_all().unwrap();
        assert_eq!(drops.list().unwrap(), []);
        assert_eq!(sh("nft list ruleset"), "");
        assert!(matches!(drops.add("far/too/long/for/a/name"), Err(NetfilterError::NoDevice(_))));
    });
}

#[test]
#[ignore = "needs root: make test"]
fn what_someone_flushed_is_noticed_and_put_back() {
    in_netns(|| {
        let rtnl = Rtnl::open().unwrap();
        for (name, peer) in [("a0", "a1"), ("b0", "b1")] {
            link::create_veth_pair(&rtnl, name, peer, 1500).unwrap();
        }
        let drops = DropChains::open().unwrap();
        let right = || -> Vec<String> {
            let chains = drops.list().unwrap().into_iter();
            chains.filter(DropChain::is_right).map(|chain| chain.device).collect()
        };
        block_on(async {
            let mut watch =
                Watch::open_in(&Netns::current().unwrap(), TableFamily::Netdev).unwrap();
            let mut changed =
                async || tokio::time::timeout(SOON, watch.changed()).await.unwrap().unwrap();
            drops.add("a0").unwrap();
            drops.add("b0").unwrap();
            changed().await;
            assert_eq!(right(), ["a0", "b0"]);
            let as_made = sh("nft list ruleset");

            sh("nft flush ruleset");
            changed().await;
            assert!(right().is_empty());
            drops.add("a0").unwrap();
            drops.add("b0").unwrap();
            assert_eq!(sh("nft list ruleset"), as_made);
            changed().await;

            sh("nft 'add chain netdev antrea drop-b0 { policy accept; }'");
            changed().await;
            assert_eq!(right(), ["a0"]);
            drops.add("b0").unwrap();
            assert_eq!(sh("nft list ruleset"), as_made);
        });
    });
}

fn mk_rules() -> NodeRules {
    NodeRules {
        gateway: "antrea-gw0".into(),
        local_pod_cidrs: vec!["10.77.1.0/24".parse().unwrap(), "fd00:77:1::/64".parse().unwrap()],
        cluster_pod_cidrs: (1..20)
            .map(|n| format!("10.77.{n}.0/24").parse().unwrap())
            .chain(["fd00:77:1::/64".parse().unwrap()])
            .collect(),
        tunnel_port: Some(6081),
        masquerade: Masquerade::On,
    }
}

#[test]
#[ignore = "needs root: make test"]
fn the_table_is_replaced_as_a_whole_and_others_stay() {
    in_netns(|| {
        sh(
            "nft add table inet other && nft add chain inet other c && nft add rule inet other c accept",
        );
        let others = sh("nft list ruleset");
        block_on(async {
            assert_eq!(nft::list().await.unwrap(), None);
            let mut rules = mk_rules();
            nft::apply(&[rules.feature()]).await.unwrap();
            let first = nft::list().await.unwrap().unwrap();
            nft::apply(&[rules.feature()]).await.unwrap();
            assert_eq!(nft::list().await.unwrap().unwrap(), first);
            for want in [
                "type nat hook postrouting priority srcnat; policy accept;",
                "ip saddr @local-pod-cidrs4 ip daddr != @cluster-pod-cidrs4 oifname != \"antrea-gw0\" masquerade comment",
                "ip6 saddr @local-pod-cidrs6",
                "iifname \"antrea-gw0\" accept",
                "udp dport 6081 notrack",
            ] {
                assert!(first.contains(want), "no {want:?} in\n{first}");
            }
            rules.cluster_pod_cidrs = vec!["10.77.1.0/24".parse().unwrap()];
            rules.tunnel_port = None;
            rules.masquerade = Masquerade::Off;
            nft::apply(&[rules.feature()]).await.unwrap();
            let second = nft::list().await.unwrap().unwrap();
            assert!(!second.contains("notrack") && !second.contains("10.77.2.0"), "{second}");

            // A transaction that fails changes nothing.
            let refused = nft::run_script("flush table inet antrea\nnonsense\n").await.unwrap_err();
            assert!(refused.to_string().contains("nonsense"), "{refused}");
            assert_eq!(nft::list().await.unwrap().unwrap(), second);

            // A chain that stands elsewhere is made anew.
            sh(
                "nft delete chain inet antrea pod-forward && nft 'add chain inet antrea pod-forward { type filter hook input priority 5; }'",
            );
            nft::apply(&[rules.feature()]).await.unwrap();
            assert_eq!(sorted(&nft::list().await.unwrap().unwrap()), sorted(&second));

            nft::remove(&[rules.feature()]).await.unwrap();
            nft::remove(&[rules.feature()]).await.unwrap();
            let empty = nft::list().await.unwrap().unwrap();
            assert!(!empty.contains("chain") && !empty.contains("set"), "{empty}");
            nft::delete_table().await.unwrap();
            nft::delete_table().await.unwrap();
        });
        assert_eq!(sh("nft list ruleset"), others);
    });
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Pod -> node -> outside: the outside sees the node; another Pod CIDR sees the Pod.
#[test]
#[ignore = "needs root: make test"]
fn pods_are_masqueraded_to_the_outside_only() {
    let pod = NamedNetns::new("host-masq-pod").unwrap();
    let out = NamedNetns::new("host-masq-out").unwrap();
    let node = NamedNetns::new("host-masq-node").unwrap();
    node.sh(&format!(
        "ip link add antrea-gw0 type veth peer name eth0 netns {pod}; \
         ip link add up0 type veth peer name eth0 netns {out}; \
         ip addr add 10.77.1.1/24 dev antrea-gw0; ip addr add 172.30.0.1/24 dev up0; \
         ip link set antrea-gw0 up; ip link set up0 up; sysctl -q -w net.ipv4.ip_forward=1",
        pod = pod.name(),
        out = out.name()
    ));
    pod.sh("ip addr add 10.77.1.2/24 dev eth0; ip link set eth0 up; ip route add default via 10.77.1.1");
    out.sh("ip addr add 172.30.0.100/24 dev eth0; ip addr add 10.77.2.9/32 dev eth0; ip link set eth0 up; ip route add 10.77.1.0/24 via 172.30.0.1");
    node.sh("ip route add 10.77.2.0/24 via 172.30.0.100");
    node.run(|| block_on(nft::apply(&[mk_rules().feature()])).unwrap());
    let seen_from = |target: &str| {
        let server = out.run(|| std::net::UdpSocket::bind((target, 9999)).unwrap());
        server.set_read_timeout(Some(SOON)).unwrap();
        let client = pod.run(|| std::net::UdpSocket::bind("10.77.1.2:0").unwrap());
        client.send_to(b"x", (target, 9999)).unwrap();
        let (_, from) = server.recv_from(&mut [0; 8]).unwrap();
        from.ip().to_string()
    };
    assert_eq!(seen_from("172.30.0.100"), "172.30.0.1");
    assert_eq!(seen_from("10.77.2.9"), "10.77.1.2");
}

#[test]
#[ignore = "needs root: make test"]
fn forward_is_opened_only_where_its_policy_is_drop() {
    in_netns(|| {
        block_on(async {
            for (family, program) in [(Family::Ipv4, "iptables"), (Family::Ipv6, "ip6tables")] {
                let allowed = iptables_forward::allow(family, "antrea-gw0").await.unwrap();
                assert_eq!(allowed, Forward::NotNeeded);
                sh(&format!("{program} -P FORWARD DROP; {program} -A FORWARD -j REJECT"));
                let allow = || iptables_forward::allow(family, "antrea-gw0");
                assert_eq!(allow().await.unwrap(), Forward::Added);
                assert_eq!(allow().await.unwrap(), Forward::Present);
                let seen = sh(&format!("{program} -S FORWARD"));
                let rules: Vec<&str> = seen.lines().collect();
                assert_eq!(rules.len(), 4, "{seen}");
                assert!(rules[1].contains("antrea-gw0") && rules[1].ends_with("ACCEPT"), "{seen}");
                iptables_forward::disallow(family, "antrea-gw0").await.unwrap();
                iptables_forward::disallow(family, "antrea-gw0").await.unwrap();
                assert_eq!(sh(&format!("{program} -S FORWARD")).lines().count(), 2);
            }
        });
    });
}

#[test]
#[ignore = "needs root: make test"]
fn chains_of_a_go_agent_go_and_nothing_else() {
    in_netns(|| {
        let rules = || {
            let all = sh("iptables-save; ip6tables-save");
            let rules = all.lines().filter(|line| !line.starts_with('#'));
            // Counters are not rules.
            rules.map(|line| line.split(" [").next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        for program in ["iptables", "ip6tables"] {
            sh(&format!(
                "{program} -t nat -N KUBE-SERVICES; \
                 {program} -t nat -A PREROUTING -m comment --comment 'k8s -j ANTREA-X' -j KUBE-SERVICES; \
                 {program} -P FORWARD DROP; {program} -A FORWARD -i eth9 -j ACCEPT; \
                 {program} -t mangle -A PREROUTING -i eth9 -j ACCEPT; \
                 {program} -t raw -A OUTPUT -o eth9 -j ACCEPT"
            ));
        }
        let as_found = rules();
        for program in ["iptables", "ip6tables"] {
            sh(&format!(
                "for t in raw mangle nat; do {program} -t $t -N ANTREA-PREROUTING; {program} -t $t -N ANTREA-OUTPUT; \
                 {program} -t $t -I PREROUTING -m comment --comment 'Antrea: jump to Antrea prerouting rules' -j ANTREA-PREROUTING; \
                 {program} -t $t -A OUTPUT -m comment --comment 'Antrea: jump to Antrea output rules' -j ANTREA-OUTPUT; \
                 {program} -t $t -A ANTREA-PREROUTING -j ANTREA-OUTPUT; done; \
                 {program} -t nat -N ANTREA-POSTROUTING; {program} -t nat -A POSTROUTING -j ANTREA-POSTROUTING; \
                 {program} -t nat -A ANTREA-POSTROUTING -j MASQUERADE; \
                 {program} -N ANTREA-FORWARD; {program} -A FORWARD -j ANTREA-FORWARD; \
                 {program} -A ANTREA-FORWARD -i antrea-gw0 -j ACCEPT"
            ));
        }
        assert_ne!(rules(), as_found);
        let removed = block_on(iptables_leftovers::remove()).unwrap();
        assert_eq!(removed.chains.len(), 2 * (2 * 3 + 1 + 1), "{removed:?}");
        assert_eq!(rules(), as_found);
        assert_eq!(block_on(iptables_leftovers::remove()).unwrap().chains, [""; 0]);
    });
}

/// Frames that the node makes carry the mark's Ethernet source; those it forwards do not.
#[test]
#[ignore = "needs root: make test"]
fn frames_of_the_node_itself_are_known() {
    let pod = NamedNetns::new("host-frames").unwrap();
    in_netns(|| {
        sh(&format!("ip link add gw0 type veth peer name eth0 netns {}", pod.name()));
        sh("ip addr add 10.77.1.1/24 dev gw0; ip link set gw0 up; ip link set lo up");
        pod.sh("ip addr add 10.77.1.2/24 dev eth0; ip link set eth0 up");
        let mac = MacAddr([0x0a, 0, 0, 0, 0x80, 0x01]);
        let rules = NodeRules { gateway: "gw0".into(), ..mk_rules() };
        block_on(async {
            nft::apply(&[rules.feature()]).await.unwrap();
            nft::host_frames::apply("gw0", mac).await.unwrap();
            nft::host_frames::apply("gw0", mac).await.unwrap();
        });
        // Who asks by ARP is the interface; what is sent then is the node.
        sh("ping -c 1 -W 5 10.77.1.2");
        let counted = |rule: &str| {
            pod.sh(&format!("nft add table netdev t; nft 'add chain netdev t c {{ type filter hook ingress device \"eth0\" priority 0; }}'; nft add rule netdev t c {rule} counter"));
        };
        counted("ether saddr 0a:00:00:00:80:01 ip saddr 10.77.1.1");
        sh("ping -c 3 -i 0.2 -W 5 10.77.1.2");
        let seen = pod.sh("nft list table netdev t");
        assert!(seen.contains("packets 3 "), "{seen}");
        block_on(async {
            nft::host_frames::remove().await.unwrap();
            nft::host_frames::remove().await.unwrap();
        });
        assert!(!sh("nft list ruleset").contains("antrea-host"));
    });
}

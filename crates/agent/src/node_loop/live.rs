//! The loop on a kernel of its own: what somebody does to the node, and what it looks like soon after.

use std::collections::BTreeMap;

use host::link::{IfIndex, create_veth_pair};
use pipeline::service::Protocol;
use pipeline::{Families, Gateway};
use switch::bridge::BridgeConfig;
use testkit::netns::{in_netns, sh};

use super::*;
use crate::gateway::GatewayLink;

/// All of it happens long before the next look by itself.
const SOON: Duration = Duration::from_secs(10);
/// One that the node gets later.
const LATER: &str = "192.0.2.77";

fn mk_loop(rtnl: &Rtnl, wants_rx: watch::Receiver<Option<Arc<HostWants>>>) -> NodeLoop {
    let link = GatewayLink {
        name: "gw".into(),
        mac: MacAddr([2, 0, 0, 0, 0, 7]),
        mtu: 1450,
        addresses: vec!["10.77.1.1/24".parse().unwrap()],
        families: Families::V4,
    };
    let gateway = Gateway {
        ofport: openflow::OfPort(2),
        mac: openflow::MacAddr(link.mac.0),
        ips: vec!["10.77.1.1".parse().unwrap()],
    };
    let transport = "172.30.0.1".parse().unwrap();
    // Nobody answers there: what is set is kept for when somebody does.
    let nowhere = BridgeConfig::new(PathBuf::from("/nowhere/br-int.mgmt"), 0xa17e);
    NodeLoop {
        peers: Peers::new("us", transport),
        bridge: Bridge::start(nowhere),
        node: NodeConfig {
            families: Families::V4,
            gateway,
            tunnel: None,
            pod_cidrs: vec!["10.77.1.0/24".parse().unwrap()],
            node_ips: vec![transport],
            services: Some(pipeline::service::ServiceConfig {
                datapath: pipeline::service::Datapath::Netdev,
                proxy_all: true,
                node_port_addresses: Vec::new(),
                dsr: false,
                controller_id: 1,
                packet_in_rate: None,
            }),
        },
        rtnl: rtnl.clone(),
        upkeep: Upkeep {
            rtnl: rtnl.clone(),
            gateway: link,
            uplink: None,
            gateway_index: IfIndex(0),
        },
        tunnel_port: None,
        masquerade: Masquerade::On,
        uplink: Uplink {
            index: IfIndex(1),
            name: "lo".into(),
            mtu: 1500,
            mac: None,
            addresses: Vec::new(),
            routes: Vec::new(),
        },
        own_addresses: OwnAddresses { transport, node_ips: BTreeSet::new() },
        health: NodeHealth::new(),
        marks_host_frames: false,
        firewall: None,
        frames: None,
        retry: Retry::default(),
        tunnel_neighbours: None,
        services: Some(ToServices {
            wants_rx,
            choice: NodePortChoice { among: Vec::new(), families: Families::V4 },
            node_port_addresses: Vec::new(),
        }),
    }
}

async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let wait = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(SOON, wait).await.is_ok();
    assert!(in_time, "not in time: {what}\n{}", sh("nft list ruleset; ip route; ip addr"));
}

/// Addresses at which node ports are served, as the kernel has them; none without the table.
fn served() -> String {
    sh("nft list set inet antrea node-port-addresses4 2>/dev/null || true")
}

fn has_frames() -> bool {
    sh("nft list table netdev antrea-host 2>/dev/null || true").contains("saddr set")
}

/// Everything that somebody does, one after the other.
async fn somebody(problems: watch::Receiver<BTreeMap<&'static str, String>>) {
    until("node ports are served", || served().contains("127.0.0.1")).await;
    until("loopback is led to the switch", || {
        sh("sysctl -n net.ipv4.conf.gw.route_localnet").trim() == "1"
    })
    .await;
    assert!(!served().contains(LATER));
    sh(&format!("ip addr add {LATER}/32 dev lo"));
    until("a new address serves", || served().contains(LATER)).await;
    sh(&format!("ip addr del {LATER}/32 dev lo"));
    until("one that went does not", || {
        let served = served();
        served.contains("127.0.0.1") && !served.contains(LATER)
    })
    .await;

    for way in ["nft delete table inet antrea", "nft flush ruleset"] {
        sh(way);
        until(way, || served().contains("127.0.0.1")).await;
    }
    until("frames are marked", has_frames).await;
    sh("nft delete table netdev antrea-host");
    until("frames are marked again", has_frames).await;

    // A chain of ours with another hook cannot be changed, and while a rule leads to it not removed.
    sh("nft 'flush chain inet antrea service-output; delete chain inet antrea service-output; \
        add chain inet antrea service-output; add chain inet antrea theirs; \
        add rule inet antrea theirs jump service-output'");
    let is_refused = || problems.borrow().contains_key("firewall");
    until("the refusal is a problem of the node", is_refused).await;
    let text = problems.borrow()["firewall"].clone();
    assert!(text.starts_with("replace table inet antrea: nft refused"), "{text}");
    sh("nft delete chain inet antrea theirs");
    until("the chain is hooked again", || {
        sh("nft list chain inet antrea service-output 2>/dev/null || true").contains("hook output")
    })
    .await;
    until("and nothing is wrong", || !is_refused()).await;
}

#[test]
#[ignore = "needs root: make test"]
fn what_somebody_changes_on_the_node_is_followed_or_put_back() {
    in_netns(|| {
        sh("ip link set lo up");
        let rtnl = Rtnl::open().unwrap();
        create_veth_pair(&rtnl, "gw", "far", 1500).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let wants = HostWants {
                node_ports: [(Protocol::Tcp, 30_080, false)].into(),
                ..HostWants::default()
            };
            let (_wants_tx, wants_rx) = watch::channel(Some(Arc::new(wants)));
            let mut node_loop = mk_loop(&rtnl, wants_rx);
            node_loop.upkeep.mend().await.unwrap();
            assert!(node_loop.mark_host_frames().await);
            let problems = node_loop.health.subscribe();
            let (_nodes_tx, nodes_rx) = watch::channel(None);
            let stop = CancellationToken::new();
            let done = async {
                somebody(problems).await;
                stop.cancel();
            };
            let (ended, ()) = tokio::join!(node_loop.run(nodes_rx, stop.clone()), done);
            ended.unwrap();
            // Without proxyAll loopback is not led there, and nothing leads to Services.
            let (_wants_tx, wants_rx) = watch::channel(None);
            let mut without = mk_loop(&rtnl, wants_rx);
            without.services = None;
            without.upkeep.mend().await.unwrap();
            without.mend().await;
            assert_eq!(sh("sysctl -n net.ipv4.conf.gw.route_localnet").trim(), "0");
            assert_eq!(sh("ip route show proto 166"), "");
        });
    });
}

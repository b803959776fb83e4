use super::super::fake::FaultPoint;
use super::*;
use openflow::OfPort;

#[tokio::test]
async fn a_container_is_connected_and_the_result_says_how() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    let result = rig.add("c1").await.unwrap();
    let host_name = result["interfaces"][0]["name"].as_str().unwrap();
    assert!(host_name.starts_with("pod-c1-"), "{host_name}");
    assert_eq!(
        result,
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": host_name, "mac": result["interfaces"][0]["mac"], "mtu": 1450},
                {"name": "eth0", "mac": "5e:41:0a:4d:01:02", "mtu": 1450,
                 "sandbox": "/run/netns/c1"},
            ],
            "ips": [{"interface": 1, "address": "10.77.1.2/24", "gateway": "10.77.1.1"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.77.1.1"}],
            "dns": {},
        })
    );
    {
        let world = rig.fake.world();
        let port = world.ports.values().next().unwrap();
        assert_eq!(port.pod.to_string(), "shop/pod-c1");
        assert_eq!(world.flows.values().next(), Some(&port.ofport));
        assert!(world.links.values().all(|link| link.is_up));
        assert_eq!(world.announced.len(), 1);
    }
    assert_eq!(rig.server.interfaces().borrow().len(), 1);
    rig.del("c1").await.unwrap();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

#[tokio::test]
async fn each_version_gets_its_own_result() {
    for (version, old) in
        [("0.3.0", true), ("0.3.1", true), ("0.4.0", true), ("1.0.0", false), ("1.1.0", false)]
    {
        let rig = mk_rig().await;
        rig.create_netns("c1");
        let mut conf = mk_conf();
        conf["cniVersion"] = version.into();
        conf["dns"] = json!({"nameservers": ["10.96.0.10"]});
        let result = rig.add_with(mk_args("c1", &conf)).await.unwrap();
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["ips"][0]["version"] == "4", old, "{version}");
        assert_eq!(result["dns"], json!({"nameservers": ["10.96.0.10"]}));
        conf["prevResult"] = result;
        let checked = rig.check_with(mk_args("c1", &conf)).await;
        let has_check = !version.starts_with("0.3");
        let outcome = checked.map(drop).map_err(|refused| refused.code);
        assert_eq!(outcome, if has_check { Ok(()) } else { Err(1) }, "{version}");
        rig.del_with(mk_args("c1", &conf)).await.unwrap();
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
}

#[tokio::test]
async fn a_link_has_the_mtu_that_the_configuration_wishes() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    let mut conf = mk_conf();
    conf["cniVersion"] = "1.1.0".into();
    conf["mtu"] = 1451.into();
    let too_large = mk_args("c2", &conf);
    conf["mtu"] = 1400.into();
    let result = rig.add_with(mk_args("c1", &conf)).await.unwrap();
    assert_eq!(result["interfaces"][1]["mtu"], 1400);
    conf["prevResult"] = result;
    rig.check_with(mk_args("c1", &conf)).await.unwrap();

    rig.create_netns("c2");
    let refused = rig.add_with(too_large).await.unwrap_err();
    assert_eq!(refused.code, 7);
    assert!(refused.message.contains("1451") && refused.message.contains("1450"), "{refused:?}");
    rig.del("c1").await.unwrap();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

#[tokio::test]
async fn del_needs_no_namespace_and_may_come_again() {
    let rig = mk_rig().await;
    for netns in ["", "/run/netns/gone"] {
        rig.create_netns("c1");
        rig.add("c1").await.unwrap();
        rig.fake.world().netnses.clear();
        let args = CniCmdArgs { netns: netns.into(), ..mk_args("c1", &mk_conf()) };
        rig.del_with(args.clone()).await.unwrap();
        rig.del_with(args).await.unwrap();
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
    rig.del("never-seen").await.unwrap();
}

#[tokio::test]
async fn the_next_pod_of_a_name_outlives_the_removal_of_its_predecessor() {
    let rig = mk_rig().await;
    let args_of = |container_id: &str| CniCmdArgs {
        args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0".into(),
        ..mk_args(container_id, &mk_conf())
    };
    rig.create_netns("c1");
    rig.create_netns("c2");
    rig.add_with(args_of("c1")).await.unwrap();
    let second = rig.add_with(args_of("c2")).await.unwrap();
    rig.del_with(args_of("c1")).await.unwrap();
    rig.server.wait_links_deleted().await;
    rig.check("c2", &second).await.unwrap();
    assert_eq!(rig.fake.world().leases.len(), 1);
    rig.del_with(args_of("c2")).await.unwrap();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

#[tokio::test]
async fn a_repeated_add_gives_the_same_result_and_a_damaged_one_is_made_again() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    let first = rig.add("c1").await.unwrap();
    assert_eq!(rig.add("c1").await.unwrap(), first);
    assert_eq!(rig.fake.world().leases.len(), 1);

    rig.fake.world().links.clear();
    let again = rig.add("c1").await.unwrap();
    assert_ne!(again["ips"], first["ips"], "the address was given back in between");
    rig.check("c1", &again).await.unwrap();
    assert_eq!(rig.fake.world().leases.len(), 1);

    // The container has a new namespace: the old interface is of no use.
    rig.create_netns("other");
    let moved = CniCmdArgs { netns: "/run/netns/other".into(), ..mk_args("c1", &mk_conf()) };
    let moved = rig.add_with(moved).await.unwrap();
    assert_eq!(moved["interfaces"][1]["sandbox"], "/run/netns/other");
    assert_eq!(rig.fake.world().links.len(), 1);
    assert_eq!(rig.fake.world().violations(), [] as [String; 0]);
}

#[tokio::test]
async fn a_restarted_agent_knows_its_pods() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    let result = rig.add("c1").await.unwrap();
    let ofport = rig.fake.world().ports.values().next().unwrap().ofport;
    rig.fake.world().flows.clear();

    let rig = restart(rig.fake).await;
    assert_eq!(rig.fake.world().flows.values().next(), Some(&ofport), "flows are stated again");
    rig.check("c1", &result).await.unwrap();
    assert_eq!(rig.add("c1").await.unwrap(), result);

    let rig = restart(rig.fake).await;
    rig.fake.world().netnses.clear();
    let args = CniCmdArgs { netns: String::new(), ..mk_args("c1", &mk_conf()) };
    rig.del_with(args).await.unwrap();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

#[tokio::test]
async fn a_start_removes_what_nobody_owns() {
    let rig = mk_rig().await;
    for container in ["alive", "no-netns", "no-port"] {
        rig.create_netns(container);
        rig.add(container).await.unwrap();
    }
    {
        // A reboot took a namespace; a crash came between lease, link and port.
        let mut world = rig.fake.world();
        world.netnses.remove("/run/netns/no-netns");
        world.ports.retain(|_, port| port.attachment.container_id.as_str() != "no-port");
        world.flows.retain(|owner, _| owner.container_id.as_str() != "no-port");
    }
    let rig = restart(rig.fake).await;
    rig.server.wait_links_deleted().await;
    let world = rig.fake.world();
    assert_eq!(world.leases.len(), 1, "{:?}", world.leftovers());
    assert_eq!(world.links.len(), 1, "{:?}", world.leftovers());
    assert_eq!(world.ports.len(), 1, "{:?}", world.leftovers());
    assert_eq!(world.connections.len(), 1, "{:?}", world.leftovers());
    assert_eq!(world.violations(), [] as [String; 0]);
}

#[tokio::test]
async fn gc_removes_all_but_the_listed() {
    let rig = mk_rig().await;
    for container in ["c1", "c2", "c3", "c4"] {
        rig.create_netns(container);
        rig.add(container).await.unwrap();
    }
    let mut conf = mk_conf();
    let refused = rig.gc(conf.clone()).await.unwrap_err();
    assert_eq!(refused.code, 7, "no list is not an empty list: {refused:?}");
    conf["cni.dev/valid-attachments"] = json!([
        {"containerID": "c1", "ifname": "eth0"},
        {"containerID": "c3", "ifname": "eth0"},
    ]);
    rig.gc(conf.clone()).await.unwrap();
    rig.server.wait_links_deleted().await;
    {
        let world = rig.fake.world();
        let left: Vec<_> = world.flows.keys().map(|a| a.container_id.as_str()).collect();
        assert_eq!(left, ["c1", "c3"]);
        assert_eq!((world.leases.len(), world.links.len(), world.ports.len()), (2, 2, 2));
    }
    conf["cni.dev/valid-attachments"] = json!([]);
    rig.gc(conf).await.unwrap();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

#[tokio::test]
async fn before_the_node_is_known_requests_are_to_be_tried_again() {
    let fake = FakeNode::default();
    fake.world().netnses.insert("/run/netns/c1".into());
    let (ready_tx, ready_rx) = watch::channel(Readiness::WaitingFor("a Pod CIDR"));
    let server = Server::new(ServerConfig::new("/nonexistent/cni.sock"), ready_rx);
    let start_up = {
        let server = server.clone();
        tokio::spawn(async move { server.start_up().await })
    };
    let retry = tokio::spawn(async {});
    let rig = Rig { fake, server, _ready_tx: ready_tx, retry };
    for refused in [rig.add("c1").await, rig.del("c1").await] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, 11);
        assert_eq!(refused.message, "node not ready, waiting for a Pod CIDR");
    }
    assert_eq!(rig.status().await.unwrap_err().code, 50);
    rig._ready_tx.send_replace(Readiness::Ready(rig.fake.node()));
    drop(start_up.await.unwrap());
    rig.status().await.unwrap();
    rig.add("c1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn while_open_vswitch_is_down_requests_are_to_be_tried_again() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    rig.create_netns("c2");
    rig.add("c2").await.unwrap();
    rig.fake.world().ovs_is_down = true;
    assert_eq!(rig.add("c1").await.unwrap_err().code, 11);
    assert_eq!(rig.del("c2").await.unwrap_err().code, 11);
    assert_eq!(rig.status().await.unwrap_err().code, 50);
    assert_eq!(rig.fake.world().leases.len(), 1, "the address of c2 stays its own");
    rig.fake.world().ovs_is_down = false;
    rig.add("c1").await.unwrap();
    for container in ["c1", "c2"] {
        rig.del(container).await.unwrap();
    }
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

#[tokio::test]
async fn flows_are_for_the_number_that_ovs_gave() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    rig.fake.world().force_ofport = Some(OfPort(9));
    rig.add("c1").await.unwrap();
    assert_eq!(rig.fake.world().flows.values().next(), Some(&OfPort(9)));
    assert_eq!(rig.server.interfaces().borrow()[0].ofport, OfPort(9));
}

#[tokio::test]
async fn an_address_that_another_pod_has_is_not_given_again() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    rig.create_netns("c2");
    rig.add("c1").await.unwrap();
    {
        // Somebody emptied the folder of leases, and the search starts anew.
        let mut world = rig.fake.world();
        let lease = world.leases.pop_first().unwrap();
        for _ in 0..252 {
            world.free_ip();
        }
        drop(lease);
    }
    let refused = rig.add("c2").await.unwrap_err();
    assert_eq!(refused.code, 101, "{refused:?}");
    assert!(refused.message.contains("10.77.1.2 is that of shop/pod-c1"), "{refused:?}");
    // The next try gets the next address, and nothing was flushed or taken from the first Pod.
    rig.add("c2").await.unwrap();
    let world = rig.fake.world();
    assert_eq!(world.ports.len(), 2);
    assert_eq!(world.connections.len(), 2);
}

#[tokio::test]
async fn a_link_whose_removal_is_under_way_is_waited_for() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    rig.add("c1").await.unwrap();
    rig.fake.world().hang_at(FaultPoint::DeleteLink);
    rig.del("c1").await.unwrap();
    let again = {
        let (server, args) = (rig.server.clone(), mk_args("c1", &mk_conf()));
        tokio::spawn(async move {
            let request = Request::new(CniCmdRequest { cni_args: Some(args) });
            outcome(server.service().cmd_add(request).await.unwrap().into_inner())
        })
    };
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!again.is_finished(), "the name is still in use");
    assert!(rig.fake.world().ports.is_empty());
    again.abort();
}

/// The runtime uses a namespace again for another container, as it does with a sandbox that it
/// makes anew.
#[tokio::test(start_paused = true)]
async fn an_interface_whose_removal_is_under_way_is_not_in_the_way_of_another_container() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    for (turn, netns) in ["/run/netns/c1", "/var/run/netns/c1"].into_iter().enumerate() {
        let container = format!("next-{turn}");
        rig.add("c1").await.unwrap();
        rig.fake.world().hang_at(FaultPoint::DeleteLink);
        rig.del("c1").await.unwrap();
        rig.fake.world().netnses.insert(netns.into());
        let args = CniCmdArgs { netns: netns.into(), ..mk_args(&container, &mk_conf()) };
        let adding = {
            let (server, args) = (rig.server.clone(), args.clone());
            tokio::spawn(async move {
                let request = Request::new(CniCmdRequest { cni_args: Some(args) });
                outcome(server.service().cmd_add(request).await.unwrap().into_inner())
            })
        };
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!adding.is_finished(), "eth0 is still in {netns}");
        rig.fake.world().heal();
        adding.await.unwrap().unwrap();
        rig.del_with(args).await.unwrap();
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
    // One that does not go is waited for no longer than any step.
    rig.add("c1").await.unwrap();
    rig.fake.world().hang_at(FaultPoint::DeleteLink);
    rig.del("c1").await.unwrap();
    let args = CniCmdArgs { netns: "/run/netns/c1".into(), ..mk_args("late", &mk_conf()) };
    assert_eq!(rig.add_with(args).await.unwrap_err().code, 11);
    rig.fake.world().heal();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

//! What survives when something else was lost: the database, a look, an order.

use super::super::fake::FaultPoint;
use super::*;

#[tokio::test]
async fn pods_whose_ports_were_lost_get_them_again() {
    let dir = tempfile::tempdir().unwrap();
    let rig = restart_with_journal(FakeNode::default(), dir.path()).await;
    let mut results = Vec::new();
    for container in ["c1", "c2", "gone"] {
        rig.create_netns(container);
        results.push(rig.add(container).await.unwrap());
    }
    let before = rig.fake.world().ports.clone();
    {
        // The bridge was deleted, and one Pod ended meanwhile.
        let mut world = rig.fake.world();
        world.ports.clear();
        world.flows.clear();
        world.netnses.remove("/run/netns/gone");
    }
    let rig = restart_with_journal(rig.fake, dir.path()).await;
    rig.server.wait_links_deleted().await;
    for (container, result) in [("c1", &results[0]), ("c2", &results[1])] {
        rig.check(container, result).await.unwrap();
        assert_eq!(rig.add(container).await.unwrap(), *result);
    }
    {
        let world = rig.fake.world();
        assert_eq!((world.ports.len(), world.links.len(), world.leases.len()), (2, 2, 2));
        assert!(world.ports.iter().all(|(name, port)| before.get(name) == Some(port)));
    }
    for container in ["c1", "c2"] {
        rig.del(container).await.unwrap();
    }
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no note is left");
}

/// Flows of policies hang on the port: whoever gets another one waits for them, and nobody else.
#[tokio::test]
async fn pods_of_before_are_closed_unless_their_flows_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let rig = restart_with_journal(FakeNode::default(), dir.path()).await;
    for container in ["there", "no-flows", "other-port", "no-port"] {
        rig.create_netns(container);
        rig.add(container).await.unwrap();
    }
    let attachment = |name: &str| cni_api::Attachment::new(name, "eth0").unwrap();
    {
        let mut world = rig.fake.world();
        world.flows.remove(&attachment("no-flows"));
        world.flows.insert(attachment("other-port"), openflow::OfPort(999));
        world.ports.retain(|_, port| port.attachment != attachment("no-port"));
    }
    let rig = restart_with_journal(rig.fake, dir.path()).await;
    let world = rig.fake.world();
    assert_eq!(world.closed, ["no-flows", "no-port", "other-port"].map(attachment).into());
    assert_eq!(world.flows.len(), 4, "they have their flows all the same");
}

/// A lease is in the folder of the network by whose name it was taken.
#[tokio::test]
async fn a_lease_is_found_when_the_network_has_another_name_by_now() {
    let rig = mk_rig().await;
    let mut renamed = mk_conf();
    renamed["name"] = "renamed".into();
    rig.create_netns("c1");
    rig.add("c1").await.unwrap();
    // Damaged, so that the ADD makes it again: under the new name.
    rig.fake.world().ports.clear();
    rig.add_with(mk_args("c1", &renamed)).await.unwrap();
    rig.del("c1").await.unwrap();
    let world = rig.fake.world();
    assert_eq!(world.released_from, ["antrea", "renamed"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_unmade_gets_no_port_again() {
    let dir = tempfile::tempdir().unwrap();
    let rig = restart_with_journal(FakeNode::default(), dir.path()).await;
    rig.create_netns("c1");
    rig.add("c1").await.unwrap();
    rig.fake.world().fail_at(FaultPoint::FlushConntrack, 1);
    rig.del("c1").await.unwrap_err();
    let rig = restart_with_journal(rig.fake, dir.path()).await;
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_looked_at_is_not_made_again() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    let first = rig.add("c1").await.unwrap();
    let state = |rig: &Rig| {
        let world = rig.fake.world();
        (world.leftovers(), world.ports.clone(), world.links.clone())
    };
    let before = state(&rig);

    rig.fake.world().switch_is_away = true;
    assert_eq!(rig.add("c1").await.unwrap_err().code, 11);
    rig.fake.world().switch_is_away = false;
    // The switch answers, its database is being reconnected.
    rig.fake.world().ovs_is_down = true;
    assert_eq!(rig.add("c1").await.unwrap_err().code, 11);
    rig.fake.world().ovs_is_down = false;
    rig.fake.world().fail_at(FaultPoint::CheckLink, 1);
    assert_eq!(rig.add("c1").await.unwrap_err().code, 102);
    assert_eq!(state(&rig), before);
    assert_eq!(rig.add("c1").await.unwrap(), first);
}

#[tokio::test]
async fn a_lease_taken_while_others_are_collected_stays() {
    let rig = mk_rig().await;
    let mut conf = mk_conf();
    conf["ipam"]["dataDir"] = "/var/lib/elsewhere".into();
    let old = cni_api::Attachment::new("old", "eth0").unwrap();
    rig.fake.world().leases.insert("10.77.1.200".parse().unwrap(), old);
    for container in ["c1", "c2"] {
        rig.create_netns(container);
    }
    let start = |container: &str| {
        let (server, args) = (rig.server.clone(), mk_args(container, &conf));
        tokio::spawn(async move {
            let request = Request::new(CniCmdRequest { cni_args: Some(args) });
            outcome(server.service().cmd_add(request).await.unwrap().into_inner())
        })
    };
    // The first one finds leases unreadable and goes on; its lease is there, its interface not yet.
    rig.fake.world().fail_at(FaultPoint::ListLeases, 1);
    rig.fake.world().hang_at(FaultPoint::LinkUp);
    let first = start("c1");
    while rig.fake.world().leases.len() < 2 {
        tokio::task::yield_now().await;
    }
    let second = start("c2");
    while rig.fake.world().leases.len() != 2
        || rig.fake.world().leases.contains_key(&"10.77.1.200".parse::<std::net::IpAddr>().unwrap())
    {
        tokio::task::yield_now().await;
    }
    rig.fake.world().heal();
    for added in [first, second] {
        added.await.unwrap().unwrap();
    }
    let world = rig.fake.world();
    let owners: Vec<_> = world.leases.values().map(|a| a.container_id.as_str()).collect();
    assert_eq!(owners, ["c1", "c2"]);
    assert_eq!(world.violations(), [] as [String; 0]);
}

#[tokio::test]
async fn a_lease_whose_owner_is_only_beginning_stays() {
    let rig = mk_rig().await;
    let mut conf = mk_conf();
    conf["ipam"]["dataDir"] = "/var/lib/elsewhere".into();
    for container in ["c1", "c2"] {
        rig.create_netns(container);
    }
    // The second one lists leases while the first one comes.
    rig.fake.world().hang_at(FaultPoint::ListLeases);
    let start = |container: &str| {
        let (server, args) = (rig.server.clone(), mk_args(container, &conf));
        tokio::spawn(async move {
            let request = Request::new(CniCmdRequest { cni_args: Some(args) });
            outcome(server.service().cmd_add(request).await.unwrap().into_inner())
        })
    };
    let (second, first) = (start("c2"), start("c1"));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(rig.fake.world().leases.is_empty());
    rig.fake.world().heal();
    for added in [first, second] {
        added.await.unwrap().unwrap();
    }
    assert_eq!(rig.fake.world().leases.len(), 2);
    assert_eq!(rig.fake.world().violations(), [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_a_start_cannot_remove_is_removed_later() {
    for point in [FaultPoint::DeletePort, FaultPoint::FlushConntrack, FaultPoint::ListLeases] {
        let rig = mk_rig().await;
        rig.create_netns("c1");
        rig.add("c1").await.unwrap();
        {
            // A reboot: no DEL will come.
            let mut world = rig.fake.world();
            world.netnses.clear();
            if point == FaultPoint::ListLeases {
                world.ports.clear();
                world.flows.clear();
            }
            world.fail_at(point, 3);
        }
        let mut rig = restart(rig.fake).await;
        assert!(!rig.fake.world().leftovers().is_empty(), "{point:?}");
        (&mut rig.retry).await.unwrap();
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
}

#[tokio::test]
async fn gc_of_one_network_leaves_the_pods_of_another() {
    let rig = mk_rig().await;
    let mut other = mk_conf();
    other["name"] = "storage".into();
    rig.create_netns("c1");
    rig.create_netns("c2");
    rig.add("c1").await.unwrap();
    rig.add_with(mk_args("c2", &other)).await.unwrap();
    let left = |rig: &Rig| -> Vec<String> {
        rig.fake.world().flows.keys().map(|a| a.container_id.to_string()).collect()
    };
    let mut conf = mk_conf();
    conf["cni.dev/valid-attachments"] = json!([]);
    rig.gc(conf).await.unwrap();
    assert_eq!(left(&rig), ["c2"]);
    // A restarted agent knows the network from the port's notes.
    let rig = restart(rig.fake).await;
    other["cni.dev/valid-attachments"] = json!([]);
    rig.gc(other).await.unwrap();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

#[tokio::test]
async fn del_of_an_unknown_container_forgets_the_connections_of_its_lease() {
    let rig = mk_rig().await;
    let ip = "10.77.1.9".parse::<std::net::IpAddr>().unwrap();
    {
        let mut world = rig.fake.world();
        world.leases.insert(ip, cni_api::Attachment::new("c1", "eth0").unwrap());
        world.connections.insert(ip);
    }
    rig.del("c1").await.unwrap();
    rig.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_link_that_takes_long_to_go_holds_the_next_request_only_so_long() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    rig.add("c1").await.unwrap();
    rig.fake.world().hang_at(FaultPoint::DeleteLink);
    rig.del("c1").await.unwrap();
    let refused = rig.add("c1").await.unwrap_err();
    assert_eq!(refused.code, 11, "{refused:?}");
    rig.fake.world().heal();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
    rig.add("c1").await.unwrap();
}

/// Open vSwitch goes away in the middle of an ADD: what needs no switch is undone at once, the rest
/// as soon as it answers, without a request and by whichever agent runs then.
#[tokio::test(start_paused = true)]
async fn what_a_failed_add_leaves_follows_once_the_switch_answers() {
    for by_restart in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut rig = restart_with_journal(FakeNode::default(), dir.path()).await;
        rig.create_netns("c1");
        let mut conf = mk_conf();
        conf["ipam"]["dataDir"] = "/var/lib/elsewhere".into();
        rig.fake.world().hang_at(FaultPoint::PortNoNumber);
        let adding = {
            let (server, args) = (rig.server.clone(), mk_args("c1", &conf));
            tokio::spawn(async move {
                let request = Request::new(CniCmdRequest { cni_args: Some(args) });
                outcome(server.service().cmd_add(request).await.unwrap().into_inner())
            })
        };
        while rig.fake.world().ports.is_empty() || rig.fake.world().flows.is_empty() {
            tokio::task::yield_now().await;
        }
        {
            let mut world = rig.fake.world();
            (world.ovs_is_down, world.switch_is_away) = (true, true);
        }
        assert_eq!(adding.await.unwrap().unwrap_err().code, 11);
        {
            let world = rig.fake.world();
            assert!(world.links.is_empty(), "links need no switch");
            assert_eq!(world.leases.len(), 1, "the port may still use it");
        }
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        assert_eq!(rig.fake.world().leases.len(), 1);
        {
            let mut world = rig.fake.world();
            world.heal();
            (world.ovs_is_down, world.switch_is_away) = (false, false);
        }
        if by_restart {
            // The flows went with the switch, or with the first comparison.
            rig.fake.world().flows.clear();
            rig = restart_with_journal(rig.fake, dir.path()).await;
        }
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        rig.server.wait_undone().await;
        rig.assert_empty();
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_del_succeeds_while_the_switch_is_away_once_the_rest_is_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let rig = restart_with_journal(FakeNode::default(), dir.path()).await;
    rig.create_netns("c1");
    rig.add("c1").await.unwrap();
    {
        let mut world = rig.fake.world();
        (world.ovs_is_down, world.switch_is_away) = (true, true);
    }
    for _ in 0..2 {
        rig.del("c1").await.unwrap();
    }
    rig.server.wait_links_deleted().await;
    {
        let world = rig.fake.world();
        assert!(world.links.is_empty());
        assert_eq!((world.leases.len(), world.ports.len()), (1, 1));
    }
    assert!(rig.server.interfaces().borrow().is_empty());
    // The namespace is used again before the switch is back.
    assert_eq!(rig.add("c1").await.unwrap_err().code, 11);
    {
        let mut world = rig.fake.world();
        (world.ovs_is_down, world.switch_is_away) = (false, false);
    }
    let result = rig.add("c1").await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    rig.check("c1", &result).await.unwrap();
    rig.del("c1").await.unwrap();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

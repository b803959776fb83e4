use std::sync::atomic::Ordering;

use super::super::fake::FaultPoint;
use super::*;

#[tokio::test(start_paused = true)]
async fn an_add_that_fails_anywhere_leaves_nothing_and_the_retry_succeeds() {
    let rig = mk_rig().await;
    for point in FaultPoint::OF_ADD {
        rig.create_netns("c1");
        rig.fake.world().fail_at(point, 1);
        let refused = rig.add("c1").await.expect_err("the fault is there");
        let want = if point == FaultPoint::Allocate { 101 } else { 102 };
        assert_eq!(refused.code, want, "{point:?}: {refused:?}");
        rig.assert_empty();
        let result = rig.add("c1").await.unwrap_or_else(|error| panic!("{point:?}: {error:?}"));
        rig.check("c1", &result).await.unwrap();
        rig.del("c1").await.unwrap();
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_of_add_that_is_too_slow_takes_no_effect_after_its_undo() {
    let rig = mk_rig().await;
    for point in FaultPoint::OF_ADD {
        rig.create_netns("c1");
        rig.fake.world().hang_at(point);
        let refused = rig.add("c1").await.expect_err("the fault is there");
        assert_eq!(refused.code, 11, "{point:?}: {refused:?}");
        assert!(refused.message.ends_with("did not end in time"), "{refused:?}");
        // Waiting for a number changes nothing and is given up; all else is waited for.
        if ![FaultPoint::PortNoNumber, FaultPoint::PortRefused].contains(&point) {
            for again in [rig.add("c1").await, rig.del("c1").await] {
                let again = again.expect_err("the step has not ended");
                assert_eq!(again.code, 11, "{point:?}: {again:?}");
                assert!(again.message.contains("has not ended yet"), "{again:?}");
            }
        }
        // The step ends, and does what it was to do.
        rig.fake.world().heal();
        rig.server.wait_undone().await;
        rig.assert_empty();
        rig.add("c1").await.unwrap();
        rig.del("c1").await.unwrap();
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_of_del_that_is_too_slow_does_not_hit_the_next_add() {
    let rig = mk_rig().await;
    for point in [
        FaultPoint::RemoveFlows,
        FaultPoint::DeletePort,
        FaultPoint::FlushConntrack,
        FaultPoint::Release,
    ] {
        rig.create_netns("c1");
        rig.add("c1").await.unwrap();
        rig.fake.world().hang_at(point);
        assert_eq!(rig.del("c1").await.unwrap_err().code, 11, "{point:?}");
        let again = rig.add("c1").await.unwrap_err();
        assert!(again.message.contains("has not ended yet"), "{point:?}: {again:?}");
        assert_eq!(rig.server.overdue().load(Ordering::Relaxed), 1, "{point:?}");
        rig.fake.world().heal();
        rig.server.wait_undone().await;
        rig.assert_empty();
        assert_eq!(rig.server.overdue().load(Ordering::Relaxed), 0, "{point:?}");
        let result = rig.add("c1").await.unwrap();
        rig.check("c1", &result).await.unwrap();
        rig.del("c1").await.unwrap();
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_without_addresses_is_removed_at_start() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    rig.add("c1").await.unwrap();
    {
        // The agent was killed between adding the port and noting its addresses.
        let mut world = rig.fake.world();
        world.flows.clear();
        world.connections.clear();
        let port = world.ports.values_mut().next().unwrap();
        (port.mac, port.ips) = (openflow::MacAddr([0; 6]), vec![]);
    }
    let rig = restart(rig.fake).await;
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
    rig.add("c1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_announced_is_connected_all_the_same() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    rig.fake.world().fail_at(FaultPoint::Announce, 1);
    let result = rig.add("c1").await.unwrap();
    rig.check("c1", &result).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_address_stays_leased_until_nothing_can_use_it() {
    let rig = mk_rig().await;
    for point in [FaultPoint::RemoveFlows, FaultPoint::DeletePort, FaultPoint::FlushConntrack] {
        rig.create_netns("c1");
        rig.add("c1").await.unwrap();
        rig.fake.world().fail_at(point, 1);
        let refused = rig.del("c1").await.unwrap_err();
        assert!([11, 102].contains(&refused.code), "{point:?}: {refused:?}");
        assert_eq!(rig.fake.world().leases.len(), 1, "{point:?}");
        rig.del("c1").await.unwrap();
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
    // The lease itself may be what stays.
    rig.create_netns("c1");
    rig.add("c1").await.unwrap();
    rig.fake.world().fail_at(FaultPoint::Release, 1);
    assert_eq!(rig.del("c1").await.unwrap_err().code, 101);
    rig.del("c1").await.unwrap();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_fails_is_finished_by_the_next_request() {
    for (undo, by_restart) in [
        (FaultPoint::RemoveFlows, false),
        (FaultPoint::DeletePort, false),
        (FaultPoint::DeletePort, true),
        (FaultPoint::FlushConntrack, false),
        (FaultPoint::DeleteLink, false),
        (FaultPoint::DeleteLink, true),
        (FaultPoint::Release, false),
        (FaultPoint::Release, true),
    ] {
        let mut rig = mk_rig().await;
        rig.create_netns("c1");
        rig.fake.world().fail_at(FaultPoint::LinkUp, 1);
        rig.fake.world().fail_at(undo, 1);
        let refused = rig.add("c1").await.unwrap_err();
        assert!(refused.message.contains("LinkUp"), "the first cause is told: {refused:?}");
        assert!(!rig.fake.world().leftovers().is_empty(), "{undo:?}");
        if by_restart {
            rig.fake.world().netnses.clear();
            rig = restart(rig.fake).await;
        } else {
            rig.add("c1").await.unwrap();
            rig.del("c1").await.unwrap();
        }
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
}

#[tokio::test]
async fn a_namespace_that_is_not_there_has_its_own_code() {
    let rig = mk_rig().await;
    let refused = rig.add("c1").await.unwrap_err();
    assert_eq!(refused.code, 8, "{refused:?}");
    rig.assert_empty();
}

#[tokio::test]
async fn malformed_requests_change_nothing() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    for bytes in [&b""[..], b"{", b"\xff\xfe", b"null", b"[[[[[[[[", b"{\"ipam\":[]}"] {
        let args =
            CniCmdArgs { network_configuration: bytes.to_vec(), ..mk_args("c1", &mk_conf()) };
        assert_eq!(rig.add_with(args.clone()).await.unwrap_err().code, 6);
        assert_eq!(rig.del_with(args).await.unwrap_err().code, 6);
    }
    rig.assert_empty();
}

#[tokio::test]
async fn nothing_is_begun_while_the_switch_is_away() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    rig.status().await.unwrap();
    rig.fake.world().switch_is_away = true;
    let refused = rig.add("c1").await.unwrap_err();
    assert_eq!((refused.code, refused.message.contains("ovs-vswitchd")), (11, true), "{refused:?}");
    assert_eq!(rig.status().await.unwrap_err().code, 50);
    rig.assert_empty();
    rig.fake.world().switch_is_away = false;
    rig.add("c1").await.unwrap();
}

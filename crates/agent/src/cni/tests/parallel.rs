use super::super::fake::FaultPoint;
use super::*;
use std::collections::BTreeSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_at_once_get_their_own_and_leave_nothing() {
    let rig = Arc::new(mk_rig().await);
    for round in 0..3 {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..200 {
            let rig = Arc::clone(&rig);
            rig.create_netns(&format!("c{number}"));
            tasks.spawn(async move { rig.add(&format!("c{number}")).await.unwrap() });
        }
        let results = tasks.join_all().await;
        let distinct =
            |of: &dyn Fn(&Value) -> String| results.iter().map(of).collect::<BTreeSet<_>>().len();
        assert_eq!(distinct(&|r| r["ips"][0]["address"].to_string()), 200, "round {round}");
        assert_eq!(distinct(&|r| r["interfaces"][0]["name"].to_string()), 200);
        {
            let world = rig.fake.world();
            let ofports: BTreeSet<_> = world.ports.values().map(|port| port.ofport).collect();
            assert_eq!(ofports.len(), 200);
            assert_eq!(world.announced.len(), 200);
        }
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..200 {
            let rig = Arc::clone(&rig);
            tasks.spawn(async move { rig.del(&format!("c{number}")).await.unwrap() });
        }
        tasks.join_all().await;
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn adds_and_dels_of_the_same_containers_with_faults_leave_nothing() {
    let rig = Arc::new(mk_rig().await);
    for number in 0..20 {
        rig.create_netns(&format!("c{number}"));
    }
    for (turn, point) in FaultPoint::OF_ADD.into_iter().enumerate() {
        rig.fake.world().fail_at(point, 5);
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..200 {
            let rig = Arc::clone(&rig);
            tasks.spawn(async move {
                let container = format!("c{}", number % 20);
                // Faults hit some of them: what counts is what is left.
                if (number / 20 + turn) % 2 == 0 {
                    drop(rig.add(&container).await);
                } else {
                    rig.del(&container).await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        rig.fake.world().heal();
        for number in 0..20 {
            rig.del(&format!("c{number}")).await.unwrap();
        }
        rig.server.wait_links_deleted().await;
        rig.assert_empty();
    }
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_nothing_half_done() {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    let service = rig.server.service();
    let request = Request::new(CniCmdRequest { cni_args: Some(mk_args("c1", &mk_conf())) });
    let mut call = Box::pin(service.cmd_add(request));
    // The request has begun when its caller goes away.
    assert!(futures::poll!(call.as_mut()).is_pending());
    drop(call);
    let mut interfaces = rig.server.interfaces();
    interfaces.wait_for(|records| records.len() == 1).await.unwrap();
    rig.del("c1").await.unwrap();
    rig.server.wait_links_deleted().await;
    rig.assert_empty();
}

#[tokio::test]
async fn the_last_address_is_given_and_then_refused() {
    let rig = mk_rig().await;
    let mut n_given = 0;
    let refused = loop {
        rig.create_netns(&format!("c{n_given}"));
        match rig.add(&format!("c{n_given}")).await {
            Ok(_) => n_given += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(n_given, 253);
    assert_eq!(refused.code, 101);
    assert!(refused.message.contains("no address left in 10.77.1.0/24"), "{refused:?}");
    assert_eq!(rig.fake.world().ports.len(), 253);
}

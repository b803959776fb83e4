use super::*;

async fn mk_connected() -> (Rig, Value) {
    let rig = mk_rig().await;
    rig.create_netns("c1");
    let result = rig.add("c1").await.unwrap();
    (rig, result)
}

#[tokio::test]
async fn check_notices_what_is_missing_or_changed() {
    type Damage = fn(&mut super::super::fake::World);
    let damages: [(&str, Damage); 8] = [
        ("link", |w| w.links.clear()),
        ("address", |w| w.links.values_mut().for_each(|l| l.addresses.clear())),
        ("route", |w| w.links.values_mut().for_each(|l| l.routes.clear())),
        ("MAC", |w| w.links.values_mut().for_each(|l| l.mac = mac_for(&[]))),
        ("link is down", |w| w.links.values_mut().for_each(|l| l.is_up = false)),
        ("port", |w| w.ports.clear()),
        ("flows", |w| w.flows.clear()),
        ("leased", |w| w.leases.clear()),
    ];
    for (words, damage) in damages {
        let (rig, result) = mk_connected().await;
        rig.check("c1", &result).await.unwrap();
        damage(&mut rig.fake.world());
        let refused = rig.check("c1", &result).await.expect_err(words);
        assert_eq!(refused.code, 103, "{refused:?}");
        assert!(refused.message.contains(words), "{refused:?} lacks {words:?}");
    }
}

#[tokio::test]
async fn check_notices_a_changed_result() {
    let (rig, result) = mk_connected().await;
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 8] = [
        ("no address", |r| r["ips"][0]["address"] = "10.77.1.99/24".into()),
        ("was not made", |r| {
            let extra = json!({"interface": 1, "address": "10.77.1.99/24"});
            r["ips"].as_array_mut().unwrap().push(extra);
        }),
        ("another gateway", |r| r["ips"][0]["gateway"] = "10.77.1.9".into()),
        ("no route", |r| r["routes"] = json!([])),
        ("has MAC", |r| r["interfaces"][1]["mac"] = "02:00:00:00:00:01".into()),
        ("has MAC", |r| r["interfaces"][0]["mac"] = "02:00:00:00:00:01".into()),
        ("no interface", |r| r["interfaces"][0]["name"] = "other".into()),
        ("no interface", |r| r["interfaces"][1]["sandbox"] = "/run/netns/other".into()),
    ];
    for (words, change) in changes {
        let mut changed = result.clone();
        change(&mut changed);
        let refused = rig.check("c1", &changed).await.expect_err(words);
        assert_eq!(refused.code, 103, "{refused:?}");
        assert!(refused.message.contains(words), "{refused:?} lacks {words:?}");
    }
}

#[tokio::test]
async fn what_later_plugins_add_is_none_of_our_business() {
    let (rig, mut result) = mk_connected().await;
    let ifb = json!({"name": "bwp1", "mac": "02:00:00:00:00:09"});
    result["interfaces"].as_array_mut().unwrap().push(ifb);
    let route = json!({"dst": "192.0.2.0/24"});
    result["routes"].as_array_mut().unwrap().push(route);
    rig.check("c1", &result).await.unwrap();
    result["interfaces"][1]["mac"] = "5E:41:0A:4D:01:02".into();
    rig.check("c1", &result).await.unwrap();
}

#[tokio::test]
async fn check_needs_a_connected_container_and_a_result() {
    let (rig, result) = mk_connected().await;
    assert_eq!(rig.check("c2", &result).await.unwrap_err().code, 3);
    assert_eq!(rig.check("c1", &Value::Null).await.unwrap_err().code, 7);
    assert_eq!(rig.check("c1", &json!({"ips": 7})).await.unwrap_err().code, 6);
}

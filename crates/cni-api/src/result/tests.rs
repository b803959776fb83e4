use super::*;

fn mk_result() -> CniResult {
    CniResult {
        interfaces: vec![
            Interface {
                name: "web-0-1f3c5a".into(),
                mac: "0a:00:00:00:00:01".into(),
                mtu: Some(1450),
                sandbox: String::new(),
            },
            Interface {
                name: "eth0".into(),
                mac: "0a:00:00:00:00:02".into(),
                mtu: Some(1450),
                sandbox: "/run/netns/p".into(),
            },
        ],
        ips: vec![
            IpConfig {
                interface: Some(1),
                address: "10.77.1.5/24".parse().unwrap(),
                gateway: "10.77.1.1".parse().ok(),
            },
            IpConfig {
                interface: Some(1),
                address: "fd77::5/64".parse().unwrap(),
                gateway: "fd77::1".parse().ok(),
            },
        ],
        routes: vec![
            Route::new("0.0.0.0/0".parse().unwrap(), "10.77.1.1".parse().ok()),
            Route::new("::/0".parse().unwrap(), "fd77::1".parse().ok()),
        ],
        dns: Dns { nameservers: vec!["10.96.0.10".into()], ..Dns::default() },
    }
}

#[track_caller]
fn check_form(version: SpecVersion, want: Value) {
    assert_eq!(mk_result().to_value(version), want, "{version}");
}

#[test]
fn each_version_has_its_form() {
    let old_ips = json!({
        "ip4": {"ip": "10.77.1.5/24", "gateway": "10.77.1.1",
                "routes": [{"dst": "0.0.0.0/0", "gw": "10.77.1.1"}]},
        "ip6": {"ip": "fd77::5/64", "gateway": "fd77::1",
                "routes": [{"dst": "::/0", "gw": "fd77::1"}]},
        "dns": {"nameservers": ["10.96.0.10"]},
    });
    for version in [SpecVersion::V0_1_0, SpecVersion::V0_2_0] {
        let mut want = old_ips.clone();
        want["cniVersion"] = version.as_str().into();
        check_form(version, want);
    }

    let mut newest = json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "web-0-1f3c5a", "mac": "0a:00:00:00:00:01", "mtu": 1450},
            {"name": "eth0", "mac": "0a:00:00:00:00:02", "mtu": 1450, "sandbox": "/run/netns/p"},
        ],
        "ips": [
            {"interface": 1, "address": "10.77.1.5/24", "gateway": "10.77.1.1"},
            {"interface": 1, "address": "fd77::5/64", "gateway": "fd77::1"},
        ],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.77.1.1"}, {"dst": "::/0", "gw": "fd77::1"}],
        "dns": {"nameservers": ["10.96.0.10"]},
    });
    check_form(SpecVersion::V1_1_0, newest.clone());

    newest["cniVersion"] = "1.0.0".into();
    for interface in newest["interfaces"].as_array_mut().unwrap() {
        interface.as_object_mut().unwrap().remove("mtu");
    }
    check_form(SpecVersion::V1_0_0, newest.clone());

    newest["ips"][0]["version"] = "4".into();
    newest["ips"][1]["version"] = "6".into();
    for version in [SpecVersion::V0_3_0, SpecVersion::V0_3_1, SpecVersion::V0_4_0] {
        newest["cniVersion"] = version.as_str().into();
        check_form(version, newest.clone());
    }
}

#[test]
fn every_form_reads_back() {
    let result = mk_result();
    for version in SpecVersion::ALL {
        let read = CniResult::from_value(&result.to_value(version), SpecVersion::LATEST).unwrap();
        let ips =
            |r: &CniResult| r.ips.iter().map(|ip| (ip.address, ip.gateway)).collect::<Vec<_>>();
        assert_eq!(ips(&read), ips(&result), "{version}");
        assert_eq!(read.routes, result.routes, "{version}");
        assert_eq!(read.dns, result.dns, "{version}");
        if version >= SpecVersion::V0_3_0 {
            assert_eq!(read.interfaces.len(), 2, "{version}");
            assert_eq!(read.interfaces[1].sandbox, "/run/netns/p", "{version}");
        }
        if version == SpecVersion::V1_1_0 {
            assert_eq!(read, result);
        }
    }
}

#[test]
fn the_configuration_gives_the_version_a_result_lacks() {
    let old = json!({"ip4": {"ip": "10.0.0.2/24"}});
    let read = CniResult::from_value(&old, SpecVersion::V0_2_0).unwrap();
    assert_eq!(read.ips[0].address, "10.0.0.2/24".parse().unwrap());
}

#[test]
fn broken_results_are_errors() {
    let latest = SpecVersion::LATEST;
    for bad in [
        json!(7),
        json!({"ips": [{"address": "10.0.0.2"}]}),
        json!({"ips": {"address": "10.0.0.2/24"}}),
        json!({"interfaces": [{}]}),
    ] {
        assert!(
            matches!(CniResult::from_value(&bad, latest), Err(ResultError::Decode(_))),
            "{bad}"
        );
    }
    let dangling = json!({"ips": [{"address": "10.0.0.2/24", "interface": 3}]});
    assert!(matches!(
        CniResult::from_value(&dangling, latest),
        Err(ResultError::NoSuchInterface { index: 3, .. })
    ));
    let future = json!({"cniVersion": "9.9.9"});
    assert!(matches!(CniResult::from_value(&future, latest), Err(ResultError::Version(_))));
}

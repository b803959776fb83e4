use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use host::ipam::{Attachment, Ipam, NetConf, Provider, Request, Store};
use tempfile::TempDir;

use super::block_on;

const CNI_PATH: &str = "/usr/lib/cni";

fn mk_request(id: &str, args: &str) -> Request {
    Request {
        container_id: id.into(),
        ifname: "eth0".into(),
        netns: "/proc/self/ns/net".into(),
        args: args.into(),
    }
}

fn installed() -> Ipam {
    let ipam = Ipam::from_cni_path(&format!("/nowhere:{CNI_PATH}"));
    let provider = ipam.provider("host-local").unwrap();
    assert_eq!(provider, Provider::Plugin(PathBuf::from(CNI_PATH).join("host-local")));
    ipam
}

fn mk_conf(dir: &Path, ipam: &str) -> Vec<u8> {
    format!(
        r#"{{"cniVersion":"1.0.0","name":"net1","ipam":{{"type":"host-local","dataDir":"{}",{ipam}}}}}"#,
        dir.display()
    )
    .into_bytes()
}

/// Every file of a directory with its content.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(dir.join("net1")).unwrap();
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(&'static str, &'static str),
    Check(&'static str),
    Del(&'static str),
}
use Step::{Add, Check, Del};

/// Runs the same steps by the installed plugin and by ours; answers and files have to be equal
/// after each.
#[track_caller]
fn check(ipam: &str, steps: &[Step]) {
    block_on(async {
        let (theirs, ours) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let plugin = installed();
        let built_in = Ipam::built_in();
        for (number, step) in steps.iter().enumerate() {
            let mut answers = Vec::new();
            for (provider, dir) in [(&plugin, theirs.path()), (&built_in, ours.path())] {
                let conf = mk_conf(dir, ipam);
                answers.push(match *step {
                    Add(id, args) => provider.add(&mk_request(id, args), &conf).await.map(Some),
                    Check(id) => provider.check(&mk_request(id, ""), &conf).await.map(|()| None),
                    Del(id) => provider.del(&mk_request(id, ""), &conf).await.map(|()| None),
                });
            }
            let [theirs_said, ours_said] = &answers[..] else { panic!("two providers") };
            let what = format!("{ipam}, step {number} {step:?}: {theirs_said:?} and {ours_said:?}");
            match (theirs_said, ours_said) {
                (Ok(a), Ok(b)) => assert_eq!(a, b, "{what}"),
                (Err(_), Err(_)) => {}
                _ => panic!("{what}"),
            }
            assert_eq!(files(theirs.path()), files(ours.path()), "{what}");
        }
    });
}

#[test]
#[ignore = "needs root: make test"]
fn built_in_and_installed_host_local_do_the_same() {
    check(
        r#""ranges":[[{"subnet":"10.1.2.0/29"}],[{"subnet":"fd00::/125"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.2.5"}]"#,
        &[
            Add("c1", ""),
            Add("c1", ""),
            Add("c2", ""),
            Check("c1"),
            Check("c9"),
            Del("c1"),
            Del("c1"),
            Add("c3", ""),
            Add("c4", ""),
            Add("c5", ""),
            Add("c6", ""),
            Add("c7", ""),
            Add("c8", ""),
            Del("c2"),
            Del("c9"),
            Add("c1", ""),
        ],
    );
    check(
        r#""ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.20","rangeEnd":"10.1.2.22","gateway":"10.1.2.21"},{"subnet":"10.1.3.0/30"}]]"#,
        &[
            Add("c1", ""),
            Add("c2", ""),
            Add("c3", ""),
            Add("c4", ""),
            Del("c2"),
            Add("c4", ""),
            Del("c1"),
            Del("c3"),
            Add("c1", "IgnoreUnknown=1;K8S_POD_NAME=web-0"),
            Check("c1"),
        ],
    );
    check(
        r#""subnet":"10.1.2.0/24""#,
        &[
            Add("c1", "IgnoreUnknown=1;IP=10.1.2.77"),
            Add("c2", "IP=10.1.2.77"),
            Add("c3", "IP=10.1.2.1"),
            Add("c4", "IP=10.1.9.9"),
            Add("c5", ""),
            Check("c4"),
            Del("c1"),
        ],
    );
    check(
        r#""subnet":"10.1.2.0/29","ranges":[[{"subnet":"10.1.2.8/29"}]]},"runtimeConfig":{"ipRanges":[[{"subnet":"10.7.0.0/29"}]],"ips":["10.1.2.12/29"]"#,
        &[Add("c1", ""), Add("c2", ""), Del("c1"), Add("c2", "IP=10.7.0.4")],
    );
    check(
        r#""subnet":"10.1.2.0/29","ranges":[[{"subnet":"10.1.2.8/29"}]]"#,
        &[Add("c1", ""), Del("c1")],
    );
}

#[test]
#[ignore = "needs root: make test"]
fn either_releases_what_the_other_gave() {
    block_on(async {
        let dir = TempDir::new().unwrap();
        let pod_cidrs = ["10.1.2.0/24", "fd00:77:1::/64"].map(|net| net.parse().unwrap());
        let conf = NetConf::for_pod_cidrs("1.0.0", "antrea", &pod_cidrs).with_data_dir(dir.path());
        let conf = conf.to_json();
        let (plugin, built_in) = (installed(), Ipam::built_in());
        let (a, b) = (mk_request("a", ""), mk_request("b", ""));
        let first = plugin.add(&a, &conf).await.unwrap();
        let second = built_in.add(&b, &conf).await.unwrap();
        assert_eq!(first.ips[0].address.to_string(), "10.1.2.2/24");
        assert_eq!(first.ips[1].address.to_string(), "fd00:77:1::2/64");
        assert_eq!(second.ips[0].address.to_string(), "10.1.2.3/24");
        assert_eq!(second.ips[1].gateway, Some("fd00:77:1::1".parse().unwrap()));
        built_in.check(&a, &conf).await.unwrap();
        plugin.check(&b, &conf).await.unwrap();
        built_in.del(&a, &conf).await.unwrap();
        plugin.del(&b, &conf).await.unwrap();
        assert_eq!(Store::open(&NetConf::parse(&conf).unwrap()).unwrap().leases().unwrap(), []);
    });
}

/// The lock keeps both kinds apart: nobody gets an address twice.
#[test]
#[ignore = "needs root: make test"]
fn both_at_once_give_each_address_once() {
    block_on(async {
        let dir = TempDir::new().unwrap();
        let conf = mk_conf(dir.path(), r#""subnet":"10.1.2.0/24""#);
        let providers = [installed(), Ipam::built_in()];
        let calls = (0..40).map(|n| {
            let (provider, conf) = (providers[n % 2].clone(), conf.clone());
            async move { provider.add(&mk_request(&format!("c{n}"), ""), &conf).await.unwrap() }
        });
        let tasks: Vec<_> = calls.map(tokio::spawn).collect();
        let mut given = Vec::new();
        for task in tasks {
            given.push(task.await.unwrap().ips[0].address);
        }
        given.sort();
        given.dedup();
        assert_eq!(given.len(), 40);

        let valid = vec![
            Attachment { container_id: "c3".into(), ifname: "eth0".into() },
            Attachment { container_id: "c4".into(), ifname: "eth1".into() },
        ];
        let released = providers[0].gc(&conf, valid).await.unwrap();
        assert_eq!(released.len(), 39);
        let left = Store::open(&NetConf::parse(&conf).unwrap()).unwrap().leases().unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].attachment.container_id, "c3");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn other_plugins_are_run_and_missing_ones_named() {
    block_on(async {
        let ipam = installed();
        let conf = br#"{"cniVersion":"1.0.0","name":"n","ipam":{"type":"static","addresses":[{"address":"10.10.0.1/24","gateway":"10.10.0.254"}]}}"#;
        let result = ipam.add(&mk_request("c1", ""), conf).await.unwrap();
        assert_eq!(result.ips[0].address.to_string(), "10.10.0.1/24");
        let bad = br#"{"cniVersion":"1.0.0","name":"n","ipam":{"type":"static","addresses":[{"address":"nonsense"}]}}"#;
        let refused = ipam.add(&mk_request("c1", ""), bad).await.unwrap_err();
        assert!(refused.to_string().contains("nonsense"), "{refused}");
        let missing = br#"{"name":"n","ipam":{"type":"whereabouts"}}"#;
        let refused = ipam.add(&mk_request("c1", ""), missing).await.unwrap_err();
        assert!(refused.to_string().contains("whereabouts"), "{refused}");
        assert_eq!(refused.code(), 7);
    });
}

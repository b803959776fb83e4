use host::netns::{self, Netns, NetnsError};
use host::{Rtnl, link};
use testkit::netns::{NamedNetns, in_netns, sh};

#[test]
#[ignore = "needs root: make test"]
fn named_namespaces_are_those_of_ip_netns() {
    let name = format!("host-named-{}", std::process::id());
    let made = netns::create_named(&name).unwrap();
    struct Gone(String);
    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = netns::delete_named(&self.0);
        }
    }
    let _gone = Gone(name.clone());
    assert!(sh("ip netns list").contains(&name));
    assert!(netns::list_named().unwrap().contains(&name));
    assert!(matches!(netns::create_named(&name), Err(NetnsError::Exists(_))));
    let inode = sh(&format!("stat -L -c %i /run/netns/{name}"));
    assert_eq!(made.inode().to_string(), inode.trim());
    assert!(made.same_as(&Netns::named(&name).unwrap()));
    assert!(!made.same_as(&Netns::current().unwrap()));
    assert!(made.same_as(&made.run(|| Netns::current().unwrap()).unwrap()));
    assert!(Netns::exists(made.path()));

    netns::delete_named(&name).unwrap();
    netns::delete_named(&name).unwrap();
    assert!(!Netns::exists(made.path()));
    // The open handle still leads inside.
    let links = made.run(|| sh("ip -o link")).unwrap();
    assert_eq!(links.lines().count(), 1, "{links}");
}

#[test]
#[ignore = "needs root: make test"]
fn dead_paths_are_told_apart_from_refusals() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (path, want_gone) in [
        ("/run/netns/no-such-namespace".into(), true),
        ("/proc/4000000/ns/net".into(), true),
        ("/proc/self/ns/uts".into(), true),
        (file.path().display().to_string(), true),
    ] {
        let error = Netns::open(&path).unwrap_err();
        assert_eq!(error.is_gone(), want_gone, "{path}: {error}");
    }
    for bad in ["", "..", "a/b"] {
        assert!(matches!(Netns::named(bad), Err(NetnsError::BadName(_))), "{bad}");
    }
}

#[test]
#[ignore = "needs root: make test"]
fn a_handle_stays_in_the_namespace_it_was_opened_in() {
    let pod = NamedNetns::new("host-handle").unwrap();
    let pod_netns = Netns::open(pod.path()).unwrap();
    let rtnl = Rtnl::open_in(&pod_netns).unwrap();
    in_netns(|| {
        link::create_bridge(&rtnl, "probe0").unwrap();
        assert!(!sh("ip -o link").contains("probe0"));
    });
    assert!(pod.sh("ip -o link").contains("probe0"));
    let listed = super::block_on(rtnl.call(|rtnl| link::list(rtnl).unwrap().len())).unwrap();
    assert_eq!(listed, 2);
    let seen = super::block_on(pod_netns.run_async(|| sh("ip -o link"))).unwrap();
    assert!(seen.contains("probe0"));
}

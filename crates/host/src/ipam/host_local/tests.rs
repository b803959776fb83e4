use super::*;
use crate::ipam::Request;

fn mk_conf(dir: &Path, ipam: &str) -> NetConf {
    let dir = dir.display();
    let text = format!(r#"{{"name":"n","ipam":{{"type":"host-local","dataDir":"{dir}",{ipam}}}}}"#);
    NetConf::parse(text.as_bytes()).unwrap()
}

fn mk_request(id: &str) -> Request {
    Request {
        container_id: id.into(),
        ifname: "eth0".into(),
        netns: String::new(),
        args: String::new(),
    }
}

#[test]
fn an_exhausted_set_gives_back_what_the_call_took_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let conf =
        mk_conf(dir.path(), r#""ranges":[[{"subnet":"10.0.0.0/24"}],[{"subnet":"fd00::/126"}]]"#);
    add(&mk_request("a"), &conf).unwrap();
    add(&mk_request("b"), &conf).unwrap();
    let error = add(&mk_request("c"), &conf).unwrap_err();
    assert!(matches!(error, IpamError::Exhausted(_)), "{error}");
    let leases = Store::open(&conf).unwrap().leases().unwrap();
    assert_eq!(leases.len(), 4, "{leases:?}");
}

#[test]
fn a_second_add_is_refused_and_the_first_keeps_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let conf = mk_conf(dir.path(), r#""subnet":"10.0.0.0/24""#);
    let first = add(&mk_request("a"), &conf).unwrap();
    let error = add(&mk_request("a"), &conf).unwrap_err();
    assert!(matches!(error, IpamError::Duplicate { .. }), "{error}");
    check(&mk_request("a"), &conf).unwrap();
    del(&mk_request("a"), &conf).unwrap();
    del(&mk_request("a"), &conf).unwrap();
    assert!(matches!(check(&mk_request("a"), &conf), Err(IpamError::NoLease(_))));
    // The address just released is the last to be given again.
    assert_ne!(add(&mk_request("b"), &conf).unwrap().ips, first.ips);
}

#[test]
fn one_lease_is_released_while_it_is_as_it_was_seen() {
    let dir = tempfile::tempdir().unwrap();
    let conf = mk_conf(dir.path(), r#""subnet":"10.0.0.0/24""#);
    fs::create_dir_all(conf.lease_dir()).unwrap();
    for ip in ["10.0.0.8", "10.0.0.9"] {
        fs::write(conf.lease_dir().join(ip), "a\r\neth0").unwrap();
    }
    let store = Store::open(&conf).unwrap();
    let seen = store.leases().unwrap();
    fs::write(conf.lease_dir().join("10.0.0.8"), "b\r\neth0").unwrap();
    assert!(!store.release_one(&seen[0]).unwrap(), "somebody else has it by now");
    assert!(store.release_one(&seen[1]).unwrap());
    assert!(!store.release_one(&seen[1]).unwrap(), "it is released");
    let left: Vec<_> = store.leases().unwrap().into_iter().map(|lease| lease.ip).collect();
    assert_eq!(left, [seen[0].ip], "the holder's other one stays");
}

#[test]
fn leases_without_interface_are_still_released() {
    let dir = tempfile::tempdir().unwrap();
    let conf = mk_conf(dir.path(), r#""subnet":"10.0.0.0/24""#);
    fs::create_dir_all(conf.lease_dir()).unwrap();
    fs::write(conf.lease_dir().join("10.0.0.9"), "old\n").unwrap();
    check(&mk_request("old"), &conf).unwrap();
    del(&mk_request("old"), &conf).unwrap();
    assert_eq!(Store::open(&conf).unwrap().leases().unwrap(), []);
}

#[test]
fn strange_ids_never_reach_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let conf = mk_conf(dir.path(), r#""subnet":"10.0.0.0/24""#);
    for id in ["", "../x", "a b", "a\nb", "-a"] {
        let error = add(&mk_request(id), &conf).unwrap_err();
        assert_eq!(error.code(), 4, "{id:?}");
    }
    let bad_ifname = Request { ifname: "a/b".into(), ..mk_request("a") };
    assert_eq!(add(&bad_ifname, &conf).unwrap_err().code(), 4);
}

#[test]
fn del_where_nothing_was_ever_allocated_makes_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let conf = mk_conf(dir.path(), r#""subnet":"10.0.0.0/24""#);
    del(&mk_request("a"), &conf).unwrap();
    assert!(!conf.lease_dir().exists());
}

#[test]
fn resolver_settings_are_read_from_the_named_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("resolv.conf");
    fs::write(&file, "nameserver 10.96.0.10\n").unwrap();
    let ipam = format!(r#""subnet":"10.0.0.0/24","resolvConf":"{}""#, file.display());
    let conf = mk_conf(dir.path(), &ipam);
    assert_eq!(add(&mk_request("a"), &conf).unwrap().dns.nameservers, ["10.96.0.10"]);
    let missing = mk_conf(dir.path(), r#""subnet":"10.0.0.0/24","resolvConf":"/no/such""#);
    let error = add(&mk_request("b"), &missing).unwrap_err();
    assert_eq!(error.code(), 5);
}

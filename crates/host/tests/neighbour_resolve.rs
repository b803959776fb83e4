//! The kernel asks for a neighbour's MAC, judged by what the far end has.

use std::net::IpAddr;
use std::time::Duration;

use host::link::{self, MacAddr, VethSpec};
use host::netlink::Rtnl;
use host::netns::Netns;
use host::{address, neighbour};
use testkit::netns::NamedNetns;

#[test]
#[ignore = "needs root: make test"]
fn a_neighbour_is_asked_for_and_a_silent_one_is_left_out() {
    let near = NamedNetns::new("resolve-a").unwrap();
    let far = NamedNetns::new("resolve-b").unwrap();
    let far_netns = Netns::open(far.path()).unwrap();
    let rtnl = Rtnl::open_in(&Netns::open(near.path()).unwrap()).unwrap();
    let far_rtnl = Rtnl::open_in(&far_netns).unwrap();
    let mac = MacAddr([2, 0, 0, 0, 0, 0x42]);
    let spec = VethSpec {
        host_name: "near0",
        host_mac: None,
        pod_netns: &far_netns,
        pod_name: "far0",
        pod_mac: Some(mac),
        mtu: 1500,
        master: None,
    };
    let veth = link::create_veth(&rtnl, &spec).unwrap();
    link::set_up(&rtnl, veth.host).unwrap();
    link::set_up(&far_rtnl, veth.pod).unwrap();
    // A question sent before there is carrier is lost, and repeated only a second later.
    link::wait_up(&rtnl, "near0", Duration::from_secs(10)).unwrap();
    address::add(&rtnl, veth.host, "192.0.2.1/24".parse().unwrap()).unwrap();
    address::add(&far_rtnl, veth.pod, "192.0.2.2/24".parse().unwrap()).unwrap();

    let asked: [IpAddr; 2] = ["192.0.2.2".parse().unwrap(), "192.0.2.77".parse().unwrap()];
    let found = neighbour::resolve(&rtnl, veth.host, &asked, Duration::from_secs(3)).unwrap();
    assert_eq!(found, [(asked[0], mac)]);
}

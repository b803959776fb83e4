//! Text in, text out, and what is refused with which words.
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::Ipv4Addr;

use openflow::{
    Action, ConjId, Cookie, Ct, CtState, EncodeError, Field, Flow, Group, GroupId, MacAddr, Match,
    Message, Meter, MeterId, Nat, OfPort, Subfield, TableId, Xid, message::FlowMod,
};

#[track_caller]
fn check(flow: Flow, want: &str) {
    assert_eq!(flow.to_string(), want);
    assert_eq!(want.parse::<Flow>().unwrap(), flow);
    flow.check().unwrap();
}

#[test]
fn builders_print_as_ovs_ofctl_does() {
    let pod = MacAddr([0x0a, 0, 0, 0, 0, 1]);
    let address = Ipv4Addr::new(10, 77, 1, 2);
    let source = Subfield::reg(0, 0, 3);
    check(Flow::new(TableId(0), 0, Match::new()), "table=0, priority=0 actions=drop");
    check(
        Flow::new(
            TableId(4),
            200,
            Match::new().in_port(OfPort(5)).ip().nw_src(address).eth_src(pod),
        )
        .cookie(Cookie(0xa17e_0001_0000_0007))
        .goto_table(TableId(10)),
        "cookie=0xa17e000100000007, table=4, priority=200,ip,in_port=5,dl_src=0a:00:00:00:00:01,\
         nw_src=10.77.1.2 actions=goto_table:10",
    );
    check(
        Flow::new(TableId(3), 190, Match::new().in_port(OfPort(5)))
            .action(Action::load(source, 3))
            .action(Action::load(Subfield::reg_bit(4, 28), 1))
            .goto_table(TableId(4)),
        "table=3, priority=190,in_port=5 \
         actions=set_field:0x3/0xf->reg0,set_field:0x10000000/0x10000000->reg4,goto_table:4",
    );
    check(
        Flow::new(TableId(6), 200, Match::new().ip())
            .action(Action::ct(Ct::zone(65520).table(TableId(7)).nat(Nat::restore()))),
        "table=6, priority=200,ip actions=ct(table=7,zone=65520,nat)",
    );
    let new = Match::new().ct_state(CtState::NEW | CtState::TRK, CtState::empty()).ip();
    let mark = Subfield::new(Field::CtMark, 0, 3);
    check(
        Flow::new(TableId(27), 200, new.ct_mark(0, 0x20)).action(Action::ct(
            Ct::zone(65520).commit().table(TableId(28)).exec(Action::move_field(source, mark)),
        )),
        "table=27, priority=200,ct_state=+new+trk,ct_mark=0/0x20,ip actions=\
         ct(commit,table=28,zone=65520,exec(move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3]))",
    );
    check(
        Flow::new(TableId(24), 100, Match::new().tcp().reg(Subfield::reg(1, 0, 31), 7).tp_dst(80))
            .action(Action::conjunction(ConjId(9), 2, 3)),
        "table=24, priority=100,tcp,reg1=0x7,tp_dst=80 actions=conjunction(9,2/3)",
    );
    check(
        Flow::new(TableId(28), 200, Match::new().reg(Subfield::reg(0, 21, 22), 1))
            .action(Action::OutputReg(Subfield::reg(1, 0, 31))),
        "table=28, priority=200,reg0=0x200000/0x600000 actions=output:NXM_NX_REG1[]",
    );
}

#[test]
fn load_is_set_field_once_it_travels() {
    let text = "table=1, actions=load:0x1->NXM_NX_REG0[0..3]";
    let flow: Flow = text.parse().unwrap();
    assert_eq!(flow.to_string(), text);
    let normal = flow.clone().normalize();
    assert_eq!(normal.to_string(), "table=1, actions=set_field:0x1/0xf->reg0");
    let encode = |flow| Message::FlowMod(FlowMod::add(flow)).encode(Xid(1)).unwrap();
    assert_eq!(encode(flow), encode(normal));
}

#[test]
fn equal_conditions_are_equal_matches() {
    for (one, other) in [
        ("ip,nw_src=10.0.0.1", "nw_src=10.0.0.1/32,dl_type=0x800"),
        ("ip,nw_src=10.0.0.9/24", "ip,nw_src=10.0.0.0/255.255.255.0"),
        ("ip,nw_src=0.0.0.0/0", "ip"),
        ("tcp,tp_dst=80", "ip,nw_proto=6,tcp_dst=80/0xffff"),
        ("reg0[0..3]=5,reg0[8]=1", "reg0=0x105/0x10f"),
        ("xxreg3=0x1/0xff", "reg15=1/0xff"),
        ("xreg0=0x500000006", "reg0=5,reg1=6"),
        ("dl_vlan=5", "vlan_tci=0x1005/0x1fff"),
        ("dl_vlan=0xffff", "vlan_tci=0"),
        ("ip,nw_tos=20", "ip,ip_dscp=5"),
        ("ct_state=+new+trk", "ct_state=0x21/0x21"),
    ] {
        let (one_match, other_match): (Match, Match) =
            (one.parse().unwrap(), other.parse().unwrap());
        assert_eq!(one_match, other_match, "{one} and {other}");
    }
}

#[test]
fn a_match_without_its_prerequisites_is_refused_by_name() {
    for (text, want) in [
        ("nw_src=10.0.0.1", "match field ip_src needs eth_type IPv4"),
        ("ip,tcp_dst=80", "match field tcp_dst needs protocol TCP"),
        ("tcp,nw_frag=later,tcp_dst=80", "match field tcp_dst needs protocol TCP"),
        ("ip,arp_spa=1.1.1.1", "match field arp_spa needs eth_type ARP or RARP"),
        ("icmp6,nd_target=::1", "match field nd_target needs ICMPv6 type 135 or 136"),
        ("icmp6,icmp_type=135,nd_tll=0:0:0:0:0:1", "match field nd_tll needs ICMPv6 type 136"),
        ("ip,ct_nw_src=1.1.1.1", "match field ct_nw_src needs eth_type IPv4 and a valid ct_state"),
        ("in_port_foo=4", "unknown match field"),
        ("vlan_pcp=9", "VLAN priorities have 3 bits"),
        ("ip,nw_src=10.0.0.256", "not an IPv4 address"),
        ("reg0[3..40]=1", "bits 3..40 are outside reg0, which has 32"),
        ("reg0[3]=2", "value has too many bits"),
        ("ct_state=+new-new", "flag given twice"),
        ("gadget", "unknown match"),
    ] {
        let error = text.parse::<Match>().unwrap_err().to_string();
        assert!(error.starts_with(want), "{text}: {error}");
    }
}

#[test]
fn actions_that_cannot_be_are_refused() {
    for (text, want) in [
        ("goto_table:4,output:1", "order is"),
        ("conjunction(1,1/2),output:1", "conjunction stands only"),
        ("conjunction(1,3/2)", "a conjunction has"),
        ("conjunction(1,1/65)", "a conjunction has"),
        ("move:NXM_NX_REG0[]->NXM_NX_REG1[0..3]", "a move's source and destination differ"),
        ("load:16->NXM_NX_REG0[0..3]", "value has too many bits"),
        ("ct(exec(set_field:1->ct_mark))", "ct without commit takes no exec"),
        ("ct(nat(src=1.1.1.1))", "ct without commit takes no nat"),
        ("ct(commit,nat(src=0.0.0.0))", "nat goes to no unspecified address"),
        ("ct(commit,nat(dst=[::]:80))", "nat goes to no unspecified address"),
        ("ct(commit,exec(goto_table:4))", "an instruction cannot be nested"),
        ("ct(commit", "opened but not closed"),
        ("output:foo", "unknown field"),
        ("frobnicate", "unknown action"),
        ("set_field:1->reg99", "unknown field"),
    ] {
        let error = openflow::text::parse_actions(text).unwrap_err().to_string();
        assert!(error.starts_with(want), "{text}: {error}");
    }
}

#[test]
fn what_openflow_15_cannot_say_is_an_error_and_not_something_else() {
    let encode = |flow: Flow| Message::FlowMod(FlowMod::add(flow)).encode(Xid(1));
    let flow = |matching| Flow::new(TableId(1), 1, matching);
    let masked_pcp = Match::new().with_masked(Field::VlanTci, 0x3000, 0x3000);
    assert!(matches!(encode(flow(masked_pcp)), Err(EncodeError::Inexpressible { .. })));
    let goto_first = flow(Match::new()).goto_table(TableId(2)).action(Action::Output(OfPort(1)));
    assert!(encode(goto_first).is_err());
    let far = Action::Resubmit(openflow::Resubmit {
        in_port: Some(OfPort(0x1_0000)),
        table: None,
        ct: false,
    });
    assert!(encode(flow(Match::new()).action(far)).is_err());
}

#[test]
fn groups_and_meters_print_and_read() {
    let group = Group::select(GroupId(7))
        .bucket(100, vec![Action::load(Subfield::reg(4, 16, 18), 2), Action::resubmit(TableId(9))]);
    let text = "group_id=7,type=select,bucket=bucket_id:0,weight:100,\
                actions=set_field:0x20000/0x70000->reg4,resubmit(,9)";
    assert_eq!(group.to_string(), text);
    assert_eq!(text.parse::<Group>().unwrap(), group);
    let meter = Meter::kbit_per_second(MeterId(3), 1000, 2000);
    let text = "meter=3,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=2000";
    assert_eq!(text.parse::<Meter>().unwrap(), meter);
    assert_eq!(meter.to_string().parse::<Meter>().unwrap(), meter);
}

//! A real bridge on the userspace datapath with the fixture's node on it.

use std::fs;

use openflow::{Flow, Intent};
use testkit::netns::sh;
use testkit::ovs::Ovs;

use super::fixture::{flows_of, mk_node, mk_pod, parse};
use crate::fields::{GATEWAY_OFPORT, TUNNEL_OFPORT};
use crate::{Families, NodeConfig};

/// The node of `mk_node` with Pods 2 and 3, all its ports on `br-int`, the tunnel's underlay on
/// `br-phy`. Lives in the caller's namespace.
pub(super) struct Switch {
    pub(super) ovs: Ovs,
}

impl Switch {
    pub(super) fn start(families: Families) -> Self {
        Self::start_as(&mk_node(families))
    }

    /// The same for a node that differs from `mk_node`'s in what it does.
    pub(super) fn start_as(node: &NodeConfig) -> Self {
        let families = node.families;
        let ovs = Ovs::start(None);
        ovs.vsctl(&["add-br", "br-phy", "--", "set", "bridge", "br-phy", "datapath_type=netdev"]);
        let uplink = ["--", "set", "interface", "uplink", "type=internal"];
        ovs.vsctl(&[&["add-port", "br-phy", "uplink"], &uplink[..]].concat());
        sh("ip addr add 172.30.0.1/24 dev br-phy && ip link set br-phy up");
        ovs.vsctl(&[
            "add-br",
            "br-int",
            "--",
            "set",
            "bridge",
            "br-int",
            "datapath_type=netdev",
            "fail_mode=secure",
        ]);
        let tunnel = format!("ofport_request={}", TUNNEL_OFPORT.0);
        ovs.vsctl(&[
            "add-port",
            "br-int",
            "tun0",
            "--",
            "set",
            "interface",
            "tun0",
            "type=geneve",
            "options:remote_ip=flow",
            "options:key=flow",
            &tunnel,
        ]);
        let mut ports = vec![("gw0".to_owned(), GATEWAY_OFPORT, node.gateway.mac)];
        for n in [2, 3] {
            let pod = mk_pod(families, n);
            ports.push((pod.name, pod.ofport, pod.mac));
        }
        for (name, ofport, mac) in ports {
            let request = format!("ofport_request={}", ofport.0);
            let mac = format!("mac=\"{mac}\"");
            ovs.vsctl(&[
                "add-port",
                "br-int",
                &name,
                "--",
                "set",
                "interface",
                &name,
                "type=internal",
                &request,
                &mac,
            ]);
            let got = ovs.vsctl(&[
                "--",
                "wait-until",
                "interface",
                &name,
                "ofport>0",
                "--",
                "get",
                "interface",
                &name,
                "ofport",
            ]);
            assert_eq!(got.trim(), ofport.0.to_string(), "{name}");
        }
        let switch = Self { ovs };
        switch.install(node);
        for n in [2, 3] {
            let args = ["tnl/arp/set", "br-phy", &format!("172.30.0.{n}"), "02:00:00:00:00:02"];
            switch.ovs.appctl(&args);
        }
        switch
    }

    /// Installs all flows as one bundle, and checks that the switch has them as they were meant.
    fn install(&self, node: &NodeConfig) {
        let mut flows: Vec<_> = flows_of(node).into_iter().map(Flow::normalize).collect();
        let lines: Vec<_> = flows.iter().map(ToString::to_string).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), lines.join("\n")).unwrap();
        let mgmt = self.ovs.mgmt("br-int").display().to_string();
        let path = file.path().display().to_string();
        self.ovs.ofctl(&["--bundle", "add-flows", &mgmt, &path]);
        let mut has = parse(self.ovs.flows("br-int").iter().map(String::as_str));
        has.sort_by_key(Flow::key);
        flows.sort_by_key(Flow::key);
        assert_eq!(has.len(), flows.len());
        for (has, want) in has.iter().zip(&flows) {
            assert_eq!(has, want, "the switch has what was sent");
        }
    }

    /// Adds flows to those of the node, as one bundle.
    pub(super) fn add(&self, flows: &[Flow]) {
        let lines: Vec<_> = flows.iter().map(|flow| flow.clone().normalize().to_string()).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), lines.join("\n")).unwrap();
        let mgmt = self.ovs.mgmt("br-int").display().to_string();
        self.ovs.ofctl(&["--bundle", "add-flows", &mgmt, &file.path().display().to_string()]);
    }

    /// Adds groups, and flows that use them, as one bundle.
    pub(super) fn add_all(&self, intents: Vec<Intent>) {
        let line = |intent: Intent| match intent {
            Intent::Group(group) => format!("group add {}", group.normalize()),
            Intent::Flow(flow) => format!("flow add {}", flow.normalize()),
            Intent::Meter(_) => panic!("a bundle has no meters"),
        };
        let mut lines: Vec<_> = intents.into_iter().map(line).collect();
        lines.sort_by_key(|line| line.starts_with("flow"));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), lines.join("\n")).unwrap();
        let mgmt = self.ovs.mgmt("br-int").display().to_string();
        self.ovs.ofctl(&["bundle", &mgmt, &file.path().display().to_string()]);
    }

    /// The way of a packet, as ovs-vswitchd explains it; `ct` is the state that conntrack finds.
    pub(super) fn trace(&self, packet: &str, ct: &str) -> Trace {
        let text =
            self.ovs.appctl(&["ofproto/trace", "br-int", packet, "--names", "--ct-next", ct]);
        let last = text.lines().rev().find_map(|l| l.strip_prefix("Datapath actions: "));
        let actions = last.expect("a trace ends with actions").to_owned();
        Trace { text, actions }
    }
}

/// What `ofproto/trace` said.
pub(super) struct Trace {
    /// All of it.
    pub(super) text: String,
    /// The datapath actions of the last pass.
    pub(super) actions: String,
}

impl Trace {
    /// Where the packet goes: names of ports, `tunnel to A`, or nothing.
    pub(super) fn verdict(&self) -> String {
        let mut outputs = Vec::new();
        let mut depth = 0;
        let parts = self.actions.split(|c| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        });
        for part in parts {
            if let Some((_, header)) = part.split_once("tnl_push(") {
                let to = header.split("dst=").nth(2).expect("an outer IPv4 destination");
                outputs.push(format!("tunnel to {}", to.split(',').next().unwrap_or_default()));
            } else if !part.contains('(') && !["drop", "uplink"].contains(&part) {
                outputs.push(part.to_owned());
            }
        }
        if outputs.is_empty() { "drop".into() } else { outputs.join(" ") }
    }
}

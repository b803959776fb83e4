use super::*;
use crate::gates::Gate;

#[track_caller]
fn agent(text: &str) -> Result<AgentConfig, String> {
    AgentConfig::parse(text).map_err(|e| e.to_string())
}

#[track_caller]
fn controller(text: &str) -> Result<ControllerConfig, String> {
    ControllerConfig::parse(text).map_err(|e| e.to_string())
}

#[test]
fn an_empty_file_is_all_defaults() {
    let config = agent("").unwrap();
    assert_eq!(config, AgentConfig::default());
    assert_eq!(config.cni_socket.to_str(), Some("/var/run/antrea/cni.sock"));
    assert_eq!(config.ovs_bridge, "br-int");
    assert_eq!(config.host_gateway, "antrea-gw0");
    assert_eq!(config.datapath_type, DatapathType::System);
    assert_eq!(config.encap_mode, EncapMode::Encap);
    assert_eq!(config.tunnel_type, TunnelType::Geneve);
    assert_eq!(config.effective_tunnel_port(), Some(6081));
    assert_eq!(config.default_mtu, None);
    assert_eq!(config.api_port, 10350);
    assert_eq!(config.kubeconfig, None);
    assert_eq!(config.host_proc_path_prefix, "/host");
    assert!(config.enable_prometheus_metrics);
    assert_eq!(config.values.get("egress.maxEgressIPsPerNode"), Some(&Value::Int(255)));
    let config = controller("# nothing\n").unwrap();
    assert_eq!(config, ControllerConfig::default());
    assert_eq!((config.api_port, config.node_ipam), (10349, None));
}

#[test]
fn a_file_as_people_write_it() {
    let config = agent(
        "featureGates:\n#  Traceflow: true\n\
         ovsDatapathType: Netdev\n\
         ovsRunDir: /run/node1/ovs\n\
         tunnelPort: 7000\n\
         defaultMTU: 1400\n\
         transportInterfaceCIDRs: [172.30.0.0/24, fd00:30::/64]\n\
         clientConnection:\n  kubeconfig: /etc/kube.conf\n  qps: 50.5\n\
         antreaProxy:\n  enable: false\n  serviceHealthCheckServerBindAddress: \"\"\n\
         egress:\n  exceptCIDRs: []\n  snatFullyRandomPorts:\n\
         auditLogging:\n",
    )
    .unwrap();
    assert!(!config.proxy.enable);
    assert_eq!(config.proxy.health_address, None);
    assert_eq!(config.datapath_type, DatapathType::Netdev);
    assert_eq!(config.effective_tunnel_port(), Some(7000));
    assert_eq!(config.default_mtu, Some(1400));
    assert_eq!(config.transport_interface_cidrs.len(), 2);
    assert_eq!(config.kubeconfig.unwrap().to_str(), Some("/etc/kube.conf"));
    assert_eq!(config.client_limit, crate::ClientLimit { qps: 50.5, burst: 0 });
}

#[test]
fn mistakes_are_named() {
    for (text, want) in [
        ("tunelType: geneve", "line 1: unknown key tunelType, did you mean tunnelType?"),
        (
            "egress:\n  exeptCIDRs: []",
            "line 2: unknown key egress.exeptCIDRs, did you mean egress.exceptCIDRs?",
        ),
        (
            "multicluster:\n  wireGuard:\n    prt: 1",
            "line 3: unknown key multicluster.wireGuard.prt, did you mean multicluster.wireGuard.port?",
        ),
        ("proxyAll: true", "line 1: unknown key proxyAll, did you mean antreaProxy.proxyAll?"),
        ("zzz: 1", "line 1: unknown key zzz"),
        (
            "egress:\n  exceptCIDRs: [10.0.0.0/8]",
            "line 2: egress.exceptCIDRs: not built in this version, only the default [] is accepted",
        ),
        (
            "noSNAT: true",
            "line 1: noSNAT: not built in this version, only the default false is accepted",
        ),
        (
            "tunnelType: stt",
            "line 1: tunnelType: stt is not built until the next release, only geneve, vxlan, gre is accepted",
        ),
        ("tunnelType: geneva", "line 1: tunnelType: geneva is not one of geneve, vxlan, gre, stt"),
        (
            "trafficEncapMode: noencap",
            "line 1: trafficEncapMode: noEncap is not built until the next release, only encap is accepted",
        ),
        ("apiPort: 70000", "line 1: apiPort: 70000 is not a whole number from 1 to 65535"),
        (
            "apiPort: \"10350\"",
            "line 1: apiPort: \"10350\" is not a whole number from 1 to 65535: in quotes it is text, \
             write 10350",
        ),
        (
            "enablePrometheusMetrics: 'true'",
            "line 1: enablePrometheusMetrics: \"true\" is not true or false: in quotes it is text, \
             write true",
        ),
        (
            "featureGates: {AntreaPolcy: true, AntreaProxy: maybe, Nope: false, Egress: , Egress: true}",
            "line 1: unknown feature gate AntreaPolcy, did you mean AntreaPolicy?\n\
             line 1: featureGates.AntreaProxy: maybe is not true or false\n\
             line 1: unknown feature gate Nope\n\
             line 1: featureGates.Egress: null is not true or false\n\
             line 1: featureGates.Egress is there twice, first in line 1",
        ),
        ("apiPort: ten", "line 1: apiPort: ten is not a whole number from 1 to 65535"),
        (
            "ovsBridge: 5",
            "line 1: ovsBridge: 5 is not an interface name (1 to 15 characters, no slash, no white space)",
        ),
        ("egress: 5", "line 1: egress: 5 is not a mapping of keys"),
        ("- a", "the file must be a mapping of keys, not [a]"),
        (
            "ovsBridge: gw\nhostGateway: gw",
            "ovsBridge, hostGateway: both are gw, two interfaces need two names",
        ),
        (
            "antreaProxy:\n  skipServices: [10.96.0.10, kube-system/dns, dns]",
            "antreaProxy.skipServices: dns is neither a cluster address nor namespace/name",
        ),
        (
            "antreaProxy: {defaultLoadBalancerMode: dsr}",
            "antreaProxy.defaultLoadBalancerMode, featureGates.LoadBalancerModeDSR: dsr needs the gate\n\
             antreaProxy.defaultLoadBalancerMode, antreaProxy.proxyAll: dsr needs proxyAll",
        ),
        ("defaultMTU: 100", "defaultMTU: 100 is too small for IPv4, 576 is the least"),
        (
            "hostNetworkMode: nftables",
            "hostNetworkMode, featureGates.NFTablesHostNetworkMode: nftables needs the gate",
        ),
    ] {
        assert_eq!(agent(text).unwrap_err(), want, "{text}");
    }
    let direct = "antreaProxy: {defaultLoadBalancerMode: dsr, proxyAll: true}";
    assert!(agent(&format!("{direct}\nfeatureGates: {{LoadBalancerModeDSR: true}}")).is_ok());
    assert!(
        agent("hostNetworkMode: nftables\nfeatureGates: {NFTablesHostNetworkMode: true}").is_ok()
    );
}

#[test]
fn all_mistakes_are_told_at_once() {
    let errors = AgentConfig::parse(
        "tunelType: x\napiPort: 0\nfeatureGates:\n  Egres: true\n  BGPPolicy: true\nnoSNAT: true\n",
    )
    .unwrap_err();
    assert_eq!(errors.0.len(), 5, "{errors}");
    assert_eq!(errors.to_string().lines().count(), 5, "{errors}");
}

#[test]
fn broken_yaml_says_where() {
    let error = agent("apiPort: [1\nx").unwrap_err();
    assert!(error.contains("line"), "{error}");
    assert_eq!(
        agent("apiPort: 1\n# again\napiPort: 2\n").unwrap_err(),
        "line 3: apiPort is there twice, first in line 1"
    );
}

#[test]
fn node_ipam() {
    let config = controller(
        "nodeIPAM:\n  enableNodeIPAM: true\n  clusterCIDRs: [10.77.0.0/16, fd00:77::/56]\n  serviceCIDR: 10.96.0.0/12\n",
    )
    .unwrap();
    let ipam = config.node_ipam.unwrap();
    assert_eq!((ipam.cluster_cidrs.len(), ipam.service_cidrs.len()), (2, 1));
    assert_eq!((ipam.mask_size_v4, ipam.mask_size_v6), (24, 64));
    assert!(config.gates.enabled(Gate::NodeIPAM));
    for (cidrs, more, want) in [
        (
            "[]",
            "",
            "nodeIPAM.clusterCIDRs: one or two prefixes are needed, at most one of each family",
        ),
        (
            "[10.0.0.0/16, 10.1.0.0/16]",
            "",
            "nodeIPAM.clusterCIDRs: one or two prefixes are needed, at most one of each family",
        ),
        (
            "[10.0.0.0/25]",
            "",
            "nodeIPAM.clusterCIDRs, nodeIPAM.nodeCIDRMaskSizeIPv4: a node's /24 does not fit into 10.0.0.0/25",
        ),
        (
            "[fd00::/40]",
            "",
            "nodeIPAM.clusterCIDRs, nodeIPAM.nodeCIDRMaskSizeIPv6: a node's /64 is more than 16 bits longer than fd00::/40",
        ),
        (
            "[10.0.0.0/16]",
            "  serviceCIDR: fd00::/108\n  serviceCIDRv6: fd01::/108\n",
            "nodeIPAM.serviceCIDR, nodeIPAM.serviceCIDRv6: both are of one family, dual-stack needs one of each",
        ),
        (
            "[10.0.0.0/16]",
            "featureGates: {NodeIPAM: false}",
            "nodeIPAM.enableNodeIPAM, featureGates.NodeIPAM: needs the gate",
        ),
    ] {
        let text = format!("nodeIPAM:\n  enableNodeIPAM: true\n  clusterCIDRs: {cidrs}\n{more}");
        assert_eq!(controller(&text).unwrap_err(), want, "{text}");
    }
    let error = controller("nodeIPAM:\n  nodeCIDRMaskSizeIPv4: 31\n").unwrap_err();
    assert!(error.contains("31 is not a whole number from 16 to 30"), "{error}");
}

#[test]
fn the_tables_can_be_printed() {
    let text = Component::Agent.describe();
    assert!(text.contains("tunnelType: geneve\n    Encapsulation between nodes.\n"), "{text}");
    let rows = Component::Controller.describe_markdown().lines().count();
    assert_eq!(rows, 2 + keys(Component::Controller).len());
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config {
        failure_persistence: None,
        ..Default::default()
    })]

    /// Whatever the file says, the answer is a configuration or a list of mistakes.
    #[test]
    fn no_file_makes_it_panic(text in "\\PC*|[a-z:\\[\\]{}&*!|>'\"%@`,#0-9 \\n-]{0,80}") {
        if let Err(errors) = AgentConfig::parse(&text) {
            proptest::prop_assert!(!errors.0.is_empty());
        }
    }

    /// A value of any form under any key is accepted or refused by that key's name.
    #[test]
    fn a_refusal_names_the_key(
        n in 0..keys(Component::Agent).len(),
        value in "[0-9a-z./:\\-]{1,12}|\\[\\]|\\{\\}|true|-1|1e3|\\[a, 1\\]",
    ) {
        let key = &keys(Component::Agent)[n];
        let parts: Vec<_> = key.path.split('.').collect();
        let lines = parts.iter().enumerate();
        let lines = lines.map(|(depth, part)| format!("{}{part}:", "  ".repeat(depth)));
        let text = format!("{} {value}\n", lines.collect::<Vec<_>>().join("\n"));
        if let Err(errors) = AgentConfig::parse(&text) {
            let named = errors.to_string().contains(key.path);
            let yaml = matches!(errors.0[..], [ConfigError::Yaml { .. }]);
            let gate = key.path == "featureGates";
            proptest::prop_assert!(named || yaml || gate, "{text}{errors}");
        }
    }
}

//! Checks the definitions against what users of the API rely on, and against the committed files.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{crd_yaml, crds};

fn mk_schema(kind: &str) -> Value {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    serde_json::to_value(crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema).unwrap()
}

/// Flattens a schema into `path = type and constraints`, as reference tables print it.
fn flatten(schema: &Value, path: &str, out: &mut BTreeMap<String, String>) {
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.contains(&json!(name)))
    };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let mut here = format!("{path}{name}");
        let mut field = field;
        let mut facts = String::new();
        if field["type"] == "array" {
            here.push_str("[]");
            if let Some(max) = field.get("maxItems") {
                facts.push_str(&format!(" maxItems={max}"));
            }
            field = &field["items"];
        }
        let mut line = field["type"].as_str().unwrap_or("?").to_owned();
        if let Some(values) = field.get("additionalProperties") {
            line = format!("map of {}", values["type"].as_str().unwrap());
        }
        line.push_str(&facts);
        if required(name) {
            line.push_str(" required");
        }
        for keyword in ["format", "minimum", "maximum", "enum"] {
            match field.get(keyword) {
                Some(Value::String(word)) => line.push_str(&format!(" {word}")),
                Some(Value::Array(words)) => {
                    let mut words: Vec<_> = words
                        .iter()
                        .map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned))
                        .collect();
                    words.sort_unstable();
                    line.push_str(&format!(" {}", words.join("|")));
                }
                Some(number) => {
                    line.push_str(&format!(" {keyword}={}", number.as_f64().unwrap()));
                }
                None => {}
            }
        }
        flatten(field, &format!("{here}."), out);
        out.insert(here, line);
    }
}

#[track_caller]
fn check(kind: &str, want: &str) {
    let mut got = BTreeMap::new();
    flatten(&mk_schema(kind), "", &mut got);
    got.retain(|path, _| !path.starts_with("podRef.") && !path.starts_with("nodeRef."));
    got.retain(|path, _| !path.starts_with("serviceRef."));
    let want: BTreeMap<String, String> = want
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .map(|(path, facts)| (path.to_owned(), facts.to_owned()))
        .collect();
    assert_eq!(got, want);
}

#[test]
fn fields_of_agent_info() {
    check(
        "AntreaAgentInfo",
        "apiVersion: string
         kind: string
         metadata: object
         version: string
         agentConditions[]: object
         agentConditions[].lastHeartbeatTime: string required date-time
         agentConditions[].type: string required \
            AgentHealthy|ControllerConnectionUp|OVSDBConnectionUp|OpenflowConnectionUp
         agentConditions[].status: string required False|True|Unknown
         agentConditions[].reason: string
         agentConditions[].message: string
         localPodNum: integer int32
         nodePortLocalPortRange: string
         nodeSubnets[]: string
         apiCABundle: string byte
         ovsInfo: object
         ovsInfo.version: string
         ovsInfo.bridgeName: string
         ovsInfo.flowTable: map of integer
         networkPolicyControllerInfo: object
         networkPolicyControllerInfo.networkPolicyNum: integer int32
         networkPolicyControllerInfo.addressGroupNum: integer int32
         networkPolicyControllerInfo.appliedToGroupNum: integer int32
         apiPort: integer minimum=1 maximum=65535
         podRef: object
         nodeRef: object
         networkInfo: object
         networkInfo.transportInterface: string
         networkInfo.transportInterfaceMTU: integer int32 minimum=0
         networkInfo.podMTU: integer int32 minimum=0
         networkInfo.transportInterfaceIPs[]: string maxItems=2",
    );
}

#[test]
fn fields_of_controller_info() {
    check(
        "AntreaControllerInfo",
        "apiVersion: string
         kind: string
         metadata: object
         version: string
         controllerConditions[]: object
         controllerConditions[].lastHeartbeatTime: string required date-time
         controllerConditions[].status: string required False|True|Unknown
         controllerConditions[].type: string required ControllerHealthy
         controllerConditions[].reason: string
         controllerConditions[].message: string
         serviceRef: object
         networkPolicyControllerInfo: object
         networkPolicyControllerInfo.networkPolicyNum: integer int32
         networkPolicyControllerInfo.addressGroupNum: integer int32
         networkPolicyControllerInfo.appliedToGroupNum: integer int32
         apiPort: integer minimum=1 maximum=65535
         connectedAgentNum: integer int32
         podRef: object
         nodeRef: object",
    );
}

/// `path: facts`, or `path: absent`.
#[track_caller]
fn check_some(kind: &str, want: &str) {
    let mut got = BTreeMap::new();
    flatten(&mk_schema(kind), "", &mut got);
    for line in want.lines() {
        let (path, facts) = line.trim().split_once(": ").unwrap();
        let seen = got.get(path).map_or("absent", String::as_str);
        assert_eq!(seen, facts, "{kind} {path}");
    }
}

#[test]
fn a_cluster_wide_policy_is_held_to_its_form() {
    check_some(
        "ClusterNetworkPolicy",
        "spec.tier: string
         spec.priority: number required float minimum=1 maximum=10000
         spec.appliedTo[].serviceAccount.name: string required
         spec.appliedTo[].externalEntitySelector: absent
         spec.appliedTo[].scope: absent
         spec.ingress[].action: string required Allow|Drop|Pass|Reject
         spec.ingress[].ports[].protocol: string SCTP|TCP|UDP
         spec.ingress[].ports[].endPort: integer int32
         spec.ingress[].protocols[].icmp.icmpType: integer int32 minimum=0 maximum=255
         spec.ingress[].protocols[].igmp.igmpType: integer int32 17
         spec.ingress[].l7Protocols[].tls.sni: string
         spec.ingress[].from[].ipBlock.cidr: string cidr
         spec.ingress[].from[].ipBlock.except[]: string cidr
         spec.ingress[].from[].namespaces.match: string Self
         spec.ingress[].from[].scope: string Cluster|ClusterSet
         spec.ingress[].from[].fqdn: absent
         spec.ingress[].from[].externalEntitySelector: absent
         spec.ingress[].to[]: absent
         spec.ingress[].toServices[]: absent
         spec.egress[].protocols[].igmp.igmpType: integer int32 18|22|34
         spec.egress[].toServices[].namespace: string required
         spec.egress[].to[].fqdn: string
         spec.egress[].appliedTo[].service: absent
         spec.egress[].from[]: absent
         status.phase: string
         status.observedGeneration: integer int64",
    );
}

#[test]
fn a_namespaced_policy_has_less() {
    check_some(
        "NetworkPolicy",
        "spec.priority: number required float minimum=1 maximum=10000
         spec.appliedTo[].podSelector: object
         spec.appliedTo[].externalEntitySelector: object
         spec.appliedTo[].namespaceSelector: absent
         spec.appliedTo[].serviceAccount: absent
         spec.appliedTo[].service: absent
         spec.appliedTo[].nodeSelector: absent
         spec.ingress[].appliedTo[].namespaceSelector: absent
         spec.ingress[].from[].namespaces: absent
         spec.ingress[].from[].serviceAccount: absent
         spec.ingress[].from[].externalEntitySelector: object
         spec.egress[].to[].namespaces: absent
         spec.egress[].to[].fqdn: string
         spec.egress[].toServices[].namespace: string",
    );
}

#[test]
fn tiers_and_groups_are_held_to_their_forms() {
    check_some("Tier", "spec.priority: integer required int32 minimum=0 maximum=255");
    check_some(
        "ClusterGroup",
        "spec.nodeSelector: object
         spec.ipBlocks[].except[]: string cidr
         spec.childGroups[]: string
         status.conditions[].type: string",
    );
    check_some("Group", "spec.nodeSelector: absent\nspec.podSelector: object");
}

/// A word that nobody knows stays what it is, so that it can be named.
#[test]
fn unknown_words_survive() {
    let text = json!({"action": "Permit", "ports": [{"protocol": "DCCP", "port": "web"}]});
    let rule: crate::policy::Rule = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(rule.action, crate::policy::RuleAction::Unknown("Permit".into()));
    assert_eq!(serde_json::to_value(&rule).unwrap(), text);
}

#[test]
fn names_and_columns() {
    let seen: Vec<String> = crds()
        .iter()
        .map(|crd| {
            let names = &crd.spec.names;
            let version = &crd.spec.versions[0];
            let status = if version.subresources.is_some() { "+status" } else { "" };
            let columns: Vec<String> = version
                .additional_printer_columns
                .iter()
                .flatten()
                .map(|column| format!("{} {}", column.name, column.priority.unwrap_or(0)))
                .collect();
            format!(
                "{} {}{status} {:?} {}: {}",
                crd.metadata.name.as_deref().unwrap(),
                version.name,
                names.short_names.as_ref().unwrap(),
                crd.spec.scope,
                columns.join(", ")
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            "antreaagentinfos.crd.antrea.io v1beta1 [\"aai\"] Cluster: Healthy 0, \
             Last Heartbeat 0, Version 1, Node 1, Num Pods 2, Subnets 2",
            "antreacontrollerinfos.crd.antrea.io v1beta1 [\"aci\"] Cluster: Healthy 0, \
             Last Heartbeat 0, Version 1, Connected Agents 1, Node 1, Num Network Policies 2",
            "clustergroups.crd.antrea.io v1beta1+status [\"cg\"] Cluster: ",
            "clusternetworkpolicies.crd.antrea.io v1beta1+status [\"acnp\"] Cluster: \
             Tier 0, Priority 0, Desired Nodes 0, Current Nodes 0, Age 0",
            "groups.crd.antrea.io v1beta1+status [\"grp\"] Namespaced: ",
            "networkpolicies.crd.antrea.io v1beta1+status [\"annp\", \"anp\"] Namespaced: \
             Tier 0, Priority 0, Desired Nodes 0, Current Nodes 0, Age 0",
            "tiers.crd.antrea.io v1beta1 [\"tr\"] Cluster: Priority 0, Age 0",
        ]
    );
}

#[test]
fn schemas_are_structural() {
    fn walk(schema: &Value, path: &str) {
        for keyword in ["$ref", "nullable", "anyOf", "allOf", "title", "default"] {
            assert!(schema.get(keyword).is_none(), "{keyword} at {path}");
        }
        for choice in schema["oneOf"].as_array().into_iter().flatten() {
            let keywords: Vec<_> = choice.as_object().unwrap().keys().collect();
            assert!(keywords == ["required"] || keywords == ["format"], "{keywords:?} at {path}");
        }
        let is_union = schema["x-kubernetes-int-or-string"] == json!(true);
        assert_ne!(is_union, schema["type"].is_string(), "type at {path}");
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            walk(field, &format!("{path}.{name}"));
        }
        for below in ["items", "additionalProperties"] {
            if let Some(field) = schema.get(below) {
                walk(field, &format!("{path}.{below}"));
            }
        }
    }
    for crd in crds() {
        walk(&mk_schema(&crd.spec.names.kind), &crd.spec.names.kind);
    }
}

#[test]
fn committed_files_are_what_the_types_say() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&dir).unwrap();
        for (name, text) in crd_yaml() {
            std::fs::write(dir.join(name), text).unwrap();
        }
    }
    for (name, text) in crd_yaml() {
        let committed = std::fs::read_to_string(dir.join(&name)).unwrap_or_default();
        assert!(committed == text, "deploy/crds/{name} differs: run cargo xtask gen");
        let parsed: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(parsed["kind"], "CustomResourceDefinition");
        assert_eq!(parsed["apiVersion"], "apiextensions.k8s.io/v1");
    }
    let n_files = std::fs::read_dir(&dir).unwrap().count();
    assert_eq!(n_files, crd_yaml().len(), "a file in deploy/crds belongs to no kind");
}

#[test]
fn an_object_reads_back_as_written() {
    let text = json!({
        "apiVersion": "crd.antrea.io/v1beta1",
        "kind": "AntreaAgentInfo",
        "metadata": {"name": "node-1"},
        "version": "v0.1.0",
        "localPodNum": 3,
        "apiPort": 10350,
        "apiCABundle": "cGVt",
        "networkInfo": {"transportInterface": "eth0", "transportInterfaceMTU": 1500,
                        "podMTU": 1450, "transportInterfaceIPs": ["172.30.0.1"]},
        "agentConditions": [{"type": "OVSDBConnectionUp", "status": "True",
                             "lastHeartbeatTime": "2026-11-30T20:00:00Z"}],
    });
    let object: crate::AntreaAgentInfo = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(serde_json::to_value(&object).unwrap(), text);
}

#[test]
fn a_named_object_knows_its_kind() {
    let value = serde_json::to_value(crate::AntreaControllerInfo::named("x")).unwrap();
    assert_eq!(value["kind"], "AntreaControllerInfo");
    assert_eq!(value["apiVersion"], "crd.antrea.io/v1beta1");
}

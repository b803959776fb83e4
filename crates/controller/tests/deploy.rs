//! The shipped manifests: configuration that the programs accept, and rights that exist.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not inside #[test] functions")]

use std::path::{Path, PathBuf};

use antrea_config::{AgentConfig, ControllerConfig};
use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn objects(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(deploy().join(file)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

#[test]
fn the_default_configuration_is_the_programs_default() {
    let config = objects("config.yaml").remove(0);
    let text = |key: &str| config["data"][key].as_str().unwrap().to_owned();
    let agent = AgentConfig::parse(&text("antrea-agent.conf")).unwrap();
    assert_eq!(agent, AgentConfig::default());
    let controller = ControllerConfig::parse(&text("antrea-controller.conf")).unwrap();
    assert_eq!(controller, ControllerConfig::default());
    let cni: Value = serde_json::from_str(&text("antrea-cni.conflist")).unwrap();
    assert_eq!(cni["plugins"][0]["type"], "antrea");
}

#[test]
fn every_manifest_is_a_list_of_objects_in_kube_system() {
    for file in ["rbac.yaml", "config.yaml", "agent.yaml", "controller.yaml", "ovs.yaml"] {
        for object in objects(file) {
            let kind = object["kind"].as_str().unwrap();
            assert!(object["metadata"]["name"].is_string(), "{file} {kind}");
            let namespace = object["metadata"]["namespace"].as_str();
            let want = (!kind.starts_with("ClusterRole")).then_some("kube-system");
            assert_eq!(namespace, want, "{file} {kind}");
            assert_eq!(object["metadata"]["labels"]["app"], "antrea", "{file} {kind}");
        }
    }
}

#[test]
fn bindings_name_roles_and_accounts_that_exist() {
    for file in ["rbac.yaml", "lab/rbac.yaml"] {
        let all = objects(file);
        let exists = |kind: &Value, name: &Value| {
            all.iter().any(|one| one["kind"] == *kind && one["metadata"]["name"] == *name)
        };
        for binding in all.iter().filter(|one| one["roleRef"].is_object()) {
            let role = &binding["roleRef"];
            assert!(exists(&role["kind"], &role["name"]), "{file}: {role}");
            for subject in binding["subjects"].as_array().unwrap() {
                assert!(exists(&subject["kind"], &subject["name"]), "{file}: {subject}");
            }
        }
    }
}

#[test]
fn nothing_is_allowed_by_a_wildcard() {
    for file in ["rbac.yaml", "lab/rbac.yaml"] {
        for object in objects(file) {
            assert!(!object["rules"].to_string().contains('*'), "{file}");
        }
    }
}

#[test]
fn volumes_and_mounts_agree() {
    for file in ["agent.yaml", "controller.yaml", "ovs.yaml"] {
        for object in objects(file).iter().filter(|one| one["spec"]["template"].is_object()) {
            let spec = &object["spec"]["template"]["spec"];
            let names = |list: &Value| -> Vec<String> {
                let list = list.as_array().cloned().unwrap_or_default();
                list.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
            };
            let mut volumes = names(&spec["volumes"]);
            let mut mounted = Vec::new();
            for kind in ["containers", "initContainers"] {
                for container in spec[kind].as_array().into_iter().flatten() {
                    mounted.extend(names(&container["volumeMounts"]));
                }
            }
            volumes.sort();
            mounted.sort();
            mounted.dedup();
            assert_eq!(volumes, mounted, "{file}");
        }
    }
}

//! The shipped manifests: configuration that the programs accept, and rights that exist.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not inside #[test] functions")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    // Older versions have no CHECK, and some plugins of the list do not speak a newer one.
    assert_eq!(cni["cniVersion"], "1.0.0");
    assert!(cni.get("cniVersions").is_none());
}

/// The script of the container that installs CNI, on folders below `root` instead of a Node's.
fn install_script(root: &Path) -> String {
    let pod = pod_spec("agent.yaml");
    let script = pod["initContainers"][0]["command"][2].as_str().unwrap();
    let root = root.display();
    script
        .replace("/tmp/", &format!("{root}/scratch/"))
        .replace("/host/", &format!("{root}/host/"))
        .replace("/usr/lib/cni", &format!("{root}/plugins"))
        .replace("/etc/antrea/", &format!("{root}/etc-antrea/"))
}

#[test]
fn a_list_offers_what_all_its_plugins_speak() {
    for (portmap, want) in [("1.0.0", None), ("1.1.0", Some(["1.0.0", "1.1.0"]))] {
        let root =
            std::env::temp_dir().join(format!("antrea-deploy-{}-{portmap}", std::process::id()));
        let _guard = Folder(root.clone());
        for dir in
            ["host/opt/cni/bin", "host/etc/cni/net.d", "plugins", "etc-antrea", "scratch", "bin"]
        {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        let plugin = |path: PathBuf, newest: &str| {
            let answer = format!("{{\"supportedVersions\":[\"0.4.0\",\"{newest}\"]}}");
            let text = format!("#!/bin/sh\n[ \"$CNI_COMMAND\" = VERSION ] && echo '{answer}'\n");
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        plugin(root.join("bin/antrea-cni"), "1.1.0");
        plugin(root.join("plugins/loopback"), "1.0.0");
        plugin(root.join("plugins/portmap"), portmap);
        plugin(root.join("plugins/bandwidth"), "1.1.0");
        let conflist = objects("config.yaml").remove(0)["data"]["antrea-cni.conflist"].clone();
        std::fs::write(root.join("etc-antrea/antrea-cni.conflist"), conflist.as_str().unwrap())
            .unwrap();
        let output = Command::new("/bin/sh")
            .args(["-euc", &install_script(&root)])
            .env("PATH", format!("{}:/usr/bin:/bin", root.join("bin").display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let installed = std::fs::read(root.join("host/etc/cni/net.d/10-antrea.conflist")).unwrap();
        let installed: Value = serde_json::from_slice(&installed).unwrap();
        assert_eq!(installed["cniVersion"], "1.0.0");
        assert_eq!(installed.get("cniVersions"), want.map(|all| serde_json::json!(all)).as_ref());
        assert_eq!(installed["plugins"].as_array().unwrap().len(), 3);
    }
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_cleanup_sees_the_node_as_the_agent_did() {
    let (agent, cleanup) = (pod_spec("agent.yaml"), pod_spec("cleanup.yaml"));
    let (runs, removes) = (&agent["containers"][0], &cleanup["initContainers"][0]);
    let config = AgentConfig::default();
    for path in [
        config.cni_socket.clone(),
        config.ovs_run_dir.join("db.sock"),
        "/var/lib/antrea/nodes.json".into(),
        "/var/run/antrea/apiserver".into(),
        "/var/lib/cni/networks/antrea".into(),
        "/etc/cni/net.d/10-antrea.conflist".into(),
        "/run/xtables.lock".into(),
    ] {
        let of_agent = behind(&agent, runs, &path).1;
        assert_eq!(behind(&cleanup, removes, &path).1, of_agent, "{}", path.display());
    }
    let program = Path::new("/host/opt/cni/bin/antrea");
    let on_node = behind(&cleanup, &cleanup["initContainers"][1], program).1;
    assert_eq!(on_node.as_deref(), Some(Path::new("/opt/cni/bin/antrea")));
}

#[test]
fn every_manifest_is_a_list_of_objects_in_kube_system() {
    for file in
        ["rbac.yaml", "config.yaml", "agent.yaml", "cleanup.yaml", "controller.yaml", "ovs.yaml"]
    {
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
    for file in ["agent.yaml", "cleanup.yaml", "controller.yaml", "ovs.yaml"] {
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

/// The Pod that a manifest runs.
fn pod_spec(file: &str) -> Value {
    let all = objects(file);
    let found = all.iter().find(|one| one["spec"]["template"].is_object()).unwrap();
    found["spec"]["template"]["spec"].clone()
}

/// Where a path of the container is: its volume, and its path on the Node if that is where it is.
#[track_caller]
fn behind(pod: &Value, container: &Value, path: &Path) -> (Value, Option<PathBuf>) {
    let mounts = container["volumeMounts"].as_array().unwrap();
    let at = |mount: &Value| PathBuf::from(mount["mountPath"].as_str().unwrap());
    let mount = mounts
        .iter()
        .filter(|mount| path.starts_with(at(mount)))
        .max_by_key(|mount| at(mount).components().count())
        .unwrap_or_else(|| panic!("{} is not on a volume", path.display()));
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
    let on_node = volume["hostPath"]["path"]
        .as_str()
        .map(|node_path| Path::new(node_path).join(path.strip_prefix(at(mount)).unwrap()));
    (mount.clone(), on_node)
}

/// The value of a flag in the container's arguments.
fn flag(container: &Value, name: &str) -> PathBuf {
    let args = container["args"].as_array().unwrap().iter().filter_map(Value::as_str);
    let start = format!("--{name}=");
    args.filter_map(|arg| arg.strip_prefix(&start)).next().unwrap().into()
}

#[test]
fn the_agent_finds_each_of_its_paths_on_the_node() {
    let pod = pod_spec("agent.yaml");
    let agent = &pod["containers"][0];
    let config = AgentConfig::default();
    let conflist = Path::new("/etc/cni/net.d/10-antrea.conflist");
    let prefix = Path::new(&config.host_proc_path_prefix);
    let same = |path: &str| (PathBuf::from(path), PathBuf::from(path));
    for (path, want) in [
        // Where antrea-cni on the Node looks for the agent.
        (config.cni_socket.clone(), PathBuf::from("/var/run/antrea/cni.sock")),
        (config.ovs_run_dir.join("db.sock"), "/var/run/antrea/openvswitch/db.sock".into()),
        (flag(agent, "log_dir"), "/var/log/antrea".into()),
        same("/var/lib/antrea"),
        same("/var/run/antrea/apiserver"),
        same(conflist.to_str().unwrap()),
        same("/run/xtables.lock"),
        ("/var/lib/cni/networks".into(), "/var/run/antrea/cni/networks".into()),
        (prefix.join("proc/1/ns/net"), "/proc/1/ns/net".into()),
        (prefix.join("var/run/netns/x"), "/var/run/netns/x".into()),
    ] {
        let (_, on_node) = behind(&pod, agent, &path);
        assert_eq!(on_node, Some(want), "{}", path.display());
    }
    let (mount, _) = behind(&pod, agent, &flag(agent, "config"));
    assert_eq!(mount["name"], "antrea-config");
    // What the first container installs is where kubelet looks.
    let install = &pod["initContainers"][0];
    for (path, want) in [
        ("/host/etc/cni/net.d/10-antrea.conflist", conflist),
        ("/host/opt/cni/bin/antrea", Path::new("/opt/cni/bin/antrea")),
    ] {
        let script = install["command"].to_string();
        assert!(script.contains(path), "{script}");
        assert_eq!(behind(&pod, install, Path::new(path)).1.as_deref(), Some(want));
    }
}

#[test]
fn a_reboot_keeps_the_database_and_empties_the_run_folder() {
    let pod = pod_spec("ovs.yaml");
    let ovs = &pod["containers"][0];
    let script = objects("ovs.yaml").remove(0)["data"]["start-ovs.sh"].as_str().unwrap().to_owned();
    let default_of = |variable: &str| {
        let (_, rest) = script.split_once(&format!("${{{variable}:-")).unwrap();
        PathBuf::from(rest.split_once('}').unwrap().0)
    };
    assert!(
        script.contains("db=$lib/conf.db") && script.contains("--remote=\"punix:$run/db.sock\"")
    );
    let (_, database) = behind(&pod, ovs, &default_of("OVS_DBDIR").join("conf.db"));
    let database = database.unwrap();
    assert!(database.starts_with("/var/lib"), "{}", database.display());
    // A cleanup of the agent removes this.
    assert!(!database.starts_with("/var/lib/antrea"), "{}", database.display());
    // Agents look for the sockets in the same folder of the Node.
    let (_, sockets) = behind(&pod, ovs, &default_of("OVS_RUNDIR"));
    let agents = pod_spec("agent.yaml");
    let run_dir = AgentConfig::default().ovs_run_dir;
    assert_eq!(sockets, behind(&agents, &agents["containers"][0], &run_dir).1);
    assert!(sockets.unwrap().starts_with("/var/run"));
}

#[test]
fn the_controller_writes_only_to_volumes() {
    let pod = pod_spec("controller.yaml");
    let controller = &pod["containers"][0];
    assert_eq!(controller["securityContext"]["readOnlyRootFilesystem"], true);
    for path in [flag(controller, "log_dir"), "/var/run/antrea/apiserver".into()] {
        let (mount, _) = behind(&pod, controller, &path);
        assert_ne!(mount["readOnly"], true, "{}", path.display());
    }
    behind(&pod, controller, &flag(controller, "config"));
}

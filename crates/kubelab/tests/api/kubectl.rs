//! The real kubectl.

use std::path::Path;
use std::process::Stdio;

use kubelab::testing;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

const POD: &str = "apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: c
    image: example.test/app:IMAGE
    ports: [{containerPort: 80}]
";

/// Its container is the last thing, so that a test can add to it.
const RICH: &str = "apiVersion: v1
kind: Pod
metadata: {name: rich, labels: {app: rich}}
spec:
  volumes: [{name: v, emptyDir: {}}]
  tolerations: [{key: own, operator: Exists}]
  containers:
  - name: c
    ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]
    env: [{name: A, value: a}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    resources: {limits: {cpu: 0.5, memory: 1024Mi}}
    readinessProbe: {httpGet: {port: 80}}
    volumeMounts: [{name: v, mountPath: /v}]
    command: [sh, -c, sleep 1]
";

const POLICIES: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: np}
spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}
---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: acnp}
spec:
  priority: 5.5
  tier: emergency
  appliedTo: [{podSelector: {}}]
  ingress: [{action: Drop, from: [{namespaceSelector: {}}]}]
";

struct Kubectl {
    kubeconfig: String,
    home: String,
}

impl Kubectl {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs kubectl; gives what it prints, errors too.
    async fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().await.unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        format!("{out}{err}")
    }
}

async fn check(kubectl: &Kubectl, arguments: &str, want: &[&str]) {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let seen = kubectl.run(&arguments).await;
    for part in want {
        assert!(seen.contains(part), "kubectl {arguments:?} does not say {part:?}:\n{seen}");
    }
}

fn write_manifest(dir: &Path, image: &str) -> String {
    let path = dir.join("pod.yaml");
    std::fs::write(&path, POD.replace("IMAGE", image)).unwrap();
    path.display().to_string()
}

/// A Pod whose manifest leaves much to the server is applied again and again.
async fn server_side_apply(kubectl: &Kubectl, dir: &Path) {
    let path = dir.join("rich.yaml");
    let write = |more: &str| std::fs::write(&path, format!("{RICH}{more}")).unwrap();
    write("    image: example.test/app:2\n");
    let apply = format!("apply --server-side -f {}", path.display());
    let get = |what: &str| format!("get pod rich -o jsonpath={{{what}}}");
    check(kubectl, &apply, &["pod/rich serverside-applied"]).await;
    let version_of_rich = ["get", "pod", "rich", "-o", "jsonpath={.metadata.resourceVersion}"];
    let version = kubectl.run(&version_of_rich).await;
    check(kubectl, &apply, &["pod/rich serverside-applied"]).await;
    check(kubectl, &get(".metadata.resourceVersion"), &[&version]).await;
    check(kubectl, "label pod rich tier=front", &["pod/rich labeled"]).await;
    write("    image: example.test/app:3\n");
    check(kubectl, &apply, &["pod/rich serverside-applied"]).await;
    check(kubectl, &get(".spec.containers[0].image"), &["app:3"]).await;
    check(kubectl, &get(".metadata.labels"), &["front", "app"]).await;
    let other = format!("{apply} --field-manager other");
    write("    image: example.test/app:4\n");
    check(kubectl, &other, &["conflict with \"kubectl\"", ".image"]).await;
    check(kubectl, &format!("{other} --force-conflicts"), &["serverside-applied"]).await;
    // Both ways to apply know each other's objects, and a diff changes nothing.
    check(kubectl, &format!("diff -f {}", path.display()), &[""]).await;
    let plain = format!("apply -f {}", path.display());
    check(kubectl, &plain, &["pod/rich configured"]).await;
    // kubectl sends a patch, since the server holds more than the manifest; it changes nothing.
    let version = kubectl.run(&version_of_rich).await;
    check(kubectl, &plain, &["pod/rich configured"]).await;
    check(kubectl, &get(".metadata.resourceVersion"), &[&version]).await;
    check(kubectl, &format!("{apply} --force-conflicts"), &["serverside-applied"]).await;
    check(kubectl, "delete pod rich", &["pod \"rich\" deleted"]).await;
}

#[tokio::test]
#[ignore = "needs kubectl"]
async fn get_apply_describe_watch_and_delete() {
    let served = testing::start().await.unwrap();
    let kubectl = Kubectl {
        kubeconfig: served.write_kubeconfig().unwrap().display().to_string(),
        home: served.dir().display().to_string(),
    };
    check(&kubectl, "get nodes", &["No resources found"]).await;
    check(&kubectl, "get ns", &["default", "kube-system", "Active"]).await;
    let manifest = write_manifest(served.dir(), "1");
    let apply = format!("apply -f {manifest}");
    check(&kubectl, &apply, &["node/node-1 created", "pod/web created"]).await;
    check(&kubectl, &apply, &["node/node-1 unchanged", "pod/web unchanged"]).await;
    write_manifest(served.dir(), "2");
    check(&kubectl, &apply, &["pod/web configured"]).await;
    server_side_apply(&kubectl, served.dir()).await;
    check(&kubectl, "get pods -o wide", &["NOMINATED NODE", "web", "0/1", "Pending"]).await;
    check(&kubectl, "get po,no,svc -A", &["pod/web", "node/node-1", "service/kubernetes"]).await;
    check(&kubectl, "get pod web -o jsonpath={.spec.containers[0].image}", &["app:2"]).await;
    check(&kubectl, "get pods -l app=web -o name", &["pod/web"]).await;
    check(&kubectl, "describe pod web", &["Image:", "example.test/app:2", "Events:"]).await;
    check(&kubectl, "describe node node-1", &["not-ready:NoSchedule", "Non-terminated Pods"]).await;
    check(&kubectl, "label pod web tier=front", &["pod/web labeled"]).await;
    check(&kubectl, "api-resources", &["endpointslices", "customresourcedefinitions"]).await;
    check(&kubectl, "version", &["Server Version"]).await;
    check(&kubectl, "explain pod.spec.nodeName", &["FIELD: nodeName <string>"]).await;

    // These go as protobuf.
    check(&kubectl, "create ns other", &["namespace/other created"]).await;
    check(&kubectl, "create cm m --from-literal=a=b", &["configmap/m created"]).await;
    check(&kubectl, "get cm m -o jsonpath={.data.a}", &["b"]).await;
    check(&kubectl, "create token default", &["ey"]).await;
    check(&kubectl, "auth can-i list pods", &["yes"]).await;
    check(&kubectl, "auth can-i list pods --as alice", &["no"]).await;
    check(&kubectl, "create svc nodeport n --tcp=80:http", &["service/n created"]).await;
    check(&kubectl, "create role r --verb=get --resource=pods", &["created"]).await;
    check(&kubectl, "delete ns other", &["namespace \"other\" deleted"]).await;

    let mut watch = kubectl
        .command(&["get", "pods", "-w", "--no-headers"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(lines.next_line().await.unwrap().unwrap().contains("Pending"));
    check(&kubectl, "delete pod web", &["pod \"web\" deleted"]).await;
    let mut last = String::new();
    while !last.contains("Terminating") {
        last = lines.next_line().await.unwrap().expect("the watch goes on");
    }
    watch.kill().await.unwrap();
    check(&kubectl, "get pod web", &["NotFound", "pods \"web\" not found"]).await;
    write_manifest(served.dir(), "1\n    imagee: x");
    check(
        &kubectl,
        &apply,
        &["strict decoding error: unknown field \"spec.containers[0].imagee\""],
    )
    .await;
}

#[tokio::test]
#[ignore = "needs kubectl"]
async fn policies_are_kinds_like_any_other() {
    let served = testing::start().await.unwrap();
    let kubectl = Kubectl {
        kubeconfig: served.write_kubeconfig().unwrap().display().to_string(),
        home: served.dir().display().to_string(),
    };
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
    let name = "clusternetworkpolicies.crd.antrea.io";
    check(&kubectl, &format!("apply -f {crds}"), &[name, "created"]).await;
    check(&kubectl, &format!("apply --server-side --force-conflicts -f {crds}"), &[name]).await;
    let path = served.dir().join("policies.yaml");
    std::fs::write(&path, POLICIES).unwrap();
    let apply = format!("apply -f {}", path.display());
    let want = ["networkpolicy.networking.k8s.io/np created", "acnp created"];
    check(&kubectl, &apply, &want).await;
    check(&kubectl, "get netpol", &["POD-SELECTOR", "app=web"]).await;
    let columns = ["NAME", "TIER", "PRIORITY", "DESIRED NODES", "CURRENT NODES", "AGE"];
    check(&kubectl, "get acnp", &columns).await;
    check(&kubectl, "get acnp acnp", &["emergency", "5.5"]).await;
    check(&kubectl, "explain acnp.spec.priority", &["FIELD: priority <number>"]).await;
    std::fs::write(&path, POLICIES.replace("Drop", "Drip")).unwrap();
    check(&kubectl, &apply, &["Unsupported value: \"Drip\"", "\"Drop\""]).await;
    std::fs::write(&path, POLICIES.replace("from:", "form:")).unwrap();
    check(&kubectl, &apply, &["unknown field \"spec.ingress[0].form\""]).await;
    check(&kubectl, "delete crd clusternetworkpolicies.crd.antrea.io", &["deleted"]).await;
    check(&kubectl, "get acnp", &["NotFound"]).await;
}

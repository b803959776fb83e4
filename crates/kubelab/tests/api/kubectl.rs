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

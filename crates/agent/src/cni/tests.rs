//! The CNI server on a fake node.

mod check;
mod faults;
mod lifecycle;
mod lost;
mod parallel;
mod socket;

use std::sync::Arc;

use cni_api::rpc::{Cni, CniCmdArgs, CniCmdRequest, CniCmdResponse};
use serde_json::{Value, json};
use tokio::sync::watch;
use tonic::Request;

use super::fake::FakeNode;
use super::*;

/// A server on a fake node, with the namespaces `/run/netns/<container id>` of its containers.
struct Rig {
    fake: FakeNode,
    server: Server,
    _ready_tx: watch::Sender<Readiness>,
    /// Tries again what the start could not remove.
    retry: tokio::task::JoinHandle<()>,
}

#[derive(Debug, PartialEq)]
struct Refused {
    code: i32,
    message: String,
}

/// A server that has started on a node with nothing on it.
async fn mk_rig() -> Rig {
    restart(FakeNode::default()).await
}

/// A server that has started on a node with all that its predecessor left.
async fn restart(fake: FakeNode) -> Rig {
    restart_with(fake, ServerConfig::new("/nonexistent/cni.sock")).await
}

/// As [`restart`], with a journal in a folder.
async fn restart_with_journal(fake: FakeNode, dir: &std::path::Path) -> Rig {
    let mut config = ServerConfig::new("/nonexistent/cni.sock");
    config.journal_dir = Some(dir.to_owned());
    restart_with(fake, config).await
}

async fn restart_with(fake: FakeNode, config: ServerConfig) -> Rig {
    let (ready_tx, ready_rx) = watch::channel(Readiness::Ready(fake.node()));
    let server = Server::new(config, ready_rx);
    let leftovers = server.start_up().await;
    let retry = {
        let server = server.clone();
        tokio::spawn(async move { server.finish_restore(leftovers).await })
    };
    Rig { fake, server, _ready_tx: ready_tx, retry }
}

fn mk_args(container_id: &str, conf: &Value) -> CniCmdArgs {
    CniCmdArgs {
        container_id: container_id.into(),
        netns: format!("/run/netns/{container_id}"),
        ifname: "eth0".into(),
        args: format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=pod-{container_id};\
             K8S_POD_INFRA_CONTAINER_ID={container_id}"
        ),
        path: "/opt/cni/bin".into(),
        network_configuration: conf.to_string().into_bytes(),
    }
}

fn mk_conf() -> Value {
    json!({"cniVersion": "1.1.0", "name": "antrea", "type": "antrea",
           "ipam": {"type": "host-local"}})
}

fn outcome(answer: CniCmdResponse) -> Result<Value, Refused> {
    match answer.error {
        Some(error) => Err(Refused { code: error.code, message: error.message }),
        None if answer.cni_result.is_empty() => Ok(Value::Null),
        None => Ok(serde_json::from_slice(&answer.cni_result).unwrap()),
    }
}

impl Rig {
    fn create_netns(&self, container_id: &str) {
        self.fake.world().netnses.insert(format!("/run/netns/{container_id}"));
    }

    async fn add_with(&self, args: CniCmdArgs) -> Result<Value, Refused> {
        let request = Request::new(CniCmdRequest { cni_args: Some(args) });
        outcome(self.server.service().cmd_add(request).await.unwrap().into_inner())
    }

    async fn del_with(&self, args: CniCmdArgs) -> Result<Value, Refused> {
        let request = Request::new(CniCmdRequest { cni_args: Some(args) });
        outcome(self.server.service().cmd_del(request).await.unwrap().into_inner())
    }

    async fn add(&self, container_id: &str) -> Result<Value, Refused> {
        self.add_with(mk_args(container_id, &mk_conf())).await
    }

    async fn del(&self, container_id: &str) -> Result<Value, Refused> {
        self.del_with(mk_args(container_id, &mk_conf())).await
    }

    async fn check(&self, container_id: &str, previous: &Value) -> Result<Value, Refused> {
        let mut conf = mk_conf();
        conf["prevResult"] = previous.clone();
        self.check_with(mk_args(container_id, &conf)).await
    }

    async fn check_with(&self, args: CniCmdArgs) -> Result<Value, Refused> {
        let request = Request::new(CniCmdRequest { cni_args: Some(args) });
        outcome(self.server.service().cmd_check(request).await.unwrap().into_inner())
    }

    async fn gc(&self, conf: Value) -> Result<Value, Refused> {
        let args = CniCmdArgs {
            network_configuration: conf.to_string().into_bytes(),
            ..CniCmdArgs::default()
        };
        let request = Request::new(CniCmdRequest { cni_args: Some(args) });
        outcome(self.server.service().cmd_gc(request).await.unwrap().into_inner())
    }

    async fn status(&self) -> Result<Value, Refused> {
        let args = CniCmdArgs {
            network_configuration: mk_conf().to_string().into_bytes(),
            ..CniCmdArgs::default()
        };
        let request = Request::new(CniCmdRequest { cni_args: Some(args) });
        outcome(self.server.service().cmd_status(request).await.unwrap().into_inner())
    }

    /// Nothing of any Pod is left, and nothing was done that must not be.
    #[track_caller]
    fn assert_empty(&self) {
        let world = self.fake.world();
        assert_eq!(world.leftovers(), Vec::<String>::new());
        assert_eq!(world.violations(), [] as [String; 0]);
        assert!(self.server.interfaces().borrow().is_empty());
    }
}

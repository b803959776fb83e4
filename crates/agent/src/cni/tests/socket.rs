use super::*;
use cni_api::rpc::CniClient;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

async fn call_add(socket: &std::path::Path, container_id: &str) -> Result<Value, Refused> {
    let channel =
        Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect().await;
    let request = CniCmdRequest { cni_args: Some(mk_args(container_id, &mk_conf())) };
    outcome(CniClient::new(channel.unwrap()).cmd_add(request).await.unwrap().into_inner())
}

#[tokio::test]
async fn the_socket_is_roots_own_and_a_stale_one_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("run/cni.sock");
    let fake = FakeNode::default();
    for turn in 0..2 {
        let (_ready_tx, ready_rx) = watch::channel(Readiness::Ready(fake.node()));
        let server = Server::new(ServerConfig::new(&socket), ready_rx);
        let mut restored = server.restored();
        let cancel = CancellationToken::new();
        let running = tokio::spawn(server.run(cancel.clone()));
        restored.wait_for(|restored| *restored).await.unwrap();

        let metadata = std::fs::metadata(&socket).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        let container = format!("c{turn}");
        fake.world().netnses.insert(format!("/run/netns/{container}"));
        call_add(&socket, &container).await.unwrap();
        assert_eq!(fake.world().ports.len(), turn + 1);

        cancel.cancel();
        running.await.unwrap().unwrap();
    }
    assert_eq!(std::fs::read_dir(dir.path().join("run")).unwrap().count(), 1);
}

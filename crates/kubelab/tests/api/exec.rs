//! `exec` and `log` reach the kubelet of the Pod's node.

use std::convert::Infallible;
use std::path::Path;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kubelab::testing;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::util::{create, create_node, mk_pod, send};

/// A kubelet that answers logs with their own URL and echoes what comes through streams.
async fn answer(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let uri = request.uri().to_string();
    if !uri.starts_with("/exec/") {
        let code = if uri.contains("tailLines=404") { 404 } else { 200 };
        let body = Full::new(format!("{uri}\n").into());
        return Ok(Response::builder().status(code).body(body).unwrap());
    }
    let protocol = request.headers()["sec-websocket-protocol"].clone();
    tokio::spawn(async move {
        let mut stream = TokioIo::new(hyper::upgrade::on(&mut request).await.unwrap());
        stream.write_all(format!("{uri}\n").as_bytes()).await.unwrap();
        let mut buffer = [0; 64];
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(n) => stream.write_all(&buffer[..n]).await.unwrap(),
            }
        }
    });
    Ok(Response::builder()
        .status(101)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", "accepted")
        .header("sec-websocket-protocol", protocol)
        .body(Full::default())
        .unwrap())
}

fn start_kubelet(dir: &Path, node: &str) {
    std::fs::create_dir_all(dir.join(node)).unwrap();
    let listener = UnixListener::bind(dir.join(node).join("kubelet.sock")).unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service_fn(answer))
                .with_upgrades();
            tokio::spawn(connection);
        }
    });
}

#[tokio::test]
async fn streams_and_logs_go_through_to_the_kubelet() {
    let dir = tempfile::tempdir().unwrap();
    start_kubelet(dir.path(), "node-1");
    let kubelets = dir.path().to_owned();
    let served = testing::start_with(|options| options.kubelet_dir = Some(kubelets)).await.unwrap();
    let client = served.admin_client().unwrap();
    create_node(&client, "node-1").await;
    let pods = "/api/v1/namespaces/default/pods";
    create(&client, pods, mk_pod("p", "node-1")).await;
    create(&client, pods, mk_pod("away", "node-2")).await;
    create(&client, pods, mk_pod("pending", "")).await;

    let path = format!("{pods}/p/log?tailLines=5&follow=true");
    let log = send(&client, Method::GET, &path, &Value::Null).await;
    let text = String::from_utf8(log.body.to_vec()).unwrap();
    assert_eq!(text, "/containerLogs/default/p/c?tailLines=5&follow=true\n");
    for (path, code) in [
        ("p/log?tailLines=404", 404),
        ("p/log?tailLines=x", 400),
        ("p/log?container=other", 400),
        ("p/log?bogus=1", 400),
        ("pending/log", 400),
        ("away/log", 502),
        ("none/log", 404),
        ("p/exec?command=ls", 400),
        ("p/portforward", 404),
    ] {
        let answer = send(&client, Method::GET, &format!("{pods}/{path}"), &Value::Null).await;
        assert_eq!(answer.code, code, "{path}: {}", answer.json());
    }

    let path = format!("{pods}/p/status");
    let body = serde_json::json!({ "status": { "containerStatuses": [{
        "name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "ContainerCreating", "message": "no address is left" } },
    }] } });
    let sent = client
        .json(Method::PATCH, &path, "application/strategic-merge-patch+json", Some(&body))
        .await;
    sent.unwrap();
    for path in ["p/exec?command=ls", "p/log?tailLines=404"] {
        let answer = send(&client, Method::GET, &format!("{pods}/{path}"), &Value::Null).await;
        let said = answer.json()["message"].to_string();
        assert!(said.contains("ContainerCreating: no address is left"), "{path}: {said}");
    }

    let headers = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
    ];
    let path = format!("{pods}/p/exec?command=sh&command=-c%20x&stdin=true");
    let mut answer = client.upgrade(&path, &headers).await.unwrap();
    assert_eq!(answer.status(), 101);
    assert_eq!(answer.headers()["sec-websocket-accept"], "accepted");
    assert_eq!(answer.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut answer).await.unwrap());
    let want = "/exec/default/p/c?command=sh&command=-c%20x&stdin=true&stdout=true&stderr=true\
                &tty=false\n";
    let mut seen = vec![0; want.len()];
    stream.read_exact(&mut seen).await.unwrap();
    assert_eq!(String::from_utf8(seen).unwrap(), want);
    stream.write_all(b"echo").await.unwrap();
    let mut seen = [0; 4];
    stream.read_exact(&mut seen).await.unwrap();
    assert_eq!(&seen, b"echo");

    let path = format!("{pods}/away/exec?command=sh");
    let refused = client.upgrade(&path, &headers).await.unwrap();
    assert_eq!(refused.status(), 502);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert!(status["message"].as_str().unwrap().contains("node-2"));
}

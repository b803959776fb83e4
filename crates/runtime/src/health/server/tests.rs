//! Asks a running server over TLS, as kubelet and a metrics reader would.

use std::net::Ipv4Addr;

use prometheus::IntCounter;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::*;

struct World {
    server: HealthServer,
    shutdown: CancellationToken,
    checks: Checks,
}

async fn start(token: Option<&str>) -> World {
    let registry = Registry::new();
    let counter = IntCounter::new("antrea_agent_ovs_flow_ops_count", "flows sent").unwrap();
    counter.inc_by(7);
    registry.register(Box::new(counter)).unwrap();
    let (shutdown, checks) = (CancellationToken::new(), Checks::new());
    let server = HealthServer::start(HealthConfig {
        addr: (Ipv4Addr::LOCALHOST, 0).into(),
        names: vec!["node-1".into()],
        checks: checks.clone(),
        metrics: Some(Metrics { registry, token: token.map(str::to_owned) }),
        pages: BTreeMap::new(),
        token_file: None,
        shutdown: shutdown.clone(),
    })
    .await
    .unwrap();
    World { server, shutdown, checks }
}

/// Sends one request over TLS that trusts only the server's own certificate.
async fn ask(world: &World, request: &str, headers: &str) -> String {
    let mut roots = RootCertStore::empty();
    let pem = world.server.certificate_pem();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(world.server.local_addr()).await.unwrap();
    let name = ServerName::try_from("node-1").unwrap();
    let mut stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
    let head = format!("{request} HTTP/1.1\r\nhost: node-1\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn probes_need_no_credentials() {
    let world = start(None).await;
    let answer = ask(&world, "GET /livez", "").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("\r\n\r\nok"), "{answer}");
    world.checks.add_ready("ovsdb", || Err("not connected".into()));
    let answer = ask(&world, "GET /readyz?verbose", "").await;
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(answer.contains("[-]ovsdb failed: not connected"), "{answer}");
    let answer = ask(&world, "GET /livez", "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn metrics_need_the_token() {
    let world = start(Some("secret")).await;
    for headers in ["", "authorization: Bearer wrong\r\n", "authorization: secret\r\n"] {
        let answer = ask(&world, "GET /metrics", headers).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{headers}: {answer}");
    }
    let answer = ask(&world, "GET /metrics", "authorization: Bearer secret\r\n").await;
    assert!(answer.contains("\nantrea_agent_ovs_flow_ops_count 7\n"), "{answer}");
    let closed = start(None).await;
    let answer = ask(&closed, "GET /metrics", "authorization: Bearer \r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let world = start(None).await;
    let answer = ask(&world, "GET /debug", "").await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let answer = ask(&world, "DELETE /livez", "").await;
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: GET, HEAD"), "{answer}");
}

#[tokio::test]
async fn a_taken_address_is_named_and_shutdown_frees_it() {
    let world = start(None).await;
    let addr = world.server.local_addr();
    let dir = tempfile::tempdir().unwrap();
    let token_file = dir.path().join("token");
    let config = || HealthConfig {
        addr,
        names: Vec::new(),
        checks: Checks::new(),
        metrics: Some(Metrics { registry: Registry::new(), token: None }),
        pages: BTreeMap::new(),
        token_file: Some(token_file.clone()),
        shutdown: CancellationToken::new(),
    };
    let error = HealthServer::start(config()).await.err().unwrap();
    assert_eq!(error.to_string(), format!("listen on {addr}"));
    assert!(!token_file.exists(), "the token of whoever has the address stays");
    world.shutdown.cancel();
    let again = async {
        while HealthServer::start(config()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), again).await.unwrap();
    assert!(token_file.exists());
}

#[tokio::test]
async fn pages_need_the_token_that_is_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("apiserver/loopback-client-token");
    let (shutdown, checks) = (CancellationToken::new(), Checks::new());
    let page: Page = Arc::new(|| Box::pin(async { "[1]".to_owned() }));
    let server = HealthServer::start(HealthConfig {
        addr: (Ipv4Addr::LOCALHOST, 0).into(),
        names: vec!["node-1".into()],
        checks: checks.clone(),
        metrics: None,
        pages: [("/numbers", page)].into(),
        token_file: Some(file.clone()),
        shutdown: shutdown.clone(),
    })
    .await
    .unwrap();
    let shown = std::fs::read_to_string(dir.path().join("apiserver/certificate.pem")).unwrap();
    assert_eq!(shown, server.certificate_pem());
    let world = World { server, shutdown, checks };
    let token = std::fs::read_to_string(&file).unwrap();
    for headers in ["", "authorization: Bearer wrong\r\n"] {
        let answer = ask(&world, "GET /numbers", headers).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{headers}: {answer}");
    }
    let bearer = format!("authorization: Bearer {token}\r\n");
    let answer = ask(&world, "GET /numbers?all", &bearer).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n[1]"), "{answer}");
    let answer = ask(&world, "POST /numbers", &bearer).await;
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    let answer = ask(&world, "GET /others", &bearer).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

//! Asks a daemon on this node: over TLS that trusts the certificate which the daemon put beside its
//! token, so that whoever else has the port gets no token.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// An answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(10);
/// An answer that is longer is none.
const MAX_ANSWER: u64 = 64 << 20;

/// Gets a page.
pub(super) fn get(server: SocketAddr, token_dir: &Path, path: &str) -> anyhow::Result<Vec<u8>> {
    let read = |name: &str| {
        let file = token_dir.join(name);
        std::fs::read_to_string(&file).with_context(|| {
            format!("read {}; does an agent run on this node, and may you read it?", file.display())
        })
    };
    let (token, pem) = (read("loopback-client-token")?, read("certificate.pem")?);
    let stream = TcpStream::connect_timeout(&server, PATIENCE)
        .with_context(|| format!("connect to the agent at {server}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(connection(&pem)?, stream);
    let asked = || format!("ask the agent at {server} for {path}");
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         connection: close\r\n\r\n",
        token.trim()
    );
    stream.write_all(request.as_bytes()).with_context(asked)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).with_context(asked)?;
    body(&answer).with_context(asked)
}

fn connection(pem: &str) -> anyhow::Result<ClientConnection> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| anyhow!("certificate.pem: {error}"))?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).context("certificate.pem")?;
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
    Ok(ClientConnection::new(Arc::new(config), ServerName::try_from("localhost")?)?)
}

/// The body of an answer that says how long it is; what else it says is an error.
fn body(answer: &[u8]) -> anyhow::Result<Vec<u8>> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end else { bail!("the answer is cut short") };
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    if status != "200" {
        bail!("it answers {status}: {}", String::from_utf8_lossy(body).trim());
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    match length.and_then(|length| body.get(..length)) {
        Some(body) => Ok(body.to_vec()),
        None => bail!("the answer is cut short"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_of_success_have_a_body() {
        for (answer, want) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", Ok("[]")),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[]", Err("the answer is cut short")),
            ("HTTP/1.1 200 OK\r\n\r\n[]", Err("the answer is cut short")),
            ("HTTP/1.1 200 OK\r\ncontent-len", Err("the answer is cut short")),
            ("", Err("the answer is cut short")),
            ("HTTP/1.1 403 Forbidden\r\ncontent-length: 3\r\n\r\nno\n", Err("it answers 403: no")),
        ] {
            let found = body(answer.as_bytes());
            let found = found.map(|body| String::from_utf8(body).unwrap());
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, want.map(str::to_owned).map_err(str::to_owned), "{answer:?}");
        }
    }
}

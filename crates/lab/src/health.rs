//! Asks a daemon's health endpoint inside its namespace what it lacks.
//!
//! Like a kubelet's probe: HTTPS on loopback, without credentials, and without a look at the
//! certificate, which the daemon signed itself.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use crate::error::{Doing, Result};
use crate::{interrupt, netns};

/// Where an agent answers, unless its configuration says otherwise.
pub const AGENT_PORT: u16 = 10350;

/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(2);
/// Longest answer that is read.
const MAX_ANSWER: u64 = 64 * 1024;

/// What keeps a daemon from being ready, one line for each failed check.
///
/// # Errors
/// When its endpoint does not answer.
pub fn lacks(netns: &Path, port: u16) -> Result<Vec<String>> {
    let answer = ask(netns, port, "/readyz?verbose").doing(|| "ask its health endpoint".into())?;
    Ok(failed_checks(&answer))
}

fn failed_checks(answer: &str) -> Vec<String> {
    answer
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .map(|line| line.replacen(" failed: ", ": ", 1))
        .collect()
}

fn ask(netns: &Path, port: u16, path: &str) -> Result<String> {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let within = WITHIN * interrupt::patience();
    let stream = netns::enter(netns, || TcpStream::connect_timeout(&address, within))?
        .doing(|| format!("connect to {address}"))?;
    stream
        .set_read_timeout(Some(within))
        .and_then(|()| stream.set_write_timeout(Some(within)))
        .doing(|| "set up the connection".into())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .doing(|| "set up TLS".into())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SelfSigned(provider)))
        .with_no_client_auth();
    let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
    let tls =
        ClientConnection::new(Arc::new(config), name).doing(|| "begin a TLS session".into())?;
    let mut stream = StreamOwned::new(tls, stream);
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).doing(|| "send the request".into())?;
    let mut answer = Vec::new();
    match stream.take(MAX_ANSWER).read_to_end(&mut answer) {
        // A server that closes without a TLS farewell has said all it had to say.
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            return Err(error).doing(|| "read the answer".into());
        }
        _ => {}
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Takes any certificate, as a probe does.
#[derive(Debug)]
struct SelfSigned(Arc<CryptoProvider>);

impl ServerCertVerifier for SelfSigned {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checks_are_named_with_their_reason() {
        let answer = "HTTP/1.1 503 Service Unavailable\r\n\r\n[+]ovsdb ok\n\
                      [-]openflow failed: no OpenFlow connection\nreadyz check failed\n";
        assert_eq!(failed_checks(answer), ["openflow: no OpenFlow connection"]);
        assert!(failed_checks("HTTP/1.1 200 OK\r\n\r\n[+]ovsdb ok\n").is_empty());
    }
}

//! Makes the self-signed serving certificate of a daemon's HTTPS endpoint.
//!
//! A new one is made at every start; clients learn it from `apiCABundle` in AntreaAgentInfo.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A serving certificate and the TLS settings that use it.
pub struct Serving {
    /// The certificate as PEM, which clients may trust as their CA.
    pub pem: String,
    /// Server settings with ALPN for HTTP/2 and HTTP/1.1.
    pub tls: Arc<ServerConfig>,
}

/// Why a serving certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Key generation or signing failed, or a name is not a valid DNS name.
    #[error("make certificate")]
    Make(#[from] rcgen::Error),
    /// rustls refused the certificate.
    #[error("use certificate")]
    Use(#[from] rustls::Error),
}

/// Makes a self-signed certificate for `names` (DNS names or addresses) and for localhost.
///
/// # Errors
/// See [`CertificateError`].
pub fn self_signed(names: &[String]) -> Result<Serving, CertificateError> {
    let mut all = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    let made = rcgen::generate_simple_self_signed(all)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Serving { pem: made.cert.pem(), tls: Arc::new(tls) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_is_pem_and_serves_h2_first() {
        let serving = self_signed(&["node-1".into(), "10.0.0.1".into()]).unwrap();
        assert!(serving.pem.starts_with("-----BEGIN CERTIFICATE-----"));
        assert_eq!(serving.tls.alpn_protocols[0], b"h2");
    }

    #[test]
    fn a_name_that_is_not_ascii_is_refused() {
        assert!(matches!(self_signed(&["nöde".into()]), Err(CertificateError::Make(_))));
    }
}

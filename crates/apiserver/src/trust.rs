//! Keys and authorities of a server that outlive their replacement: the serving certificate, and
//! whose client certificates are believed.
//!
//! [`ServingCert`] and [`ClientTrust`] are handles: what is put into one holds for the next
//! handshake, and for the next request of connections that exist.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};

use crate::pki::{Identity, PkiError, certificates_from_pem};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The certificate that a server shows; cheap to clone.
#[derive(Clone, Debug)]
pub struct ServingCert(Arc<RwLock<Arc<CertifiedKey>>>);

fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>, PkiError> {
    let bad = || PkiError::BadKey("serving identity".to_owned());
    let chain = certificates_from_pem(&identity.cert_pem);
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(|_| bad())?;
    let key = provider().key_provider.load_private_key(key)?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match()?;
    Ok(Arc::new(certified))
}

impl ServingCert {
    /// Shows this certificate.
    ///
    /// # Errors
    /// When key and certificate are malformed or do not belong together.
    pub fn new(identity: &Identity) -> Result<Self, PkiError> {
        Ok(Self(Arc::new(RwLock::new(certified(identity)?))))
    }

    /// Shows this certificate from the next handshake on; keeps the old one on an error.
    ///
    /// # Errors
    /// As [`ServingCert::new`].
    pub fn replace(&self, identity: &Identity) -> Result<(), PkiError> {
        let next = certified(identity)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}

impl ResolvesServerCert for ServingCert {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// How a front proxy tells on whose behalf it asks, as the ConfigMap
/// `kube-system/extension-apiserver-authentication` says. Header names are lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxy {
    /// Authorities that sign front proxies' certificates, PEM.
    pub ca_pem: String,
    /// Common names that such a certificate may have; any where empty.
    pub allowed_names: Vec<String>,
    /// Headers with the user name; the first that is there counts.
    pub user_headers: Vec<String>,
    /// Headers with the user's UID.
    pub uid_headers: Vec<String>,
    /// Headers with groups.
    pub group_headers: Vec<String>,
    /// Beginnings of headers with further facts.
    pub extra_prefixes: Vec<String>,
}

impl Default for FrontProxy {
    fn default() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            ca_pem: String::new(),
            allowed_names: Vec::new(),
            user_headers: one("x-remote-user"),
            uid_headers: one("x-remote-uid"),
            group_headers: one("x-remote-group"),
            extra_prefixes: one("x-remote-extra-"),
        }
    }
}

/// Whose client certificates are believed, and as what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trusted {
    /// Authorities whose certificates name users, PEM; empty for none.
    pub client_ca_pem: String,
    /// Front proxies; none where `None`.
    pub front_proxy: Option<FrontProxy>,
}

/// As what a client certificate is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It names a front proxy.
    FrontProxy,
    /// It names a user.
    User,
    /// It is not believed any more.
    Nobody,
}

#[derive(Default)]
struct Verifiers {
    trusted: Arc<Trusted>,
    proxies: Option<Arc<dyn ClientCertVerifier>>,
    users: Option<Arc<dyn ClientCertVerifier>>,
}

/// A handle on [`Trusted`]; cheap to clone.
#[derive(Clone, Default)]
pub struct ClientTrust(Arc<RwLock<Arc<Verifiers>>>);

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientTrust").field(&self.trusted()).finish()
    }
}

fn verifier(pem: &str) -> Result<Option<Arc<dyn ClientCertVerifier>>, PkiError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(certificates_from_pem(pem));
    if roots.is_empty() {
        return Ok(None);
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let verifier: Arc<dyn ClientCertVerifier> = builder.build()?;
    Ok(Some(verifier))
}

impl ClientTrust {
    /// Believes nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Believes as told from now on.
    ///
    /// # Errors
    /// When the authorities cannot be used; the old ones stay.
    pub fn replace(&self, trusted: Trusted) -> Result<(), PkiError> {
        let proxies = trusted.front_proxy.as_ref().map_or("", |proxy| &proxy.ca_pem);
        let next = Verifiers {
            proxies: verifier(proxies)?,
            users: verifier(&trusted.client_ca_pem)?,
            trusted: Arc::new(trusted),
        };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(())
    }

    /// What holds now.
    pub fn trusted(&self) -> Arc<Trusted> {
        Arc::clone(&self.current().trusted)
    }

    fn current(&self) -> Arc<Verifiers> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// As what a chain of certificates is believed now.
    pub fn judge(&self, chain: &[CertificateDer<'_>]) -> Holder {
        let Some((end, intermediates)) = chain.split_first() else { return Holder::Nobody };
        let verifiers = self.current();
        let now = UnixTime::now();
        let signed_for = |verifier: &Option<Arc<dyn ClientCertVerifier>>| {
            verifier.as_ref().is_some_and(|v| v.verify_client_cert(end, intermediates, now).is_ok())
        };
        if signed_for(&verifiers.proxies) {
            let names = verifiers.trusted.front_proxy.as_ref().map(|p| p.allowed_names.as_slice());
            let names = names.unwrap_or_default();
            let own = crate::pki::user_of_certificate(end).map(|user| user.username);
            if names.is_empty() || own.is_some_and(|own| names.contains(&own)) {
                return Holder::FrontProxy;
            }
        }
        if signed_for(&verifiers.users) { Holder::User } else { Holder::Nobody }
    }
}

impl ClientCertVerifier for ClientTrust {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[] // The hints would have to outlive a replacement; clients know what they hold.
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verifiers = self.current();
        let mut refusal =
            rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        for verifier in [&verifiers.proxies, &verifiers.users].into_iter().flatten() {
            match verifier.verify_client_cert(end, intermediates, now) {
                Ok(verified) => return Ok(verified),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The TLS configuration of a server with replaceable certificate and trust.
///
/// # Errors
/// When TLS refuses its settings.
pub fn tls_config(
    serving: &ServingCert,
    clients: &ClientTrust,
) -> Result<rustls::ServerConfig, PkiError> {
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(clients.clone()))
        .with_cert_resolver(Arc::new(serving.clone()));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Authority;

    #[test]
    fn a_certificate_is_believed_as_what_its_authority_signs() {
        let proxies = Authority::create("proxies").unwrap();
        let users = Authority::create("users").unwrap();
        let others = Authority::create("others").unwrap();
        let trust = ClientTrust::new();
        let chain = |ca: &Authority, name: &str| {
            certificates_from_pem(&ca.issue_client(name, None).unwrap().cert_pem)
        };
        let (proxy, alice) = (chain(&proxies, "front"), chain(&users, "alice"));
        assert_eq!(trust.judge(&proxy), Holder::Nobody, "nobody is trusted yet");
        trust
            .replace(Trusted {
                client_ca_pem: users.cert_pem().to_owned(),
                front_proxy: Some(FrontProxy {
                    ca_pem: proxies.cert_pem().to_owned(),
                    allowed_names: vec!["front".to_owned()],
                    ..FrontProxy::default()
                }),
            })
            .unwrap();
        for (who, chain, want) in [
            ("the proxy", proxy.clone(), Holder::FrontProxy),
            ("another name of the proxies' authority", chain(&proxies, "x"), Holder::Nobody),
            ("a user", alice.clone(), Holder::User),
            ("a user who is called like the proxy", chain(&users, "front"), Holder::User),
            ("a stranger", chain(&others, "front"), Holder::Nobody),
        ] {
            assert_eq!(trust.judge(&chain), want, "{who}");
        }
        trust.replace(Trusted::default()).unwrap();
        assert_eq!(trust.judge(&alice), Holder::Nobody, "after the authority went");
    }
}

//! The certificate authority of a lab cluster, and what it issues.
//!
//! The CA's key and certificate are kept in a directory, so that kubeconfigs outlive a restart.
//! Also here: user and groups of a verified client certificate.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use jiff::Timestamp;
use jiff::civil::Date;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

use crate::user::User;

/// Why a certificate or key could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("access {path}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// A key or certificate is malformed or cannot be made.
    #[error("certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS refuses the material.
    #[error("TLS configuration")]
    Tls(#[from] rustls::Error),
    /// The client verifier cannot be built.
    #[error("client verifier")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// A key file holds something else.
    #[error("key in {0} is not usable")]
    BadKey(String),
}

/// A key with its certificate, PEM both.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Certificate, PEM.
    pub cert_pem: String,
    /// Private key, PKCS#8 PEM.
    pub key_pem: String,
}

/// Days on which certificates are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first one.
    pub from: Date,
    /// The end, which is not one of them.
    pub until: Date,
}

impl Validity {
    fn set(self, params: &mut CertificateParams) {
        let of = |date: Date| {
            let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
            rcgen::date_time_ymd(date.year().into(), month, day)
        };
        params.not_before = of(self.from);
        params.not_after = of(self.until);
    }
}

/// A certificate authority.
pub struct Authority {
    cert_pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
    validity: Option<Validity>,
}

impl Authority {
    /// Reads the authority kept in `dir` under `name`, or makes one there.
    pub fn load_or_create(dir: &Path, name: &str) -> Result<Self, PkiError> {
        let (cert_path, key_path) =
            (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        if let (Ok(cert_pem), Ok(key_pem)) =
            (fs::read_to_string(&cert_path), fs::read_to_string(&key_path))
        {
            let issuer = Issuer::new(ca_params(name)?, KeyPair::from_pem(&key_pem)?);
            return Ok(Self { cert_pem, key_pem, issuer, validity: None });
        }
        let authority = Self::create(name)?;
        fs::create_dir_all(dir).map_err(|source| at(dir, source))?;
        write_private(&key_path, authority.key_pem.as_bytes())?;
        fs::write(&cert_path, &authority.cert_pem).map_err(|source| at(&cert_path, source))?;
        Ok(authority)
    }

    /// Makes an authority that lives in memory only, and for ever.
    pub fn create(name: &str) -> Result<Self, PkiError> {
        Self::make(name, None)
    }

    /// Makes an authority that lives in memory only; it and what it issues are valid for a time.
    pub fn create_for(name: &str, validity: Validity) -> Result<Self, PkiError> {
        Self::make(name, Some(validity))
    }

    fn make(name: &str, validity: Option<Validity>) -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = ca_params(name)?;
        if let Some(validity) = validity {
            validity.set(&mut params);
        }
        let cert_pem = params.self_signed(&key)?.pem();
        let key_pem = key.serialize_pem();
        Ok(Self { cert_pem, key_pem, issuer: Issuer::new(params, key), validity })
    }

    /// Certificate of the authority, PEM.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// Issues a serving certificate for DNS names and IP addresses.
    pub fn issue_serving(&self, names: &[String]) -> Result<Identity, PkiError> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// Issues a client certificate: the common name is the user, each organization a group.
    pub fn issue_client(&self, user: &str, group: Option<&str>) -> Result<Identity, PkiError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = DistinguishedName::new();
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<Identity, PkiError> {
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.use_authority_key_identifier_extension = true;
        if let Some(validity) = self.validity {
            validity.set(&mut params);
        }
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }
}

fn ca_params(name: &str) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn at(path: &Path, source: io::Error) -> PkiError {
    PkiError::File { path: path.display().to_string(), source }
}

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), PkiError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).map_err(|source| at(path, source))?;
    io::Write::write_all(&mut file, content).map_err(|source| at(path, source))
}

/// The DER certificates of a PEM text.
pub fn certificates_from_pem(pem: &str) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::pem_slice_iter(pem.as_bytes())
        .filter_map(Result::ok)
        .collect()
}

/// The user that a client certificate names: CN is the user, each O a group.
///
/// The certificate is taken as verified; malformed DER gives `None`.
pub fn user_of_certificate(der: &[u8]) -> Option<User> {
    let mut tbs = validity_field(der)?;
    tbs.skip()?; // Validity.
    let (mut subject, _) = tbs.take_enter(0x30)?;
    let mut name = None;
    let mut groups = Vec::new();
    while subject.peek().is_some() {
        let (mut set, rest) = subject.take_enter(0x31)?;
        subject = rest;
        while set.peek().is_some() {
            let (mut attribute, rest) = set.take_enter(0x30)?;
            set = rest;
            let (_, oid) = attribute.next()?;
            let (_, value) = attribute.next()?;
            let text = std::str::from_utf8(value).ok()?.to_owned();
            match oid {
                [0x55, 0x04, 0x03] => name = Some(text),
                [0x55, 0x04, 0x0a] => groups.push(text),
                _ => {}
            }
        }
    }
    name.map(|name| User::new(name, groups))
}

/// The end of a certificate's validity; malformed DER gives `None`.
pub fn end_of_certificate(der: &[u8]) -> Option<Timestamp> {
    let (mut validity, _) = validity_field(der)?.take_enter(0x30)?;
    validity.skip()?; // Its beginning.
    let (tag, text) = validity.next()?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let text = match (tag, text.get(..2)?.parse::<u8>().ok()?) {
        (0x17, 50..) => format!("19{text}"),
        (0x17, _) => format!("20{text}"),
        (0x18, _) => text.to_owned(),
        _ => return None,
    };
    let end = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", &text).ok()?;
    end.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|end| end.timestamp())
}

/// The rest of a certificate from its validity on.
fn validity_field(der: &[u8]) -> Option<Der<'_>> {
    let certificate = Der { rest: der }.enter(0x30)?;
    let mut tbs = Der { rest: certificate }.take_enter(0x30)?.0;
    if tbs.peek() == Some(0xa0) {
        tbs.skip()?; // Version.
    }
    tbs.skip()?; // Serial number.
    tbs.skip()?; // Signature algorithm.
    tbs.skip()?; // Issuer.
    Some(tbs)
}

/// A walk through DER values.
#[derive(Clone, Copy)]
struct Der<'a> {
    rest: &'a [u8],
}

impl<'a> Der<'a> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Tag and content of the next value.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.rest.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let n = usize::from(first & 0x7f);
            if n == 0 || n > 4 {
                return None;
            }
            let (bytes, after) = rest.split_at_checked(n)?;
            rest = after;
            bytes.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte))
        };
        let (content, after) = rest.split_at_checked(length)?;
        self.rest = after;
        Some((tag, content))
    }

    fn skip(&mut self) -> Option<()> {
        self.next().map(|_| ())
    }

    fn enter(mut self, tag: u8) -> Option<&'a [u8]> {
        let (seen, content) = self.next()?;
        (seen == tag).then_some(content)
    }

    fn take_enter(mut self, tag: u8) -> Option<(Self, Self)> {
        let (seen, content) = self.next()?;
        (seen == tag).then_some((Self { rest: content }, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_certificate_names_its_user_and_group() {
        let authority = Authority::create("test-ca").unwrap();
        let identity = authority.issue_client("alice", Some("dev")).unwrap();
        let der = &certificates_from_pem(&identity.cert_pem)[0];
        let user = user_of_certificate(der).unwrap();
        assert_eq!(user.username, "alice");
        assert_eq!(user.groups, ["dev", "system:authenticated"]);
        for cut in 0..der.len() {
            let _ = user_of_certificate(&der[..cut]);
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        use jiff::civil::date;
        for until in [date(2031, 2, 28), date(2049, 12, 31), date(2050, 1, 1), date(2120, 7, 1)] {
            let validity = Validity { from: date(2026, 1, 1), until };
            let authority = Authority::create_for("ca", validity).unwrap();
            let leaf = authority.issue_serving(&["localhost".to_owned()]).unwrap();
            let want = until.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
            for pem in [authority.cert_pem(), &leaf.cert_pem] {
                let der = &certificates_from_pem(pem)[0];
                assert_eq!(end_of_certificate(der), Some(want));
                for cut in 0..der.len() {
                    let _ = end_of_certificate(&der[..cut]);
                }
            }
        }
    }

    #[test]
    fn an_authority_outlives_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let first = Authority::load_or_create(dir.path(), "ca").unwrap();
        let again = Authority::load_or_create(dir.path(), "ca").unwrap();
        assert_eq!(first.cert_pem(), again.cert_pem());
        again.issue_serving(&["127.0.0.1".to_owned(), "kubernetes".to_owned()]).unwrap();
    }
}

//! ServiceAccount tokens: ES256 JSON web tokens, minted and verified.
//!
//! Only signature, times, issuer and audiences are judged here. Whether the ServiceAccount and
//! the Pod that a token names still exist is the caller's to check (it has the objects).

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::pki::{PkiError, write_private};

/// Issuer and default audience of a cluster's tokens.
pub const ISSUER: &str = "https://kubernetes.default.svc";

/// A named object that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Name of the object.
    pub name: String,
    /// UID of the object when the token was made.
    pub uid: String,
}

/// The `kubernetes.io` claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesClaim {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Node of the Pod the token is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Bound>,
    /// Pod the token is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Bound>,
    /// Secret the token is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Bound>,
    /// The ServiceAccount.
    pub serviceaccount: Bound,
}

/// Claims of a ServiceAccount token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Audiences the token is meant for.
    pub aud: Vec<String>,
    /// End of validity, seconds since 1970.
    pub exp: i64,
    /// When the token was made.
    pub iat: i64,
    /// Who made it.
    pub iss: String,
    /// Identifier of this token.
    pub jti: String,
    /// What the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaim,
    /// Start of validity.
    pub nbf: i64,
    /// User name of the ServiceAccount.
    pub sub: String,
}

/// Why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token of ours: form, signature or issuer.
    #[error("invalid bearer token")]
    NotOurs,
    /// Its time is over or has not come.
    #[error("service account token has expired")]
    Expired,
    /// Meant for others.
    #[error("token audiences {have:?} is invalid for the target audiences {want:?}")]
    Audience {
        /// Audiences in the token.
        have: Vec<String>,
        /// Audiences asked for.
        want: Vec<String>,
    },
    /// An object it is bound to is gone.
    #[error("service account token has been invalidated")]
    Invalidated,
}

/// The key that signs a cluster's tokens.
pub struct TokenKey {
    pair: EcdsaKeyPair,
    kid: String,
    random: SystemRandom,
}

impl TokenKey {
    /// Reads the key kept in `path`, or makes one there.
    pub fn load_or_create(path: &Path) -> Result<Self, PkiError> {
        let bad = || PkiError::BadKey(path.display().to_string());
        let random = SystemRandom::new();
        let der = match fs::read(path) {
            Ok(der) => der,
            Err(_) => {
                let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
                    .map_err(|_| bad())?;
                write_private(path, der.as_ref())?;
                der.as_ref().to_vec()
            }
        };
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random)
            .map_err(|_| bad())?;
        let kid = URL_SAFE_NO_PAD.encode(Sha256::digest(pair.public_key().as_ref()));
        Ok(Self { pair, kid, random })
    }

    /// Signs claims into a token; `None` when the system gives no randomness.
    pub fn mint(&self, claims: &Claims) -> Option<String> {
        let header = serde_json::json!({ "alg": "ES256", "kid": self.kid });
        let encode = |bytes: Vec<u8>| URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!(
            "{}.{}",
            encode(serde_json::to_vec(&header).ok()?),
            encode(serde_json::to_vec(claims).ok()?)
        );
        let signature = self.pair.sign(&self.random, signed.as_bytes()).ok()?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// Checks a token's signature, issuer and times, and gives its claims.
    pub fn verify(&self, token: &str, now: i64) -> Result<Claims, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::NotOurs)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenError::NotOurs)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::NotOurs);
        let header: serde_json::Value =
            serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::NotOurs)?;
        if header["alg"] != "ES256" || header["kid"] != self.kid.as_str() {
            return Err(TokenError::NotOurs);
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(signed.as_bytes(), &decode(signature)?)
            .map_err(|_| TokenError::NotOurs)?;
        let claims: Claims =
            serde_json::from_slice(&decode(payload)?).map_err(|_| TokenError::NotOurs)?;
        if claims.iss != ISSUER {
            return Err(TokenError::NotOurs);
        }
        if now >= claims.exp || now < claims.nbf {
            return Err(TokenError::Expired);
        }
        Ok(claims)
    }
}

/// The audiences that both the token and the asker name; an error when there is none.
pub fn shared_audiences(claims: &Claims, want: &[String]) -> Result<Vec<String>, TokenError> {
    let shared: Vec<String> =
        want.iter().filter(|audience| claims.aud.contains(audience)).cloned().collect();
    if shared.is_empty() {
        return Err(TokenError::Audience { have: claims.aud.clone(), want: want.to_vec() });
    }
    Ok(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_claims() -> Claims {
        Claims {
            aud: vec![ISSUER.into()],
            exp: 2_000,
            iat: 1_000,
            iss: ISSUER.into(),
            jti: "j".into(),
            kubernetes: KubernetesClaim {
                namespace: "ns".into(),
                node: None,
                pod: Some(Bound { name: "p".into(), uid: "u".into() }),
                secret: None,
                serviceaccount: Bound { name: "default".into(), uid: "s".into() },
            },
            nbf: 1_000,
            sub: "system:serviceaccount:ns:default".into(),
        }
    }

    #[test]
    fn tokens_are_taken_in_their_time_only_and_unchanged_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sa.key");
        let token = TokenKey::load_or_create(&path).unwrap().mint(&mk_claims()).unwrap();
        let key = TokenKey::load_or_create(&path).unwrap();
        assert_eq!(key.verify(&token, 1_500), Ok(mk_claims()));
        assert_eq!(key.verify(&token, 2_000), Err(TokenError::Expired));
        assert_eq!(key.verify(&token, 999), Err(TokenError::Expired));
        let other = TokenKey::load_or_create(&dir.path().join("other.key")).unwrap();
        assert_eq!(other.verify(&token, 1_500), Err(TokenError::NotOurs));
        for broken in ["", ".", "..", "a.b.c", "garbage", &token[1..], &token[..token.len() - 3]] {
            assert_eq!(key.verify(broken, 1_500), Err(TokenError::NotOurs), "{broken}");
        }
        let want = ["other".to_owned()];
        assert!(shared_audiences(&mk_claims(), &want).is_err());
    }
}

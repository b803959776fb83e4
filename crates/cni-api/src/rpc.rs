//! The gRPC service on the agent's socket, generated from `proto/cni.proto`.
//!
//! Not here: what the codes inside [`Error`] mean to a runtime ([`crate::Code`]).

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
mod generated {
    include!("generated/cni.rs");
}

pub use generated::cni_client::CniClient;
pub use generated::cni_server::{Cni, CniServer};
pub use generated::{CniCmdArgs, CniCmdRequest, CniCmdResponse, Error, ErrorCode};

impl CniCmdResponse {
    /// An answer that carries a result and no error.
    pub fn success(cni_result: Vec<u8>) -> Self {
        Self { cni_result, error: None }
    }

    /// An answer that carries only an error.
    pub fn failure(code: crate::Code, message: impl Into<String>) -> Self {
        // Codes outside the enumeration travel as plain numbers.
        let code = i32::try_from(code.0).unwrap_or(ErrorCode::Unknown as i32);
        Self { cni_result: Vec::new(), error: Some(Error { code, message: message.into() }) }
    }
}

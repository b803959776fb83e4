//! Turns `crates/cni-api/proto/cni.proto` into the Rust code of `cni_api::rpc`.
//!
//! Needs no protoc: protox compiles the description, tonic-prost-build writes the code.
//! Not here: writing the file or comparing it with the committed one (`xtask gen`).

use std::path::Path;

use anyhow::{Context, Result};

/// The file that [`generate`]'s text belongs in, from the workspace root.
pub(crate) const OUTPUT: &str = "crates/cni-api/src/generated/cni.rs";

const PROTO_DIR: &str = "crates/cni-api/proto";
const PACKAGE: &str = "antrea_io.antrea.pkg.apis.cni.v1beta1";

/// Returns the generated messages, client and server as Rust text.
pub(crate) fn generate() -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent")?;
    let proto_dir = root.join(PROTO_DIR);
    let descriptors = protox::compile([proto_dir.join("cni.proto")], [&proto_dir])
        .context("compile cni.proto")?;

    let out_dir = std::env::temp_dir().join(format!("gen-cni-{}", std::process::id()));
    std::fs::create_dir_all(&out_dir).context("create the output folder")?;
    let written = tonic_prost_build::configure()
        .out_dir(&out_dir)
        .compile_fds(descriptors)
        .context("generate code")
        .and_then(|()| {
            std::fs::read_to_string(out_dir.join(format!("{PACKAGE}.rs")))
                .context("read the generated code")
        });
    std::fs::remove_dir_all(&out_dir).context("remove the output folder")?;

    Ok(format!("// Made by `cargo xtask gen` from {PROTO_DIR}/cni.proto.\n{}", written?))
}

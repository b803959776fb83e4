//! Runs an installed IPAM plugin by the CNI protocol: environment, standard input, one JSON answer.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{IpamError, Request};
use crate::command;

const PATIENCE: Duration = Duration::from_secs(30);

/// The first executable of this name in the directories.
pub(super) fn find(path: &[PathBuf], name: &str) -> Result<Option<PathBuf>, IpamError> {
    // The name comes from a configuration file and must not lead elsewhere.
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(IpamError::Config(format!("{name:?} is not a plugin name")));
    }
    Ok(path.iter().map(|dir| dir.join(name)).find(|file| is_executable(file)))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Runs one verb; returns standard output.
pub(super) async fn run(
    program: &Path,
    verb: &str,
    request: &Request,
    conf: &[u8],
    cni_path: &str,
) -> Result<Vec<u8>, IpamError> {
    let mut env: Vec<(&str, &OsStr)> = vec![
        ("CNI_COMMAND", verb.as_ref()),
        ("CNI_CONTAINERID", request.container_id.as_ref()),
        ("CNI_NETNS", request.netns.as_ref()),
        ("CNI_IFNAME", request.ifname.as_ref()),
        ("CNI_ARGS", request.args.as_ref()),
        ("CNI_PATH", cni_path.as_ref()),
    ];
    if program.ends_with("host-local") {
        // A Go program that lives for some milliseconds: neither threads on each core nor a
        // collection of garbage are worth their start.
        env.extend([("GOMAXPROCS", OsStr::new("1")), ("GOGC", OsStr::new("off"))]);
    }
    let output = command::run(program, &[], &env, conf, PATIENCE).await?;
    if output.success {
        return Ok(output.stdout);
    }
    Err(refusal(&output.stdout, &output.stderr))
}

/// A plugin says why on standard output, in the form of the specification; one that crashed says
/// it on standard error.
fn refusal(stdout: &[u8], stderr: &str) -> IpamError {
    #[derive(Deserialize)]
    struct Refusal {
        code: u32,
        msg: String,
        #[serde(default)]
        details: String,
    }
    match serde_json::from_slice::<Refusal>(stdout) {
        Ok(Refusal { code, msg, details }) if details.is_empty() => {
            IpamError::Plugin { code, message: msg }
        }
        Ok(Refusal { code, msg, details }) => {
            IpamError::Plugin { code, message: format!("{msg}; {details}") }
        }
        Err(_) => IpamError::Plugin { code: 999, message: stderr.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_leave_the_directories() {
        for bad in ["", "..", "../sh", "a/b"] {
            assert!(find(&["/bin".into()], bad).is_err(), "{bad}");
        }
        assert_eq!(find(&["/nowhere".into()], "host-local").unwrap(), None);
    }

    #[test]
    fn refusals_keep_code_and_words() {
        let error = refusal(br#"{"code":7,"msg":"bad","details":"really"}"#, "");
        assert_eq!((error.code(), error.to_string()), (7, "IPAM plugin: bad; really".into()));
        assert_eq!(refusal(b"", "panic").code(), 999);
    }
}

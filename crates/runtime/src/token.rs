//! Makes the token with which a local tool reads a daemon's protected endpoints.
//!
//! The token lives as long as the process; whoever may read the file may use it.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes a random token and puts it into `path`, readable by the owner only.
///
/// The file is replaced whole, so a reader never sees half a token.
///
/// # Errors
/// When the file or its folder cannot be written.
pub fn loopback_token(path: &Path) -> io::Result<String> {
    let bytes: [u8; 32] = rand::random();
    let token = bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    // A leftover from a crash may have other rights: the file must be one that we made.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(token.as_bytes())?;
    std::fs::rename(&new, path)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn each_token_is_new_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("apiserver/loopback-client-token");
        let first = loopback_token(&path).unwrap();
        let second = loopback_token(&path).unwrap();
        assert_ne!(first, second);
        assert_eq!(second.len(), 64);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), second);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}

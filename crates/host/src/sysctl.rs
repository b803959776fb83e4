//! Kernel parameters under `/proc/sys`.
//!
//! A key is written with slashes (`net/ipv4/conf/eth0.100/rp_filter`), so that the dots of
//! interface names stay what they are. `net/*` keys are those of the calling thread's network
//! namespace: [`crate::Netns::run`] enters another one.

use std::io;
use std::path::PathBuf;

const ROOT: &str = "/proc/sys";

/// Why a parameter could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The kernel has no such parameter (or the interface is gone).
    #[error("sysctl {0} does not exist")]
    NotFound(String),
    /// The value is not a number.
    #[error("sysctl {key} is {value:?}, not a number")]
    NotNumber {
        /// Which.
        key: String,
        /// What it holds.
        value: String,
    },
    /// The key would lead out of `/proc/sys`.
    #[error("{0:?} is not a sysctl key")]
    BadKey(String),
    /// Reading or writing failed.
    #[error("{action} sysctl {key}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// Which.
        key: String,
        /// Why not.
        source: io::Error,
    },
}

/// Address family of an interface's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `net/ipv4`
    Ipv4,
    /// `net/ipv6`
    Ipv6,
}

impl Family {
    fn directory(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

/// One kernel parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sysctl {
    key: String,
}

impl Sysctl {
    /// A key with slashes, such as `net/ipv4/ip_forward`.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into() }
    }

    /// `net/ipv4/conf/<interface>/<name>` or its IPv6 form.
    pub fn conf(family: Family, interface: &str, name: &str) -> Self {
        Self::new(format!("net/{}/conf/{interface}/{name}", family.directory()))
    }

    /// `net/ipv4/neigh/<interface>/<name>` or its IPv6 form.
    pub fn neigh(family: Family, interface: &str, name: &str) -> Self {
        Self::new(format!("net/{}/neigh/{interface}/{name}", family.directory()))
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value, without its line end.
    pub fn get(&self) -> Result<String, SysctlError> {
        match std::fs::read_to_string(self.path()?) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(error) => Err(self.refused("read", error)),
        }
    }

    /// The value as a number.
    pub fn get_number(&self) -> Result<i64, SysctlError> {
        let value = self.get()?;
        value.parse().map_err(|_| SysctlError::NotNumber { key: self.key.clone(), value })
    }

    /// Sets the value; returns the previous one. Nothing is written when it is the same already.
    pub fn set(&self, value: &str) -> Result<String, SysctlError> {
        let previous = self.get()?;
        if previous != value {
            self.write(value)?;
        }
        Ok(previous)
    }

    /// Raises the value to at least `minimum`; returns the previous one if it was lower.
    pub fn set_if_lower(&self, minimum: i64) -> Result<Option<i64>, SysctlError> {
        let previous = self.get_number()?;
        if previous >= minimum {
            return Ok(None);
        }
        self.write(&minimum.to_string())?;
        Ok(Some(previous))
    }

    fn path(&self) -> Result<PathBuf, SysctlError> {
        let proper = |part: &str| !part.is_empty() && part != "." && part != "..";
        if self.key.contains('\0') || !self.key.split('/').all(proper) {
            return Err(SysctlError::BadKey(self.key.clone()));
        }
        Ok(PathBuf::from(ROOT).join(&self.key))
    }

    fn write(&self, value: &str) -> Result<(), SysctlError> {
        std::fs::write(self.path()?, value).map_err(|error| self.refused("write", error))
    }

    fn refused(&self, action: &'static str, source: io::Error) -> SysctlError {
        if source.kind() == io::ErrorKind::NotFound {
            return SysctlError::NotFound(self.key.clone());
        }
        SysctlError::Refused { action, key: self.key.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_dots_and_stay_below_proc_sys() {
        let sysctl = Sysctl::conf(Family::Ipv4, "eth0.100", "rp_filter");
        assert_eq!(sysctl.key(), "net/ipv4/conf/eth0.100/rp_filter");
        for bad in ["", "../etc/passwd", "net//ipv4", "/net", "net/./x", "net/"] {
            let outcome = Sysctl::new(bad).get();
            assert!(matches!(outcome, Err(SysctlError::BadKey(_))), "{bad}");
        }
        let missing = Sysctl::new("net/ipv4/no_such_parameter").get();
        assert!(matches!(missing, Err(SysctlError::NotFound(_))));
    }

    #[test]
    fn reads_numbers() {
        assert!(Sysctl::new("kernel/pid_max").get_number().unwrap() > 0);
        assert!(matches!(
            Sysctl::new("kernel/ostype").get_number(),
            Err(SysctlError::NotNumber { .. })
        ));
    }
}

//! `CNI_COMMAND` and the variables each verb needs.

use cni_api::{Attachment, CniError, Code, SpecVersion};

/// What the runtime asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Attach a container.
    Add,
    /// See whether an attachment is as it was made.
    Check,
    /// Detach a container.
    Del,
    /// Detach all but the attachments listed.
    Gc,
    /// Tell whether ADD could be served.
    Status,
    /// Tell the versions of the specification.
    Version,
}

impl Verb {
    const ALL: [(&'static str, Self); 6] = [
        ("ADD", Self::Add),
        ("CHECK", Self::Check),
        ("DEL", Self::Del),
        ("GC", Self::Gc),
        ("STATUS", Self::Status),
        ("VERSION", Self::Version),
    ];

    /// The code for "the agent does not answer": a passing condition, which STATUS has its own
    /// word for.
    pub(crate) fn code_when_unreachable(self) -> Code {
        if self == Self::Status { Code::PLUGIN_NOT_AVAILABLE } else { Code::TRY_AGAIN_LATER }
    }

    /// Refuses a verb that the version of the configuration does not have.
    pub(crate) fn check_version(self, version: SpecVersion) -> Result<(), CniError> {
        let known = match self {
            Self::Check => version.has_check(),
            Self::Gc | Self::Status => version.has_gc_and_status(),
            Self::Add | Self::Del | Self::Version => true,
        };
        if known {
            return Ok(());
        }
        let name = Self::ALL.iter().find(|(_, verb)| *verb == self).map_or("", |(name, _)| name);
        let msg = format!("cniVersion {version} does not have {name}");
        Err(CniError::new(Code::INCOMPATIBLE_CNI_VERSION, msg))
    }
}

/// Reads the verb and refuses an environment that lacks what the verb needs.
pub(crate) fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Verb, CniError> {
    let need = |name: &str| {
        get(name).ok_or_else(|| {
            CniError::new(
                Code::INVALID_ENVIRONMENT,
                format!("{name} is not set in the environment"),
            )
        })
    };
    let command = need("CNI_COMMAND")?;
    let verb = Verb::ALL.iter().find(|(name, _)| *name == command).map(|(_, verb)| *verb);
    let verb = verb.ok_or_else(|| {
        CniError::new(Code::INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND {command:?}"))
    })?;
    match verb {
        Verb::Add | Verb::Check | Verb::Del => {
            Attachment::new(need("CNI_CONTAINERID")?, need("CNI_IFNAME")?)
                .map_err(|error| CniError::new(Code::INVALID_ENVIRONMENT, error.to_string()))?;
            // A runtime that has lost the namespace sends DEL without one.
            if verb != Verb::Del {
                need("CNI_NETNS")?;
            }
            need("CNI_PATH")?;
        }
        Verb::Gc | Verb::Status => {
            need("CNI_PATH")?;
        }
        Verb::Version => {}
    }
    Ok(verb)
}

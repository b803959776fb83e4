//! What went wrong, and what the user can do about it.
//!
//! Every failure the lab shows carries a sentence and, where there is one, a next step. Lower
//! layers keep their own error types; they end up in the chain as the source.

use std::error::Error;
use std::fmt;

/// A failure of a lab command: what was being done, why it failed, what to do next.
#[derive(Debug)]
pub struct LabError {
    what: String,
    hint: Option<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Result of a lab operation.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

impl LabError {
    /// A failure without a deeper cause.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, source: None }
    }

    /// Adds the next step, shown on a line of its own.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The nearest next step in the chain.
    #[must_use]
    pub fn next_step(&self) -> Option<&str> {
        if self.hint.is_some() {
            return self.hint.as_deref();
        }
        let mut source = self.source();
        while let Some(error) = source {
            if let Some(hint) = error.downcast_ref::<Self>().and_then(|e| e.hint.as_deref()) {
                return Some(hint);
            }
            source = error.source();
        }
        None
    }

    /// The whole chain on one line, outermost first.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.what.clone();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for LabError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn Error + 'static))
    }
}

/// Says what was being done when something below failed.
pub trait Doing<T> {
    /// Wraps the error, if there is one, in what was being done.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| LabError { what: what(), hint: None, source: Some(e.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_reads_outermost_first_and_the_hint_survives() {
        let inner: Result<()> = Err(LabError::new("no such file").hint("run make build"));
        let outer = inner.doing(|| "start the agent".into()).unwrap_err();
        assert_eq!(outer.chain(), "start the agent: no such file");
        assert_eq!(outer.next_step(), Some("run make build"));
    }
}

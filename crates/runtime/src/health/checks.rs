//! Turns named checks into the answers of `/livez`, `/readyz` and `/healthz`.
//!
//! The form of the answers is that of Kubernetes' own components: `ok`, or with `?verbose` and on
//! failure one line per check. No I/O here; [`super::server`] carries it.

use std::sync::{Arc, PoisonError, RwLock};

/// Result of one check; the error says in a few words what is wrong.
pub type CheckResult = Result<(), String>;

type Check = Arc<dyn Fn() -> CheckResult + Send + Sync>;

/// Which question a check answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Failing for long means: restart this process.
    Live,
    /// Failing means: send no work here for now.
    Ready,
}

/// A growing set of checks, shared by the server and by the parts that add theirs.
#[derive(Clone, Default)]
pub struct Checks {
    inner: Arc<RwLock<Vec<(String, Kind, Check)>>>,
}

/// Which endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/livez`: liveness checks only.
    Livez,
    /// `/readyz`: all checks.
    Readyz,
    /// `/healthz`: all checks, under its older name.
    Healthz,
}

/// An endpoint's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// True when every check passed.
    pub healthy: bool,
    /// Text for the client.
    pub text: String,
}

impl Endpoint {
    /// Name as in the path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Livez => "livez",
            Self::Readyz => "readyz",
            Self::Healthz => "healthz",
        }
    }
}

impl Checks {
    /// An empty set: `/livez` and `/readyz` answer ok.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a check whose lasting failure means that a restart is needed.
    pub fn add_live(&self, name: &str, check: impl Fn() -> CheckResult + Send + Sync + 'static) {
        self.add(name, Kind::Live, Arc::new(check));
    }

    /// Adds or replaces a check whose failure means that no work should come here for now.
    pub fn add_ready(&self, name: &str, check: impl Fn() -> CheckResult + Send + Sync + 'static) {
        self.add(name, Kind::Ready, Arc::new(check));
    }

    fn add(&self, name: &str, kind: Kind, check: Check) {
        let mut all = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(known, of, _)| (known.as_str(), *of) != (name, kind));
        all.push((name.to_owned(), kind, check));
    }

    /// Runs the checks of an endpoint, without those named in `exclude`.
    pub fn run(&self, endpoint: Endpoint, exclude: &[&str]) -> Vec<(String, CheckResult)> {
        // Checks run without the lock, so that one of them may add another.
        let all = self.inner.read().unwrap_or_else(PoisonError::into_inner).clone();
        all.into_iter()
            .filter(|(_, kind, _)| endpoint != Endpoint::Livez || *kind == Kind::Live)
            .filter(|(name, ..)| !exclude.contains(&name.as_str()))
            .map(|(name, _, check)| (name, check()))
            .collect()
    }

    /// Answers a request; `query` is the part after the question mark, if any.
    pub fn answer(&self, endpoint: Endpoint, query: &str) -> Answer {
        let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let verbose = pairs().any(|(key, value)| key == "verbose" && value != "false");
        let exclude: Vec<&str> =
            pairs().filter(|(key, _)| *key == "exclude").map(|(_, value)| value).collect();
        let results = self.run(endpoint, &exclude);
        let healthy = results.iter().all(|(_, result)| result.is_ok());
        if healthy && !verbose {
            return Answer { healthy, text: "ok".to_owned() };
        }
        let mut text = String::new();
        for (name, result) in &results {
            match result {
                Ok(()) => text.push_str(&format!("[+]{name} ok\n")),
                Err(reason) => text.push_str(&format!("[-]{name} failed: {reason}\n")),
            }
        }
        let verdict = if healthy { "passed" } else { "failed" };
        text.push_str(&format!("{} check {verdict}\n", endpoint.name()));
        Answer { healthy, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_checks() -> Checks {
        let checks = Checks::new();
        checks.add_live("ping", || Ok(()));
        checks.add_ready("ovsdb", || Err("not connected".into()));
        checks
    }

    #[test]
    fn answers() {
        for (name, endpoint, query, healthy, text) in [
            ("live checks alone decide livez", Endpoint::Livez, "", true, "ok"),
            ("verbose lists", Endpoint::Livez, "verbose", true, "[+]ping ok\nlivez check passed\n"),
            (
                "a failure is always explained",
                Endpoint::Readyz,
                "",
                false,
                "[+]ping ok\n[-]ovsdb failed: not connected\nreadyz check failed\n",
            ),
            ("a check can be left out", Endpoint::Healthz, "exclude=ovsdb", true, "ok"),
        ] {
            let answer = mk_checks().answer(endpoint, query);
            assert_eq!((answer.healthy, answer.text.as_str()), (healthy, text), "{name}");
        }
    }

    #[test]
    fn a_second_check_of_the_same_name_replaces_the_first() {
        let checks = mk_checks();
        checks.add_ready("ovsdb", || Ok(()));
        assert!(checks.answer(Endpoint::Readyz, "").healthy);
        assert_eq!(checks.run(Endpoint::Readyz, &[]).len(), 2);
    }
}

//! Addresses of names that rules name, as DNS answers told them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Names kept at most.
const MAX_NAMES: usize = 10_000;
/// Names kept at most for one pattern with `*`.
const MAX_PER_PATTERN: usize = 1_024;
/// How long an address is kept past its time while the name is asked for again.
const GRACE: Duration = Duration::from_secs(10);

/// Names with their addresses.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Patterns in use, with the UIDs of the policies that use them.
    patterns: BTreeMap<String, BTreeSet<String>>,
    names: BTreeMap<String, Name>,
    min_ttl: Duration,
    /// Answers that were not kept because there were too many names.
    n_refused: u64,
}

#[derive(Debug, Default)]
struct Name {
    /// Until when each address is good.
    addresses: BTreeMap<IpAddr, Duration>,
    /// Whether it was asked for again since its first address went out of date.
    asked: bool,
}

/// What the passing of time changed.
#[derive(Debug, Default)]
pub(super) struct Expired {
    /// Names to be asked for again.
    pub(super) ask: Vec<String>,
    /// Policies whose rules changed.
    pub(super) policies: BTreeSet<String>,
}

/// A name or pattern as it is compared.
pub(super) fn normal(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Whether a name matches a pattern, in which `*` stands for any string. Both are normal.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

impl Names {
    pub(super) fn new(min_ttl: Duration) -> Self {
        Self { min_ttl, ..Self::default() }
    }

    /// A policy uses these patterns and no others. Gives the names to be asked for.
    pub(super) fn use_patterns(&mut self, uid: &str, patterns: BTreeSet<String>) -> Vec<String> {
        let mut ask = Vec::new();
        for pattern in &patterns {
            let is_new = !self.patterns.contains_key(pattern);
            self.patterns.entry(pattern.clone()).or_default().insert(uid.to_owned());
            if is_new && !pattern.contains('*') {
                ask.push(pattern.clone());
            }
        }
        let n_before = self.patterns.len();
        self.patterns.retain(|pattern, users| {
            if !patterns.contains(pattern) {
                users.remove(uid);
            }
            !users.is_empty()
        });
        if self.patterns.len() != n_before {
            let patterns = &self.patterns;
            self.names.retain(|name, _| patterns.keys().any(|pattern| matches(pattern, name)));
        }
        ask
    }

    /// The addresses of all names that match a pattern.
    pub(super) fn addresses(&self, pattern: &str) -> BTreeSet<IpAddr> {
        let pattern = normal(pattern);
        if !pattern.contains('*') {
            let name = self.names.get(&pattern);
            return name.into_iter().flat_map(|name| name.addresses.keys().copied()).collect();
        }
        let names = self.names.iter().filter(|(name, _)| matches(&pattern, name));
        names.flat_map(|(_, name)| name.addresses.keys().copied()).collect()
    }

    /// Takes an answer in. Gives the policies whose rules changed by it.
    pub(super) fn learn(
        &mut self,
        now: Duration,
        name: &str,
        answers: &[(IpAddr, u32)],
    ) -> BTreeSet<String> {
        let name = normal(name);
        let matching: Vec<&String> =
            self.patterns.keys().filter(|pattern| matches(pattern, &name)).collect();
        if matching.is_empty() {
            return BTreeSet::new();
        }
        if !self.names.contains_key(&name) {
            let crowded = matching.iter().all(|pattern| {
                pattern.contains('*')
                    && self.names.keys().filter(|known| matches(pattern, known)).count()
                        >= MAX_PER_PATTERN
            });
            if crowded || self.names.len() >= MAX_NAMES {
                self.n_refused += 1;
                return BTreeSet::new();
            }
        }
        let users: BTreeSet<String> =
            matching.into_iter().flat_map(|pattern| self.patterns[pattern].clone()).collect();
        let known = self.names.entry(name).or_default();
        known.asked = false;
        let mut changed = false;
        for (ip, ttl) in answers {
            let until = now + Duration::from_secs((*ttl).into()).max(self.min_ttl);
            let kept = known.addresses.entry(*ip).or_insert_with(|| {
                changed = true;
                until
            });
            *kept = (*kept).max(until);
        }
        if changed { users } else { BTreeSet::new() }
    }

    /// What is out of date now.
    pub(super) fn expire(&mut self, now: Duration) -> Expired {
        let mut expired = Expired::default();
        let mut changed = Vec::new();
        for (name, known) in &mut self.names {
            if !known.asked && known.addresses.values().any(|until| *until <= now) {
                known.asked = true;
                expired.ask.push(name.clone());
            }
            let n_before = known.addresses.len();
            known.addresses.retain(|_, until| *until + GRACE > now);
            if known.addresses.len() != n_before {
                changed.push(name.clone());
            }
        }
        for name in changed {
            let users = self.patterns.iter().filter(|(pattern, _)| matches(pattern, &name));
            expired.policies.extend(users.flat_map(|(_, users)| users.clone()));
        }
        self.names.retain(|_, known| !known.addresses.is_empty());
        expired
    }

    /// When something goes out of date next.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let of = |name: &Name| {
            let first = name.addresses.values().min().copied()?;
            Some(if name.asked { first + GRACE } else { first })
        };
        self.names.values().filter_map(of).min()
    }

    /// Every name with its addresses and until when they are good.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, IpAddr, Duration)> {
        self.names.iter().flat_map(|(name, known)| {
            known.addresses.iter().map(move |(ip, until)| (name.as_str(), *ip, *until))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn patterns() {
        for (pattern, name, want) in [
            ("example.org", "example.org", true),
            ("example.org", "www.example.org", false),
            ("*.example.org", "www.example.org", true),
            ("*.example.org", "a.b.example.org", true),
            ("*.example.org", "example.org", false),
            ("*example.org", "example.org", true),
            ("w*.example.*", "www.example.org", true),
            ("w*.example.*", "ww.sample.org", false),
            ("*", "anything", true),
            ("a*b*a", "aba", true),
            ("aa*a", "aa", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn addresses_come_and_go() {
        let mut names = Names::new(S(5));
        let used = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect();
        assert!(names.learn(S(0), "a.test", &[(ip("10.0.0.1"), 60)]).is_empty(), "nobody asks");
        assert_eq!(names.use_patterns("p", used(&["a.test", "*.b.test"])), ["a.test"]);
        assert_eq!(names.use_patterns("q", used(&["a.test"])), Vec::<String>::new());
        let changed = names.learn(S(0), "A.test.", &[(ip("10.0.0.1"), 60), (ip("fd00::1"), 1)]);
        assert_eq!(changed.into_iter().collect::<Vec<_>>(), ["p", "q"]);
        assert!(names.learn(S(1), "a.test", &[(ip("10.0.0.1"), 60)]).is_empty(), "known");
        assert_eq!(names.addresses("A.TEST.").len(), 2);
        assert_eq!(names.deadline(), Some(S(5)), "the least time to live");
        let expired = names.expire(S(5));
        assert_eq!((expired.ask, expired.policies.len()), (vec!["a.test".to_owned()], 0));
        let expired = names.expire(S(15));
        assert_eq!((expired.ask.len(), expired.policies.len()), (0, 2));
        assert_eq!(names.addresses("a.test"), [ip("10.0.0.1")].into());
        names.learn(S(15), "x.b.test", &[(ip("10.0.0.2"), 60)]);
        assert_eq!(names.addresses("*.test").len(), 2);
        names.use_patterns("p", BTreeSet::new());
        assert_eq!(names.addresses("*.b.test").len(), 0, "nobody asks any more");
        assert_eq!(names.addresses("a.test").len(), 1);
    }

    #[test]
    fn a_pattern_does_not_take_all_memory() {
        let mut names = Names::new(S(0));
        names.use_patterns("p", ["*.test".to_owned()].into());
        for n in 0..2000 {
            names.learn(S(0), &format!("{n}.test"), &[(ip("10.0.0.1"), 60)]);
        }
        assert_eq!((names.names.len(), names.n_refused), (MAX_PER_PATTERN, 976));
    }
}

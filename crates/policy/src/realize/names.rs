//! Addresses of names that rules name, as DNS answers told them.
//!
//! An address is good as long as an answer to a Pod or to the agent says, and then until the agent
//! has asked again: an answer without it ends it. While no answer comes it stays, but not for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::{Asker, Known};
use crate::dns::{Answer, Asked, Extent};

/// Names kept at most.
const MAX_NAMES: usize = 10_000;
/// Names kept at most for one pattern with `*`.
const MAX_PER_PATTERN: usize = 1_024;
/// Addresses kept at most for one name; those that are good for the longest time stay.
const MAX_ADDRESSES: usize = 1_024;
/// An address is good for so long at least: whoever has got it needs time to connect.
const LEAST: Duration = Duration::from_secs(2);
/// No address is good for longer, whatever answers and files say.
const LONGEST: Duration = Duration::from_secs(1 << 31);
/// How long an address is kept past its time while nobody answers the agent.
const STALE: Duration = Duration::from_secs(600);
/// Pause between two times a name is asked for without success.
const RETRY: Duration = Duration::from_secs(5);

/// Names with their addresses.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Patterns in use, with the UIDs of the policies that use them.
    patterns: BTreeMap<String, BTreeSet<String>>,
    names: BTreeMap<String, Name>,
    min_ttl: Duration,
    /// Whether names of before the start are kept though nobody has named them yet.
    restoring: bool,
    /// Names that went because there were too many.
    n_evicted: u64,
}

#[derive(Debug, Default)]
struct Name {
    /// Until when each address is good.
    addresses: BTreeMap<IpAddr, Duration>,
    /// When it was asked for, while something is to be asked.
    asked: Option<Duration>,
    /// Whether a rule names it as it is, and nothing is known of it yet.
    wanted: bool,
    /// When an answer to a Pod told of it last.
    told: Duration,
}

impl Name {
    /// Whether the agent is to ask for it.
    fn is_due(&self, now: Duration) -> bool {
        self.wanted || self.addresses.values().any(|until| *until <= now)
    }

    fn deadline(&self) -> Option<Duration> {
        let first = self.addresses.values().min().copied();
        let retry = self.asked.map(|at| at + RETRY);
        match (first, retry) {
            (Some(first), Some(retry)) => Some(retry.max(first).min(first + STALE)),
            (None, Some(retry)) if self.wanted => Some(retry),
            (first, _) => first,
        }
    }
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

    /// Takes in what was known before the start: it is good until it was asked for again.
    pub(super) fn restore(&mut self, now: Duration, known: Vec<Known>) {
        self.restoring = true;
        for known in known {
            let name = normal(&known.name);
            if self.names.len() >= MAX_NAMES && !self.names.contains_key(&name) {
                break;
            }
            let kept = self.names.entry(name).or_default();
            kept.addresses.insert(known.ip, now + known.left.min(LONGEST));
        }
    }

    /// All policies of before the start are here: what nobody names is forgotten.
    pub(super) fn restored(&mut self) {
        if std::mem::take(&mut self.restoring) {
            self.forget_unused();
        }
    }

    fn forget_unused(&mut self) {
        let patterns = &self.patterns;
        self.names.retain(|name, _| patterns.keys().any(|pattern| matches(pattern, name)));
    }

    /// A policy uses these patterns and no others. Gives the names to be asked for.
    pub(super) fn use_patterns(
        &mut self,
        now: Duration,
        uid: &str,
        patterns: BTreeSet<String>,
    ) -> Vec<String> {
        let mut ask = Vec::new();
        for pattern in &patterns {
            self.patterns.entry(pattern.clone()).or_default().insert(uid.to_owned());
            if !pattern.contains('*') && !self.names.contains_key(pattern) {
                let name = Name { asked: Some(now), wanted: true, told: now, ..Name::default() };
                self.names.insert(pattern.clone(), name);
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
        if self.patterns.len() != n_before && !self.restoring {
            self.forget_unused();
        }
        ask
    }

    /// Whether a rule names it.
    pub(super) fn is_used(&self, name: &str) -> bool {
        let name = normal(name);
        self.patterns.keys().any(|pattern| matches(pattern, &name))
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
        answer: &Answer,
        asker: Asker,
    ) -> BTreeSet<String> {
        let name = normal(&answer.name);
        if answer.extent == Extent::Failure || !self.is_used(&name) {
            return BTreeSet::new();
        }
        let mut changed = BTreeSet::new();
        if !self.names.contains_key(&name) {
            if answer.addresses.is_empty() {
                return changed;
            }
            changed.extend(self.make_room(&name));
        }
        let known = self.names.entry(name.clone()).or_default();
        if asker == Asker::Pod {
            known.told = now;
        }
        let mut differs = false;
        for (ip, ttl) in &answer.addresses {
            let ttl = Duration::from_secs((*ttl).into()).max(self.min_ttl).max(LEAST);
            let until = now + ttl.min(LONGEST);
            let kept = known.addresses.entry(*ip).or_insert_with(|| {
                differs = true;
                until
            });
            *kept = (*kept).max(until);
        }
        while known.addresses.len() > MAX_ADDRESSES {
            let first = known.addresses.iter().min_by_key(|(_, until)| **until);
            let Some(first) = first.map(|(ip, _)| *ip) else { break };
            known.addresses.remove(&first);
        }
        known.wanted &= known.addresses.is_empty() && asker == Asker::Pod;
        if asker == Asker::Agent && answer.extent == Extent::Whole {
            let n_before = known.addresses.len();
            let asked = answer.asked;
            known.addresses.retain(|ip, until| *until > now || !is_of(*ip, asked));
            differs |= known.addresses.len() != n_before;
        }
        if !known.is_due(now) {
            known.asked = None;
        }
        if known.addresses.is_empty() && !known.wanted {
            self.names.remove(&name);
        }
        if differs {
            changed.extend(self.users(&name));
        }
        changed
    }

    /// Policies that name it.
    fn users(&self, name: &str) -> BTreeSet<String> {
        let using = self.patterns.iter().filter(|(pattern, _)| matches(pattern, name));
        using.flat_map(|(_, users)| users.clone()).collect()
    }

    /// Where there are too many names, the one of which Pods have not heard for the longest time
    /// goes; never one that a rule names as it is. Gives the policies that lose it.
    fn make_room(&mut self, name: &str) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        let patterns = self.patterns.keys().filter(|pattern| matches(pattern, name));
        let mut crowded: Vec<String> = patterns
            .filter(|pattern| {
                let of_pattern = self.names.keys().filter(|known| matches(pattern, known));
                pattern.contains('*') && of_pattern.count() >= MAX_PER_PATTERN
            })
            .cloned()
            .collect();
        if self.names.len() >= MAX_NAMES {
            crowded.push("*".into());
        }
        for pattern in crowded {
            let others = self.names.iter().filter(|(known, _)| {
                matches(&pattern, known) && !self.patterns.contains_key(*known)
            });
            let oldest = others.min_by_key(|(_, known)| known.told).map(|(known, _)| known.clone());
            if let Some(oldest) = oldest {
                self.names.remove(&oldest);
                self.n_evicted += 1;
                changed.extend(self.users(&oldest));
            }
        }
        changed
    }

    /// What is out of date now.
    pub(super) fn expire(&mut self, now: Duration) -> Expired {
        let mut expired = Expired::default();
        let mut changed = Vec::new();
        for (name, known) in &mut self.names {
            let n_before = known.addresses.len();
            known.addresses.retain(|_, until| *until + STALE > now);
            if known.addresses.len() != n_before {
                changed.push(name.clone());
            }
            if known.is_due(now) && known.asked.is_none_or(|at| at + RETRY <= now) {
                known.asked = Some(now);
                expired.ask.push(name.clone());
            }
        }
        expired.policies.extend(changed.iter().flat_map(|name| self.users(name)));
        self.names.retain(|_, known| known.wanted || !known.addresses.is_empty());
        expired
    }

    /// When something goes out of date next.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.names.values().filter_map(Name::deadline).min()
    }

    /// Every name with its addresses and until when they are good.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, IpAddr, Duration)> {
        self.names.iter().flat_map(|(name, known)| {
            known.addresses.iter().map(move |(ip, until)| (name.as_str(), *ip, *until))
        })
    }

    /// How many names there are, and how many went because there were too many.
    pub(super) fn counts(&self) -> (usize, u64) {
        (self.names.len(), self.n_evicted)
    }
}

/// Whether an answer to this question would have such an address.
fn is_of(ip: IpAddr, asked: Option<Asked>) -> bool {
    match asked {
        Some(Asked::A) => ip.is_ipv4(),
        Some(Asked::Aaaa) => ip.is_ipv6(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn set(patterns: &[&str]) -> BTreeSet<String> {
        patterns.iter().map(|p| (*p).to_owned()).collect()
    }

    fn answer(name: &str, addresses: &[(&str, u32)]) -> Answer {
        let six = addresses.iter().all(|(text, _)| ip(text).is_ipv6()) && !addresses.is_empty();
        Answer {
            name: name.into(),
            asked: Some(if six { Asked::Aaaa } else { Asked::A }),
            addresses: addresses.iter().map(|(text, ttl)| (ip(text), *ttl)).collect(),
            extent: Extent::Whole,
        }
    }

    /// Names that a policy `p` uses.
    fn mk_names(min_ttl: u64, patterns: &[&str]) -> Names {
        let mut names = Names::new(S(min_ttl));
        names.use_patterns(S(0), "p", set(patterns));
        names
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
        assert!(names.learn(S(0), &answer("a.test", &[("10.0.0.1", 60)]), Asker::Pod).is_empty());
        assert_eq!(names.use_patterns(S(0), "p", set(&["a.test", "*.b.test"])), ["a.test"]);
        assert_eq!(names.use_patterns(S(0), "q", set(&["a.test"])), Vec::<String>::new());
        let told = answer("A.test.", &[("10.0.0.1", 60), ("fd00::1", 1)]);
        let changed = names.learn(S(0), &told, Asker::Pod);
        assert_eq!(changed.into_iter().collect::<Vec<_>>(), ["p", "q"]);
        assert!(names.learn(S(1), &told, Asker::Pod).is_empty(), "known");
        assert_eq!(names.addresses("A.TEST.").len(), 2);
        assert_eq!(names.deadline(), Some(S(6)), "the least time to live");
        let expired = names.expire(S(6));
        assert_eq!((expired.ask, expired.policies.len()), (vec!["a.test".to_owned()], 0));
        assert!(names.expire(S(6)).ask.is_empty(), "it is being asked for");
        assert_eq!(names.deadline(), Some(S(11)));
        assert_eq!(names.expire(S(11)).ask, ["a.test"], "asked again");
        // An answer of the other family tells nothing of this one.
        assert!(names.learn(S(12), &answer("a.test", &[]), Asker::Agent).is_empty());
        assert_eq!(names.addresses("a.test").len(), 2);
        let six = Answer { asked: Some(Asked::Aaaa), ..answer("a.test", &[]) };
        assert!(names.learn(S(12), &six, Asker::Pod).is_empty(), "not for a Pod to say");
        assert_eq!(names.learn(S(12), &six, Asker::Agent).len(), 2);
        assert_eq!(names.addresses("a.test"), [ip("10.0.0.1")].into());
        assert_eq!(names.deadline(), Some(S(61)));
        names.learn(S(15), &answer("x.b.test", &[("10.0.0.2", 60)]), Asker::Pod);
        assert_eq!(names.addresses("*.test").len(), 2);
        names.use_patterns(S(15), "p", BTreeSet::new());
        assert_eq!(names.addresses("*.b.test").len(), 0, "nobody names it any more");
        assert_eq!(names.addresses("a.test").len(), 1);
    }

    #[test]
    fn an_address_without_answers_goes_at_last() {
        let mut names = mk_names(0, &["a.test"]);
        names.learn(S(0), &answer("a.test", &[("10.0.0.1", 30)]), Asker::Agent);
        let failure = Answer { extent: Extent::Failure, ..answer("a.test", &[]) };
        let mut n_asked = 0;
        let mut policies = BTreeSet::new();
        while let Some(at) = names.deadline() {
            assert!(at <= S(30) + STALE);
            let expired = names.expire(at);
            n_asked += expired.ask.len();
            policies.extend(expired.policies);
            names.learn(at, &failure, Asker::Agent);
        }
        assert_eq!((n_asked, policies.len()), (120, 1));
        assert_eq!(names.names.len(), 0);
    }

    /// With an answer that is good for no time at all nobody is asked all the time.
    #[test]
    fn no_time_to_live_asks_no_more_than_some_times() {
        let mut names = mk_names(0, &["a.test"]);
        let told = answer("a.test", &[("10.0.0.1", 0)]);
        names.learn(S(0), &told, Asker::Pod);
        let mut n_asked = 0;
        let mut now = S(0);
        while now < S(60) {
            now = names.deadline().unwrap();
            for _ in names.expire(now).ask {
                n_asked += 1;
                names.learn(now, &told, Asker::Agent);
            }
        }
        assert!(n_asked <= 30, "{n_asked}");
    }

    #[test]
    fn a_name_of_a_rule_is_asked_for_until_somebody_answers() {
        let mut names = mk_names(0, &["a.test", "*.test"]);
        assert_eq!(names.deadline(), Some(RETRY));
        assert_eq!(names.expire(RETRY).ask, ["a.test"]);
        // The Pod's server may be another one, and says nothing for sure.
        names.learn(RETRY, &answer("a.test", &[]), Asker::Pod);
        assert!(names.deadline().is_some());
        names.learn(RETRY, &answer("a.test", &[]), Asker::Agent);
        assert_eq!(names.deadline(), None);
    }

    #[test]
    fn what_was_known_before_the_start_stays_until_it_was_asked_for() {
        let mut names = Names::new(S(0));
        let known =
            |name: &str, left: u64| Known { name: name.into(), ip: ip("10.0.0.1"), left: S(left) };
        names.restore(S(1), vec![known("a.test", 0), known("b.test", 60), known("c.test", 60)]);
        assert!(names.use_patterns(S(1), "p", set(&["a.test", "b.test", "x.test"])) == ["x.test"]);
        names.use_patterns(S(1), "p", set(&["a.test", "b.test"]));
        assert_eq!(names.addresses("c.test").len(), 1, "more policies may come");
        names.restored();
        assert_eq!(names.addresses("c.test").len(), 0);
        assert_eq!(names.addresses("*.test").len(), 1);
        let expired = names.expire(S(1));
        assert_eq!((expired.ask, expired.policies.len()), (vec!["a.test".to_owned()], 0));
        let changed = names.learn(S(1), &answer("a.test", &[("10.0.0.9", 60)]), Asker::Agent);
        assert_eq!((changed.len(), names.addresses("a.test")), (1, [ip("10.0.0.9")].into()));
    }

    #[test]
    fn a_pattern_does_not_take_all_memory() {
        let mut names = mk_names(0, &["*.test", "5.test"]);
        for n in 0..1100 {
            let told = answer(&format!("{n}.test"), &[("10.0.0.1", 60)]);
            assert_eq!(names.learn(S(n), &told, Asker::Pod).len(), 1);
        }
        assert_eq!(names.counts(), (MAX_PER_PATTERN, 1100 - 1024));
        assert!(names.names.contains_key("5.test"), "a rule names it");
        assert!(names.names.contains_key("1099.test") && !names.names.contains_key("6.test"));
    }
}

//! What each scenario is expected to give, from the committed list `expected.txt`.
//!
//! A scenario that turns impossible without being listed so, or passes although it is listed as
//! impossible, is as wrong as one that fails: the list is what a reader trusts.

use crate::variant::Variant;

use super::Verdict;

/// The list of this version.
pub(super) const LIST: &str = include_str!("expected.txt");

/// What is wrong with a result in the light of the list; none when it is as expected.
pub(super) fn objection(
    list: &str,
    scenario: &str,
    variant: Variant,
    result: Verdict,
    reason: Option<&str>,
) -> Option<String> {
    if result == Verdict::Failed {
        return None; // It speaks for itself.
    }
    let (family, tunnel, datapath) =
        (variant.family.name(), variant.tunnel.name(), variant.datapath.name());
    let line = list.lines().filter_map(Line::parse).find(|line| {
        let named = [scenario, family, tunnel, datapath];
        line.what.iter().zip(named).all(|(pattern, name)| *pattern == "*" || *pattern == name)
    });
    let Some(line) = line else { return Some("the list of expected results lacks it".into()) };
    let reason = reason.unwrap_or_default();
    match (line.result, result) {
        ("passed" | "passed-unless", Verdict::Passed) => None,
        ("impossible" | "passed-unless", Verdict::Impossible) if reason == line.reason => None,
        ("impossible" | "passed-unless", Verdict::Impossible) => {
            Some(format!("impossible for another reason than the listed {:?}", line.reason))
        }
        (listed, _) => Some(format!("listed as {listed}")),
    }
}

struct Line<'a> {
    what: [&'a str; 4],
    result: &'a str,
    reason: String,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split('#').next()?.split_whitespace();
        let mut next = || words.next();
        let what = [next()?, next()?, next()?, next()?];
        let result = next()?;
        Some(Self { what, result, reason: words.collect::<Vec<_>>().join(" ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::{Datapath, IpFamily, Tunnel};

    const EXAMPLE: &str = "
# a comment
mtu  dual  *       netdev  impossible  no such wire
mtu  *     geneve  netdev  passed
mtu  *     gre     *       passed-unless  the kernel lacks it
";

    #[test]
    fn results_are_held_against_the_list() {
        let dual = Variant { family: IpFamily::Dual, ..Variant::default() };
        let ipv4 = Variant::default();
        let system = Variant { datapath: Datapath::System, ..ipv4 };
        let gre = Variant { tunnel: Tunnel::Gre, ..ipv4 };
        for (name, variant, result, reason, want) in [
            ("as listed", ipv4, Verdict::Passed, None, None),
            ("impossible as listed", dual, Verdict::Impossible, Some("no such wire"), None),
            (
                "impossible, but not listed so",
                ipv4,
                Verdict::Impossible,
                Some("no such wire"),
                Some("listed as passed"),
            ),
            (
                "for another reason",
                dual,
                Verdict::Impossible,
                Some("tired"),
                Some("impossible for another reason than the listed \"no such wire\""),
            ),
            ("passes all the same", dual, Verdict::Passed, None, Some("listed as impossible")),
            (
                "not listed",
                system,
                Verdict::Passed,
                None,
                Some("the list of expected results lacks it"),
            ),
            ("what depends on the machine is there", gre, Verdict::Passed, None, None),
            ("and is not", gre, Verdict::Impossible, Some("the kernel lacks it"), None),
            (
                "or lacks something else",
                gre,
                Verdict::Impossible,
                Some("tired"),
                Some("impossible for another reason than the listed \"the kernel lacks it\""),
            ),
            ("failed", system, Verdict::Failed, Some("x"), None),
        ] {
            let seen = objection(EXAMPLE, "mtu", variant, result, reason);
            assert_eq!(seen.as_deref(), want, "{name}");
        }
    }

    #[test]
    fn every_line_of_the_list_can_be_read() {
        for text in LIST.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
            let line = Line::parse(text).unwrap_or_else(|| panic!("{text}"));
            let known =
                line.what[0] == "*" || super::super::list().iter().any(|s| s.0 == line.what[0]);
            assert!(known, "no such scenario: {text}");
            match line.result {
                "passed" => assert!(line.reason.is_empty(), "{text}"),
                "impossible" | "passed-unless" => assert!(!line.reason.is_empty(), "{text}"),
                _ => panic!("{text}"),
            }
        }
    }
}

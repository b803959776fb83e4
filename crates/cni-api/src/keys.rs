//! Tells keys of a network configuration that are somebody else's from keys of ours misspelt.
//!
//! Runtimes and plugins behind us have keys of their own, so an unknown key is tolerated. One that
//! is nearly ours is none of theirs: it would have no effect, and nobody would know why.

/// Our keys at the top of a configuration.
pub(crate) const OURS: [&str; 8] =
    ["cniVersion", "name", "type", "mtu", "cniSocket", "ipam", "prevResult", "runtimeConfig"];

/// Keys that others have at the top: those of the specification, and of the plugins that go with
/// it. None of them is taken for one of ours misspelt.
const OTHERS: [&str; 22] = [
    "args",
    "attachments",
    "bandwidth",
    "bridge",
    "capabilities",
    "delegate",
    "disableCheck",
    "disableGC",
    "dns",
    "ipMasq",
    "ips",
    "isGateway",
    "loadOnlyInlinedPlugins",
    "mac",
    "master",
    "mode",
    "plugins",
    "promiscMode",
    "snat",
    "sysctl",
    "tuning",
    "vlan",
];

/// The key of ours that this one is meant to be, if it is nearly one.
pub(crate) fn meant(key: &str) -> Option<&'static str> {
    if OURS.contains(&key) || OTHERS.contains(&key) {
        return None;
    }
    let nearest = OURS.iter().map(|ours| (distance(key, ours), *ours)).min()?;
    // Two letters are most of a short word.
    let (n_changes, ours) = nearest;
    let tolerated = if ours.len() <= 4 { 1 } else { 2 };
    (n_changes <= tolerated).then_some(ours)
}

/// How many letters have to be changed, added or taken away; case does not count.
fn distance(one: &str, other: &str) -> usize {
    let letters = |text: &str| text.to_lowercase().chars().collect::<Vec<_>>();
    let (one, other) = (letters(one), letters(other));
    // A long key is none of ours, and is not looked at letter by letter.
    if one.len().abs_diff(other.len()) > 2 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_ours_is_meant_to_be_ours() {
        for (key, ours) in [
            ("cniSocke", Some("cniSocket")),
            ("cnisocket", Some("cniSocket")),
            ("cniSockets", Some("cniSocket")),
            ("socket", None),
            ("MTU", Some("mtu")),
            ("mtuu", Some("mtu")),
            ("mac", None),
            ("iapm", None),
            ("ipa", Some("ipam")),
            ("cniVersoin", Some("cniVersion")),
            ("prevResults", Some("prevResult")),
            ("plugins", None),
            ("dns", None),
            ("cni.dev/attachments", None),
            ("cniSocket", None),
            ("", None),
            ("\u{fc}mtu", Some("mtu")),
        ] {
            assert_eq!(meant(key), ours, "{key}");
        }
        assert_eq!(meant(&"m".repeat(100_000)), None);
    }
}

//! Finds the known name that a misspelt one most probably meant.

/// The candidate nearest to `name`, if one is near enough to be worth proposing.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = name.to_lowercase();
    candidates
        .into_iter()
        .map(|c| (distance(&lower, &c.to_lowercase()), c))
        .min_by_key(|(d, _)| *d)
        .filter(|(d, c)| *d <= (name.chars().count().max(c.chars().count()) / 3).max(1))
        .map(|(_, c)| c)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposals() {
        let names = ["tunnelType", "tunnelPort", "tunnelCsum", "apiPort"];
        for (typed, want) in [
            ("tunelType", Some("tunnelType")),
            ("tunneltype", Some("tunnelType")),
            ("tunnelTpye", Some("tunnelType")),
            ("apiPrt", Some("apiPort")),
            ("somethingElse", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), want, "{typed}");
        }
    }
}

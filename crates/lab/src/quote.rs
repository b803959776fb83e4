//! Words for a shell: what the lab prints to be copied works whatever is in it.

use std::path::Path;

/// A path as one word of a shell.
#[must_use]
pub fn path(path: &Path) -> String {
    word(&path.display().to_string())
}

/// A text as one word of a shell; plain words stay as they are.
#[must_use]
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_or_expand_them() {
        for (text, want) in [
            ("/run/antrea-lab", "/run/antrea-lab"),
            ("/tmp/my lab", "'/tmp/my lab'"),
            ("/tmp/$HOME", "'/tmp/$HOME'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(word(text), want);
        }
    }
}

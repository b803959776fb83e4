//! The lines of a long output that say what failed.
//!
//! A run of all stages prints more than most viewers of CI results keep, so what failed is said
//! again at its end.

/// How many lines are kept at most.
const MOST: usize = 80;
/// How many lines that follow a telling one are kept with it.
const AFTER: usize = 5;

/// Collects telling lines.
#[derive(Default)]
pub(crate) struct Digest {
    kept: Vec<String>,
    still: usize,
}

impl Digest {
    /// Takes the next line of an output.
    pub(crate) fn line(&mut self, line: &str) {
        if tells(line) {
            self.still = AFTER + 1;
        } else if line.trim().is_empty() || line.contains("stack backtrace") {
            self.still = 0;
        }
        if self.still > 0 && self.kept.len() < MOST {
            self.still -= 1;
            // A lab's line may hold everything that a node has logged.
            self.kept.push(line.chars().take(600).collect());
        }
    }

    /// What was kept, in order.
    pub(crate) fn lines(&self) -> &[String] {
        &self.kept
    }
}

/// Whether a line says that something failed: a test, a scenario, a compilation, a check.
fn tells(line: &str) -> bool {
    line.contains(" FAILED")
        || line.contains("UNEXPECTED (")
        || line.contains("panicked at ")
        || line.contains("test failed, to rerun")
        || ["error: ", "error[", "Error: ", "Diff in "].iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn what_failed_is_kept_with_what_follows() {
        let mut digest = Digest::default();
        let output = "test a ... ok\ntest b ... FAILED\n\nthread 'b' panicked at b.rs:1:1:\nleft: 1\nstack backtrace:\n  0: x";
        output.lines().for_each(|line| digest.line(line));
        assert_eq!(
            digest.lines(),
            ["test b ... FAILED", "thread 'b' panicked at b.rs:1:1:", "left: 1"]
        );
    }

    #[test]
    fn an_endless_failure_is_cut() {
        let mut digest = Digest::default();
        for _ in 0..10_000 {
            digest.line("error: no");
        }
        assert_eq!(digest.lines().len(), super::MOST);
    }
}

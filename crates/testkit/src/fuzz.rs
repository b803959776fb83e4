//! Tries a decoder with damaged input: a corpus of valid inputs, mutated by a generator whose seed
//! is known, so that every failure comes again.
//!
//! A campaign first takes every input of the corpus as it is: an input that once made a decoder
//! panic becomes a test by being put into the corpus. Runs as an ordinary test; `FUZZ_EXECS` makes
//! it longer and `FUZZ_SEED` another one.
//!
//! Not here: what the decoder has to fulfil (the closure of each test).

mod mutate;

use std::any::Any;
use std::fs;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

pub use mutate::{Random, mutate};

/// Executions of a campaign unless `FUZZ_EXECS` says otherwise.
pub const DEFAULT_EXECUTIONS: u64 = 100_000;
const DEFAULT_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A decoder, what it is fed, and how often.
#[derive(Debug)]
pub struct Campaign {
    name: String,
    corpus: Vec<Vec<u8>>,
    dictionary: Vec<Vec<u8>>,
    executions: u64,
    seed: u64,
}

/// What a campaign did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// How often the decoder ran.
    pub executions: u64,
    /// How often it understood what it was given.
    pub accepted: u64,
}

/// What became of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The decoder understood it, and what it gave was as it has to be.
    Accepted,
    /// The decoder refused it with an error.
    Refused,
}

impl Campaign {
    /// A campaign over these inputs.
    ///
    /// Panics when there are none, or when `FUZZ_EXECS` or `FUZZ_SEED` is no number.
    #[must_use]
    #[track_caller]
    pub fn new(name: &str, corpus: Vec<Vec<u8>>) -> Self {
        assert!(!corpus.is_empty(), "the corpus of {name} is empty");
        Self {
            name: name.to_owned(),
            corpus,
            dictionary: Vec::new(),
            executions: from_environment("FUZZ_EXECS").unwrap_or(DEFAULT_EXECUTIONS),
            seed: from_environment("FUZZ_SEED").unwrap_or(DEFAULT_SEED),
        }
    }

    /// A campaign over the files of a directory, see [`read_corpus`].
    #[must_use]
    #[track_caller]
    pub fn from_dir(name: &str, dir: impl AsRef<Path>) -> Self {
        Self::new(name, read_corpus(dir.as_ref()))
    }

    /// With pieces that mutations insert.
    #[must_use]
    pub fn dictionary<T: AsRef<[u8]>>(mut self, pieces: impl IntoIterator<Item = T>) -> Self {
        self.dictionary.extend(pieces.into_iter().map(|piece| piece.as_ref().to_vec()));
        self
    }

    /// Runs `target` on every input of the corpus and then on mutated ones.
    ///
    /// Panics when `target` does, with the seed, the number of the execution and the input in
    /// hexadecimal.
    #[track_caller]
    pub fn run(self, target: impl FnMut(&[u8]) -> Outcome) -> Report {
        self.run_repaired(|_, _| {}, target)
    }

    /// [`Campaign::run`] that gives `repair` every mutated input first: it may put a header right
    /// that every input needs, so that mutations reach what is behind it.
    #[track_caller]
    pub fn run_repaired(
        self,
        mut repair: impl FnMut(&mut Vec<u8>, &mut Random),
        mut target: impl FnMut(&[u8]) -> Outcome,
    ) -> Report {
        let mut random = Random::new(self.seed);
        let mut report = Report { executions: 0, accepted: 0 };
        let mut execute = |input: &[u8], report: &mut Report| {
            let number = report.executions;
            report.executions += 1;
            match catch_unwind(AssertUnwindSafe(|| target(input))) {
                Ok(Outcome::Accepted) => report.accepted += 1,
                Ok(Outcome::Refused) => {}
                Err(payload) => {
                    return ControlFlow::Break(self.verdict(number, input, payload.as_ref()));
                }
            }
            ControlFlow::Continue(())
        };
        for input in &self.corpus {
            if let ControlFlow::Break(verdict) = execute(input, &mut report) {
                panic!("{verdict}");
            }
        }
        while report.executions < self.executions {
            let mut input = self.corpus[random.below(self.corpus.len())].clone();
            mutate(&mut input, &mut random, &self.corpus, &self.dictionary);
            repair(&mut input, &mut random);
            if let ControlFlow::Break(verdict) = execute(&input, &mut report) {
                panic!("{verdict}");
            }
        }
        report
    }

    fn verdict(&self, number: u64, input: &[u8], payload: &(dyn Any + Send)) -> String {
        let reason = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("panicked");
        format!(
            "{}: execution {number} with FUZZ_SEED={}: {reason}\ninput, to be put into the corpus: \
             {}",
            self.name,
            self.seed,
            hex(input)
        )
    }
}

/// Every input of a directory's files, in the order of their names: of a `.hex` file a line each in
/// hexadecimal, of a `.txt` file a line each as it is (both without empty lines and those that
/// begin with `#`), any other file as one input.
///
/// Panics when the directory cannot be read, or a line of a `.hex` file is no hexadecimal.
#[must_use]
#[track_caller]
pub fn read_corpus(dir: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(dir)
        .unwrap_or_else(|error| panic!("read corpus {}: {error}", dir.display()))
        .map(|entry| entry.expect("a directory that could be opened can be listed").path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    let mut inputs = Vec::new();
    for path in paths {
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()));
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !matches!(extension, Some("hex" | "txt")) {
            inputs.push(bytes);
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        inputs.extend(lines.map(|line| match extension {
            Some("hex") => {
                unhex(line).unwrap_or_else(|| panic!("{}: no hexadecimal: {line}", path.display()))
            }
            _ => line.as_bytes().to_vec(),
        }));
    }
    inputs
}

/// Bytes in hexadecimal, two digits each.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// The bytes that [`hex`] wrote.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let digits = digits?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| (high << 4) | low).collect())
}

#[track_caller]
fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let plain = text.replace('_', "");
    Some(plain.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_campaign(executions: u64) -> Campaign {
        let corpus = vec![vec![1, 2, 3, 4, 5, 6, 7, 8], vec![9; 20]];
        Campaign { executions, ..Campaign::new("test", corpus) }
    }

    #[test]
    fn a_panic_is_reported_with_seed_and_input_and_comes_again() {
        let run = || {
            let target = |input: &[u8]| {
                assert!(input.len() != 7, "seven bytes");
                Outcome::Accepted
            };
            let result = catch_unwind(AssertUnwindSafe(|| mk_campaign(100_000).run(target)));
            *result.unwrap_err().downcast::<String>().unwrap()
        };
        let verdict = run();
        assert!(verdict.contains("FUZZ_SEED=") && verdict.contains("seven bytes"), "{verdict}");
        let input = unhex(verdict.rsplit(' ').next().unwrap()).unwrap();
        assert_eq!(input.len(), 7);
        assert_eq!(run(), verdict);
    }

    #[test]
    fn the_corpus_is_run_as_it_is_and_executions_are_counted() {
        let mut seen = Vec::new();
        let report = mk_campaign(1000).run(|input| {
            seen.push(input.to_vec());
            if input.len() > 8 { Outcome::Accepted } else { Outcome::Refused }
        });
        assert_eq!(seen[..2], [vec![1, 2, 3, 4, 5, 6, 7, 8], vec![9; 20]]);
        assert_eq!(report.executions, 1000);
        assert!((100..900).contains(&report.accepted), "{report:?}");
        let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
        assert!(distinct.len() > 800, "{} distinct inputs", distinct.len());
    }

    #[test]
    fn corpus_files_are_read_by_their_kind() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.hex"), "# title\n0102\n\nff\n").unwrap();
        fs::write(dir.path().join("b.txt"), "one\n two \n").unwrap();
        fs::write(dir.path().join("c.bin"), [0, 10]).unwrap();
        let want: [&[u8]; 5] = [&[1, 2], &[255], b"one", b"two", &[0, 10]];
        assert_eq!(read_corpus(dir.path()), want);
        assert_eq!(unhex(&hex(&[0, 1, 0xab])), Some(vec![0, 1, 0xab]));
        assert_eq!(unhex("abc"), None);
        assert_eq!(unhex("zz"), None);
    }
}

//! Ways to damage an input.

/// Longest input that mutations make.
const MAX_LEN: usize = 1 << 16;

/// A small generator (splitmix64): the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 when `n` is.
    pub fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).unwrap_or(u64::MAX).max(1);
        // Below a usize it fits into one.
        usize::try_from(self.next_u64() % n).unwrap_or(0)
    }

    /// A byte: often one at a border.
    pub fn byte(&mut self) -> u8 {
        const BORDERS: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];
        match self.below(2) {
            0 => BORDERS[self.below(BORDERS.len())],
            _ => self.next_u64().to_be_bytes()[0],
        }
    }
}

/// Damages `input` in one to four ways: bits flipped, bytes and lengths changed, pieces cut out,
/// doubled, inserted, taken from another input of `corpus` or from `dictionary`.
pub fn mutate(
    input: &mut Vec<u8>,
    random: &mut Random,
    corpus: &[Vec<u8>],
    dictionary: &[Vec<u8>],
) {
    for _ in 0..=random.below(4) {
        mutate_once(input, random, corpus, dictionary);
    }
    input.truncate(MAX_LEN);
}

fn mutate_once(
    input: &mut Vec<u8>,
    random: &mut Random,
    corpus: &[Vec<u8>],
    dictionary: &[Vec<u8>],
) {
    if input.is_empty() {
        input.push(random.byte());
        return;
    }
    let at = random.below(input.len());
    let span = 1 + random.below((input.len() - at).min(32));
    match random.below(12) {
        0 | 1 => input[at] ^= 1 << random.below(8),
        2 | 3 => input[at] = random.byte(),
        4 => input.truncate(at),
        5 => edit_length(input, random),
        6 => {
            input.drain(at..at + span);
        }
        7 => {
            let piece = input[at..at + span].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, piece);
        }
        8 if !corpus.is_empty() => {
            // The beginning of this one, the end of another.
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        9 if !corpus.is_empty() => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len());
            let piece = &other[from..(from + span).min(other.len())];
            input.splice(at..at, piece.iter().copied());
        }
        10 if !dictionary.is_empty() => {
            let piece = &dictionary[random.below(dictionary.len())];
            let end = if random.below(2) == 0 { at } else { (at + piece.len()).min(input.len()) };
            input.splice(at..end, piece.iter().copied());
        }
        _ => {
            let byte = random.byte();
            input.insert(at, byte);
        }
    }
}

/// Changes 16 bits that may be a length: a little, to what is left, or to a border.
fn edit_length(input: &mut [u8], random: &mut Random) {
    let at = random.below(input.len()) & !1;
    let Some(place) = input.get(at..at + 2) else { return };
    let was = u16::from_be_bytes([place[0], place[1]]);
    let left = u16::try_from(input.len() - at).unwrap_or(u16::MAX);
    let choices = [
        was.wrapping_add(1),
        was.wrapping_sub(1),
        was.wrapping_add(8),
        was.wrapping_sub(8),
        left,
        left.wrapping_add(2),
        0,
        u16::MAX,
    ];
    let to = choices[random.below(choices.len())];
    input[at..at + 2].copy_from_slice(&to.to_be_bytes());
}

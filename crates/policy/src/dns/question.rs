//! Questions for the addresses of a name.

use super::{A, AAAA, Answer, HEADER_LEN, INTERNET, MAX_NAME};

/// What is asked about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// Its IPv4 addresses.
    A,
    /// Its IPv6 addresses.
    Aaaa,
}

impl Asked {
    pub(super) fn of(kind: u16, class: u16) -> Option<Self> {
        match (kind, class) {
            (A, INTERNET) => Some(Self::A),
            (AAAA, INTERNET) => Some(Self::Aaaa),
            _ => None,
        }
    }

    const fn kind(self) -> u16 {
        match self {
            Self::A => A,
            Self::Aaaa => AAAA,
        }
    }
}

/// A question about one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its number, which the answer repeats.
    pub id: u16,
    /// The name.
    pub name: String,
    /// What is asked.
    pub asked: Asked,
}

/// The server may ask others.
const RECURSION_DESIRED: u16 = 0x0100;
/// Longest part of a name.
const MAX_LABEL: usize = 63;

impl Question {
    /// The message; none for a name that cannot be asked for.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.name.len() + 6);
        for word in [self.id, RECURSION_DESIRED, 1, 0, 0, 0] {
            bytes.extend(word.to_be_bytes());
        }
        for label in self.name.trim_end_matches('.').split('.') {
            let len = u8::try_from(label.len()).ok()?;
            if label.is_empty() || label.len() > MAX_LABEL {
                return None;
            }
            bytes.push(len);
            bytes.extend_from_slice(label.as_bytes());
        }
        bytes.push(0);
        if bytes.len() - HEADER_LEN > MAX_NAME {
            return None;
        }
        bytes.extend(self.asked.kind().to_be_bytes());
        bytes.extend(INTERNET.to_be_bytes());
        Some(bytes)
    }

    /// What a message answers to this question; none when it is no answer to it.
    #[must_use]
    pub fn answer(&self, message: &[u8]) -> Option<Answer> {
        let id = message.first_chunk::<2>().map(|id| u16::from_be_bytes(*id))?;
        let answer = Answer::read(message).ok()?;
        let name = self.name.trim_end_matches('.').to_ascii_lowercase();
        (id == self.id && answer.name == name && answer.asked == Some(self.asked)).then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::Extent;

    #[test]
    fn questions_are_answered_by_their_own_answers_alone() {
        let question = Question { id: 0x1234, name: "Db.Example.org.".into(), asked: Asked::Aaaa };
        let bytes = question.to_bytes().unwrap();
        assert_eq!(bytes[..6], [0x12, 0x34, 1, 0, 0, 1]);
        assert_eq!(&bytes[12..], b"\x02Db\x07Example\x03org\0\0\x1c\0\x01");
        assert_eq!(question.answer(&bytes), None, "it is the question");
        let mut answer = bytes;
        answer[2] |= 0x80;
        assert_eq!(question.answer(&answer).unwrap().extent, Extent::Whole);
        for other in [
            Question { id: 1, ..question.clone() },
            Question { name: "db.example.com".into(), ..question.clone() },
            Question { asked: Asked::A, ..question.clone() },
        ] {
            assert_eq!(other.answer(&answer), None, "{other:?}");
        }
    }

    #[test]
    fn names_that_cannot_be_asked_for() {
        for name in ["", ".", "a..b", &"x".repeat(64), &["abcdefg"; 40].join(".")] {
            let question = Question { id: 1, name: name.into(), asked: Asked::A };
            assert_eq!(question.to_bytes(), None, "{name}");
        }
    }
}

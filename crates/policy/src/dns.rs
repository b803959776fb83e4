//! DNS answers: which addresses a name has, and for how long (RFC 1035, RFC 3596).
//!
//! The bytes come from the network: whatever they are, reading gives an answer or an error, takes
//! time and memory in proportion to their length, and never panics. Not here: which names matter
//! and how long addresses are kept (`realize`), and who asks.

mod question;
mod tcp;

use std::net::IpAddr;

pub use question::{Asked, Question};
pub use tcp::{Connection, Connections, Segment};

/// What an answer tells of the name that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The name, in lower case, without a dot at its end.
    pub name: String,
    /// What was asked about it; none for what is no address.
    pub asked: Option<Asked>,
    /// Its addresses, behind any number of other names, and their times to live in seconds.
    pub addresses: Vec<(IpAddr, u32)>,
    /// How much of the truth it is.
    pub extent: Extent,
}

/// How much an answer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All: the name has no other addresses of the kind that was asked for.
    Whole,
    /// Its beginning; the whole one comes by TCP, or in fragments of the packet.
    Beginning,
    /// That the server could not tell.
    Failure,
}

/// Why a message tells nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// It ends too early.
    #[error("message is cut short")]
    Short,
    /// It is a question.
    #[error("message is no answer")]
    NotAnAnswer,
    /// It has no question, or several.
    #[error("message answers {0} questions")]
    Questions(u16),
    /// A name in it is longer than names may be, or refers to itself.
    #[error("message has an impossible name")]
    Name,
}

const HEADER_LEN: usize = 12;
const RESPONSE: u16 = 0x8000;
const TRUNCATED: u16 = 0x0200;
/// Bits with what came of it; 0 is an answer, 3 says that there is no such name.
const RCODE: u16 = 0x000f;
const NO_ERROR: u16 = 0;
const NO_SUCH_NAME: u16 = 3;
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;
const MAX_NAME: usize = 255;
/// Names that lead to other names are followed so far.
const MAX_ALIASES: usize = 16;

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DnsError> {
        let rest = self.message.get(self.at..).unwrap_or_default();
        let array = rest.first_chunk::<N>().copied().ok_or(DnsError::Short)?;
        self.at += N;
        Ok(array)
    }

    fn u16(&mut self) -> Result<u16, DnsError> {
        self.array().map(u16::from_be_bytes)
    }

    /// A name, with references followed (each leads back, so they end).
    fn name(&mut self) -> Result<String, DnsError> {
        let mut name = String::new();
        let mut at = self.at;
        let mut lowest = self.at;
        let mut after = None;
        loop {
            let len = *self.message.get(at).ok_or(DnsError::Short)?;
            match len {
                0 => {
                    self.at = after.unwrap_or(at + 1);
                    return Ok(name);
                }
                0xc0.. => {
                    let low = *self.message.get(at + 1).ok_or(DnsError::Short)?;
                    after.get_or_insert(at + 2);
                    at = usize::from(len & 0x3f) << 8 | usize::from(low);
                    if at >= lowest {
                        return Err(DnsError::Name);
                    }
                    lowest = at;
                }
                64.. => return Err(DnsError::Name),
                len => {
                    let end = at + 1 + usize::from(len);
                    let label = self.message.get(at + 1..end).ok_or(DnsError::Short)?;
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.extend(label.iter().map(|byte| match byte {
                        // Two labels in one, so that it looks like another name.
                        b'.' => char::REPLACEMENT_CHARACTER,
                        byte => char::from(byte.to_ascii_lowercase()),
                    }));
                    if name.len() > 2 * MAX_NAME {
                        return Err(DnsError::Name);
                    }
                    at = end;
                }
            }
        }
    }
}

impl Answer {
    /// Reads a message.
    pub fn read(message: &[u8]) -> Result<Self, DnsError> {
        let mut reader = Reader { message, at: 0 };
        let _id = reader.u16()?;
        let flags = reader.u16()?;
        let n_questions = reader.u16()?;
        let n_answers = reader.u16()?;
        if flags & RESPONSE == 0 {
            return Err(DnsError::NotAnAnswer);
        }
        if n_questions != 1 {
            return Err(DnsError::Questions(n_questions));
        }
        reader.at = HEADER_LEN;
        let name = reader.name()?;
        let asked = Asked::of(reader.u16()?, reader.u16()?);
        let mut extent = match flags & RCODE {
            _ if flags & TRUNCATED != 0 => Extent::Beginning,
            NO_ERROR | NO_SUCH_NAME => Extent::Whole,
            _ => Extent::Failure,
        };
        let mut aliases = Vec::new();
        let mut records = Vec::new();
        for _ in 0..n_answers {
            match record(&mut reader) {
                Ok(Some(Record::Alias { of, to })) => aliases.push((of, to)),
                Ok(Some(Record::Address { of, ip, ttl })) => records.push((of, ip, ttl)),
                Ok(None) => {}
                // What comes before the cut counts; the first fragment of a packet has one, too.
                Err(DnsError::Short) => {
                    extent = Extent::Beginning;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let mut names = vec![name.clone()];
        for _ in 0..MAX_ALIASES {
            let last = names.last().cloned().unwrap_or_default();
            let next = aliases.iter().find(|(of, _)| *of == last).map(|(_, to)| to.clone());
            match next {
                Some(next) if !names.contains(&next) => names.push(next),
                _ => break,
            }
        }
        records.retain(|(of, ..)| names.contains(of));
        let addresses = records.into_iter().map(|(_, ip, ttl)| (ip, ttl)).collect();
        Ok(Self { name, asked, addresses, extent })
    }
}

enum Record {
    Alias { of: String, to: String },
    Address { of: String, ip: IpAddr, ttl: u32 },
}

fn record(reader: &mut Reader<'_>) -> Result<Option<Record>, DnsError> {
    let of = reader.name()?;
    let (kind, class) = (reader.u16()?, reader.u16()?);
    let ttl = u32::from_be_bytes(reader.array()?);
    let len = usize::from(reader.u16()?);
    let end = reader.at + len;
    if end > reader.message.len() {
        return Err(DnsError::Short);
    }
    let record = match (kind, class, len) {
        (A, INTERNET, 4) => Some(Record::Address { of, ip: reader.array::<4>()?.into(), ttl }),
        (AAAA, INTERNET, 16) => Some(Record::Address { of, ip: reader.array::<16>()?.into(), ttl }),
        (CNAME, INTERNET, _) => Some(Record::Alias { of, to: reader.name()? }),
        _ => None,
    };
    reader.at = end;
    Ok(record)
}

/// Messages of one TCP connection, each behind its length in two bytes, in whatever pieces they
/// come.
#[derive(Debug, Default)]
pub struct Stream {
    buffer: Vec<u8>,
}

impl Stream {
    /// How many bytes wait for the rest of their message.
    fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Takes the next bytes of the connection, and gives the messages that are whole now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.buffer.extend_from_slice(bytes);
        let mut messages = Vec::new();
        let mut at = 0;
        while let Some(len) = self.buffer.get(at..).and_then(<[u8]>::first_chunk::<2>) {
            let end = at + 2 + usize::from(u16::from_be_bytes(*len));
            let Some(message) = self.buffer.get(at + 2..end) else { break };
            messages.push(message.to_vec());
            at = end;
        }
        // What is left is less than one message of 64 KiB.
        self.buffer.drain(..at);
        messages
    }
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::{Campaign, Outcome};

    use super::*;

    fn name(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for label in text.split('.') {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label.as_bytes());
        }
        bytes.push(0);
        bytes
    }

    fn mk_message(flags: u16, question: &str, records: &[(Vec<u8>, u16, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0, 7];
        bytes.extend(flags.to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend(u16::try_from(records.len()).unwrap().to_be_bytes());
        bytes.extend([0, 0, 0, 0]);
        bytes.extend(name(question));
        bytes.extend([0, 1, 0, 1]);
        for (of, kind, data) in records {
            bytes.extend(of);
            bytes.extend(kind.to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 60]);
            bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            bytes.extend(data);
        }
        bytes
    }

    const BACK: [u8; 2] = [0xc0, 12];

    fn mk_whole() -> Vec<u8> {
        let mut six = [0; 16];
        six[0] = 0xfd;
        mk_message(
            0x8180,
            "WWW.Example.org",
            &[
                (BACK.to_vec(), CNAME, name("cdn.test")),
                (name("cdn.test"), A, vec![192, 0, 2, 1]),
                (name("cdn.test"), AAAA, six.to_vec()),
                (name("other.test"), A, vec![192, 0, 2, 9]),
                (name("cdn.test"), 16, vec![3, b'a', b'b', b'c']),
            ],
        )
    }

    #[test]
    fn addresses_behind_other_names() {
        let answer = Answer::read(&mk_whole()).unwrap();
        assert_eq!(answer.name, "www.example.org");
        let ips: Vec<String> = answer.addresses.iter().map(|(ip, _)| ip.to_string()).collect();
        assert_eq!(ips, ["192.0.2.1", "fd00::"]);
        assert!(answer.addresses.iter().all(|(_, ttl)| *ttl == 60));
        assert_eq!((answer.asked, answer.extent), (Some(Asked::A), Extent::Whole));
    }

    #[test]
    fn what_is_no_answer() {
        assert_eq!(Answer::read(&[]), Err(DnsError::Short));
        let question = mk_message(0x0100, "a.test", &[]);
        assert_eq!(Answer::read(&question), Err(DnsError::NotAnAnswer));
        let mut itself = mk_message(0x8180, "a.test", &[]);
        itself.truncate(12);
        itself.extend([0xc0, 12, 0, 1, 0, 1]);
        assert_eq!(Answer::read(&itself), Err(DnsError::Name));
        let cut = mk_message(0x8380, "a.test", &[(BACK.to_vec(), A, vec![192, 0, 2, 1])]);
        let answer = Answer::read(&cut[..cut.len() - 2]).unwrap();
        assert_eq!((answer.extent, answer.addresses.len()), (Extent::Beginning, 0));
        let failed = Answer::read(&mk_message(0x8182, "a.test", &[])).unwrap();
        assert_eq!(failed.extent, Extent::Failure);
        let nothing = Answer::read(&mk_message(0x8183, "a.test", &[])).unwrap();
        assert_eq!((nothing.extent, nothing.addresses.len()), (Extent::Whole, 0));
        let mut joined = mk_message(0x8180, "a.test", &[]);
        joined[12..20].copy_from_slice(b"\x06a.test\0");
        assert_eq!(Answer::read(&joined).unwrap().name, "a\u{fffd}test");
        let circle = mk_message(
            0x8180,
            "a.test",
            &[(BACK.to_vec(), CNAME, name("b.test")), (name("b.test"), CNAME, name("a.test"))],
        );
        assert_eq!(Answer::read(&circle).unwrap().addresses, []);
    }

    #[test]
    fn any_bytes_are_survived() {
        let whole = mk_whole();
        for len in 0..whole.len() {
            let _ = Answer::read(&whole[..len]);
        }
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..4 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from(state >> 40).unwrap() % bytes.len();
                bytes[at] = u8::try_from(state >> 56).unwrap();
            }
            let _ = Answer::read(&bytes);
        }
    }

    /// Case B8.
    #[test]
    fn streams_come_in_pieces() {
        let whole = mk_whole();
        let mut sent = u16::try_from(whole.len()).unwrap().to_be_bytes().to_vec();
        sent.extend(&whole);
        sent.extend([0, 1, 9]);
        for size in [1, 2, 3, 7, sent.len()] {
            let mut stream = Stream::default();
            let got: Vec<Vec<u8>> =
                sent.chunks(size).flat_map(|piece| stream.push(piece)).collect();
            assert_eq!(got, [whole.clone(), vec![9]], "{size}");
        }
    }

    /// Damaged messages: what is read fits into what came, and comes out of a stream as it went in.
    #[test]
    fn fuzz_dns() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/dns");
        let mut connections = Connections::default();
        let server = "192.0.2.53:53".parse().unwrap();
        let connection = Connection { server, client: "10.0.0.1:40000".parse().unwrap() };
        let mut seq = 0u32;
        let report = Campaign::from_dir("DNS messages", dir).run(|bytes| {
            let mut sent = u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
            sent.extend(bytes);
            let mut got = Vec::new();
            for payload in sent.chunks(1 + bytes.len() / 3) {
                got.extend(connections.push(connection, Segment { seq, flags: 0, payload }));
                seq = seq.wrapping_add(u32::try_from(payload.len()).unwrap());
            }
            assert_eq!(got, [bytes]);
            let question = Question { id: 7, name: "www.example.org".into(), asked: Asked::A };
            let ours = question.answer(bytes);
            let Ok(answer) = Answer::read(bytes) else { return Outcome::Refused };
            assert!(answer.addresses.len() * 15 <= bytes.len());
            assert!(answer.name.len() <= 2 * MAX_NAME);
            assert!(ours.is_none_or(|ours| ours == answer));
            Outcome::Accepted
        });
        assert!(report.accepted > report.executions / 10, "{report:?}");
    }
}

//! SCTP packets of one chunk: INIT, INIT ACK and ABORT (RFC 9260) <-> bytes.
//!
//! Pure. Bytes come from a network: what is cut short, has a wrong checksum or another chunk is
//! nothing to us.

/// What opens an association, or agrees to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    /// What the other side is to put into its packets as [`Packet::tag`].
    pub(super) own_tag: u32,
    /// The number of the first chunk of data.
    pub(super) first: u32,
}

/// The chunk of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// Asks for an association.
    Init(Init),
    /// Agrees, with bytes that the other side is to give back.
    InitAck(Init, Vec<u8>),
    /// Refuses, or ends.
    Abort,
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// The sender's port.
    pub(super) from: u16,
    /// The receiver's port.
    pub(super) to: u16,
    /// What the receiver asked for; nought in an INIT.
    pub(super) tag: u32,
    /// What it says.
    pub(super) chunk: Chunk,
}

const HEADER: usize = 12;
const CHUNK_HEADER: usize = 4;
/// An INIT's body without parameters.
const INIT_BODY: usize = 16;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const ABORT: u8 = 6;
const STATE_COOKIE: u16 = 7;
const WINDOW: u32 = 65_536;
const N_STREAMS: u16 = 1;

impl Packet {
    /// As it goes on the wire; a cookie too long for its parameter is cut.
    ///
    /// ```text
    ///  0               2               4
    ///  | source port   | dest. port    |
    ///  | tag                           |
    ///  | CRC32c                        |
    ///  | type  | flags | length        |
    ///  | tag of sender, window, streams out and in, first number |
    ///  | parameters: type, length, value, padded to 4            |
    /// ```
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, body) = match &self.chunk {
            Chunk::Init(init) => (INIT, init.encode()),
            Chunk::InitAck(init, cookie) => {
                let cookie = &cookie[..cookie.len().min(usize::from(u16::MAX / 2))];
                (INIT_ACK, [init.encode(), parameter(STATE_COOKIE, cookie)].concat())
            }
            Chunk::Abort => (ABORT, Vec::new()),
        };
        let mut bytes = [self.from.to_be_bytes(), self.to.to_be_bytes()].concat();
        bytes.extend(self.tag.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend([kind, 0]);
        bytes.extend(length(CHUNK_HEADER + body.len()));
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let sum = crc32c(&bytes).to_le_bytes();
        bytes[8..HEADER].copy_from_slice(&sum);
        bytes
    }

    /// Reads a packet by its first chunk.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let sum = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
        let mut summed = bytes.to_vec();
        summed.get_mut(8..HEADER)?.fill(0);
        if crc32c(&summed) != sum {
            return None;
        }
        let [kind, _, len @ ..] = *bytes.get(HEADER..)?.first_chunk::<CHUNK_HEADER>()?;
        let end = HEADER + usize::from(u16::from_be_bytes(len));
        let body = bytes.get(HEADER + CHUNK_HEADER..end)?;
        let chunk = match kind {
            INIT => Chunk::Init(Init::decode(body)?),
            INIT_ACK => {
                Chunk::InitAck(Init::decode(body)?, cookie(body.get(INIT_BODY..)?)?.to_vec())
            }
            ABORT => Chunk::Abort,
            _ => return None,
        };
        let port = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let tag = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
        Some(Self { from: port(0)?, to: port(2)?, tag, chunk })
    }
}

impl Init {
    fn encode(self) -> Vec<u8> {
        let mut bytes = self.own_tag.to_be_bytes().to_vec();
        bytes.extend(WINDOW.to_be_bytes());
        bytes.extend(N_STREAMS.to_be_bytes());
        bytes.extend(N_STREAMS.to_be_bytes());
        bytes.extend(self.first.to_be_bytes());
        bytes
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(*body.get(at..)?.first_chunk()?));
        Some(Self { own_tag: word(0)?, first: word(12)? })
    }
}

fn length(n: usize) -> [u8; 2] {
    u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes()
}

fn parameter(kind: u16, value: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &length(4 + value.len()), value].concat()
}

/// The state cookie among parameters.
fn cookie(mut parameters: &[u8]) -> Option<&[u8]> {
    loop {
        let [kind0, kind1, len @ ..] = *parameters.first_chunk::<4>()?;
        let len = usize::from(u16::from_be_bytes(len));
        let value = parameters.get(4..len)?;
        if u16::from_be_bytes([kind0, kind1]) == STATE_COOKIE {
            return Some(value);
        }
        parameters = parameters.get(len.next_multiple_of(4)..)?;
    }
}

/// Castagnoli's checksum.
fn crc32c(bytes: &[u8]) -> u32 {
    /// Its polynomial, lowest bit first.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: Init = Init { own_tag: 0x0102_0304, first: 9 };

    fn mk_packet(chunk: Chunk) -> Packet {
        Packet { from: 1027, to: 80, tag: 7, chunk }
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        // RFC 3720, B.4.
        for (bytes, want) in [
            (b"123456789".to_vec(), 0xe306_9283),
            (vec![0; 32], 0x8a91_36aa),
            (vec![0xff; 32], 0x62a8_ab43),
            ((0..32).collect(), 0x46dd_794e),
        ] {
            assert_eq!(crc32c(&bytes), want, "{bytes:?}");
        }
    }

    #[test]
    fn an_init_has_the_layout_of_the_rfc() {
        let bytes = mk_packet(Chunk::Init(BODY)).encode();
        let sum = bytes[8..12].to_vec();
        let want = [
            &[4, 3, 0, 80, 0, 0, 0, 7][..],
            &sum,
            &[1, 0, 0, 20, 1, 2, 3, 4, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 9],
        ]
        .concat();
        assert_eq!(bytes, want);
    }

    #[test]
    fn packets_come_back_as_they_were_and_nothing_damaged_does() {
        for chunk in [
            Chunk::Init(BODY),
            Chunk::InitAck(BODY, b"who?".to_vec()),
            Chunk::InitAck(BODY, b"an odd one".to_vec()),
            Chunk::InitAck(BODY, Vec::new()),
            Chunk::Abort,
        ] {
            let packet = mk_packet(chunk);
            let bytes = packet.encode();
            assert_eq!(bytes.len() % 4, 0, "{packet:?}");
            assert_eq!(Packet::decode(&bytes), Some(packet.clone()));
            for cut in 0..bytes.len() {
                assert_eq!(Packet::decode(&bytes[..cut]), None, "{packet:?} cut at {cut}");
            }
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Packet::decode(&damaged), None, "{packet:?} without bit {bit}");
            }
        }
    }

    #[test]
    fn lengths_that_lie_are_nothing_to_us() {
        let good = mk_packet(Chunk::InitAck(BODY, b"cookie".to_vec())).encode();
        for at in [14, HEADER + CHUNK_HEADER + INIT_BODY + 2] {
            for len in 0..=u8::MAX {
                let mut bytes = good.clone();
                bytes[at..at + 2].copy_from_slice(&[0, len]);
                bytes[8..HEADER].fill(0);
                let sum = crc32c(&bytes).to_le_bytes();
                bytes[8..HEADER].copy_from_slice(&sum);
                // Whatever it is taken for, it is taken for something or nothing.
                let seen = Packet::decode(&bytes);
                let right = bytes == good;
                assert!(!right || seen.is_some(), "at {at}: {len}");
            }
        }
    }
}

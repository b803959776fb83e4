//! Times as the API writes them.

use jiff::Timestamp;

/// Seconds, as in conditions and metadata.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Microseconds, as in leases.
pub(crate) fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let at = Timestamp::from_microsecond(1_796_068_800_000_120).unwrap();
        assert_eq!(seconds(at), "2026-11-30T20:00:00Z");
        assert_eq!(micros(at), "2026-11-30T20:00:00.000120Z");
    }
}

//! Normal forms of quantities and times.

use jiff::Timestamp;

/// Suffixes of decimal amounts with their power of ten.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
/// Suffixes of binary amounts with their power of two.
const BINARY: [(&str, u32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// An amount in billionths, with its family of suffixes.
struct Amount {
    nanos: i128,
    binary: bool,
}

fn parse(text: &str) -> Option<Amount> {
    let end = text
        .char_indices()
        .find(|(_, c)| !matches!(c, '0'..='9' | '.' | '+' | '-'))
        .map_or(text.len(), |(at, _)| at);
    let (number, suffix) = text.split_at(end);
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
        return None;
    }
    if whole.len() > 19 {
        return None;
    }
    let mantissa: i128 = format!("0{whole}{:0<9.9}", fraction).parse().ok()?; // In billionths.
    let (nanos, binary) = if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        (mantissa.checked_mul(1i128 << bits)?, true)
    } else {
        let power = match DECIMAL.iter().find(|(name, _)| *name == suffix) {
            Some((_, power)) => *power,
            None => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
        };
        let factor = 10i128.checked_pow(power.unsigned_abs())?;
        let nanos = if power >= 0 {
            mantissa.checked_mul(factor)?
        } else {
            mantissa.checked_add(factor - 1)? / factor
        };
        (nanos, false)
    };
    Some(Amount { nanos: if negative { -nanos } else { nanos }, binary })
}

/// The normal form of an amount: `0.1` becomes `100m`, `1024Mi` becomes `1Gi`.
pub fn canonical_quantity(text: &str) -> Option<String> {
    let Amount { nanos, binary } = parse(text)?;
    const ONE: i128 = 1_000_000_000;
    if nanos == 0 {
        return Some("0".to_owned());
    }
    if binary && nanos % ONE == 0 && (nanos / ONE).abs() >= 1024 {
        let mut value = nanos / ONE;
        let mut suffix = "";
        for (name, _) in BINARY {
            if value % 1024 != 0 {
                break;
            }
            value /= 1024;
            suffix = name;
        }
        return Some(format!("{value}{suffix}"));
    }
    let (mut value, mut suffix) = (nanos, "n");
    for (name, _) in DECIMAL.iter().skip(1) {
        if value % 1000 != 0 {
            break;
        }
        value /= 1000;
        suffix = name;
    }
    Some(format!("{value}{suffix}"))
}

/// An amount in thousandths, rounded up.
pub fn quantity_millis(text: &str) -> Option<i128> {
    parse(text).map(|amount| (amount.nanos + 999_999).div_euclid(1_000_000))
}

/// A time with whole seconds in UTC.
pub(super) fn canonical_time(text: &str) -> Result<String, String> {
    let time: Timestamp =
        text.parse().map_err(|_| time_error(text, "2006-01-02T15:04:05Z07:00"))?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A time with exactly six fraction digits in UTC; other forms are refused.
pub(super) fn canonical_micro_time(text: &str) -> Result<String, String> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let time: Timestamp = text.parse().map_err(|_| time_error(text, LAYOUT))?;
    let tail = text.get(19..).unwrap_or("");
    let digits = tail.strip_prefix('.').unwrap_or("");
    if digits.bytes().take_while(u8::is_ascii_digit).count() != 6 {
        return Err(format!(
            "parsing time {text:?} as {LAYOUT:?}: cannot parse {tail:?} as \".000000\""
        ));
    }
    Ok(time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

fn time_error(text: &str, layout: &str) -> String {
    format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_normal_form() {
        for (input, want) in [
            ("0.1", Some("100m")),
            ("64Mi", Some("64Mi")),
            ("1024Mi", Some("1Gi")),
            ("1.5Gi", Some("1536Mi")),
            ("1000m", Some("1")),
            ("110", Some("110")),
            ("4", Some("4")),
            ("1000", Some("1k")),
            ("1e3", Some("1k")),
            ("-1500m", Some("-1500m")),
            ("0", Some("0")),
            ("500Ki", Some("500Ki")),
            ("0.5Mi", Some("512Ki")),
            ("", None),
            ("x", None),
            ("1.2.3", None),
            ("10Zi", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(canonical_quantity(input).as_deref(), want, "{input}");
        }
        assert_eq!(quantity_millis("0.1"), Some(100));
    }

    #[test]
    fn micro_times_need_six_digits() {
        assert_eq!(
            canonical_micro_time("2030-01-02T03:04:05.500000Z").unwrap(),
            "2030-01-02T03:04:05.500000Z"
        );
        assert!(canonical_micro_time("2030-01-02T03:04:05.5Z").unwrap_err().contains(".5Z"));
        assert_eq!(canonical_time("2030-01-02T05:04:05.25+02:00").unwrap(), "2030-01-02T03:04:05Z");
    }
}

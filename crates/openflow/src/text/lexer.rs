//! Cutting text into pieces.

use crate::error::ParseError;

/// Splits at commas and blanks outside of parentheses and brackets; empty pieces are left out.
pub(super) fn items(text: &str) -> Result<Vec<&str>, ParseError> {
    let pieces = split(text, |c| c == ',' || c.is_whitespace())?;
    Ok(pieces.into_iter().filter(|piece| !piece.is_empty()).collect())
}

/// Splits at commas outside of parentheses and brackets; empty pieces stay.
pub(super) fn arguments(text: &str) -> Result<Vec<&str>, ParseError> {
    Ok(split(text, |c| c == ',')?.into_iter().map(str::trim).collect())
}

fn split(text: &str, is_separator: impl Fn(char) -> bool) -> Result<Vec<&str>, ParseError> {
    let mut pieces = Vec::new();
    let mut depth = 0usize;
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => {
                depth = depth
                    .checked_sub(1)
                    .ok_or_else(|| ParseError::new("closed but not opened", &text[at..]))?;
            }
            c if depth == 0 && is_separator(c) => {
                pieces.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(ParseError::new("opened but not closed", text));
    }
    pieces.push(&text[start..]);
    Ok(pieces)
}

/// A name and what follows it: `name`, `name:rest`, `name=rest` or `name(rest)tail`.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    pub(super) args: Args<'a>,
}

/// How the arguments of a name are given.
#[derive(Clone, Copy)]
pub(super) enum Args<'a> {
    /// Not at all.
    None,
    /// After a colon or an equals sign.
    Plain(&'a str),
    /// In parentheses, with what follows them.
    Paren(&'a str, &'a str),
}

pub(super) fn call(text: &str) -> Result<Call<'_>, ParseError> {
    let Some(at) = text.find([':', '=', '(']) else {
        return Ok(Call { name: text, args: Args::None });
    };
    let (name, rest) = text.split_at(at);
    let Some(inner) = rest.strip_prefix('(') else {
        return Ok(Call { name, args: Args::Plain(&rest[1..]) });
    };
    let mut depth = 1usize;
    for (at, c) in inner.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(Call { name, args: Args::Paren(&inner[..at], &inner[at + 1..]) });
        }
    }
    Err(ParseError::new("opened but not closed", text))
}

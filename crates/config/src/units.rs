//! Sizes and durations as a person writes them: `64 MiB`, `1 h 30 m`.
//!
//! A unit is required for everything but zero: a bare `30` in a file says nothing about seconds or minutes, and guessing
//! would be wrong for somebody. Parsing is exact (whole numbers only) and formatting gives back a text that parses to the
//! same value.

use std::time::Duration;

/// The units of a size, largest first, with their bytes.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// The units of a duration, largest first, with their microseconds and the other spellings that are accepted.
const DURATION_UNITS: [(&str, u64, &[&str]); 6] = [
    ("d", 86_400_000_000, &["day", "days"]),
    ("h", 3_600_000_000, &["hour", "hours"]),
    ("m", 60_000_000, &["min", "minute", "minutes"]),
    ("s", 1_000_000, &["sec", "second", "seconds"]),
    ("ms", 1_000, &["millisecond", "milliseconds"]),
    ("us", 1, &["µs", "microsecond", "microseconds"]),
];

/// Why a text is not a size or a duration. The message shows the accepted forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error(
        "{input:?} is not a size ({reason}); write a whole number and a unit, such as \"512 KiB\", \"64 MiB\" or \"1 GB\" \
         (units: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)"
    )]
    Size { input: String, reason: Reason },
    #[error(
        "{input:?} is not a duration ({reason}); write whole numbers with units, such as \"500 ms\", \"30 s\" or \
         \"1 h 30 m\" (units: us, ms, s, m, h, d)"
    )]
    Duration { input: String, reason: Reason },
}

/// What exactly was wrong with a size or a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("it is empty")]
    Empty,
    #[error("the unit is missing")]
    NoUnit,
    #[error("there is no number before {0:?}")]
    NoNumber(String),
    #[error("the unit {0:?} is not known")]
    UnknownUnit(String),
    #[error("the unit {0:?} must stand once, after every larger one")]
    Order(String),
    #[error("it is a fraction; use a smaller unit")]
    Fraction,
    #[error("it is too large")]
    TooLarge,
}

/// Parses a size in bytes: one whole number and one unit, with or without a space, in any letter case.
///
/// `0` needs no unit. Errors: [`UnitError::Size`].
pub fn parse_bytes(input: &str) -> Result<u64, UnitError> {
    let error = |reason| UnitError::Size { input: input.to_owned(), reason };
    let text = input.trim();
    if text == "0" {
        return Ok(0);
    }
    let (number, unit, rest) = take_quantity(text).map_err(error)?;
    if !rest.is_empty() {
        return Err(error(Reason::UnknownUnit(text[number.len()..].trim().to_owned())));
    }
    let scale = SIZE_UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .map(|(_, scale)| *scale)
        .ok_or_else(|| error(Reason::UnknownUnit(unit.to_owned())))?;
    parse_number(number).and_then(|n| n.checked_mul(scale)).ok_or_else(|| error(Reason::TooLarge))
}

/// Parses a duration: one or more whole numbers with units, largest first, as in `1 h 30 m`. Resolution: 1 microsecond.
///
/// `0` needs no unit. Errors: [`UnitError::Duration`].
pub fn parse_duration(input: &str) -> Result<Duration, UnitError> {
    let error = |reason| UnitError::Duration { input: input.to_owned(), reason };
    let mut text = input.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total_us: u64 = 0;
    let mut smallest_us = u64::MAX;
    loop {
        let (number, unit, rest) = take_quantity(text).map_err(error)?;
        let scale = duration_scale(unit).ok_or_else(|| error(Reason::UnknownUnit(unit.to_owned())))?;
        if scale >= smallest_us {
            return Err(error(Reason::Order(unit.to_owned())));
        }
        smallest_us = scale;
        total_us = parse_number(number)
            .and_then(|n| n.checked_mul(scale))
            .and_then(|us| total_us.checked_add(us))
            .ok_or_else(|| error(Reason::TooLarge))?;
        text = rest;
        if text.is_empty() {
            return Ok(Duration::from_micros(total_us));
        }
    }
}

/// Writes a size in the largest binary unit that divides it, so that nothing is rounded.
pub fn format_bytes(bytes: u64) -> String {
    let binary = SIZE_UNITS.iter().filter(|(name, _)| name.ends_with("iB") || *name == "B");
    for (name, scale) in binary {
        if bytes != 0 && bytes.is_multiple_of(*scale) {
            return format!("{} {name}", bytes / scale);
        }
    }
    "0 B".to_owned()
}

/// Writes a duration as the sum of its units, largest first. Anything below a microsecond is dropped.
pub fn format_duration(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let mut parts = Vec::new();
    for (name, scale, _) in DURATION_UNITS {
        if left >= scale {
            parts.push(format!("{} {name}", left / scale));
            left %= scale;
        }
    }
    if parts.is_empty() { "0 s".to_owned() } else { parts.join(" ") }
}

fn duration_scale(unit: &str) -> Option<u64> {
    DURATION_UNITS
        .iter()
        .find(|(name, _, others)| {
            name.eq_ignore_ascii_case(unit) || others.iter().any(|other| other.eq_ignore_ascii_case(unit))
        })
        .map(|(_, scale, _)| *scale)
}

/// Splits one `number unit` off the front: the digits, the letters, and what follows with the space before it removed.
fn take_quantity(text: &str) -> Result<(&str, &str, &str), Reason> {
    if text.is_empty() {
        return Err(Reason::Empty);
    }
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, rest) = text.split_at(digits_end);
    if !number.bytes().any(|b| b.is_ascii_digit()) {
        return Err(Reason::NoNumber(text.to_owned()));
    }
    if rest.starts_with(['.', ',']) {
        return Err(Reason::Fraction);
    }
    let rest = rest.trim_start();
    let unit_end = rest.find(|c: char| c.is_whitespace() || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    if unit.is_empty() {
        return Err(Reason::NoUnit);
    }
    Ok((number, unit, rest.trim_start()))
}

/// Digits with optional `_` between them, as TOML writes them.
fn parse_number(digits: &str) -> Option<u64> {
    digits.replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_with_every_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("0 B", 0),
            ("512 B", 512),
            ("64 MiB", 64 << 20),
            ("64MiB", 64 << 20),
            ("64 mib", 64 << 20),
            ("1 GB", 1_000_000_000),
            ("2 TiB", 2 << 40),
            ("1_024 KiB", 1 << 20),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_bad_size_says_what_is_wrong_and_how_to_write_it() {
        for (text, reason) in [
            ("", Reason::Empty),
            ("64", Reason::NoUnit),
            ("MiB", Reason::NoNumber("MiB".into())),
            ("-1 MiB", Reason::NoNumber("-1 MiB".into())),
            ("64 MX", Reason::UnknownUnit("MX".into())),
            ("1.5 GiB", Reason::Fraction),
            ("1 GiB 5 MiB", Reason::UnknownUnit("GiB 5 MiB".into())),
            ("99999999 TiB", Reason::TooLarge),
        ] {
            let error = parse_bytes(text).unwrap_err();
            assert_eq!(error, UnitError::Size { input: text.into(), reason }, "{text}");
            assert!(error.to_string().contains("\"64 MiB\""), "{error}");
        }
    }

    #[test]
    fn durations_add_up_their_units() {
        for (text, us) in [
            ("0", 0),
            ("30 s", 30_000_000),
            ("30s", 30_000_000),
            ("1 h 30 m", 5_400_000_000),
            ("1h30m", 5_400_000_000),
            ("7 days", 604_800_000_000),
            ("250 ms", 250_000),
            ("10 us", 10),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(us)), "{text}");
        }
    }

    #[test]
    fn a_bad_duration_says_what_is_wrong_and_how_to_write_it() {
        for (text, reason) in [
            ("30", Reason::NoUnit),
            ("1 h 30", Reason::NoUnit),
            ("30 fortnights", Reason::UnknownUnit("fortnights".into())),
            ("30 m 1 h", Reason::Order("h".into())),
            ("1 s 1 s", Reason::Order("s".into())),
            ("soon", Reason::NoNumber("soon".into())),
            ("999999999999 d", Reason::TooLarge),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert_eq!(error, UnitError::Duration { input: text.into(), reason }, "{text}");
            assert!(error.to_string().contains("\"1 h 30 m\""), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_formatted_parses_to_the_same_size(bytes: u64) {
            prop_assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn what_is_formatted_parses_to_the_same_duration(us: u64) {
            let duration = Duration::from_micros(us);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn any_text_is_answered_without_a_panic(text in ".{0,40}") {
            let _ = parse_bytes(&text);
            let _ = parse_duration(&text);
        }
    }
}

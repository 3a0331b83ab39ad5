//! Sizes and durations as people write them.

/// Bytes of a size such as `128 MiB`, `1.5GB` or `512`. `none` and `unlimited` are 0, as is `0`. Letter case does not
/// count. A `B` alone and no unit mean bytes; `KB` is 1000 and `KiB` is 1024.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("none") || text.eq_ignore_ascii_case("unlimited") {
        return Some(0);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    scaled(number, bytes_of_unit(unit.trim_start())?)
}

fn bytes_of_unit(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, base) = match unit.strip_suffix('b') {
        Some(prefix) => (prefix, 1000),
        None => (unit.as_str(), 1000),
    };
    let (prefix, base) = match prefix.strip_suffix('i') {
        Some("") => return None,
        Some(prefix) => (prefix, 1024),
        None => (prefix, base),
    };
    let power = match prefix {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        "e" => 6,
        _ => return None,
    };
    u64::pow(base, power).into()
}

/// Microseconds of a duration such as `7 days` or `1 h 30 m`. `none` and `unlimited` are 0. Letter case does not count.
/// A month is 30.44 days and a year 365.25.
pub fn duration_us(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    if matches!(lower.as_str(), "none" | "unlimited" | "disabled") {
        return Some(0);
    }
    let mut rest = lower.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total_ns: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: u64 = number.parse().ok()?;
        total_ns = total_ns.checked_add(u128::from(number).checked_mul(nanos_of_unit(unit)?)?)?;
        rest = after.trim_start();
    }
    u64::try_from(total_ns / 1000).ok()
}

fn nanos_of_unit(unit: &str) -> Option<u128> {
    const SECOND: u128 = 1_000_000_000;
    Some(match unit {
        "nanos" | "nsec" | "ns" => 1,
        "micros" | "usec" | "us" => 1_000,
        "millis" | "msec" | "ms" => 1_000_000,
        "seconds" | "second" | "secs" | "sec" | "s" => SECOND,
        "minutes" | "minute" | "mins" | "min" | "m" => 60 * SECOND,
        "hours" | "hour" | "hrs" | "hr" | "h" => 3_600 * SECOND,
        "days" | "day" | "d" => 86_400 * SECOND,
        "weeks" | "week" | "wks" | "wk" | "w" => 604_800 * SECOND,
        "months" | "month" => 2_630_016 * SECOND,
        "years" | "year" | "yrs" | "yr" | "y" => 31_557_600 * SECOND,
        _ => return None,
    })
}

/// A decimal number times a unit, rounded down.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // 18 digits of fraction keep every product below 2^128.
    if whole.is_empty() || fraction.len() > 18 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole = u128::from(whole.parse::<u64>().ok()?).checked_mul(u128::from(unit))?;
    let part = match fraction {
        "" => 0,
        digits => {
            u128::from(digits.parse::<u64>().ok()?) * u128::from(unit) / 10u128.pow(digits.len() as u32)
        }
    };
    u64::try_from(whole.checked_add(part)?).ok()
}

/// Whether the text is the one standard padded base64 form of 32 bytes: 43 digits and `=`, unused bits zero.
pub fn is_base64_of_32_bytes(text: &str) -> bool {
    let Some(digits) = text.strip_suffix('=') else { return false };
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    digits.len() == 43
        && digits.bytes().all(|byte| value(byte).is_some())
        && digits.bytes().last().and_then(value).is_some_and(|last| last & 0b11 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_with_and_without_space() {
        for (text, expected) in [
            ("128MiB", Some(128 << 20)),
            ("128 MiB", Some(128 << 20)),
            ("1 GB", Some(1_000_000_000)),
            ("10 kb", Some(10_000)),
            ("1.5KiB", Some(1536)),
            ("15g", Some(15_000_000_000)),
            ("512 B", Some(512)),
            ("512", Some(512)),
            ("none", Some(0)),
            ("Unlimited", Some(0)),
            ("", None),
            ("MiB", None),
            ("1 iB", None),
            ("1 XB", None),
            ("1.", None),
            ("1.2.3 KB", None),
            ("-1 KB", None),
            ("99999999 EiB", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_add_up_their_parts() {
        for (text, expected) in [
            ("7 days", Some(604_800_000_000)),
            ("1 h 30 m", Some(5_400_000_000)),
            ("15days 2min 2s", Some(1_296_122_000_000)),
            ("5s", Some(5_000_000)),
            ("500ms", Some(500_000)),
            ("2 Weeks", Some(1_209_600_000_000)),
            ("none", Some(0)),
            ("", None),
            ("5", None),
            ("s", None),
            ("5 parsecs", None),
            ("1.5 h", None),
            ("99999999999999999999 s", None),
        ] {
            assert_eq!(duration_us(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = (bytes(&text), duration_us(&text), is_base64_of_32_bytes(&text));
        }
    }
}

//! One value: parsed by the kind of its key, shown as it would be written.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::AdvertisedAddress;
use crate::keys::{Key, Kind};
use crate::secret::{MASK, Secret};
use crate::units::{UnitError, format_bytes, format_duration, parse_bytes, parse_duration};

/// A checked value of a key. Its variant follows from the key's kind; [`Value::Absent`] from the key's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `off`, `auto`, `never`, `unlimited`, or simply not set.
    Absent,
    Bool(bool),
    Choice(&'static str),
    Count(u64),
    Bytes(u64),
    Duration(Duration),
    Address(SocketAddr),
    Host(AdvertisedAddress),
    Path(PathBuf),
    Text(String),
    Secret(Secret),
}

/// Why a text is not a value of its key. Never repeats a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("{input:?} is not accepted; write {expected}")]
    Form { input: String, expected: String },
    #[error("{input:?} is out of range; write {expected}")]
    Range { input: String, expected: String },
    #[error("the value has {bytes} bytes; write {expected}")]
    Length { bytes: usize, expected: String },
}

/// Parses a text as a value of `key`.
pub(crate) fn parse(key: &Key, text: &str) -> Result<Value, ValueError> {
    let text = if key.is_secret() { text } else { text.trim() };
    if key.word.is_some_and(|word| word.eq_ignore_ascii_case(text)) {
        return Ok(Value::Absent);
    }
    let form = || ValueError::Form { input: text.to_owned(), expected: expected(key) };
    let in_range = |ok: bool, value| {
        if ok {
            Ok(value)
        } else {
            Err(ValueError::Range { input: text.to_owned(), expected: expected(key) })
        }
    };
    match key.kind {
        Kind::Bool => match text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(form()),
        },
        Kind::Choice(words) => words
            .iter()
            .find(|word| word.eq_ignore_ascii_case(text))
            .map(|word| Value::Choice(word))
            .ok_or_else(form),
        Kind::Count { min, max } => {
            let count = text.replace('_', "").parse::<u64>().map_err(|_| form())?;
            in_range((min..=max).contains(&count), Value::Count(count))
        }
        Kind::Bytes { min, max, multiple_of } => {
            let bytes = parse_bytes(text)?;
            in_range((min..=max).contains(&bytes) && bytes.is_multiple_of(multiple_of), Value::Bytes(bytes))
        }
        Kind::Duration { min, max } => {
            let duration = parse_duration(text)?;
            in_range((min..=max).contains(&duration), Value::Duration(duration))
        }
        Kind::Address => text.parse().map(Value::Address).map_err(|_| form()),
        Kind::Host => parse_host(text).map(Value::Host).ok_or_else(form),
        Kind::Path if text.is_empty() => Err(form()),
        Kind::Path => Ok(Value::Path(PathBuf::from(text))),
        Kind::Text { bytes_min, bytes_max } => {
            check_length(key, text, bytes_min, bytes_max)?;
            Ok(Value::Text(text.to_owned()))
        }
        Kind::Secret { bytes_min, bytes_max } => {
            check_length(key, text, bytes_min, bytes_max)?;
            Ok(Value::Secret(Secret::new(text)))
        }
    }
}

/// Shows a value as it would be written; a secret as a mask.
pub(crate) fn format(key: &Key, value: &Value) -> String {
    match value {
        Value::Absent => match key.word {
            Some(word) if !word.is_empty() => word.to_owned(),
            _ => "-".to_owned(),
        },
        Value::Bool(value) => value.to_string(),
        Value::Choice(word) => (*word).to_owned(),
        Value::Count(count) => count.to_string(),
        Value::Bytes(bytes) => format_bytes(*bytes),
        Value::Duration(duration) => format_duration(*duration),
        Value::Address(address) => address.to_string(),
        Value::Host(host) => host.to_string(),
        Value::Path(path) => path.display().to_string(),
        Value::Text(text) => text.clone(),
        Value::Secret(_) => MASK.to_owned(),
    }
}

/// The unit column of the listing.
pub(crate) fn unit(key: &Key) -> &'static str {
    match key.kind {
        Kind::Bool => "true, false",
        Kind::Choice(_) => "word",
        Kind::Count { .. } => "number",
        Kind::Bytes { .. } => "size",
        Kind::Duration { .. } => "duration",
        Kind::Address => "IP:PORT",
        Kind::Host => "HOST[:PORT]",
        Kind::Path => "path",
        Kind::Text { .. } => "text",
        Kind::Secret { .. } => "secret",
    }
}

/// The accepted values in words: "a size from 1 MiB to 1 GiB, a multiple of 512 B". Used by errors and by the docs.
pub(crate) fn expected(key: &Key) -> String {
    let form = match key.kind {
        Kind::Bool => "true or false".to_owned(),
        Kind::Choice(words) => words.join(" or "),
        Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Bytes { min, max, multiple_of } => {
            let range = format!("a size from {} to {}", format_bytes(min), format_bytes(max));
            if multiple_of == 1 {
                range
            } else {
                format!("{range}, a multiple of {}", format_bytes(multiple_of))
            }
        }
        Kind::Duration { min, max } => {
            format!("a duration from {} to {}", format_duration(min), format_duration(max))
        }
        Kind::Address => "IP:PORT such as 127.0.0.1:8090 or [::]:8090".to_owned(),
        Kind::Host => "HOST or HOST:PORT".to_owned(),
        Kind::Path => "a path".to_owned(),
        Kind::Text { bytes_min, bytes_max } | Kind::Secret { bytes_min, bytes_max } => {
            format!("{bytes_min} to {bytes_max} bytes of text")
        }
    };
    match key.word {
        Some("") => format!("{form}, or leave it unset"),
        Some(word) => format!("{form}, or {word}"),
        None => form,
    }
}

fn check_length(key: &Key, text: &str, min: usize, max: usize) -> Result<(), ValueError> {
    if (min..=max).contains(&text.len()) {
        return Ok(());
    }
    Err(ValueError::Length { bytes: text.len(), expected: expected(key) })
}

/// `HOST`, `HOST:PORT`, `IPv6` or `[IPv6]:PORT`. The name itself is checked by whoever resolves it.
fn parse_host(text: &str) -> Option<AdvertisedAddress> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() != 0)
            .then(|| AdvertisedAddress { host: address.ip().to_string(), port: Some(address.port()) });
    }
    let (host, port) = match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => (text.parse::<std::net::Ipv6Addr>().ok()?.to_string(), None),
        Some((host, port)) => (host.to_owned(), Some(port.parse().ok().filter(|port| *port != 0)?)),
        None => (text.to_owned(), None),
    };
    // Source: wire protocol, GetClusterMetadata: the address is a string of at most 255 bytes.
    let plain = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:".contains(&b));
    (plain && (1..=255).contains(&host.len())).then_some(AdvertisedAddress { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    fn check(name: &str, text: &str, expected: Option<Value>) {
        assert_eq!(parse(keys::key(name).unwrap(), text).ok(), expected, "{name} = {text}");
    }

    #[test]
    fn each_kind_reads_its_form() {
        check("pin_cores", "false", Some(Value::Bool(false)));
        check("pin_cores", "yes", None);
        check("engine", "IO_URING", Some(Value::Choice("io_uring")));
        check("engine", "epoll", None);
        check("shards", "auto", Some(Value::Absent));
        check("shards", "4", Some(Value::Count(4)));
        check("shards", "0", None);
        check("shards", "256", None);
        check("tcp.address", "off", Some(Value::Absent));
        check("tcp.address", "[::]:0", Some(Value::Address("[::]:0".parse().unwrap())));
        check("tcp.address", "localhost:8090", None);
        check("tcp.address", "127.0.0.1", None);
        check("topic.segment_size", "1 MiB", Some(Value::Bytes(1 << 20)));
        check("topic.segment_size", "1048577 B", None);
        check("topic.segment_size", "2 GiB", None);
        check("reads.wait_max", "0", Some(Value::Duration(Duration::ZERO)));
        check("topic.message_expiry", "never", Some(Value::Absent));
        check("root.password", " x ", Some(Value::Secret(Secret::new(" x "))));
        check("root.password", "xy", None);
        check("data_dir", "", None);
    }

    #[test]
    fn hosts_may_have_a_port() {
        let host = |host: &str, port| Some(Value::Host(AdvertisedAddress { host: host.into(), port }));
        check("tcp.advertised_address", "broker-1.example.org", host("broker-1.example.org", None));
        check("tcp.advertised_address", "broker:9000", host("broker", Some(9000)));
        check("tcp.advertised_address", "10.0.0.1:9000", host("10.0.0.1", Some(9000)));
        check("tcp.advertised_address", "[fe80::1]:9000", host("fe80::1", Some(9000)));
        check("tcp.advertised_address", "fe80::1", host("fe80::1", None));
        for bad in ["broker:0", "broker:x", ":9000", "bro ker", "iggy://broker"] {
            check("tcp.advertised_address", bad, None);
        }
    }

    #[test]
    fn errors_name_the_accepted_values_and_no_secret() {
        let error = parse(keys::key("shards").unwrap(), "many").unwrap_err().to_string();
        assert_eq!(error, "\"many\" is not accepted; write a whole number from 1 to 255, or auto");
        let error = parse(keys::key("root.password").unwrap(), "pw").unwrap_err().to_string();
        assert!(!error.contains("pw"), "{error}");
    }

    #[test]
    fn a_shown_value_reads_back_as_itself() {
        for key in keys::KEYS.iter().filter(|key| !key.is_secret()) {
            let value = parse(key, key.default).unwrap();
            if value != Value::Absent {
                assert_eq!(parse(key, &format(key, &value)).as_ref(), Ok(&value), "{}", key.name);
            }
        }
    }
}

//! A message as `tail` prints it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use laneway_client::{Received, resources::value_text};
use laneway_wire::options::Value;
use laneway_wire::{PartitionId, Reader};
use serde::Serialize;

/// One JSON object a message. The payload is text where it is UTF-8, else base64 in another field, so that a reader
/// never has to guess.
#[derive(Debug, Serialize)]
struct JsonMessage<'a> {
    partition: u32,
    offset: u64,
    /// Microseconds since 1970: when the broker stored it.
    timestamp: u64,
    /// Microseconds since 1970: when its producer made it.
    origin_timestamp: u64,
    /// 32 hexadecimal digits; JSON numbers do not hold 128 bits.
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    headers: BTreeMap<String, String>,
}

/// Writes the payload as it is, and a line end unless it has one.
pub fn write_plain(out: &mut dyn Write, message: &Received<'_>) -> io::Result<()> {
    out.write_all(message.payload)?;
    if message.payload.ends_with(b"\n") { Ok(()) } else { out.write_all(b"\n") }
}

/// Writes one line of JSON.
pub fn write_json_line(
    out: &mut dyn Write,
    partition: PartitionId,
    message: &Received<'_>,
) -> io::Result<()> {
    let payload = std::str::from_utf8(message.payload).ok();
    let line = JsonMessage {
        partition: partition.0,
        offset: message.offset.0,
        timestamp: message.timestamp.0,
        origin_timestamp: message.origin_timestamp.0,
        id: format!("{:032x}", message.id),
        payload,
        payload_base64: payload.is_none().then(|| BASE64.encode(message.payload)),
        headers: headers(message.user_headers),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

/// User headers as text. They are opaque to the broker, so a producer may have sent anything: reading stops where they
/// make no sense. Source: wire protocol, section 3.6.
fn headers(block: &[u8]) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    let mut reader = Reader::new(block);
    while !reader.is_empty() {
        let mut value = || Value::read(&mut reader, "user header").ok().map(|value| value_text(&value));
        let (Some(key), Some(value)) = (value(), value()) else { break };
        headers.insert(key, value);
    }
    headers
}

#[cfg(test)]
mod tests {
    use laneway_wire::{Micros, Offset};

    use super::*;

    fn message<'a>(payload: &'a [u8], user_headers: &'a [u8]) -> Received<'a> {
        let (timestamp, origin_timestamp) = (Micros(2_000_000), Micros(1_000_000));
        Received { offset: Offset(7), timestamp, origin_timestamp, id: 0xab, payload, user_headers }
    }

    fn json(message: &Received<'_>) -> String {
        let mut out = Vec::new();
        write_json_line(&mut out, PartitionId(3), message).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_comes_as_text_with_its_headers() {
        let headers =
            [&[2, 1, 0, 0, 0, b'k', 2, 1, 0, 0, 0, b'v'][..], &[2, 1, 0, 0, 0, b'n', 9, 1, 0, 0, 0, 5]]
                .concat();
        assert_eq!(
            json(&message("é\"\n".as_bytes(), &headers)),
            concat!(
                r#"{"partition":3,"offset":7,"timestamp":2000000,"origin_timestamp":1000000,"#,
                r#""id":"000000000000000000000000000000ab","payload":"é\"\n","headers":{"k":"v","n":"5"}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn other_bytes_come_as_base64_in_a_field_of_their_own() {
        let line = json(&message(&[0xff, 0x00], &[9]));
        assert!(line.contains(r#""payload_base64":"/wA=","headers":{}"#), "{line}");
        assert!(!line.contains(r#""payload":"#));
    }

    #[test]
    fn plain_payloads_end_with_one_line_end() {
        for (payload, expected) in [(&b"a"[..], &b"a\n"[..]), (b"a\n", b"a\n"), (b"\xff", b"\xff\n")] {
            let mut out = Vec::new();
            write_plain(&mut out, &message(payload, b"")).unwrap();
            assert_eq!(out, expected);
        }
    }
}

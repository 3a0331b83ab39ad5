//! Under which key a consumer's offset is stored.

use super::codec::{DecodeError, Put, Reader};

/// What kind of reader stores an offset. Each kind has its own space of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConsumerKind {
    /// A single consumer.
    Consumer = 1,
    /// A consumer group; its key is the group's number that is never reused.
    Group = 2,
    /// A group that is managed elsewhere and only keeps its offsets here.
    External = 3,
}

impl ConsumerKind {
    /// Every kind.
    pub const ALL: [ConsumerKind; 3] = [ConsumerKind::Consumer, ConsumerKind::Group, ConsumerKind::External];

    /// Decodes the byte of the wire. Source: wire protocol, section 3.3.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether a stored offset must not lie above the head.
    pub fn is_bound_by_head(self) -> bool {
        !matches!(self, ConsumerKind::External)
    }
}

/// Name of a consumer in its kind. A number and a name never meet, and no two names do: the key is the whole name and
/// not a hash of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConsumerId {
    /// A numeric id.
    Number(u64),
    /// A name of 1 to 255 bytes.
    Name(Box<[u8]>),
}

/// Key of a stored offset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey {
    /// The kind.
    pub kind: ConsumerKind,
    /// The id in it.
    pub id: ConsumerId,
}

/// Longest name of a consumer, bytes. Source: wire protocol, section 3.1.
pub const CONSUMER_NAME_BYTES_MAX: usize = 255;

impl ConsumerKey {
    /// Key of a numeric id.
    pub fn number(kind: ConsumerKind, number: u64) -> Self {
        Self { kind, id: ConsumerId::Number(number) }
    }

    /// Key of a name; `None` unless it has 1 to 255 bytes.
    pub fn name(kind: ConsumerKind, name: &[u8]) -> Option<Self> {
        let fits = (1..=CONSUMER_NAME_BYTES_MAX).contains(&name.len());
        fits.then(|| Self { kind, id: ConsumerId::Name(name.into()) })
    }

    /// Appends `kind u8, tag u8, number u64` (tag 1) or `kind u8, tag u8, length u8, name` (tag 2).
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind as u8);
        match &self.id {
            ConsumerId::Number(number) => {
                out.put_u8(1);
                out.put_u64(*number);
            }
            ConsumerId::Name(name) => {
                out.put_u8(2);
                out.put_u8(u8::try_from(name.len()).expect("a name has at most 255 bytes"));
                out.extend_from_slice(name);
            }
        }
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = ConsumerKind::from_byte(reader.u8()?).ok_or_else(|| reader.range("consumer kind"))?;
        match reader.u8()? {
            1 => Ok(Self::number(kind, reader.u64()?)),
            2 => {
                let length = usize::from(reader.u8()?);
                let name = reader.take(length)?;
                Self::name(kind, name).ok_or_else(|| reader.range("consumer name"))
            }
            _ => Err(reader.range("consumer id")),
        }
    }
}

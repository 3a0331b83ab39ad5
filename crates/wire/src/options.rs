//! Tagged values, option blocks and user headers. Source: wire protocol, sections 3.6 and 3.7.
//!
//! One encoding serves both: a key value followed by a value value, each `[kind u8][length u32][bytes]`. Option blocks
//! are strict about their keys; user headers are opaque to the broker and built by clients.

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};

use crate::batch::USER_HEADERS_BYTES_MAX;
use crate::primitive::{DecodeError, EncodeError, Reader};

/// Most entries of an options block. Source: wire protocol, section 3.6.
pub const OPTIONS_MAX: usize = 1024;
/// Most bytes of an options block. Source: wire protocol, section 3.6.
pub const OPTIONS_BYTES_MAX: usize = 100_000;
/// Most bytes of one value.
pub const VALUE_BYTES_MAX: usize = 255;

/// The declared kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// Bytes.
    Raw = 1,
    /// UTF-8 text.
    Text = 2,
    /// One byte, 0 or 1.
    Bool = 3,
    /// Signed, one byte.
    I8 = 4,
    /// Signed, two bytes.
    I16 = 5,
    /// Signed, four bytes.
    I32 = 6,
    /// Signed, eight bytes.
    I64 = 7,
    /// Signed, sixteen bytes.
    I128 = 8,
    /// Unsigned, one byte.
    U8 = 9,
    /// Unsigned, two bytes.
    U16 = 10,
    /// Unsigned, four bytes.
    U32 = 11,
    /// Unsigned, eight bytes.
    U64 = 12,
    /// Unsigned, sixteen bytes.
    U128 = 13,
    /// Single-precision float.
    F32 = 14,
    /// Double-precision float.
    F64 = 15,
}

impl ValueKind {
    /// Every kind, in the order of its number.
    pub const ALL: [ValueKind; 15] = [
        ValueKind::Raw,
        ValueKind::Text,
        ValueKind::Bool,
        ValueKind::I8,
        ValueKind::I16,
        ValueKind::I32,
        ValueKind::I64,
        ValueKind::I128,
        ValueKind::U8,
        ValueKind::U16,
        ValueKind::U32,
        ValueKind::U64,
        ValueKind::U128,
        ValueKind::F32,
        ValueKind::F64,
    ];

    /// The kind of a byte.
    pub fn from_byte(byte: u8) -> Option<Self> {
        ValueKind::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// The length of its values, when all have the same.
    pub const fn fixed_bytes(self) -> Option<usize> {
        Some(match self {
            ValueKind::Raw | ValueKind::Text => return None,
            ValueKind::Bool | ValueKind::I8 | ValueKind::U8 => 1,
            ValueKind::I16 | ValueKind::U16 => 2,
            ValueKind::I32 | ValueKind::U32 | ValueKind::F32 => 4,
            ValueKind::I64 | ValueKind::U64 | ValueKind::F64 => 8,
            ValueKind::I128 | ValueKind::U128 => 16,
        })
    }
}

/// A tagged value in a block: 1 to 255 bytes of a kind that this build may not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value<'a> {
    /// The kind byte, never 0.
    pub kind: u8,
    /// The bytes, at least one.
    pub bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// A text value.
    pub fn text(text: &'a str) -> Self {
        Value { kind: ValueKind::Text as u8, bytes: text.as_bytes() }
    }

    /// A value of bytes.
    pub fn raw(bytes: &'a [u8]) -> Self {
        Value { kind: ValueKind::Raw as u8, bytes }
    }

    /// The kind, when this build knows it.
    pub fn value_kind(&self) -> Option<ValueKind> {
        ValueKind::from_byte(self.kind)
    }

    /// Whether the length fits the kind; a kind that is not known fits any.
    pub fn is_well_formed(&self) -> bool {
        match self.value_kind() {
            Some(ValueKind::Text) => std::str::from_utf8(self.bytes).is_ok(),
            Some(ValueKind::Bool) => matches!(self.bytes, [0 | 1]),
            Some(kind) => kind.fixed_bytes().is_none_or(|bytes| bytes == self.bytes.len()),
            None => true,
        }
    }

    /// The text of a text value.
    pub fn as_text(&self) -> Option<&'a str> {
        (self.value_kind()? == ValueKind::Text).then(|| std::str::from_utf8(self.bytes).ok())?
    }

    /// The bytes of a raw value.
    pub fn as_raw(&self) -> Option<&'a [u8]> {
        (self.value_kind()? == ValueKind::Raw).then_some(self.bytes)
    }

    /// The truth of a bool value.
    pub fn as_bool(&self) -> Option<bool> {
        match (self.value_kind()?, self.bytes) {
            (ValueKind::Bool, [0]) => Some(false),
            (ValueKind::Bool, [1]) => Some(true),
            _ => None,
        }
    }

    /// The number of a value of any unsigned kind.
    pub fn as_unsigned(&self) -> Option<u128> {
        let unsigned =
            matches!(self.value_kind()?, kind if (ValueKind::U8..=ValueKind::U128).contains(&kind));
        if !unsigned || !self.is_well_formed() {
            return None;
        }
        let mut wide = [0; 16];
        wide.get_mut(..self.bytes.len())?.copy_from_slice(self.bytes);
        Some(u128::from_le_bytes(wide))
    }

    /// The number of a value of any signed kind.
    pub fn as_signed(&self) -> Option<i128> {
        let signed = matches!(self.value_kind()?, kind if (ValueKind::I8..=ValueKind::I128).contains(&kind));
        if !signed || !self.is_well_formed() {
            return None;
        }
        let negative = self.bytes.last()? & 0x80 != 0;
        let mut wide = [if negative { 0xff } else { 0 }; 16];
        wide.get_mut(..self.bytes.len())?.copy_from_slice(self.bytes);
        Some(i128::from_le_bytes(wide))
    }

    /// The number of a value of a float kind.
    pub fn as_float(&self) -> Option<f64> {
        match self.value_kind()? {
            ValueKind::F32 => Some(f32::from_le_bytes(self.bytes.try_into().ok()?).into()),
            ValueKind::F64 => Some(f64::from_le_bytes(self.bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// Reads a value.
    pub fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let kind = reader.u8(field)?;
        if kind == 0 {
            return Err(DecodeError::Kind { field, kind: 0 });
        }
        let len = reader.u32(field)? as usize;
        if len == 0 || len > VALUE_BYTES_MAX {
            return Err(DecodeError::Range { field });
        }
        Ok(Value { kind, bytes: reader.take(len, field)? })
    }

    /// Appends the value.
    pub fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        match self.bytes.len() {
            0 => return Err(EncodeError::Empty { field }),
            1..=VALUE_BYTES_MAX => {}
            len => return Err(EncodeError::TooLong { field, len, max: VALUE_BYTES_MAX }),
        }
        out.put_u8(self.kind);
        out.put_u32_le(self.bytes.len() as u32);
        out.put_slice(self.bytes);
        Ok(())
    }

    /// An owned copy.
    pub fn to_owned(&self) -> OptionValue {
        OptionValue { kind: self.kind, bytes: self.bytes.into() }
    }
}

/// An owned tagged value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OptionValue {
    /// The kind byte, never 0.
    pub kind: u8,
    /// The bytes, 1 to 255.
    pub bytes: Box<[u8]>,
}

macro_rules! value_from {
    ($($type:ty => $kind:ident;)*) => {$(
        impl From<$type> for OptionValue {
            fn from(value: $type) -> Self {
                OptionValue { kind: ValueKind::$kind as u8, bytes: Box::from(value.to_le_bytes()) }
            }
        }
    )*};
}

value_from! {
    i8 => I8; i16 => I16; i32 => I32; i64 => I64; i128 => I128;
    u8 => U8; u16 => U16; u32 => U32; u64 => U64; u128 => U128;
    f32 => F32; f64 => F64;
}

impl From<bool> for OptionValue {
    fn from(value: bool) -> Self {
        OptionValue { kind: ValueKind::Bool as u8, bytes: Box::new([value.into()]) }
    }
}

impl From<&str> for OptionValue {
    fn from(text: &str) -> Self {
        Value::text(text).to_owned()
    }
}

impl From<&[u8]> for OptionValue {
    fn from(bytes: &[u8]) -> Self {
        Value::raw(bytes).to_owned()
    }
}

impl OptionValue {
    /// The borrowed form, which has the readers.
    pub fn view(&self) -> Value<'_> {
        Value { kind: self.kind, bytes: &self.bytes }
    }
}

/// A validated options block: text keys, each once, within the limits. Values of unknown kinds are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a> {
    bytes: &'a [u8],
    len: usize,
}

impl<'a> Options<'a> {
    /// A block without entries.
    pub const EMPTY: Options<'static> = Options { bytes: &[], len: 0 };

    /// Validates a block that fills `bytes`. Errors: a malformed entry, a key that is no text, a key twice, or
    /// [`DecodeError::OptionsTooLarge`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() > OPTIONS_BYTES_MAX {
            return Err(DecodeError::OptionsTooLarge { field: "options", max: OPTIONS_BYTES_MAX });
        }
        let mut reader = Reader::new(bytes);
        let (mut len, mut ascending, mut previous) = (0, true, None);
        while !reader.is_empty() {
            let key = read_key(&mut reader)?;
            Value::read(&mut reader, "option value")?;
            len += 1;
            if len > OPTIONS_MAX {
                return Err(DecodeError::OptionsTooLarge { field: "options", max: OPTIONS_MAX });
            }
            ascending &= previous.is_none_or(|previous| previous < key);
            previous = Some(key);
        }
        let options = Options { bytes, len };
        if !ascending {
            // Only a block out of order pays for the search of a key that repeats.
            let mut keys: Vec<&str> = options.iter().map(|(key, _)| key).collect();
            keys.sort_unstable();
            if keys.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(DecodeError::Duplicate { field: "option key" });
            }
        }
        Ok(options)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The block as it came.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The entries in the order of the block.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || {
            // A validated block ends at an entry.
            let key = read_key(&mut reader).ok()?;
            Some((key, Value::read(&mut reader, "option value").ok()?))
        })
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// An owned map.
    pub fn to_map(&self) -> OptionMap {
        OptionMap(self.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// Reads a block that a length precedes, as answers carry it.
    pub fn read_prefixed(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        Options::parse(reader.bytes32(field)?)
    }

    /// Appends the block with its length, as answers carry it.
    pub fn put_prefixed(&self, out: &mut BytesMut) {
        crate::primitive::put_bytes32(out, self.bytes);
    }
}

fn read_key<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let key = Value::read(reader, "option key")?;
    if key.value_kind() != Some(ValueKind::Text) {
        return Err(DecodeError::Kind { field: "option key", kind: key.kind.into() });
    }
    key.as_text().ok_or(DecodeError::Utf8 { field: "option key" })
}

/// Owned options, encoded in ascending order of the key bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionMap(pub BTreeMap<String, OptionValue>);

impl OptionMap {
    /// No options.
    pub fn new() -> Self {
        OptionMap::default()
    }

    /// Sets a key; for building in one expression.
    pub fn with(mut self, key: &str, value: impl Into<OptionValue>) -> Self {
        self.set(key, value);
        self
    }

    /// Sets a key.
    pub fn set(&mut self, key: &str, value: impl Into<OptionValue>) {
        self.0.insert(key.to_owned(), value.into());
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.0.get(key).map(OptionValue::view)
    }

    /// The block as bytes; [`Options::parse`] reads it.
    pub fn encode(&self) -> Result<BytesMut, EncodeError> {
        let mut out = BytesMut::new();
        put_options(&mut out, self.0.iter().map(|(key, value)| (key.as_str(), value.view())))?;
        Ok(out)
    }
}

/// Options of an answer: a block as it lies on the wire, or the map that the broker keeps.
#[derive(Clone, Copy, Debug)]
pub enum Block<'a> {
    /// A validated block.
    Encoded(Options<'a>),
    /// Owned options; they must fit a block.
    Map(&'a OptionMap),
}

impl<'a> Block<'a> {
    /// No options.
    pub const EMPTY: Block<'static> = Block::Encoded(Options::EMPTY);

    /// The entries, in ascending order of the keys if a server wrote them.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let (encoded, map) = match self {
            Block::Encoded(options) => (Some(*options), None),
            Block::Map(map) => (None, Some(*map)),
        };
        let map =
            map.into_iter().flat_map(|map| map.0.iter().map(|(key, value)| (key.as_str(), value.view())));
        encoded.into_iter().flat_map(|options| options.iter()).chain(map)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Appends length and block.
    ///
    /// # Panics
    /// When a map breaks the rules of a block: what the broker stores was checked when it was set.
    pub fn put_prefixed(&self, out: &mut BytesMut) {
        match self {
            Block::Encoded(options) => options.put_prefixed(out),
            Block::Map(_) => put_options_prefixed(out, self.iter()),
        }
    }
}

impl PartialEq for Block<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a> From<Options<'a>> for Block<'a> {
    fn from(options: Options<'a>) -> Self {
        Block::Encoded(options)
    }
}

impl<'a> From<&'a OptionMap> for Block<'a> {
    fn from(map: &'a OptionMap) -> Self {
        Block::Map(map)
    }
}

/// Appends a block of `entries`, which must come in ascending order of their keys. The block is checked against the
/// limits; on an error `out` holds a part of it and is to be dropped.
pub fn put_options<'a>(
    out: &mut BytesMut,
    entries: impl Iterator<Item = (&'a str, Value<'a>)>,
) -> Result<(), EncodeError> {
    let start = out.len();
    let mut previous: Option<&str> = None;
    for (index, (key, value)) in entries.enumerate() {
        if index == OPTIONS_MAX {
            return Err(EncodeError::TooLong { field: "options", len: index + 1, max: OPTIONS_MAX });
        }
        if previous.is_some_and(|previous| previous >= key) {
            return Err(EncodeError::Duplicate { field: "option key" });
        }
        previous = Some(key);
        Value::text(key).put(out, "option key")?;
        value.put(out, "option value")?;
    }
    match out.len() - start {
        0..=OPTIONS_BYTES_MAX => Ok(()),
        len => Err(EncodeError::TooLong { field: "options", len, max: OPTIONS_BYTES_MAX }),
    }
}

/// Appends a block with its length, as answers carry it. Entries come in ascending order of their keys.
///
/// # Panics
/// When the entries break the rules of a block: what the broker stores was checked when it was set.
pub fn put_options_prefixed<'a>(out: &mut BytesMut, entries: impl Iterator<Item = (&'a str, Value<'a>)>) {
    let at = out.len();
    out.put_u32_le(0);
    put_options(out, entries).expect("stored options fit a block");
    let len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

/// The user headers of a message, entry by entry. Ends after the first error.
pub fn user_headers(bytes: &[u8]) -> impl Iterator<Item = Result<(Value<'_>, Value<'_>), DecodeError>> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let entry = read_user_header(&mut reader);
        if entry.is_err() {
            reader.rest();
        }
        Some(entry)
    })
}

fn read_user_header<'a>(reader: &mut Reader<'a>) -> Result<(Value<'a>, Value<'a>), DecodeError> {
    let key = Value::read(reader, "header key")?;
    let value = Value::read(reader, "header value")?;
    if !key.is_well_formed() {
        return Err(DecodeError::Range { field: "header key" });
    }
    if !value.is_well_formed() {
        return Err(DecodeError::Range { field: "header value" });
    }
    Ok((key, value))
}

/// Appends one user header to the block `out` of a message.
pub fn put_user_header(out: &mut BytesMut, key: Value<'_>, value: Value<'_>) -> Result<(), EncodeError> {
    let start = out.len();
    let added = key.put(out, "header key").and_then(|()| value.put(out, "header value"));
    let added = added.and_then(|()| match out.len() {
        0..=USER_HEADERS_BYTES_MAX => Ok(()),
        len => Err(EncodeError::TooLong { field: "user headers", len, max: USER_HEADERS_BYTES_MAX }),
    });
    if added.is_err() {
        out.truncate(start);
    }
    added
}

//! Setting and resetting options of one resource. Source: wire protocol, section 5.2.1.

use bytes::{BufMut, BytesMut};

use super::{OptionScope, Request};
use crate::code::Code;
use crate::field::Field;
use crate::options::Options;
use crate::primitive::{DecodeError, EncodeError, Identifier, NAME_BYTES_MAX, Reader, put_checked_str8};

/// What an update changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateTarget<'a> {
    /// A topic.
    Topic {
        /// Its stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
    },
    /// A stream.
    Stream {
        /// The stream.
        stream: Identifier<'a>,
    },
    /// A user.
    User {
        /// The user.
        user: Identifier<'a>,
    },
}

impl UpdateTarget<'_> {
    /// The scope whose options apply.
    pub fn scope(&self) -> OptionScope {
        match self {
            UpdateTarget::Topic { .. } => OptionScope::Topic,
            UpdateTarget::Stream { .. } => OptionScope::Stream,
            UpdateTarget::User { .. } => OptionScope::User,
        }
    }
}

/// The keys that an update resets: validated bytes of a body, or a list that a client made.
#[derive(Clone, Copy, Debug)]
pub enum ResetNames<'a> {
    /// As they lie in a body.
    Encoded {
        /// How many.
        count: u8,
        /// The names, each with its length byte.
        bytes: &'a [u8],
    },
    /// As a client lists them.
    Listed(&'a [&'a str]),
}

impl<'a> ResetNames<'a> {
    /// No keys.
    pub const NONE: ResetNames<'static> = ResetNames::Listed(&[]);

    /// How many.
    pub fn len(&self) -> usize {
        match self {
            ResetNames::Encoded { count, .. } => (*count).into(),
            ResetNames::Listed(names) => names.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys in the order of the request.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let (bytes, listed) = match self {
            ResetNames::Encoded { bytes, .. } => (*bytes, &[][..]),
            ResetNames::Listed(names) => (&[][..], *names),
        };
        let mut reader = Reader::new(bytes);
        // A body was validated when it was parsed, so the names end with the bytes.
        std::iter::from_fn(move || reader.str8("reset").ok()).chain(listed.iter().copied())
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.u8("reset_count")?;
        let start = reader.clone();
        for _ in 0..count {
            reader.str8("reset")?;
        }
        let bytes = start.clone().take(reader.position() - start.position(), "reset")?;
        Ok(ResetNames::Encoded { count, bytes })
    }
}

impl PartialEq for ResetNames<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

/// Sets and resets options of a topic, a stream or a user as one patch (16). Something is set or reset, no key repeats,
/// and none is both set and reset. Parsing allocates to check the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateResource<'a> {
    /// What changes.
    pub target: UpdateTarget<'a>,
    /// Keys that return to their defaults.
    pub reset: ResetNames<'a>,
    /// Keys that are set, to the end of the body.
    pub set: Options<'a>,
}

impl<'a> UpdateResource<'a> {
    /// Reads the body.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let target = match OptionScope::read(&mut reader, "scope")? {
            OptionScope::Topic => UpdateTarget::Topic {
                stream: reader.identifier("stream")?,
                topic: reader.identifier("topic")?,
            },
            OptionScope::Stream => UpdateTarget::Stream { stream: reader.identifier("stream")? },
            OptionScope::User => UpdateTarget::User { user: reader.identifier("user")? },
        };
        let reset = ResetNames::read(&mut reader)?;
        let update = UpdateResource { target, reset, set: Options::parse(reader.rest())? };
        if update.is_empty() {
            return Err(DecodeError::Empty { field: "update" });
        }
        if update.repeats_a_key() {
            return Err(DecodeError::Duplicate { field: "reset" });
        }
        Ok(update)
    }

    fn is_empty(&self) -> bool {
        self.reset.is_empty() && self.set.is_empty()
    }

    fn repeats_a_key(&self) -> bool {
        let mut keys: Vec<&str> = self.reset.iter().chain(self.set.iter().map(|(key, _)| key)).collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    }
}

impl Request for UpdateResource<'_> {
    const CODE: Code = Code::UpdateResource;

    fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        if self.is_empty() {
            return Err(EncodeError::Empty { field: "update" });
        }
        if self.repeats_a_key() {
            return Err(EncodeError::Duplicate { field: "reset" });
        }
        self.target.scope().put(out, "scope")?;
        match &self.target {
            UpdateTarget::Topic { stream, topic } => {
                stream.put(out, "stream")?;
                topic.put(out, "topic")?;
            }
            UpdateTarget::Stream { stream } => stream.put(out, "stream")?,
            UpdateTarget::User { user } => user.put(out, "user")?,
        }
        let len = self.reset.len();
        let count = u8::try_from(len).map_err(|_| EncodeError::TooLong {
            field: "reset",
            len,
            max: NAME_BYTES_MAX,
        })?;
        out.put_u8(count);
        for name in self.reset.iter() {
            put_checked_str8(out, name, "reset")?;
        }
        self.set.put(out, "set")
    }
}

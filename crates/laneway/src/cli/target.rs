//! How a stream or a topic is named on the command line.

use std::fmt;
use std::str::FromStr;

/// Longest name of a stream or a topic, in bytes. Source: resources, section 2.2.
const NAME_BYTES_MAX: usize = 255;

/// A stream or a topic: a text that is a `u32` is its id, anything else its name.
///
/// A resource whose name is all digits is therefore not reachable by name. Source: resources, section 2.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Id(u32),
    Name(String),
}

/// `STREAM/TOPIC`. The first slash separates: a topic's name may hold more of them, a stream's name none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTarget {
    pub stream: Target,
    pub topic: Target,
}

/// Why a text names no stream or topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("write STREAM/TOPIC, for example logs/web")]
    NoSlash,
    #[error("a name has 1 to {NAME_BYTES_MAX} bytes, this one has {0}")]
    Length(usize),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(TargetError::Length(text.len()));
        }
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Id))
    }
}

impl FromStr for TopicTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (stream, topic) = text.split_once('/').ok_or(TargetError::NoSlash)?;
        Ok(Self { stream: stream.parse()?, topic: topic.parse()? })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for TopicTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream, self.topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ids_and_the_rest_are_names() {
        assert_eq!("7".parse(), Ok(Target::Id(7)));
        assert_eq!("4294967296".parse(), Ok(Target::Name("4294967296".into())));
        assert_eq!("logs".parse(), Ok(Target::Name("logs".into())));
    }

    #[test]
    fn the_first_slash_separates_stream_and_topic() {
        let target: TopicTarget = "logs/web/errors".parse().unwrap();
        assert_eq!(target.topic, Target::Name("web/errors".into()));
        assert_eq!(target.to_string(), "logs/web/errors");
    }

    #[test]
    fn what_names_nothing_is_refused() {
        assert_eq!("logs".parse::<TopicTarget>(), Err(TargetError::NoSlash));
        assert_eq!("/web".parse::<TopicTarget>(), Err(TargetError::Length(0)));
        assert_eq!("x".repeat(256).parse::<Target>(), Err(TargetError::Length(256)));
    }
}

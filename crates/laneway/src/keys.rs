//! The keys of the node, from the configuration, and whether they fit what a data directory holds.

use laneway_config::{Encryption, Secret};
use laneway_encryption::{KeyRing, RingConfig, RingError};
use laneway_metadata::Metadata;
use laneway_metadata::options::StreamEncryption;

/// Streams without their key that a start names; more are counted.
const NAMED_MAX: usize = 8;

/// Derives the keys. Errors: [`RingError`], in the words of the configuration.
pub fn ring(config: &Encryption) -> Result<KeyRing, RingError> {
    let previous = config.previous_keys.as_ref().map_or("", Secret::reveal);
    KeyRing::new(RingConfig {
        enabled: config.enabled,
        key: config.key.as_ref().map(Secret::reveal),
        previous: &list(previous),
        retired: &list(config.retired_keys.as_deref().unwrap_or("")),
    })
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect()
}

/// The data directory holds encrypted streams, and no key is configured.
#[derive(Debug, thiserror::Error)]
#[error(
    "the data directory holds {streams} encrypted streams and encryption.key is not set; set it to the key that they \
     were created with"
)]
pub struct KeyMissing {
    streams: usize,
}

/// Looks whether the keys open the streams. A node with other keys serves what they open, and says what it does not.
pub fn check_streams(metadata: &Metadata, ring: &KeyRing) -> Result<(), KeyMissing> {
    let locked: Vec<_> = metadata
        .streams()
        .iter()
        .filter(|stream| match stream.options.encryption() {
            StreamEncryption::Plain => false,
            StreamEncryption::Sealed(envelopes) => ring.unwrap(envelopes).is_none(),
            StreamEncryption::Unreadable => true,
        })
        .collect();
    if !locked.is_empty() && !ring.has_key() {
        return Err(KeyMissing { streams: locked.len() });
    }
    for stream in locked.iter().take(NAMED_MAX) {
        tracing::error!(stream = %stream.name, "no configured key opens this stream: it is not served");
    }
    if locked.len() > NAMED_MAX {
        tracing::error!(streams = locked.len(), "streams that no configured key opens");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_separated_by_commas() {
        let config = Encryption {
            enabled: true,
            key: Some(Secret::new("/rvT1xP4V8u1EAhk4xDdqzqM2UOPXyy9XYkl4uRShgE=")),
            previous_keys: Some(Secret::new(" AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA= ,")),
            retired_keys: None,
        };
        let names: Vec<String> = ring(&config).unwrap().fingerprints().map(|name| name.to_string()).collect();
        assert_eq!(names, ["39e4f0f95c3693c7", "d55d479829bc2936"]);
        assert!(ring(&Encryption { key: None, ..config }).is_err());
        assert!(!ring(&Encryption::default()).unwrap().has_key());
    }
}

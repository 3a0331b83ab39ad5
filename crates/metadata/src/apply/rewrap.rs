//! Envelopes of streams after the keys of the node changed. Source: resources, section 16.2.

use std::sync::Arc;

use laneway_encryption::WrapSet;

use super::Answer;
use crate::changes::notes::Made;
use crate::command::Rewrap;
use crate::metadata::Metadata;
use crate::options::{Scope, StoredOptions, StreamEncryption, encryption};

impl Metadata {
    /// A stream that is gone, or that does not hold this key, is left as it is.
    pub(super) fn rewrap_streams(&mut self, rewraps: &[Rewrap]) -> Answer {
        for rewrap in rewraps {
            let envelopes = WrapSet::parse(&rewrap.envelopes).expect("the command's bounds were checked");
            let Ok(stream) = self.stream(rewrap.stream.0) else { continue };
            let StreamEncryption::Sealed(stored) = stream.options.encryption() else { continue };
            let same_key = (stored.key(), stored.origin()) == (envelopes.key(), envelopes.origin());
            if stream.created_op != rewrap.created_op || !same_key {
                continue;
            }
            let mut options = stream.options.set().clone();
            encryption::store(&mut options, &envelopes);
            let options = Arc::new(StoredOptions::new(Scope::Stream, options));
            self.streams.update(rewrap.stream, |stream| stream.options = options);
            // The fingerprints of the keys that wrap the stream's key are public, and other ones now.
            let stream = self.streams.find(rewrap.stream.0).expect("it was found above").clone();
            self.note_stream(&stream, Made::Updated);
        }
        Answer::Done
    }
}

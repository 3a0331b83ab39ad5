//! What is sent: a file of the user, or one that is always there.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A text of some length that is in every clone, and in the binary, so that nothing has to be found at run time.
const BUILT_IN: &[u8] = include_bytes!("../../../../../LICENSE");
/// How much is made of it: a few megabytes, enough to measure, little enough to be quick.
const BUILT_IN_BYTES: u64 = 4 << 20;

/// Where the lines come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The built-in text, over and over.
    BuiltIn,
    /// A file; never held in memory as a whole.
    File(PathBuf),
}

impl Source {
    /// The file that was named, or the built-in text.
    pub fn new(file: Option<&Path>) -> Self {
        file.map_or(Self::BuiltIn, |path| Self::File(path.to_owned()))
    }

    /// Opens it for one pass.
    pub fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::BuiltIn => {
                let copies = BUILT_IN_BYTES.div_ceil(BUILT_IN.len() as u64);
                Box::new(Repeated { bytes: BUILT_IN, position: 0, copies })
            }
            Self::File(path) => {
                let file = File::open(path)?;
                // Opening a directory works, reading it fails much later and in other words.
                if file.metadata()?.is_dir() {
                    return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
                }
                Box::new(file)
            }
        })
    }

    /// How a person calls it.
    pub fn label(&self) -> String {
        match self {
            Self::BuiltIn => "the LICENSE file, repeated".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// Some bytes, a number of times.
struct Repeated {
    bytes: &'static [u8],
    position: usize,
    copies: u64,
}

impl Read for Repeated {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.copies == 0 {
            return Ok(0);
        }
        let left = self.bytes.get(self.position..).unwrap_or_default();
        let count = left.len().min(into.len());
        if let (Some(into), Some(from)) = (into.get_mut(..count), left.get(..count)) {
            into.copy_from_slice(from);
        }
        self.position += count;
        if self.position == self.bytes.len() {
            self.position = 0;
            self.copies -= 1;
        }
        Ok(count)
    }
}

const _: () = assert!(!BUILT_IN.is_empty(), "repeating nothing never ends");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_text_is_whole_copies_of_a_few_megabytes() {
        let mut all = Vec::new();
        Source::BuiltIn.open().unwrap().read_to_end(&mut all).unwrap();
        assert!(
            all.len() as u64 >= BUILT_IN_BYTES && all.len() as u64 <= BUILT_IN_BYTES + BUILT_IN.len() as u64
        );
        assert_eq!(all.len() % BUILT_IN.len(), 0);
        assert!(all.chunks(BUILT_IN.len()).all(|copy| copy == BUILT_IN));
    }

    #[test]
    fn file_that_cannot_be_read_is_noticed_at_once() {
        assert!(Source::new(Some(Path::new("/no/such/file"))).open().is_err());
        assert!(Source::new(Some(Path::new("/"))).open().is_err());
    }
}

//! A value that must not be printed.

use std::fmt;

/// A password. `Debug` and the listings show a mask; [`Secret::reveal`] is the one way out.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// What stands for a secret wherever values are shown.
pub const MASK: &str = "********";

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Do not log it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

//! Protocol numbers and the window of them that this broker serves. Source: wire protocol, section 2.2.

use std::fmt;

/// A protocol version as the wire packs it: `major << 20 | minor << 10 | patch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolVersion(pub u32);

impl ProtocolVersion {
    /// 0.11.0, the stable release. Only the number is known here: its layouts are not served.
    pub const V0_11_0: ProtocolVersion = ProtocolVersion::new(0, 11, 0);
    /// 0.12.1, the base of the reference.
    pub const V0_12_1: ProtocolVersion = ProtocolVersion::new(0, 12, 1);
    /// 0.12.2, which adds member lists to partition records and producer sections to batches.
    pub const V0_12_2: ProtocolVersion = ProtocolVersion::new(0, 12, 2);

    /// Packs the three parts; `minor` and `patch` keep their low ten bits, `major` its low twelve.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        ProtocolVersion((major & 0xfff) << 20 | (minor & 0x3ff) << 10 | patch & 0x3ff)
    }

    /// First part of the version.
    pub const fn major(self) -> u32 {
        self.0 >> 20
    }

    /// Second part of the version.
    pub const fn minor(self) -> u32 {
        self.0 >> 10 & 0x3ff
    }

    /// Third part of the version.
    pub const fn patch(self) -> u32 {
        self.0 & 0x3ff
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.minor(), self.patch())
    }
}

/// An inclusive range of protocol versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolWindow {
    /// Lowest version served.
    pub min: ProtocolVersion,
    /// Highest version served.
    pub max: ProtocolVersion,
}

impl ProtocolWindow {
    /// What this broker serves.
    pub const LANEWAY: ProtocolWindow =
        ProtocolWindow { min: ProtocolVersion::V0_12_1, max: ProtocolVersion::V0_12_2 };

    /// Whether a client of `version` may sign in.
    pub const fn contains(self, version: ProtocolVersion) -> bool {
        self.min.0 <= version.0 && version.0 <= self.max.0
    }
}

const _: () = assert!(ProtocolWindow::LANEWAY.min.0 <= ProtocolWindow::LANEWAY.max.0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_pack_as_the_reference_numbers() {
        assert_eq!(ProtocolVersion::V0_11_0.0, 11264);
        assert_eq!(ProtocolVersion::V0_12_1.0, 12289);
        assert_eq!(ProtocolVersion::V0_12_2.0, 12290);
        assert_eq!(ProtocolVersion::V0_12_1.to_string(), "0.12.1");
        assert_eq!(ProtocolVersion::new(1, 2, 3).to_string(), "1.2.3");
    }

    #[test]
    fn window_holds_both_ends_and_nothing_outside() {
        let window = ProtocolWindow::LANEWAY;
        assert!(window.contains(ProtocolVersion::V0_12_1) && window.contains(ProtocolVersion::V0_12_2));
        assert!(!window.contains(ProtocolVersion(12288)) && !window.contains(ProtocolVersion(12291)));
        assert!(!window.contains(ProtocolVersion::V0_11_0));
    }
}

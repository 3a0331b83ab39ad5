//! Little-endian numbers in, little-endian numbers out. Decoding never panics: every take is checked, and a count is
//! checked against the bytes that are left before anything is reserved for it.

/// Why bytes do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error("{what}: the bytes end inside a field")]
    Short {
        /// What was decoded.
        what: &'static str,
    },
    /// Bytes are left behind the last field.
    #[error("{what}: {bytes} bytes are left behind the last field")]
    Trailing {
        /// What was decoded.
        what: &'static str,
        /// How many.
        bytes: usize,
    },
    /// A version that this build does not know.
    #[error("{what}: version {version} is not known to this build")]
    Version {
        /// What was decoded.
        what: &'static str,
        /// The version found.
        version: u16,
    },
    /// A field has a value that cannot be.
    #[error("{what}: the value of {field} is out of range")]
    Range {
        /// What was decoded.
        what: &'static str,
        /// The field.
        field: &'static str,
    },
    /// The checksum does not match.
    #[error("{what}: the checksum does not match")]
    Checksum {
        /// What was decoded.
        what: &'static str,
    },
}

/// Reads fields from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`; errors name `what`.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes }
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) =
            self.bytes.split_at_checked(count).ok_or(DecodeError::Short { what: self.what })?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) =
            self.bytes.split_first_chunk::<N>().ok_or(DecodeError::Short { what: self.what })?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// The next u16.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next u32.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next u64.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next u128.
    pub fn u128(&mut self) -> Result<u128, DecodeError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A u32 count of things that take at least `bytes_min` bytes each; more than can be there is refused.
    pub fn count(&mut self, bytes_min: usize) -> Result<usize, DecodeError> {
        let count = self.u32()? as usize;
        if count > self.left() / bytes_min.max(1) {
            return Err(DecodeError::Short { what: self.what });
        }
        Ok(count)
    }

    /// A field value that cannot be.
    pub fn range(&self, field: &'static str) -> DecodeError {
        DecodeError::Range { what: self.what, field }
    }

    /// Nothing may be left.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.bytes.len() {
            0 => Ok(()),
            bytes => Err(DecodeError::Trailing { what: self.what, bytes }),
        }
    }
}

/// Appends fields to a vector.
pub trait Put {
    /// Appends a byte.
    fn put_u8(&mut self, value: u8);
    /// Appends a u16.
    fn put_u16(&mut self, value: u16);
    /// Appends a u32.
    fn put_u32(&mut self, value: u32);
    /// Appends a u64.
    fn put_u64(&mut self, value: u64);
    /// Appends a u128.
    fn put_u128(&mut self, value: u128);
    /// Appends a u32 count.
    fn put_count(&mut self, count: usize);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u128(&mut self, value: u128) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_count(&mut self, count: usize) {
        self.put_u32(u32::try_from(count).expect("every table here is bounded far below 2^32"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_the_end_is_checked() {
        let mut bytes = Vec::new();
        bytes.put_u8(1);
        bytes.put_u16(2);
        bytes.put_u32(3);
        bytes.put_u64(4);
        bytes.put_u128(5);
        let mut reader = Reader::new("test", &bytes);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u16(), Ok(2));
        assert_eq!(reader.u32(), Ok(3));
        assert_eq!(reader.u64(), Ok(4));
        assert_eq!(reader.finish(), Err(DecodeError::Trailing { what: "test", bytes: 16 }));
        assert_eq!(reader.u128(), Ok(5));
        assert_eq!(reader.u8(), Err(DecodeError::Short { what: "test" }));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn count_beyond_the_bytes_is_refused() {
        let bytes = [3, 0, 0, 0, 1, 2];
        assert_eq!(Reader::new("test", &bytes).count(1), Err(DecodeError::Short { what: "test" }));
    }
}

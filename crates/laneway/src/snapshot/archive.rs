//! A ZIP archive in memory: a local header and the bytes of each file, then the directory. Source: the ZIP application
//! note of PKWARE, version 2.0 of the format, which every reader knows.

use std::io::{self, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// Version that a reader needs: 2.0, for deflate.
const VERSION: u16 = 20;
/// Names are UTF-8.
const FLAGS: u16 = 1 << 11;
/// 1 January 1980: the format has no word for "unknown". An archive of the same texts is the same bytes.
const DATE: u16 = 0x21;

/// How files are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// As they are.
    Stored = 0,
    /// Deflate.
    Deflated = 8,
}

/// An archive that is being written.
#[derive(Debug)]
pub struct Archive {
    method: Method,
    bytes: Vec<u8>,
    directory: Vec<u8>,
    files: u16,
}

impl Archive {
    /// An empty archive.
    pub fn new(method: Method) -> Self {
        Self { method, bytes: Vec::new(), directory: Vec::new(), files: 0 }
    }

    /// Adds a file. Names are short and texts are bounded by the caller: nothing comes near the 4 GiB of the format.
    pub fn add(&mut self, name: &str, text: &[u8]) -> io::Result<()> {
        let mut crc = Crc::new();
        crc.update(text);
        let packed = match self.method {
            Method::Stored => text.to_vec(),
            Method::Deflated => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(text)?;
                encoder.finish()?
            }
        };
        let too_long = |_| io::Error::other("longer than the format allows");
        let mut fields = Vec::with_capacity(26);
        for half in [VERSION, FLAGS, self.method as u16, 0, DATE] {
            fields.extend(half.to_le_bytes());
        }
        fields.extend(crc.sum().to_le_bytes());
        fields.extend(u32::try_from(packed.len()).map_err(too_long)?.to_le_bytes());
        fields.extend(u32::try_from(text.len()).map_err(too_long)?.to_le_bytes());
        fields.extend(u16::try_from(name.len()).map_err(too_long)?.to_le_bytes());
        fields.extend([0; 2]);

        let at = u32::try_from(self.bytes.len()).map_err(too_long)?;
        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(&fields);
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(packed);

        self.directory.extend(b"PK\x01\x02");
        self.directory.extend(VERSION.to_le_bytes());
        self.directory.extend(&fields);
        // No comment, first disk, no attributes.
        self.directory.extend([0; 10]);
        self.directory.extend(at.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.files += 1;
        Ok(())
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        let (at, bytes) = (self.bytes.len() as u32, self.directory.len() as u32);
        self.bytes.extend(self.directory);
        self.bytes.extend(b"PK\x05\x06");
        self.bytes.extend([0; 4]);
        self.bytes.extend(self.files.to_le_bytes());
        self.bytes.extend(self.files.to_le_bytes());
        self.bytes.extend(bytes.to_le_bytes());
        self.bytes.extend(at.to_le_bytes());
        self.bytes.extend([0; 2]);
        self.bytes
    }
}

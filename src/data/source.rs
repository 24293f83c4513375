//! Opens data files, plain or gzip-compressed, told apart by content so that a renamed file still works. Knows nothing of
//! what is inside.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, Result};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A reader over the (decompressed) content of `path`.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = File::open(path).map_err(Error::file(path))?;
    decompressed(BufReader::with_capacity(1 << 16, file), path)
}

/// The whole (decompressed) content of `path`.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    read_to_end(open(path)?, path)
}

/// The whole (decompressed) content of `bytes`, which stand for `path` in messages.
pub(super) fn read_bytes(bytes: &'static [u8], path: &Path) -> Result<Vec<u8>> {
    read_to_end(decompressed(bytes, path)?, path)
}

/// What a failed read of `path` means: a fault of the file where the content is to blame, else of the system.
pub(super) fn read_error(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => Error::data(path, "the compressed file is cut short"),
        ErrorKind::InvalidData | ErrorKind::InvalidInput => {
            Error::data(path, format!("the compressed file is damaged: {error}"))
        }
        _ => Error::io(path)(error),
    }
}

fn decompressed(mut reader: impl BufRead + 'static, path: &Path) -> Result<Box<dyn Read>> {
    let gzip = reader.fill_buf().map_err(Error::file(path))?.starts_with(&GZIP_MAGIC);
    Ok(if gzip { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) })
}

fn read_to_end(mut reader: Box<dyn Read>, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|error| read_error(path, error))?;
    Ok(bytes)
}

/// `bytes` as a gzip file.
#[cfg(test)]
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_known_by_content_and_damage_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            read(&path)
        };
        let text: Vec<u8> = (0..5000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let packed = gzip(&text);
        assert_eq!(write("plain.gz", &text).unwrap(), text);
        assert_eq!(write("packed", &packed).unwrap(), text);
        assert_eq!(write("two", &[packed.clone(), packed.clone()].concat()).unwrap(), text.repeat(2));
        assert_eq!(write("empty", b"").unwrap(), b"");
        let cut = write("cut", &packed[..packed.len() / 2]).unwrap_err().to_string();
        assert!(cut.ends_with("cut: the compressed file is cut short"), "{cut}");
        let mut bad = packed.clone();
        let end = bad.len() - 6;
        bad[end] ^= 1; // inside the checksum
        let bad = write("bad", &bad).unwrap_err().to_string();
        assert!(bad.contains("the compressed file is damaged"), "{bad}");
        assert!(matches!(read(&dir.path().join("none")), Err(Error::Io { .. })));
        assert!(read(dir.path()).is_err());
    }
}

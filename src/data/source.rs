//! Opens data files, plain or gzip-compressed, told apart by content so that a renamed file still works. Knows nothing
//! of what is inside.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;

use crate::error::{Error, Result};
use crate::file::{self, read_within, too_large, wide_text};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Most bytes of a data file, decompressed, unless a program or a run file says otherwise: 4 GiB. Eight megabytes of
/// gzip may hold eight gigabytes.
pub(crate) const SIZE_LIMIT: u64 = 4 << 30;

/// What can be done about a file that is larger than the limit.
pub(crate) const REMEDY: &str = ", the limit; if that is right, raise data.size_limit in the run file, or by --set \
     data.size_limit=SIZE for train, --size-limit SIZE for eval and predict";

/// Bytes at a file's front in which there must be no zero if it is text.
const HEAD: u64 = 1 << 16;

/// What is said about bytes behind the last compressed part of a file.
const BEHIND: &str = "there are bytes behind the end of the compressed data that are not compressed; cut them off";

/// A reader over the (decompressed) content of `path`.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>> {
    decompressed(BufReader::with_capacity(1 << 16, file::open(path)?), path)
}

/// The whole (decompressed) content of the text file `path`, `limit` bytes at most.
pub(super) fn read_text(path: &Path, limit: u64) -> Result<Vec<u8>> {
    read_to_end(open(path)?, limit, path)
}

/// The whole (decompressed) content of `bytes`, which stand for `path` in messages.
pub(super) fn read_bytes(bytes: &'static [u8], path: &Path) -> Result<Vec<u8>> {
    read_to_end(decompressed(bytes, path)?, SIZE_LIMIT, path)
}

/// What a failed read of `path` means: a fault of the file where the content is to blame, else of the system.
pub(super) fn read_error(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => Error::data(path, "the compressed file is cut short"),
        ErrorKind::InvalidData if error.to_string() == BEHIND => Error::data(path, BEHIND),
        ErrorKind::InvalidData | ErrorKind::InvalidInput => {
            Error::data(path, format!("the compressed file is damaged: {error}"))
        }
        _ => Error::io(path)(error),
    }
}

fn decompressed(mut reader: impl BufRead + 'static, path: &Path) -> Result<Box<dyn Read>> {
    let gzip = reader.fill_buf().map_err(Error::file(path))?.starts_with(&GZIP_MAGIC);
    Ok(if gzip { Box::new(Gzip(Some(GzDecoder::new(reader)))) } else { Box::new(reader) })
}

fn read_to_end(mut reader: Box<dyn Read>, limit: u64, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.by_ref().take(HEAD).read_to_end(&mut bytes).map_err(|error| read_error(path, error))?;
    if let Some(message) = wide_text(&bytes) {
        return Err(Error::data(path, message));
    }
    if let Some(zero) = bytes.iter().position(|&b| b == 0) {
        return Err(Error::data(path, format!("byte {} is 0: this is no text", zero + 1)));
    }
    match read_within(reader, limit, &mut bytes).map_err(|error| read_error(path, error))? {
        true => Ok(bytes),
        false => Err(too_large(path, limit, REMEDY)),
    }
}

/// The content of a gzip file: of all its members, one behind the other. Unlike `flate2`'s `MultiGzDecoder` it tells
/// bytes behind the last one from a member that is cut short.
struct Gzip<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(mut rest) = self.0.take().map(GzDecoder::into_inner) else { break };
            match rest.fill_buf()?.first() {
                None => break,
                Some(&first) if first == GZIP_MAGIC[0] => self.0 = Some(GzDecoder::new(rest)),
                Some(_) => return Err(std::io::Error::new(ErrorKind::InvalidData, BEHIND)),
            }
        }
        Ok(0)
    }
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

    fn read(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        read_text(&path, SIZE_LIMIT)
    }

    fn text() -> Vec<u8> {
        (0..5000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_string().into_bytes()).collect()
    }

    #[test]
    fn gzip_is_known_by_content_and_damage_is_reported() {
        let (text, packed) = (text(), gzip(&text()));
        assert_eq!(read("plain.gz", &text).unwrap(), text);
        assert_eq!(read("packed", &packed).unwrap(), text);
        assert_eq!(read("two", &[packed.clone(), packed.clone()].concat()).unwrap(), text.repeat(2));
        assert_eq!(read("empty", b"").unwrap(), b"");
        let cut = read("cut", &packed[..packed.len() / 2]).unwrap_err().to_string();
        assert!(cut.ends_with("cut: the compressed file is cut short"), "{cut}");
        let mut bad = packed.clone();
        let end = bad.len() - 6;
        bad[end] ^= 1; // inside the checksum
        let bad = read("bad", &bad).unwrap_err().to_string();
        assert!(bad.contains("the compressed file is damaged"), "{bad}");
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read_text(&dir.path().join("none"), 9), Err(Error::Io { .. })));
        assert!(read_text(dir.path(), 9).is_err());
    }

    #[test]
    fn bytes_behind_the_end_of_gzip_are_told_as_such() {
        let packed = gzip(&text());
        for behind in [&b"x"[..], b"\0\0\0\0", b"some text that somebody has put there\n"] {
            let error = read("a", &[&packed, behind].concat()).unwrap_err().to_string();
            assert!(error.ends_with(BEHIND), "{error}");
        }
    }

    #[test]
    fn binary_files_and_endless_ones_are_refused() {
        let error = read("a", &gzip(&[0; 100])).unwrap_err().to_string();
        assert!(error.ends_with("a: byte 1 is 0: this is no text"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gz");
        std::fs::write(&path, gzip(&b"1,2\n".repeat(1 << 18))).unwrap();
        assert_eq!(read_text(&path, 1 << 20).unwrap().len(), 1 << 20);
        let error = read_text(&path, (1 << 20) - 1).unwrap_err().to_string();
        assert!(
            error.contains("it holds more than 1048575 bytes, the limit") && error.contains("--size-limit"),
            "{error}"
        );
    }
}

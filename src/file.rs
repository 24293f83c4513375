//! Files that users name, as they are read: regular files only, since a pipe may block for ever and a device never end,
//! and no more of one than a limit. Knows of their content only whether it can be UTF-8 text.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::error::{Error, Result};

/// Checks that there is a regular file at `path`, without opening it: opening a pipe waits for its other end.
///
/// # Errors
/// When there is nothing, or something else.
pub(crate) fn check(path: &Path) -> Result<()> {
    let kind = fs::metadata(path).map_err(Error::file(path))?.file_type();
    match kind.is_file() {
        true => Ok(()),
        false if kind.is_dir() => Err(Error::file(path)(ErrorKind::IsADirectory.into())),
        false => {
            let message = "expected a regular file, got a pipe or a device; write what it gives to a file first";
            Err(Error::data(path, message))
        }
    }
}

/// Opens a regular file.
///
/// # Errors
/// Like [`check`]; also when it cannot be opened.
pub(crate) fn open(path: &Path) -> Result<File> {
    check(path)?;
    File::open(path).map_err(Error::file(path))
}

/// The content of a regular file of at most `limit` bytes; `remedy` ends the message about a larger one.
///
/// # Errors
/// Like [`open`]; also when it is larger, or cannot be read.
pub(crate) fn read(path: &Path, limit: u64, remedy: &str) -> Result<Vec<u8>> {
    let file = open(path)?;
    let size = file.metadata().map_err(Error::io(path))?.len();
    if size > limit {
        return Err(too_large(path, limit, remedy));
    }
    let mut bytes = Vec::new();
    let reserved = usize::try_from(size).is_ok_and(|size| bytes.try_reserve_exact(size).is_ok());
    if !reserved {
        return Err(Error::data(path, format!("there is not enough memory for its {size} bytes")));
    }
    match read_within(file, limit, &mut bytes).map_err(Error::io(path))? {
        true => Ok(bytes),
        false => Err(too_large(path, limit, remedy)),
    }
}

/// Appends what `reader` gives to `bytes`; whether these are no more than `limit` bytes then.
pub(crate) fn read_within(reader: impl Read, limit: u64, bytes: &mut Vec<u8>) -> std::io::Result<bool> {
    let room = limit.saturating_sub(bytes.len() as u64).saturating_add(1);
    reader.take(room).read_to_end(bytes)?;
    Ok(bytes.len() as u64 <= limit)
}

/// The error about a file of more than `limit` bytes.
pub(crate) fn too_large(path: &Path, limit: u64, remedy: &str) -> Error {
    Error::data(path, format!("it holds more than {limit} bytes{remedy}"))
}

/// Bytes of a text without a byte order mark at their start.
pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// The UTF-8 text in `bytes`.
///
/// # Errors
/// With what is wrong with it.
pub(crate) fn text(bytes: Vec<u8>) -> std::result::Result<String, String> {
    if let Some(message) = wide_text(&bytes) {
        return Err(message.to_owned());
    }
    String::from_utf8(bytes)
        .map_err(|error| format!("expected UTF-8 text, which ends at byte {}", error.utf8_error().valid_up_to()))
}

/// What is to be said about bytes that look like text in two or four bytes a character, by the byte order mark or by
/// zeros where text in the Latin alphabet has them.
pub(crate) fn wide_text(bytes: &[u8]) -> Option<&'static str> {
    let head = &bytes[..bytes.len().min(64) & !1];
    let zeros = |odd: usize| !head.is_empty() && head.iter().skip(odd).step_by(2).all(|&b| b == 0);
    let marked = [&b"\xff\xfe"[..], b"\xfe\xff", b"\0\0\xfe\xff"].iter().any(|mark| bytes.starts_with(mark));
    (marked || zeros(0) != zeros(1)).then_some("this is UTF-16 or UTF-32 text, expected UTF-8; save it as UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_text_is_known_with_and_without_a_mark() {
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        assert!(wide_text(&wide("\u{feff}x,y")).is_some() && wide_text(&wide("x,y\n1,2\n")).is_some());
        assert!(wide_text(&[0, b'x', 0, b',']).is_some());
        for other in [&b""[..], b"a", b"x,y\n", b"\xef\xbb\xbfx", &[0; 64]] {
            assert_eq!(wide_text(other), None, "{other:?}");
        }
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, [7; 10]).unwrap();
        assert_eq!(read(&path, 10, "").unwrap(), [7; 10]);
        let error = read(&path, 9, "; raise the limit").unwrap_err().to_string();
        assert!(error.ends_with("a: it holds more than 9 bytes; raise the limit"), "{error}");
        assert!(read(folder.path(), 9, "").unwrap_err().to_string().ends_with("expected a file, found a folder"));
        let mut bytes = Vec::new();
        assert!(!read_within(std::io::repeat(1), 100, &mut bytes).unwrap());
        assert_eq!(bytes.len(), 101);
    }
}

//! A long row of tokens: in a file that is mapped into memory, so that it may be larger than that, or in memory.

use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use super::tokenizer::{Codec, Tokenizer};
use crate::error::{Error, Result};
use crate::file::{self, without_mark};

/// First bytes of a token file; then, as little-endian u64, [`Tokens::identity`], bytes a token, the number of tokens
/// and the CRC-32 of what follows.
const MAGIC: &[u8; 16] = b"everygpu tokens\0";
const HEADER: usize = 48;

/// A long row of tokens: in memory, or in a file that is mapped into it and may be larger.
#[derive(Debug)]
pub struct Tokens {
    bytes: Bytes,
    /// Where the first token starts.
    start: usize,
    /// Bytes a token, little-endian: 1, 2 or 4.
    width: usize,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl Tokens {
    /// The bytes of a file as tokens, each one a token, as [`Tokenizer::Bytes`] has it; without a byte order mark. The
    /// file is mapped: whoever changes it during the training changes what is trained on.
    ///
    /// # Errors
    /// When the file cannot be mapped.
    pub(crate) fn of_bytes(path: &Path) -> Result<Self> {
        let bytes = map(path)?;
        let start = bytes.len() - without_mark(&bytes).len();
        Ok(Self { bytes: Bytes::Mapped(bytes), start, width: 1 })
    }

    /// The tokens of `text`, in memory: [`Tokens::file`] are the bytes of a token file that [`Tokens::open`] maps.
    ///
    /// # Errors
    /// When the codec has no token for a character.
    pub fn encode(text: &str, tokenizer: &Tokenizer, codec: &Codec) -> Result<Self> {
        let tokens = codec.encode(text)?;
        let width = match codec.vocabulary() {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        };
        let mut bytes = Vec::with_capacity(HEADER + tokens.len() * width);
        bytes.extend_from_slice(MAGIC);
        for number in [Self::identity(text, tokenizer), width as u64, tokens.len() as u64, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for token in tokens {
            bytes.extend_from_slice(&token.to_le_bytes()[..width]);
        }
        let check = u64::from(crc32fast::hash(&bytes[HEADER..]));
        bytes[HEADER - 8..HEADER].copy_from_slice(&check.to_le_bytes());
        Ok(Self { bytes: Bytes::Owned(bytes), start: HEADER, width })
    }

    /// Maps a token file, if it holds the tokens of this text: one of another text or tokenizer, or one that is
    /// damaged, gives `None`.
    ///
    /// # Errors
    /// When there is something else than a token file: nothing may be put in its place.
    pub fn open(path: &Path, text: &str, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        if !path.is_file() {
            return Err(Error::data(path, "expected a file for the text's tokens, found something else"));
        }
        let bytes = map(path)?;
        if !bytes.starts_with(MAGIC) {
            let message = "this file is there and holds no tokens; for the cache name one that is not there yet";
            return Err(Error::data(path, message));
        }
        let number = |index: usize| {
            let at = MAGIC.len() + 8 * index;
            bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
        };
        let [Some(identity), Some(width), Some(count), Some(check)] = [number(0), number(1), number(2), number(3)]
        else {
            return Ok(None);
        };
        let whole = identity == Self::identity(text, tokenizer)
            && [1, 2, 4].contains(&width)
            && count.checked_mul(width) == Some((bytes.len() - HEADER) as u64)
            && check == u64::from(crc32fast::hash(&bytes[HEADER..]));
        Ok(whole.then_some(Self { bytes: Bytes::Mapped(bytes), start: HEADER, width: width as usize }))
    }

    /// The bytes of a token file.
    pub fn file(&self) -> &[u8] {
        self.bytes.get()
    }

    /// Tells texts and tokenizers apart: CRC-32 of both, and the length.
    fn identity(text: &str, tokenizer: &Tokenizer) -> u64 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(text.as_bytes());
        match tokenizer {
            Tokenizer::Bytes => crc.update(&[0]),
            Tokenizer::Characters { .. } => crc.update(&[1]),
            // The number changes with what of the file is followed.
            Tokenizer::Bpe { json } => [&[2], json.as_bytes()].iter().for_each(|part| crc.update(part)),
        }
        (u64::from(crc.finalize()) << 32) | (text.len() as u64 & 0xffff_ffff)
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        (self.bytes.get().len() - self.start) / self.width
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the tokens in `range`, which must be there.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes.get()[self.start + range.start * self.width..self.start + range.end * self.width]
    }

    /// Appends the tokens in `range`, which must be there, to `to`.
    pub(super) fn read(&self, range: Range<usize>, to: &mut Vec<u32>) {
        to.extend(self.bytes(range).chunks_exact(self.width).map(|token| {
            let mut four = [0; 4];
            four[..token.len()].copy_from_slice(token);
            u32::from_le_bytes(four)
        }));
    }
}

fn map(path: &Path) -> Result<Mmap> {
    let file = file::open(path)?;
    // SAFETY: the map is only read, as bytes, for which every value is valid. A file that another process cuts short
    // meanwhile ends this one with SIGBUS: so it is with every mapped file, and documented where users give one.
    unsafe { Mmap::map(&file) }.map_err(Error::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(tokens: &Tokens) -> Vec<u32> {
        let mut read = Vec::new();
        tokens.read(0..tokens.len(), &mut read);
        read
    }

    #[test]
    fn a_token_file_gives_back_its_tokens_and_is_known_for_another_text_s() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let text: String = (0..300).filter_map(|i| char::from_u32(0x4e00 + i * 7 % 400)).collect();
        let tokenizer = Tokenizer::characters_of(&text);
        let codec = tokenizer.codec().unwrap();
        let tokens = Tokens::encode(&text, &tokenizer, &codec).unwrap();
        assert_eq!((tokens.len(), tokens.width), (300, 2));
        assert_eq!(all(&tokens), codec.encode(&text).unwrap());

        assert!(Tokens::open(&path, &text, &tokenizer).unwrap().is_none());
        std::fs::write(&path, tokens.file()).unwrap();
        let opened = Tokens::open(&path, &text, &tokenizer).unwrap().unwrap();
        assert_eq!(all(&opened), all(&tokens));
        // Windows keeps a file that is mapped as it is.
        drop(opened);
        assert!(Tokens::open(&path, &text[3..], &tokenizer).unwrap().is_none());
        assert!(Tokens::open(&path, &text, &Tokenizer::Bytes).unwrap().is_none());
        for cut in [16, 30, HEADER, tokens.file().len() - 1] {
            std::fs::write(&path, &tokens.file()[..cut]).unwrap();
            assert!(Tokens::open(&path, &text, &tokenizer).unwrap().is_none(), "{cut}");
        }
        let mut damaged = tokens.file().to_vec();
        damaged[HEADER + 101] ^= 4;
        std::fs::write(&path, damaged).unwrap();
        assert!(Tokens::open(&path, &text, &tokenizer).unwrap().is_none());
        std::fs::write(&path, "my notes").unwrap();
        let error = Tokens::open(&path, &text, &tokenizer).unwrap_err().to_string();
        assert!(error.contains("holds no tokens"), "{error}");
        let error = Tokens::open(folder.path(), &text, &tokenizer).unwrap_err().to_string();
        assert!(error.contains("found something else"), "{error}");
    }

    #[test]
    fn the_bytes_of_a_file_are_its_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        std::fs::write(&path, [0, 255, 7]).unwrap();
        assert_eq!(all(&Tokens::of_bytes(&path).unwrap()), [0, 255, 7]);
        let error = Tokens::of_bytes(&folder.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none"), "{error}");
    }
}

//! `[data]` with `format = "text"`: the text, how it is cut into tokens, and windows of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fields::{Fields, Settings};
use super::reader::Wrong;
use super::tree::{Node, Value, quoted};
use super::values::{Form, file_path, whole};
use crate::checkpoint::{check_writable, replace_mapped};
use crate::data::text::{Codec, Tokens};
use crate::data::{REMEDY, TextDataset, Tokenizer};
use crate::error::{Error, Result};
use crate::file;

/// The keys of `format = "text"`. Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextSource {
    /// The text, UTF-8.
    pub path: PathBuf,
    /// What cuts it.
    pub tokenizer: TokenizerKind,
    /// Tokens of a sample.
    pub length: usize,
    /// Tokens from one sample's start to the next one's.
    pub stride: usize,
    /// Where the text's tokens are kept, so that the next run finds them; without it they are made anew, in memory.
    pub cache: Option<PathBuf>,
}

/// `data.tokenizer`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TokenizerKind {
    /// `"bytes"`.
    #[default]
    Bytes,
    /// `"characters"`: those of the training text.
    Characters,
    /// A `tokenizer.json`.
    File(PathBuf),
}

impl TokenizerKind {
    fn form() -> Form<Self> {
        const WORDS: &str = "\"bytes\", \"characters\" or a tokenizer.json file";
        let read = |name: &str, node: &Node| match &node.value {
            Value::String(word) if word == "bytes" => Ok(Self::Bytes),
            Value::String(word) if word == "characters" => Ok(Self::Characters),
            Value::String(file) if file.ends_with(".json") => Ok(Self::File(file_path(WORDS).read(name, node)?)),
            _ => Err(Wrong::Other),
        };
        Form::new(WORDS, read, |tokenizer| match tokenizer {
            Self::Bytes => quoted("bytes"),
            Self::Characters => quoted("characters"),
            Self::File(file) => file_path("").write(file),
        })
    }
}

impl Settings for TextSource {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.required("path", "the text file", file_path("a string"), &mut self.path);
        f.field("tokenizer", "What a token is", TokenizerKind::form(), &mut self.tokenizer);
        f.required("length", "the number of tokens of a sample", whole(1..), &mut self.length);
        let (apart, length) = ("Tokens from one sample's start to the next one's", ("length", self.length));
        f.derived("stride", apart, whole(1..), length, &mut self.stride);
        let file = file_path("a file, which is made if it is not there");
        f.optional("cache", "Keeps the tokens for the next run", file, &mut self.cache);
    }
}

impl TextSource {
    /// The text as samples, and its tokenizer. No file that is read as a whole may have more than `limit` bytes.
    ///
    /// # Errors
    /// When a file cannot be used, or the text is too short.
    pub(super) fn load(&self, limit: u64) -> Result<(TextDataset, Tokenizer)> {
        let tokenizer = match &self.tokenizer {
            TokenizerKind::Bytes => Tokenizer::Bytes,
            TokenizerKind::Characters => Tokenizer::characters_of(&read_text(&self.path, limit)?),
            TokenizerKind::File(file) => read_tokenizer(file, limit)?,
        };
        Ok((self.load_other(&self.path, &tokenizer, self.cache.as_deref(), limit)?, tokenizer))
    }

    /// Another text, cut as the training's was by `tokenizer`.
    ///
    /// # Errors
    /// When a file cannot be used, the text is too short, or has something that there is no token for.
    pub(super) fn load_other(
        &self,
        path: &Path,
        tokenizer: &Tokenizer,
        cache: Option<&Path>,
        limit: u64,
    ) -> Result<TextDataset> {
        let codec = tokenizer.codec()?;
        let tokens = match tokenizer {
            Tokenizer::Bytes => Tokens::of_bytes(path)?,
            _ => cached(path, tokenizer, &codec, cache, limit)?,
        };
        TextDataset::new(Arc::new(tokens), codec.vocabulary(), self.length, self.stride).map_err(|e| about(path, e))
    }
}

/// The tokens of the text in `path`: those in `cache`, where they are this text's, else made, and kept there.
fn cached(path: &Path, tokenizer: &Tokenizer, codec: &Codec, cache: Option<&Path>, limit: u64) -> Result<Tokens> {
    let text = read_text(path, limit)?;
    if let Some(cache) = cache
        && let Some(tokens) = Tokens::open(cache, &text, tokenizer)?
    {
        return Ok(tokens);
    }
    cache.map_or(Ok(()), check_writable)?;
    let tokens = Tokens::encode(&text, tokenizer, codec).map_err(|error| about(path, error))?;
    let Some(cache) = cache else { return Ok(tokens) };
    let written = replace_mapped(cache, tokens.file());
    // Mapped, the tokens need no memory of their own. Another process may have made the same file meanwhile.
    match (Tokens::open(cache, &text, tokenizer)?, written) {
        (Some(kept), _) => Ok(kept),
        (None, Ok(())) => Ok(tokens),
        (None, Err(error)) => Err(error),
    }
}

/// The tokenizer of a `tokenizer.json`.
fn read_tokenizer(file: &Path, limit: u64) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::Bpe { json: read_text(file, limit)? };
    let codec = tokenizer.codec().map_err(|error| about(file, error))?;
    if let Some(left_out) = codec.left_out() {
        log::warn!("{}: {left_out}", file.display());
    }
    Ok(tokenizer)
}

/// `error` as one about a file.
fn about(path: &Path, error: Error) -> Error {
    match error {
        Error::Invalid { message, .. } => Error::data(path, message),
        other => other,
    }
}

/// A UTF-8 text without its byte order mark.
fn read_text(path: &Path, limit: u64) -> Result<String> {
    let text = file::text(file::read(path, limit, REMEDY)?).map_err(|message| {
        let hint = if message.contains("ends at") { "; for other data take tokenizer = \"bytes\"" } else { "" };
        Error::data(path, message + hint)
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(unmarked) => unmarked.to_owned(),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{LoadedData, RunConfig};
    use super::*;

    fn load(dir: &Path, data: &str) -> Result<LoadedData> {
        let text = format!("[data]\nformat = \"text\"\n{data}\n[model]\nlayers = [\"flatten\"]\n");
        let config = RunConfig::parse(&text, "run.toml", dir, &[])?;
        let again = RunConfig::parse(&config.to_toml(), "again.toml", Path::new("/"), &[])?;
        assert_eq!(again, config);
        config.data.load(0, &config.model.loss)
    }

    fn folder(text: &[u8]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.txt"), text).unwrap();
        dir
    }

    #[test]
    fn a_text_becomes_windows_with_the_end_held_out() {
        let dir = folder(b"abcdefghijklmnopqrst");
        let loaded = load(dir.path(), "path = \"a.txt\"\nlength = 4\nvalidation = 0.3").unwrap();
        assert_eq!((loaded.train.len(), loaded.validation.unwrap().len()), (3, 1));
        assert_eq!(loaded.card.vocabulary(), Some(256));
        let batch = loaded.train.gather(&[0]).unwrap();
        assert_eq!(batch.targets.as_u32().unwrap(), [98, 99, 100, 101]);
        assert_eq!(loaded.card.input_type(), loaded.train.input_type());
        assert_eq!(loaded.card.target_type(), loaded.train.target_type());
    }

    #[test]
    fn tokens_are_kept_and_found_again() {
        let dir = folder("ab cab ad ćab".as_bytes());
        let keys = "path = \"a.txt\"\ntokenizer = \"characters\"\nlength = 2\nstride = 1\ncache = \"a.tokens\"\nvalidation = \"none\"";
        let first = load(dir.path(), keys).unwrap();
        let kept = fs::read(dir.path().join("a.tokens")).unwrap();
        assert_eq!(first.card.vocabulary(), Some(6));
        assert_eq!(first.train.len(), 11);
        let indices: Vec<usize> = (0..11).collect();
        let again = load(dir.path(), keys).unwrap().train.gather(&indices).unwrap();
        assert_eq!(again, first.train.gather(&indices).unwrap());
        fs::write(dir.path().join("a.txt"), "ab cab ad xab").unwrap();
        assert_eq!(load(dir.path(), keys).unwrap().train.len(), 11);
        assert_ne!(fs::read(dir.path().join("a.tokens")).unwrap(), kept);
    }

    #[test]
    fn a_validation_text_is_cut_like_the_training_text() {
        let dir = folder(b"abcabc");
        fs::write(dir.path().join("b.txt"), "cba").unwrap();
        let keys = "path = \"a.txt\"\ntokenizer = \"characters\"\nlength = 2\nvalidation = \"b.txt\"";
        let loaded = load(dir.path(), keys).unwrap();
        assert_eq!(loaded.validation.unwrap().gather(&[0]).unwrap().inputs.as_u32().unwrap(), [2, 1]);
        fs::write(dir.path().join("b.txt"), "abz").unwrap();
        let error = load(dir.path(), keys).unwrap_err().to_string();
        assert!(error.contains("b.txt") && error.contains("'z' did not occur"), "{error}");
    }

    #[test]
    fn bad_texts_are_refused() {
        let error = |text: &[u8], keys: &str| load(folder(text).path(), keys).unwrap_err().to_string();
        let keys = "path = \"a.txt\"\ntokenizer = \"characters\"\nlength = 2";
        assert!(error(b"ab\xff", keys).contains("a.txt: expected UTF-8 text, which ends at byte 2"));
        assert!(error(b"ab", "path = \"a.txt\"\nlength = 2").contains("a.txt: the text has 2 tokens"));
        assert!(error(b"", "path = \"a.txt\"\nlength = 2").contains("a.txt"));
        assert!(error(b"abc", "path = \"b.txt\"\nlength = 2").contains("b.txt"));
        assert!(error(b"abc", "path = \"a.txt\"").contains("data.length is missing"));
        assert!(
            error(b"abc", "path = \"a.txt\"\nlength = 2\ntokenizer = \"words\"")
                .contains("data.tokenizer: expected \"bytes\", \"characters\" or a tokenizer.json file")
        );
    }
}

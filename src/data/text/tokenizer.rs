//! What turns text into tokens and back.

use serde::{Deserialize, Serialize};

#[cfg(feature = "bpe")]
use super::bpe::Bpe;
use crate::error::{Error, Result};

/// A tokenizer, as it is stored with a run: whoever evaluates or generates later cuts text as the training did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Tokenizer {
    /// A token is a byte of the UTF-8 text: 256 of them.
    Bytes,
    /// A token is a character of those that occurred in the text it was made from.
    Characters {
        /// The characters, ascending; a token is its character's number here.
        characters: String,
    },
    /// Byte-pair encoding (or another model) as a `tokenizer.json` of the `tokenizers` library describes it. Needs the
    /// crate's feature `bpe`.
    Bpe {
        /// The file's text.
        json: String,
    },
}

/// A [`Tokenizer`] with its tables built.
#[derive(Debug)]
pub struct Codec(Inner);

#[derive(Debug)]
enum Inner {
    Bytes,
    Characters(Vec<char>),
    #[cfg(feature = "bpe")]
    Bpe(Box<Bpe>),
}

impl Tokenizer {
    /// A tokenizer of the characters in `text`.
    pub fn characters_of(text: &str) -> Self {
        let mut characters: Vec<char> = text.chars().collect::<std::collections::HashSet<_>>().into_iter().collect();
        characters.sort_unstable();
        Self::Characters { characters: characters.into_iter().collect() }
    }

    /// Makes it ready.
    ///
    /// # Errors
    /// When a `tokenizer.json` cannot be used, or this build has no BPE.
    pub fn codec(&self) -> Result<Codec> {
        Ok(Codec(match self {
            Self::Bytes => Inner::Bytes,
            Self::Characters { characters } => Inner::Characters(characters.chars().collect()),
            #[cfg(feature = "bpe")]
            Self::Bpe { json } => Inner::Bpe(Box::new(Bpe::parse(json)?)),
            #[cfg(not(feature = "bpe"))]
            Self::Bpe { .. } => {
                let message = "this build has no BPE; build it with `--features bpe`, or take bytes or characters";
                return Err(Error::invalid("tokenizer", message));
            }
        }))
    }
}

impl Codec {
    /// What of a `tokenizer.json` is not followed, since the same text must give the same tokens; nothing where all is.
    pub fn left_out(&self) -> Option<String> {
        match &self.0 {
            #[cfg(feature = "bpe")]
            Inner::Bpe(bpe) => bpe.left_out(),
            _ => None,
        }
    }

    /// Number of tokens there are; each is below it.
    pub fn vocabulary(&self) -> usize {
        match &self.0 {
            Inner::Bytes => 256,
            Inner::Characters(characters) => characters.len(),
            #[cfg(feature = "bpe")]
            Inner::Bpe(bpe) => bpe.vocabulary(),
        }
    }

    /// The tokens of `text`. No token is added at its start or end.
    ///
    /// # Errors
    /// When the text has a character that the tokenizer has no token for.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match &self.0 {
            Inner::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Inner::Characters(characters) => {
                let token = |c: char| characters.binary_search(&c).map(|token| token as u32);
                text.chars().map(|c| token(c).map_err(|_| unknown(c))).collect()
            }
            #[cfg(feature = "bpe")]
            Inner::Bpe(bpe) => bpe.encode(text),
        }
    }

    /// The text of `tokens`. Bytes that are no UTF-8 come out as U+FFFD, tokens that there are not as nothing.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match &self.0 {
            Inner::Bytes => {
                let bytes: Vec<u8> = tokens.iter().filter_map(|&token| u8::try_from(token).ok()).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Inner::Characters(characters) => {
                tokens.iter().filter_map(|&token| characters.get(token as usize)).collect()
            }
            #[cfg(feature = "bpe")]
            Inner::Bpe(bpe) => bpe.decode(tokens),
        }
    }
}

fn unknown(character: char) -> Error {
    let message = format!("{character:?} did not occur in the training text: there is no token for it");
    Error::invalid("text", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_characters_come_back() {
        let text = "In the beginning… 🌍\n";
        for tokenizer in [Tokenizer::Bytes, Tokenizer::characters_of(text)] {
            let codec = tokenizer.codec().unwrap();
            let tokens = codec.encode(text).unwrap();
            assert!(tokens.iter().all(|&token| (token as usize) < codec.vocabulary()));
            assert_eq!(codec.decode(&tokens), text);
            let stored: Tokenizer = serde_json::from_str(&serde_json::to_string(&tokenizer).unwrap()).unwrap();
            assert_eq!(stored, tokenizer);
        }
    }

    #[test]
    fn characters_are_numbered_in_order() {
        let codec = Tokenizer::characters_of("cabbage").codec().unwrap();
        assert_eq!((codec.vocabulary(), codec.encode("age").unwrap()), (5, vec![0, 4, 3]));
        let error = codec.encode("az").unwrap_err().to_string();
        assert_eq!(error, "text: 'z' did not occur in the training text: there is no token for it");
    }

    #[test]
    fn half_a_character_is_shown_as_such() {
        let codec = Tokenizer::Bytes.codec().unwrap();
        assert_eq!(codec.decode(&[0x61, 0xe2, 0x80, 999]), "a\u{fffd}");
    }

    #[cfg(not(feature = "bpe"))]
    #[test]
    fn a_build_without_bpe_says_so() {
        let error = Tokenizer::Bpe { json: "{}".into() }.codec().unwrap_err().to_string();
        assert!(error.contains("build it with `--features bpe`"), "{error}");
    }
}

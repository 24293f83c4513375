//! A `tokenizer.json` of the `tokenizers` library, for whole texts. What such a file says about single sentences (how
//! long they may be, what they are padded with) is not for these, and neither is dropout, by which the same text would
//! give other tokens each time.

use tokenizers::{Model, ModelWrapper, NormalizedString, OffsetType, PreTokenizer, Token};

use crate::error::{Error, Result};

/// A tokenizer file without what it says about single sentences.
#[derive(Debug)]
pub(super) struct Bpe {
    tokenizer: tokenizers::Tokenizer,
    /// The file's dropout, which is off.
    dropout: Option<f32>,
    /// The highest token and one.
    vocabulary: usize,
}

impl Bpe {
    /// Reads a file's text.
    ///
    /// # Errors
    /// When it is no `tokenizer.json`.
    pub(super) fn parse(json: &str) -> Result<Self> {
        let mut tokenizer: tokenizers::Tokenizer =
            json.parse().map_err(|e| Error::invalid("tokenizer", format!("not a tokenizer.json: {e}")))?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|e| Error::invalid("tokenizer", e.to_string()))?;
        let dropout = match tokenizer.get_model() {
            ModelWrapper::BPE(model) => model.dropout.filter(|&dropout| dropout > 0.0),
            _ => None,
        };
        if dropout.is_some()
            && let ModelWrapper::BPE(mut model) = tokenizer.get_model().clone()
        {
            model.dropout = None;
            tokenizer.with_model(model);
        }
        // Not how many there are: numbers may be left out.
        let vocabulary = tokenizer.get_vocab(true).values().max().map_or(0, |&highest| highest as usize + 1);
        Ok(Self { tokenizer, dropout, vocabulary })
    }

    pub(super) fn left_out(&self) -> Option<String> {
        let dropout = self.dropout?;
        Some(format!("its dropout of {dropout} is off: the same text is to give the same tokens"))
    }

    pub(super) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The steps of the library's own `encode`, with a look at whether the model leaves something out: without a token
    /// for what is unknown it does so without a word.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let cannot = |error: tokenizers::Error| match error.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(error) => Error::invalid("text", format!("the tokenizer cannot cut it: {error}")),
        };
        let tokenizer = &self.tokenizer;
        let mut pieces = tokenizer.get_added_vocabulary().extract_and_normalize(tokenizer.get_normalizer(), text);
        if let Some(splitter) = tokenizer.get_pre_tokenizer() {
            splitter.pre_tokenize(&mut pieces).map_err(cannot)?;
        }
        let tokens = |piece: &NormalizedString| {
            let tokens = tokenizer.get_model().tokenize(piece.get())?;
            match covered(&tokens) < piece.get().len() {
                true => Err(self.unknown(piece.get()).into()),
                false => Ok(tokens),
            }
        };
        pieces.tokenize(tokens).map_err(cannot)?;
        Ok(pieces.into_encoding(None, 0, OffsetType::None).map_err(cannot)?.get_ids().to_vec())
    }

    /// The error about a piece of a text that has something without a token.
    fn unknown(&self, piece: &str) -> Error {
        let alone = |c: &char| self.tokenizer.get_model().tokenize(&c.to_string());
        let lost = |c: &char| alone(c).is_ok_and(|tokens| covered(&tokens) < c.len_utf8());
        let what = match piece.chars().find(lost) {
            Some(character) => format!("{character:?}"),
            None => format!("a part of {:?}", piece.chars().take(40).collect::<String>()),
        };
        Error::invalid("text", format!("the tokenizer has no token for {what}, and none for what is unknown"))
    }

    pub(super) fn decode(&self, tokens: &[u32]) -> String {
        self.tokenizer.decode(tokens, false).unwrap_or_default()
    }
}

/// Bytes of a piece of text that its tokens stand for.
fn covered(tokens: &[Token]) -> usize {
    tokens.last().map_or(0, |token| token.offsets.1)
}

#[cfg(test)]
mod tests {
    use super::super::Tokenizer;
    use super::*;

    /// A file with these settings of the whole and of its model.
    fn json(settings: &str, model: &str) -> String {
        format!(
            r#"{{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,
            "decoder":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}},
            "truncation":null,"padding":null{settings},
            "model":{{"type":"BPE","unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,
            "fuse_unk":false,"byte_fallback":false{model},"merges":["a b","ab ab"]}}}}"#
        )
    }

    const VOCABULARY: &str = r#","dropout":null,"vocab":{"a":0,"b":1,"ab":2,"abab":3}"#;

    #[test]
    fn a_tokenizer_file_is_used_as_it_is() {
        let codec = Tokenizer::Bpe { json: json("", VOCABULARY) }.codec().unwrap();
        assert_eq!(codec.encode("ababa").unwrap(), [3, 0]);
        assert_eq!((codec.vocabulary(), codec.decode(&[3, 0]), codec.left_out()), (4, "ababa".into(), None));
        assert!(Tokenizer::Bpe { json: "{}".into() }.codec().unwrap_err().to_string().contains("not a tokenizer.json"));
    }

    #[test]
    fn settings_for_single_sentences_are_off() {
        let truncation = r#""direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0"#;
        let padding = r#""strategy":{"Fixed":50},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,
            "pad_type_id":0,"pad_token":"a""#;
        let settings = format!(r#","truncation":{{{truncation}}},"padding":{{{padding}}}"#);
        let text =
            json("", VOCABULARY).replace(r#""truncation":null,"padding":null"#, settings.trim_start_matches(','));
        let bpe = Bpe::parse(&text).unwrap();
        assert_eq!(bpe.encode("aabaab").unwrap(), [0, 2, 0, 2]);
    }

    #[test]
    fn numbers_that_are_left_out_count() {
        let bpe = Bpe::parse(&json("", &VOCABULARY.replace("3}", "20}"))).unwrap();
        assert_eq!((bpe.vocabulary(), bpe.encode("abab").unwrap()), (21, vec![20]));
    }

    #[test]
    fn characters_without_a_token_are_an_error() {
        let bpe = Bpe::parse(&json("", VOCABULARY)).unwrap();
        for text in ["abZab", "Z", "abZ"] {
            let error = bpe.encode(text).unwrap_err().to_string();
            assert_eq!(error, "text: the tokenizer has no token for 'Z', and none for what is unknown");
        }
        let text = json("", VOCABULARY).replace(r#""unk_token":null"#, r#""unk_token":"b""#);
        assert_eq!(Bpe::parse(&text).unwrap().encode("bZ").unwrap(), [1, 1]);
    }

    #[test]
    fn dropout_is_off() {
        let bpe = Bpe::parse(&json("", &VOCABULARY.replace("null", "0.5"))).unwrap();
        assert!(bpe.left_out().unwrap().contains("dropout of 0.5 is off"));
        let text = "ab".repeat(200);
        assert_eq!(bpe.encode(&text).unwrap(), [3; 100]);
    }
}

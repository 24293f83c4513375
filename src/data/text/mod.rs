//! Text as samples for language models: windows of tokens, each to be continued by one.

#[cfg(feature = "bpe")]
mod bpe;
mod tokenizer;
mod tokens;

use std::ops::Range;
use std::sync::Arc;

pub use tokenizer::{Codec, Tokenizer};
pub use tokens::Tokens;

use super::{Batch, Dataset};
use crate::error::{Error, Result};
use crate::tensor::{HostTensor, TensorType};

/// Windows of `length` tokens: sample i starts at token i·`stride`, and its target is the window one token later.
/// Tokens behind the last whole window are in no sample.
#[derive(Debug, Clone)]
pub struct TextDataset {
    tokens: Arc<Tokens>,
    /// The tokens that windows are cut from.
    part: Range<usize>,
    length: usize,
    stride: usize,
    vocabulary: usize,
}

impl TextDataset {
    /// Windows over all of `tokens`, which are below `vocabulary`.
    ///
    /// # Errors
    /// When `length` or `stride` is 0, or there are not `length` + 1 tokens.
    pub fn new(tokens: Arc<Tokens>, vocabulary: usize, length: usize, stride: usize) -> Result<Self> {
        let part = 0..tokens.len();
        Self { tokens, part, length, stride, vocabulary }.checked("the text")
    }

    /// The front and, as a data set of its own, the last `fraction` of the tokens. No token is in both.
    ///
    /// # Errors
    /// When `fraction` is not between 0 and 1, or one of them is too short for a window.
    pub fn split(self, fraction: f64) -> Result<(Self, Self)> {
        if !(fraction > 0.0 && fraction < 1.0) {
            return Err(Error::invalid("data.validation", format!("expected between 0 and 1, got {fraction}")));
        }
        let held_out = (self.part.len() as f64 * fraction).round() as usize;
        let cut = self.part.end - held_out;
        let front = Self { part: self.part.start..cut, ..self.clone() }.checked("the training part of the text")?;
        let back = Self { part: cut..self.part.end, ..self }.checked("the held-out part of the text")?;
        Ok((front, back))
    }

    /// Number of different tokens.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn checked(self, what: &str) -> Result<Self> {
        if self.length == 0 || self.stride == 0 {
            return Err(Error::invalid("text", "expected windows of 1 token or more, and a stride of 1 or more"));
        }
        if self.part.len() <= self.length {
            let message = format!(
                "{what} has {} tokens; a window of {} and its continuation need {}",
                self.part.len(),
                self.length,
                self.length + 1
            );
            return Err(Error::invalid("text", message));
        }
        Ok(self)
    }
}

impl Dataset for TextDataset {
    fn len(&self) -> usize {
        (self.part.len() - 1 - self.length) / self.stride + 1
    }

    fn input_type(&self) -> TensorType {
        TensorType::u32([self.length])
    }

    fn target_type(&self) -> TensorType {
        self.input_type()
    }

    fn classes(&self) -> Option<&[String]> {
        None
    }

    fn fingerprint(&self) -> Option<u32> {
        let mut crc = crc32fast::Hasher::new();
        [self.length, self.stride].iter().for_each(|&number| crc.update(&(number as u64).to_le_bytes()));
        crc.update(self.tokens.bytes(self.part.clone()));
        Some(crc.finalize())
    }

    fn gather(&self, indices: &[usize]) -> Result<Batch> {
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for &index in indices {
            if index >= self.len() {
                return Err(Error::invalid("indices", format!("sample {index} of a data set of {}", self.len())));
            }
            let start = self.part.start + index * self.stride;
            let (from, to) = (inputs.len(), targets.len());
            self.tokens.read(start..start + self.length, &mut inputs);
            self.tokens.read(start + 1..start + 1 + self.length, &mut targets);
            // A mapped file may be anything by now.
            let all = inputs[from..].iter().chain(&targets[to..]);
            if let Some(token) = all.copied().find(|&token| token as usize >= self.vocabulary) {
                let message = format!("sample {index} has token {token}, there are {} (from 0)", self.vocabulary);
                return Err(Error::invalid("text", message));
            }
        }
        let shape = [indices.len(), self.length];
        Ok(Batch {
            inputs: HostTensor::u32(shape, inputs)?,
            targets: HostTensor::u32(shape, targets)?,
            weights: vec![1.0; indices.len()],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(text: &str, length: usize, stride: usize) -> Result<TextDataset> {
        let codec = Tokenizer::Bytes.codec()?;
        let tokens = Tokens::encode(text, &Tokenizer::Bytes, &codec)?;
        TextDataset::new(Arc::new(tokens), codec.vocabulary(), length, stride)
    }

    fn windows(data: &TextDataset) -> Vec<(String, String)> {
        let text = |tensor: &HostTensor| {
            String::from_utf8(tensor.as_u32().unwrap().iter().map(|&t| t as u8).collect()).unwrap()
        };
        (0..data.len()).map(|i| data.gather(&[i]).unwrap()).map(|b| (text(&b.inputs), text(&b.targets))).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn windows_are_continued_by_one_token() {
        assert_eq!(windows(&dataset("abcdefg", 3, 3).unwrap()), pairs(&[("abc", "bcd"), ("def", "efg")]));
        assert_eq!(windows(&dataset("abcdef", 3, 3).unwrap()), pairs(&[("abc", "bcd")]));
        assert_eq!(windows(&dataset("abcde", 3, 1).unwrap()), pairs(&[("abc", "bcd"), ("bcd", "cde")]));
        let batch = dataset("abcdefg", 3, 3).unwrap().gather(&[1, 0]).unwrap();
        assert_eq!((batch.inputs.shape().dims(), batch.weights), (&[2, 3][..], vec![1.0, 1.0]));
    }

    #[test]
    fn what_is_held_out_shares_no_token_with_the_training_part() {
        let (train, held_out) = dataset("abcdefghij", 2, 1).unwrap().split(0.4).unwrap();
        assert_eq!(windows(&train), pairs(&[("ab", "bc"), ("bc", "cd"), ("cd", "de"), ("de", "ef")]));
        assert_eq!(windows(&held_out), pairs(&[("gh", "hi"), ("hi", "ij")]));
    }

    #[test]
    fn texts_that_are_too_short_are_refused() {
        let message = |result: Result<TextDataset>| result.unwrap_err().to_string();
        assert_eq!(
            message(dataset("abc", 3, 3)),
            "text: the text has 3 tokens; a window of 3 and its continuation need 4"
        );
        assert!(message(dataset("", 1, 1)).contains("has 0 tokens"));
        assert!(message(dataset("abc", 0, 1)).contains("1 token or more"));
        assert!(message(dataset("abc", 1, 0)).contains("1 token or more"));
        let data = dataset("abcdefghij", 2, 1).unwrap();
        assert!(message(data.clone().split(0.1).map(|(_, b)| b)).contains("held-out part of the text has 1 tokens"));
        assert!(message(data.clone().split(1.0).map(|(_, b)| b)).contains("expected between 0 and 1"));
        assert!(data.gather(&[9]).unwrap_err().to_string().contains("sample 9 of a data set of 8"));
    }

    #[test]
    fn a_token_beyond_the_vocabulary_is_named() {
        let codec = Tokenizer::Bytes.codec().unwrap();
        let tokens = Tokens::encode("aaz", &Tokenizer::Bytes, &codec).unwrap();
        let data = TextDataset::new(Arc::new(tokens), 100, 1, 1).unwrap();
        assert_eq!(data.gather(&[1]).unwrap_err().to_string(), "text: sample 1 has token 122, there are 100 (from 0)");
    }
}

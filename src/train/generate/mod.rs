//! Text from a language model: one token after the other, each chosen by the probabilities that the model gives behind the
//! tokens so far.

mod sampling;

pub use sampling::Sampling;

use super::predict::Predictor;
use super::record::Flow;
use super::task::Task;
use crate::checkpoint::Snapshot;
use crate::error::{Error, Result};
use crate::gpu::Adapter;
use crate::tensor::{DType, HostTensor};

/// A language model that goes on from a prompt.
#[derive(Debug)]
pub struct Generator {
    predictor: Predictor,
    /// Tokens of a window.
    length: usize,
    /// Tokens that there are.
    vocabulary: usize,
}

impl Generator {
    /// Puts a checkpoint's weights of a model from u32 (N, T) to logits (N, T, vocabulary) on `adapter`.
    ///
    /// # Errors
    /// When the model is none of these, or looks ahead: what it gives for a token must depend on that token and those before
    /// it alone. When the adapter cannot be used.
    pub fn restore(adapter: &Adapter, task: &Task, snapshot: &Snapshot) -> Result<Self> {
        let input = task.model.input();
        let output = crate::nn::output_shape(task.model.as_ref())?;
        let ([length], [steps, vocabulary], DType::U32) = (input.shape.dims(), output.dims(), input.dtype) else {
            let message = format!("expected tokens u32[T] to logits [T, vocabulary], it goes from {input} to {output}");
            return Err(Error::shape("language model", message));
        };
        if steps != length {
            let message = format!("expected logits for each of the {length} tokens of a window, got {steps}");
            return Err(Error::shape("language model", message));
        }
        let (length, vocabulary) = (*length, *vocabulary);
        let mut generator = Self { predictor: Predictor::restore(adapter, task, snapshot, 1)?, length, vocabulary };
        generator.check_causality()?;
        Ok(generator)
    }

    /// Appends up to `count` tokens to `prompt`, chosen as `sampling` says; each is handed to `observe` at once, which may
    /// stop. The model sees the last window of what is there.
    ///
    /// # Errors
    /// When the prompt is empty or has a token that the model does not know, a setting is out of range, the device fails or
    /// `observe` does.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        count: usize,
        sampling: &Sampling,
        mut observe: impl FnMut(u32) -> Result<Flow>,
    ) -> Result<Vec<u32>> {
        sampling.validate()?;
        if prompt.is_empty() {
            return Err(Error::invalid("prompt", "expected at least one token to go on from, got none"));
        }
        if let Some(token) = prompt.iter().find(|&&token| token as usize >= self.vocabulary) {
            let message = format!("token {token} is not among the {} that the model knows", self.vocabulary);
            return Err(Error::invalid("prompt", message));
        }
        let mut text = prompt.to_vec();
        for _ in 0..count {
            let probabilities = self.probabilities(&text[text.len().saturating_sub(self.length)..], 0)?;
            let token = sampling.choose(&probabilities, text.len() as u64);
            text.push(token);
            if observe(token)? == Flow::Stop {
                break;
            }
        }
        Ok(text.split_off(prompt.len()))
    }

    /// The probabilities of the token behind `window`, which `padding` fills up.
    fn probabilities(&mut self, window: &[u32], padding: u32) -> Result<Vec<f32>> {
        let mut tokens = window.to_vec();
        tokens.resize(self.length, padding);
        let all = self.predictor.predict(&HostTensor::u32([1, self.length], tokens)?)?;
        let values = all.as_f32().unwrap_or_default();
        Ok(values[(window.len() - 1) * self.vocabulary..][..self.vocabulary].to_vec())
    }

    /// What comes behind a token must not matter for it.
    fn check_causality(&mut self) -> Result<()> {
        let other = self.vocabulary as u32 - 1;
        if self.length > 1 && self.probabilities(&[0], 0)? != self.probabilities(&[0], other)? {
            let message = "it looks ahead: what it gives for a token depends on the tokens behind it; generation needs a \
                           causal model (self_attention with causal = true)";
            return Err(Error::shape("language model", message));
        }
        Ok(())
    }
}

//! Text from a language model: one token after the other, each chosen by the probabilities that the model gives behind
//! the tokens so far.

mod decoder;
mod sampling;

pub use sampling::Sampling;

use decoder::Decoder;

use super::Predictor;
use crate::checkpoint::Snapshot;
use crate::error::{Error, Result};
use crate::gpu::Adapter;
use crate::tensor::{DType, HostTensor, Named};
use crate::train::{Flow, Task, saved_weights};

/// A language model that goes on from a prompt.
#[derive(Debug)]
pub struct Generator {
    model: Loaded,
    /// Tokens of a window.
    length: usize,
    /// Tokens that there are.
    vocabulary: usize,
}

#[derive(Debug)]
enum Loaded {
    /// Each token is run once, with what the layers carry of those before it.
    Steps(Box<Decoder>),
    /// All of the window is run for each token.
    Windows(Box<Predictor>),
}

impl Generator {
    /// Puts `weights`, which are all of the task's model by name, on `adapter`. The model goes from u32 (N, T) to
    /// logits (N, T, vocabulary). Where all its layers [decode](crate::nn::Layer::decodes), keys and values of earlier
    /// tokens are kept instead of computed anew.
    ///
    /// # Errors
    /// When the model is none of these, or looks ahead: what it gives for a token must depend on that token and those
    /// before it alone. When the adapter cannot be used.
    pub fn new(adapter: &Adapter, task: &Task, weights: &Named<Vec<f32>>) -> Result<Self> {
        Self::with(adapter, task, weights, task.model.decodes())
    }

    /// The same, with the whole window run for each token.
    ///
    /// # Errors
    /// As [`Generator::new`].
    pub fn windowed(adapter: &Adapter, task: &Task, weights: &Named<Vec<f32>>) -> Result<Self> {
        Self::with(adapter, task, weights, false)
    }

    /// The same with a checkpoint's weights, or their moving average where it has one.
    ///
    /// # Errors
    /// As [`Generator::new`].
    pub fn restore(adapter: &Adapter, task: &Task, snapshot: &Snapshot) -> Result<Self> {
        Self::new(adapter, task, &saved_weights(snapshot, false)?)
    }

    fn with(adapter: &Adapter, task: &Task, weights: &Named<Vec<f32>>, steps: bool) -> Result<Self> {
        let input = task.model.input();
        let output = crate::nn::output_shape(task.model.as_ref())?;
        let error = |message| Error::shape("language model", message);
        let ([length], [outputs, vocabulary], DType::U32) = (input.shape.dims(), output.dims(), input.dtype) else {
            return Err(error(format!("expected tokens u32[T] to logits [T, vocabulary], got {input} to {output}")));
        };
        if outputs != length {
            return Err(error(format!("expected logits for each of the {length} tokens of a window, got {outputs}")));
        }
        let (length, vocabulary) = (*length, *vocabulary);
        if steps {
            let decoder = Decoder::new(adapter, task, weights, length)?;
            return Ok(Self { model: Loaded::Steps(Box::new(decoder)), length, vocabulary });
        }
        let mut predictor = Box::new(Predictor::new(adapter, task, weights, 1)?);
        // What comes behind a token must not matter for it.
        let behind = |padding| (vec![0], padding);
        let (one, other) = (behind(0), behind(vocabulary as u32 - 1));
        let mut first =
            |(window, padding): (Vec<u32>, u32)| last_row(&mut predictor, &window, padding, length, vocabulary);
        if first(one)? != first(other)? {
            return Err(error(
                "it looks ahead: what it gives for a token depends on the tokens behind it; generation needs a causal \
                 model (self_attention with causal = true)"
                    .to_owned(),
            ));
        }
        Ok(Self { model: Loaded::Windows(predictor), length, vocabulary })
    }

    /// Appends up to `count` tokens to `prompt`, chosen as `sampling` says; each is handed to `observe` at once, which
    /// may stop. The model sees at most a window of what is there: the last T tokens, or, with carried keys and values,
    /// at least the last T/2 (when they have filled the window, the older half of it is forgotten).
    ///
    /// # Errors
    /// When the prompt is empty or has a token that the model does not know, a setting is out of range, the device
    /// fails or `observe` does.
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
            let probabilities = self.next(&text)?;
            let token = sampling.choose(&probabilities, text.len() as u64);
            text.push(token);
            if observe(token)? == Flow::Stop {
                break;
            }
        }
        Ok(text.split_off(prompt.len()))
    }

    /// The probabilities of the token behind `text`, which has at least one.
    ///
    /// # Errors
    /// When the device fails.
    pub fn next(&mut self, text: &[u32]) -> Result<Vec<f32>> {
        match &mut self.model {
            Loaded::Steps(decoder) => decoder.next(text),
            Loaded::Windows(predictor) => {
                let window = &text[text.len().saturating_sub(self.length)..];
                last_row(predictor, window, 0, self.length, self.vocabulary)
            }
        }
    }
}

/// The probabilities of the token behind `window`, which `padding` fills up to `length`.
fn last_row(
    predictor: &mut Predictor,
    window: &[u32],
    padding: u32,
    length: usize,
    vocabulary: usize,
) -> Result<Vec<f32>> {
    let mut tokens = window.to_vec();
    tokens.resize(length, padding);
    let all = predictor.predict(&HostTensor::u32([1, length], tokens)?)?;
    Ok(all.as_f32().unwrap_or_default()[(window.len() - 1) * vocabulary..][..vocabulary].to_vec())
}

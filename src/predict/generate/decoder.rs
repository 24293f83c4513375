//! A language model run token by token.

use crate::error::{Error, Result};
use crate::gpu::{Adapter, Engine, Executable, MicroBatch};
use crate::kernel::Step;
use crate::predict::predictor::loaded;
use crate::tensor::Named;
use crate::train::Task;

/// A model that carries keys and values of the tokens it has seen.
#[derive(Debug)]
pub(super) struct Decoder {
    engine: Engine,
    executable: Executable,
    /// Most tokens that are carried.
    capacity: usize,
    /// The tokens that are.
    seen: Vec<u32>,
    /// What came out behind the last of them.
    probabilities: Vec<f32>,
}

impl Decoder {
    /// Puts `weights` on `adapter`; at most `capacity` tokens are carried.
    ///
    /// # Errors
    /// When the model cannot be decoded, or the adapter cannot be used.
    pub(super) fn new(adapter: &Adapter, task: &Task, weights: &Named<Vec<f32>>, capacity: usize) -> Result<Self> {
        let (engine, executable) = loaded(adapter, &task.decoding()?, weights)?;
        Ok(Self { engine, executable, capacity, seen: Vec::new(), probabilities: Vec::new() })
    }

    /// The probabilities of the token behind `text`. A text that goes on from the one before costs its new tokens only.
    ///
    /// # Errors
    /// When `text` is empty or the device fails.
    pub(super) fn next(&mut self, text: &[u32]) -> Result<Vec<f32>> {
        // What is carried starts somewhere in the text, and fits while there is room behind it.
        let goes_on = |start: usize| text.get(start..start + self.seen.len()) == Some(&self.seen[..]);
        let room = self.capacity - self.seen.len();
        let new = (0..=room.min(text.len())).find(|&new| {
            let carried = text.len() - new;
            carried >= self.seen.len() && goes_on(carried - self.seen.len())
        });
        let start = match new {
            Some(new) if !self.seen.is_empty() => text.len() - new,
            _ => {
                self.seen.clear();
                // Where the window is full, it is left half empty, so that the next tokens cost one run each.
                let kept = if text.len() > self.capacity { self.capacity.div_ceil(2) } else { text.len() };
                text.len() - kept
            }
        };
        for &token in &text[start..] {
            self.step(token)?;
        }
        if self.probabilities.is_empty() {
            return Err(Error::invalid("text", "expected at least one token to go on from, got none"));
        }
        Ok(self.probabilities.clone())
    }

    /// Runs one more token.
    fn step(&mut self, token: u32) -> Result<()> {
        let position = self.seen.len() as u32;
        let step = Step { valid: 1, ..Step::default() };
        let [token_bytes, position_bytes, length] = [token, position, position + 1].map(u32::to_ne_bytes);
        let inputs: [&[u8]; 3] = [&token_bytes, &position_bytes, &length];
        self.engine.run(&mut self.executable, &MicroBatch { step, inputs: &inputs }, None)?;
        let outputs = self.engine.outputs(&mut self.executable)?;
        self.probabilities = outputs.first().map(|(_, bytes)| bytemuck::pod_collect_to_vec(bytes)).unwrap_or_default();
        self.seen.push(token);
        Ok(())
    }
}

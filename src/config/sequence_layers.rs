//! Layers of a run file that transformers and recurrent networks are made of, and norms.

use super::fields::{Fields, Settings};
use super::init;
use super::values::{ABOVE_ONE, flag, single, text, unless, whole};
use crate::nn::layers::{
    BatchNorm, Embedding, GroupNorm, LayerNorm, MeanPositions, Positions, Recurrent, RmsNorm, SelfAttention, Sequence,
    TiedLinear,
};

/// Most layers of an LSTM or GRU: beyond any use.
const MOST_RECURRENT: u32 = 100;

impl Settings for Embedding {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.required("vocabulary", "the number of tokens", whole(1..), &mut self.vocabulary);
        f.required("width", "the elements of a vector", whole(1..), &mut self.width);
    }
}

impl Settings for Recurrent {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.required("hidden", "the number of hidden units", whole(1..), &mut self.hidden);
        f.field("layers", "Layers one on the other", whole(1..=MOST_RECURRENT), &mut self.layers);
        f.field("sequence", "Whether it gives all steps, not the last", flag(), &mut self.sequence);
    }
}

impl Settings for SelfAttention {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.required("heads", "the number of heads", whole(1..), &mut self.heads);
        f.field("causal", "Whether a position sees those before it alone", flag(), &mut self.causal);
        f.field("rotary", "Base of rotary wavelengths", unless("none", single(ABOVE_ONE)), &mut self.rotary);
        f.field("bias", "Whether something is added to what is projected", flag(), &mut self.bias);
        f.optional("out_init", "How the output's weights start", init::form(), &mut self.out_init);
    }
}

impl Settings for TiedLinear {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.required("to", "the name of the embedding", text(), &mut self.to);
    }
}

fn epsilon(f: &mut Fields<'_>, epsilon: &mut f32) {
    f.field("epsilon", "Added to the variance", single(0.0..), epsilon);
}

impl Settings for LayerNorm {
    fn fields(&mut self, f: &mut Fields<'_>) {
        epsilon(f, &mut self.epsilon);
        f.field("bias", "Whether something is added", flag(), &mut self.bias);
    }
}

impl Settings for RmsNorm {
    fn fields(&mut self, f: &mut Fields<'_>) {
        epsilon(f, &mut self.epsilon);
    }
}

impl Settings for GroupNorm {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.required("groups", "the number of groups", whole(1..), &mut self.groups);
        epsilon(f, &mut self.epsilon);
    }
}

impl Settings for BatchNorm {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.field("momentum", "How far a step moves running statistics", single(0.0..=1.0), &mut self.momentum);
        epsilon(f, &mut self.epsilon);
        f.field("affine", "Whether there are weight and bias", flag(), &mut self.affine);
        f.field("group", "Samples that share mean and variance", whole(1..), &mut self.group);
    }
}

impl Settings for Positions {}
impl Settings for Sequence {}
impl Settings for MeanPositions {}

//! Operations: what a graph is made of. Each op is one file here and one shader of the same stem, and holds everything
//! about itself: shape rule, kernel launches, backward rule (built from ops, so a backward kernel is an op too), naive f64
//! reference, and the awkward sizes it is tested with. [`OPS`] lists them; tests and benches take them from there.
//!
//! An op knows tensor types and its own kernels. It must not know buffers, devices or the graph that holds it: it emits
//! further ops through [`Emit`].

pub mod activation;
pub mod activation_grad;
pub mod adaptive_avg_pool2d;
pub mod adaptive_avg_pool2d_grad;
pub mod argmax;
pub mod attention;
pub mod attention_grad;
mod attention_onnx;
pub mod avg_pool2d;
pub mod avg_pool2d_grad;
mod axis;
pub mod batch_norm;
pub mod batch_norm_grad;
pub mod batch_norm_grad_sums;
pub mod batch_norm_sums;
pub mod binary;
pub mod broadcast;
mod class_targets;
pub mod concat;
pub mod conv2d;
pub mod conv2d_grad_bias;
pub mod conv2d_grad_input;
pub mod conv2d_grad_weight;
pub mod conv_transpose2d;
pub mod correct;
pub mod dropout;
pub mod embedding;
pub mod embedding_grad;
pub mod example;
pub mod expand;
pub mod gather;
pub mod gather_grad;
pub mod math;
pub mod math_grad;
pub mod matmul;
pub mod max_pool2d;
pub mod max_pool2d_grad;
pub mod mean_squared_error;
pub mod mean_squared_error_grad;
pub mod normalize;
pub mod normalize_grad;
pub mod normalize_grad_weight;
pub mod pad;
pub mod recurrent;
pub mod recurrent_grad;
pub mod reduce;
pub mod reference;
pub mod reshape;
pub mod rotary;
pub mod rotary_turns;
mod rows;
pub mod scalar;
pub mod slice;
pub mod softmax;
pub mod softmax_cross_entropy;
pub mod softmax_cross_entropy_grad;
pub mod softmax_grad;
pub mod sum_to;
mod table;
pub mod transpose;
pub mod upsample2d;
pub mod upsample2d_grad;
pub mod weighted_sum;
pub mod where_;
pub mod window;
pub mod write_row;

use std::fmt::Debug;
use std::sync::Arc;

pub use activation::Activation;
pub use activation_grad::ActivationGrad;
pub use adaptive_avg_pool2d::AdaptiveAvgPool2d;
pub use adaptive_avg_pool2d_grad::AdaptiveAvgPool2dGrad;
pub use argmax::Argmax;
pub use attention::Attention;
pub use attention_grad::AttentionGrad;
pub use avg_pool2d::AvgPool2d;
pub use avg_pool2d_grad::AvgPool2dGrad;
pub use batch_norm::BatchNorm;
pub use batch_norm_grad::BatchNormGrad;
pub use batch_norm_grad_sums::BatchNormGradSums;
pub use batch_norm_sums::BatchNormSums;
pub use binary::Binary::{self, Add, Div, Mul, Sub};
pub use class_targets::ClassTargets;
pub use concat::Concat;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv2d::Conv2d;
pub use conv2d_grad_bias::Conv2dGradBias;
pub use conv2d_grad_input::Conv2dGradInput;
pub use conv2d_grad_weight::Conv2dGradWeight;
pub use correct::Correct;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use embedding_grad::EmbeddingGrad;
pub use example::{Example, Fill};
pub use expand::Expand;
pub use gather::Gather;
pub use gather_grad::GatherGrad;
pub use math::Math;
pub use math_grad::MathGrad;
pub use matmul::MatMul;
pub use max_pool2d::MaxPool2d;
pub use max_pool2d_grad::MaxPool2dGrad;
pub use mean_squared_error::MeanSquaredError;
pub use mean_squared_error_grad::MeanSquaredErrorGrad;
pub use normalize::{Normalization, Normalize};
pub use normalize_grad::NormalizeGrad;
pub use normalize_grad_weight::NormalizeGradWeight;
pub use pad::Pad;
pub use recurrent::{Cell, Recurrent};
pub use recurrent_grad::RecurrentGrad;
pub use reference::{Reference, Tolerance};
pub use reshape::Reshape;
pub use rotary::Rotary;
pub use rotary_turns::RotaryTurns;
pub use scalar::Scalar;
pub use slice::Slice;
pub use softmax::SoftmaxForm::{self, LogSoftmax, Softmax};
pub use softmax_cross_entropy::SoftmaxCrossEntropy;
pub use softmax_cross_entropy_grad::SoftmaxCrossEntropyGrad;
pub use softmax_grad::SoftmaxGrad;
pub use sum_to::SumTo;
pub use table::{Entry, OPS};
pub use transpose::Transpose;
pub use upsample2d::{Interpolation, Upsample2d};
pub use upsample2d_grad::Upsample2dGrad;
pub use weighted_sum::WeightedSum;
pub use where_::Where;
pub use window::Pool;
pub use write_row::WriteRow;

use crate::error::{Error, Result};
use crate::kernel::{Lowering, Step, Target};
use crate::onnx::{self, Attribute, Builder, Value};
use crate::tensor::{DType, Shape, TensorType};

/// A value in a graph: an input, a parameter or an op's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

impl ValueId {
    /// Position in the graph's list of values.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operation with its attributes. See the module's documentation.
pub trait Op: Debug + Send + Sync {
    /// The op's name: its file's and its shader's stem.
    fn name(&self) -> &'static str;

    /// The types of the outputs for inputs of these types.
    ///
    /// # Errors
    /// When the op cannot work on such inputs; the message says what was expected and what was given.
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>>;

    /// The kernel launches that compute `outputs` from `inputs` on `target`. Every element of every output is written.
    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], target: &Target) -> Result<Lowering>;

    /// Emits the ops that compute the cotangents of the inputs, one entry an input; `None` where an input has no gradient
    /// (class indices, say) or needs none.
    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>>;

    /// Writes the op into an ONNX model; its outputs there, of which the last ones may be left out where only the backward pass
    /// needs them.
    ///
    /// # Errors
    /// When it has no ONNX form, or none for these attributes or inputs.
    fn onnx(&self, _model: &mut Builder, _node: &onnx::Node) -> Result<Vec<Value>> {
        Err(Error::shape(self.name(), "has no ONNX form"))
    }

    /// The outputs, computed plainly in f64.
    fn reference(&self, inputs: &[&Reference], step: &Step) -> Vec<Reference>;

    /// How many consecutive samples, along the first dimension, depend on each other: 1 where each stands alone. A micro-batch
    /// holds whole groups of so many; its last one may be smaller where the batch ends.
    fn group(&self) -> usize {
        1
    }

    /// Whether the (only) output is the first input's memory under another shape, so that nothing needs computing.
    fn is_view(&self) -> bool {
        false
    }

    /// Whether the (only) output is the first input's memory, changed. Its kernels bind that as the output, which they need not
    /// write whole. Such an op is for values that stay from run to run ([`crate::graph::Graph::carried`]), and nothing else may
    /// read the value before the change afterwards.
    fn is_in_place(&self) -> bool {
        false
    }
}

/// What a backward rule is given.
#[derive(Debug)]
pub struct Backward<'a> {
    /// The forward op's inputs.
    pub inputs: &'a [ValueId],
    /// Its outputs.
    pub outputs: &'a [ValueId],
    /// The outputs' cotangents; `None` where nothing depends on an output. At least one is there.
    pub cotangents: &'a [Option<ValueId>],
    /// For each input, whether its cotangent is wanted.
    pub wanted: &'a [bool],
}

impl Backward<'_> {
    /// The cotangent of the only output.
    pub fn dy(&self) -> Result<ValueId> {
        match self.cotangents {
            [Some(dy)] => Ok(*dy),
            other => Err(Error::shape("backward", format!("expected one cotangent, got {other:?}"))),
        }
    }

    /// Runs `rule` where the cotangent of input `index` is wanted.
    pub fn when(&self, index: usize, rule: impl FnOnce() -> Result<ValueId>) -> Result<Option<ValueId>> {
        if self.wanted[index] { rule().map(Some) } else { Ok(None) }
    }
}

/// Where ops are emitted to: the graph, as far as an op may see it.
pub trait Emit {
    /// Adds `op` on `inputs`; its outputs.
    fn emit_all(&mut self, op: Arc<dyn Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>>;

    /// The type of a value.
    fn type_of(&self, value: ValueId) -> &TensorType;
}

impl dyn Emit + '_ {
    /// Adds an op with a single output.
    pub fn emit(&mut self, op: impl Op + 'static, inputs: &[ValueId]) -> Result<ValueId> {
        let op = Arc::new(op);
        let name = op.name();
        match self.emit_all(op, inputs)?[..] {
            [output] => Ok(output),
            ref outputs => Err(Error::shape(name, format!("expected one output, the op has {}", outputs.len()))),
        }
    }

    /// The shape of a value.
    pub fn shape_of(&self, value: ValueId) -> Shape {
        self.type_of(value).shape.clone()
    }
}

/// Checks the number of inputs and that all are f32: the start of most shape rules.
pub fn expect_f32<const N: usize>(op: &str, inputs: &[&TensorType]) -> Result<[Shape; N]> {
    expect_count(op, N, inputs)?;
    for (i, input) in inputs.iter().enumerate() {
        expect_dtype(op, i, input, DType::F32)?;
    }
    Ok(std::array::from_fn(|i| inputs[i].shape.clone()))
}

/// Checks the number of inputs.
pub fn expect_count(op: &str, count: usize, inputs: &[&TensorType]) -> Result<()> {
    if inputs.len() == count {
        return Ok(());
    }
    Err(Error::shape(op, format!("expected {count} inputs, got {}", inputs.len())))
}

/// Checks that two inputs of a backward kernel, a value and a cotangent, have the same shape.
pub fn expect_equal_shapes(op: &str, value: &Shape, cotangent: &Shape) -> Result<()> {
    if value == cotangent {
        return Ok(());
    }
    Err(Error::shape(op, format!("expected equal shapes, got {value} and {cotangent}")))
}

/// Checks one input's element type.
pub fn expect_dtype(op: &str, index: usize, input: &TensorType, dtype: DType) -> Result<()> {
    if input.dtype == dtype {
        return Ok(());
    }
    Err(Error::shape(op, format!("input {index}: expected {dtype}, got {input}")))
}

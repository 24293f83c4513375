//! Operations: what a graph is made of. Each op is one file here and one shader of the same stem, and holds everything
//! about itself: shape rule, kernel launches, backward rule (built from ops, so a backward kernel is an op too), naive
//! f64 reference, and the awkward sizes it is tested with. The table `ops!` lists them; [`OPS`], which it makes, is
//! what tests and benches take them from.
//!
//! An op knows tensor types and its own kernels. It must not know buffers, devices or the graph that holds it: it emits
//! further ops through [`Emit`].

mod activation;
mod activation_grad;
mod adaptive_avg_pool2d;
mod adaptive_avg_pool2d_grad;
mod argmax;
mod attention;
mod attention_grad;
mod attention_onnx;
mod avg_pool2d;
mod avg_pool2d_grad;
mod axis;
mod batch_norm;
mod batch_norm_grad;
mod batch_norm_grad_sums;
mod batch_norm_sums;
mod binary;
mod broadcast;
mod class_targets;
mod concat;
mod conv2d;
mod conv2d_grad_bias;
mod conv2d_grad_input;
mod conv2d_grad_weight;
pub(crate) mod conv_transpose2d;
mod correct;
mod dropout;
mod embedding;
mod embedding_grad;
mod example;
mod expand;
mod expect;
mod gather;
mod gather_grad;
mod math;
mod math_grad;
mod matmul;
mod max_pool2d;
mod max_pool2d_grad;
mod mean_squared_error;
mod mean_squared_error_grad;
mod normalize;
mod normalize_grad;
mod normalize_grad_weight;
mod pad;
mod prelude;
mod recurrent;
mod recurrent_grad;
pub mod reduce;
mod reference;
mod reshape;
mod rotary;
mod rotary_turns;
mod rows;
mod scalar;
mod slice;
mod softmax;
mod softmax_cross_entropy;
mod softmax_cross_entropy_grad;
mod softmax_grad;
mod sum_to;
mod transpose;
mod upsample2d;
mod upsample2d_grad;
mod weighted_sum;
mod where_;
mod window;
mod write_row;

use std::fmt::Debug;
use std::sync::Arc;

pub use class_targets::ClassTargets;
pub use conv_transpose2d::ConvTranspose2d;
pub use example::{Example, Fill};
pub use expect::{expect_equal_shapes, expect_f32, expect_types};
pub use reference::{Reference, Tolerance};
pub use scalar::Scalar;
pub use window::Pool;

use crate::error::{Error, Result};
use crate::kernel::{Lowering, Step, Target};
use crate::onnx::{self, Builder, Value};
use crate::tensor::{Shape, TensorType};

/// A line of [`OPS`].
pub struct Entry {
    /// The op's name.
    pub name: &'static str,
    /// Its test cases: awkward sizes (1, 63, 65, primes, off-tile) and every variant of its shader.
    pub examples: fn() -> Vec<Example>,
}

/// Makes the uses and the list of ops from a table: the module, whose name is the op's, and the types that it gives.
macro_rules! ops {
    ($($module:ident: $($item:ident)+;)+) => {
        $(pub use $module::{$($item),+};)+

        /// Every op. Adding one means a file (with its `mod` above), a shader and a line in the table.
        pub const OPS: &[Entry] = &[$(Entry { name: stringify!($module), examples: $module::examples }),+];
    };
}

ops! {
    activation: Activation;
    activation_grad: ActivationGrad;
    adaptive_avg_pool2d: AdaptiveAvgPool2d;
    adaptive_avg_pool2d_grad: AdaptiveAvgPool2dGrad;
    argmax: Argmax;
    attention: Attention;
    attention_grad: AttentionGrad;
    avg_pool2d: AvgPool2d;
    avg_pool2d_grad: AvgPool2dGrad;
    batch_norm: BatchNorm;
    batch_norm_grad: BatchNormGrad;
    batch_norm_grad_sums: BatchNormGradSums;
    batch_norm_sums: BatchNormSums;
    binary: Binary Add Div Mul Sub;
    concat: Concat;
    conv2d: Conv2d;
    conv2d_grad_bias: Conv2dGradBias;
    conv2d_grad_input: Conv2dGradInput;
    conv2d_grad_weight: Conv2dGradWeight;
    correct: Correct;
    dropout: Dropout;
    embedding: Embedding;
    embedding_grad: EmbeddingGrad;
    expand: Expand;
    gather: Gather;
    gather_grad: GatherGrad;
    math: Math;
    math_grad: MathGrad;
    matmul: MatMul;
    max_pool2d: MaxPool2d;
    max_pool2d_grad: MaxPool2dGrad;
    mean_squared_error: MeanSquaredError;
    mean_squared_error_grad: MeanSquaredErrorGrad;
    normalize: Normalization Normalize;
    normalize_grad: NormalizeGrad;
    normalize_grad_weight: NormalizeGradWeight;
    pad: Pad;
    recurrent: Cell Recurrent;
    recurrent_grad: RecurrentGrad;
    reshape: Reshape;
    rotary: Rotary;
    rotary_turns: RotaryTurns;
    slice: Slice;
    softmax: SoftmaxForm LogSoftmax Softmax;
    softmax_cross_entropy: SoftmaxCrossEntropy;
    softmax_cross_entropy_grad: SoftmaxCrossEntropyGrad;
    softmax_grad: SoftmaxGrad;
    sum_to: SumTo;
    transpose: Transpose;
    upsample2d: Interpolation Upsample2d;
    upsample2d_grad: Upsample2dGrad;
    weighted_sum: WeightedSum;
    where_: Where;
    write_row: WriteRow;
}

/// A value in a graph: an input, a parameter or an op's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

impl ValueId {
    /// Position in the graph's list of values.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operation with its attributes: its shape rule, kernel launches, backward rule (made of ops, so a backward kernel
/// is an op too) and plain f64 reference. It knows tensor types and its own kernels, never buffers, devices or the
/// graph that holds it.
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

    /// Emits the ops that compute the cotangents of the inputs, one entry an input; `None` where an input has no
    /// gradient (class indices, say) or needs none.
    ///
    /// # Errors
    /// When it cannot be differentiated: the default. So it is with what has no derivative, and with the kernels that
    /// compute gradients.
    fn backward(&self, _emit: &mut dyn Emit, _node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let why = "it is not differentiable, or computes a gradient itself (there are no second derivatives)";
        Err(Error::shape(self.name(), format!("has no backward rule: {why}")))
    }

    /// Writes the op into an ONNX model; its outputs there, of which the last ones may be left out where only the
    /// backward pass needs them.
    ///
    /// # Errors
    /// When it has no ONNX form, or none for these attributes or inputs.
    fn onnx(&self, _model: &mut Builder, _node: &onnx::Node) -> Result<Vec<Value>> {
        Err(Error::shape(self.name(), "has no ONNX form"))
    }

    /// The outputs, computed plainly in f64.
    fn reference(&self, inputs: &[&Reference], step: &Step) -> Vec<Reference>;

    /// How many consecutive samples, along the first dimension, depend on each other: 1 where each stands alone. A
    /// micro-batch holds whole groups of so many; its last one may be smaller where the batch ends.
    fn group(&self) -> usize {
        1
    }

    /// Whether the (only) output is the first input's memory under another shape, so that nothing needs computing.
    fn is_view(&self) -> bool {
        false
    }

    /// Whether the (only) output is the first input's memory, changed. Its kernels bind that as the output, which they
    /// need not write whole. Such an op is for values that stay from run to run ([`crate::graph::Graph::carried`]), and
    /// nothing else may read the value before the change afterwards.
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

//! What a cross-entropy wants of each class: the pieces that its op and its backward kernel share. The shaders get them
//! from `shaders/shared/class_target.wgsl`.

use super::prelude::*;
use super::rows::{along_last, expect_labels, launch};

/// How targets, class indices u32 [...] or probabilities f32 [..., C], become weights of the classes' −log
/// probabilities: class c has wᶜ ((1 − smoothing) tᶜ + smoothing / C), where t is 1 for the index's class and 0 for the
/// others, or the probabilities (Szegedy et al., "Rethinking the Inception architecture", 2016; class weights as in
/// PyTorch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassTargets {
    /// The part of a target that is spread over all classes, at least 0 and below 1.
    pub smoothing: Scalar,
    /// The class index that counts for nothing; it need not be below C.
    pub ignore: Option<u32>,
    /// Whether a further input, f32 \[C\], holds a weight for each class. Otherwise they are 1.
    pub weighted: bool,
}

impl Default for ClassTargets {
    /// The targets as they are.
    fn default() -> Self {
        Self { smoothing: Scalar::new(0.0), ignore: None, weighted: false }
    }
}

impl ClassTargets {
    /// Several settings, for tests.
    pub(super) fn cases() -> [Self; 4] {
        let smoothing = 0.3.into();
        [
            Self { smoothing, ..Self::default() },
            Self { ignore: Some(2), ..Self::default() },
            Self { weighted: true, ..Self::default() },
            Self { smoothing, ignore: Some(0), weighted: true },
        ]
    }

    /// Whether every class of a row counts, not only the index's.
    fn spread(&self, targets: &TensorType) -> bool {
        targets.dtype == DType::F32 || self.smoothing.get() != 0.0
    }

    /// Checks (logits [..., C], targets) and, with weights, `weights` \[C\]; the shape [...] of the losses.
    pub(super) fn check(
        &self,
        op: &str,
        logits: &TensorType,
        targets: &TensorType,
        weights: Option<&TensorType>,
    ) -> Result<Shape> {
        if !(0.0..1.0).contains(&self.smoothing.get()) {
            let message = format!("expected a smoothing of at least 0 and below 1, got {:?}", self.smoothing);
            return Err(Error::shape(op, message));
        }
        let lead = match targets.dtype {
            DType::U32 => expect_labels(op, logits, targets)?,
            DType::F32 => {
                expect_dtype(op, 0, logits, DType::F32)?;
                along_last(op, &logits.shape)?;
                if targets.shape != logits.shape {
                    let message = format!("expected targets {} like the logits, got {}", logits.shape, targets.shape);
                    return Err(Error::shape(op, message));
                }
                Shape::from(&logits.shape.dims()[..logits.shape.rank() - 1])
            }
        };
        let classes = logits.shape[logits.shape.rank() - 1];
        match weights {
            Some(weights) if *weights != TensorType::f32([classes]) => {
                Err(Error::shape(op, format!("expected class weights f32[{classes}], got {weights}")))
            }
            _ => Ok(lead),
        }
    }

    /// The launch of `shader` over the rows of logits; class weights are bound last, from the input of index `weights`.
    pub(super) fn launch(
        &self,
        op: &str,
        shader: Shader,
        target: &Target,
        inputs: &[&TensorType],
        mut operands: Vec<(Operand, Access)>,
        weights: usize,
    ) -> Result<Launch> {
        let (rows, columns) = along_last(op, &inputs[0].shape)?;
        let last = operands.len();
        operands.extend(self.weighted.then(|| input(weights)));
        let mut launch = launch(shader, target, rows, columns, operands);
        let kernel = launch
            .kernel
            .constant("CLASS_WEIGHTS", last)
            .define_if(inputs[1].dtype == DType::F32, "SOFT")
            .define_if(self.spread(inputs[1]), "SPREAD")
            .define_if(self.weighted, "WEIGHTED")
            .define_if(self.ignore.is_some(), "IGNORING")
            .constant("SMOOTHING", self.smoothing);
        launch.kernel = match self.ignore {
            Some(index) => kernel.constant("IGNORED", index),
            None => kernel,
        };
        Ok(launch)
    }

    /// The weight of each class's −log probability in row `row`.
    pub(super) fn reference(
        &self,
        row: usize,
        logits: &Reference,
        targets: &Reference,
        weights: Option<&Reference>,
    ) -> Vec<f64> {
        let classes = logits.shape[logits.shape.rank() - 1];
        let soft = targets.shape == logits.shape;
        let label = targets.data[if soft { 0 } else { row }] as usize;
        if !soft && self.ignore.is_some_and(|ignored| ignored as usize == label) {
            return vec![0.0; classes];
        }
        let target = |class: usize| {
            let one =
                if soft { targets.data[row * classes + class] } else { f64::from(label.min(classes - 1) == class) };
            let smoothing = self.smoothing.f64();
            ((1.0 - smoothing) * one + smoothing / classes as f64) * weights.map_or(1.0, |w| w.data[class])
        };
        (0..classes).map(target).collect()
    }
}

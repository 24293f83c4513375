//! Maximum over sliding windows.

use super::MaxPool2dGrad;
use super::prelude::*;
use super::window::{Pool, Window};

/// x (N, C, H, W) → (the largest value in each window (N, C, OH, OW), where in its plane it was, u32 of that shape).
/// Padding never wins; a NaN does. The positions are there for the backward pass.
#[derive(Debug, Clone, Copy)]
pub struct MaxPool2d(pub Pool);

/// Whether `v` takes the place of `best`: the first maximum stays, and so does the first NaN.
fn wins(v: f64, best: f64) -> bool {
    !best.is_nan() && (v.is_nan() || v > best)
}

/// Position of the winner in each window of `x`, in the order of the output.
fn winners(window: &Window, x: &Reference) -> Vec<usize> {
    let pick = |window: Vec<usize>| {
        let best = window.into_iter().reduce(|best, i| if wins(x.data[i], x.data[best]) { i } else { best });
        best.expect("every window covers a pixel")
    };
    window.positions(&x.shape).map(pick).collect()
}

impl Op for MaxPool2d {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        let y = self.0.output(self.name(), &x)?;
        Ok(vec![TensorType::f32(y.clone()), TensorType::u32(y)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(shader!("max_pool2d"), 64);
        let kernel = self.0.constants(kernel, &inputs[0].shape, &outputs[0].shape);
        Ok(elementwise(kernel, outputs[0].shape.elements(), vec![input(0), output(0), output(1)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let [Some(dy), None] = *node.cotangents else {
            return Err(Error::shape(self.name(), "has no backward rule for its positions"));
        };
        let grad = MaxPool2dGrad { pool: self.0, input: emit.shape_of(node.inputs[0]) };
        Ok(vec![node.when(0, || emit.emit(grad, &[node.outputs[1], dy]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        Ok(vec![model.node("MaxPool", &[node.input(0)], &self.0.attributes())])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let shape = self.0.output(self.name(), &x.shape).expect("checked by infer");
        let (winners, plane) = (winners(&self.0.window(), x), x.shape[2] * x.shape[3]);
        let y = winners.iter().map(|&i| x.data[i]).collect();
        let positions = winners.iter().map(|i| (i % plane) as f64).collect();
        vec![Reference { shape: shape.clone(), data: y }, Reference { shape, data: positions }]
    }
}

pub(super) fn examples() -> Vec<Example> {
    Pool::cases().into_iter().map(|(pool, x)| Example::new(MaxPool2d(pool), [&x])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_maximum_and_a_nan_win() {
        let x = Reference { shape: [1, 1, 2, 4].into(), data: vec![1.0, 1.0, 0.0, f64::NAN, 1.0, -1.0, 9.0, f64::NAN] };
        assert_eq!(winners(&Pool::new([2, 2]).window(), &x), [0, 3]);
    }

    #[test]
    fn padding_never_wins() {
        let x = Reference { shape: [1, 1, 1, 1].into(), data: vec![-5.0] };
        let pool = Pool { padding: [1; 4], ..Pool::new([2, 2]) };
        assert_eq!(MaxPool2d(pool).reference(&[&x], &Step::default())[0].data, [-5.0]);
    }
}

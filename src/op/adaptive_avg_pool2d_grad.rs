//! Cotangent of an adaptive mean pool's input.

use super::AdaptiveAvgPool2d;
use super::prelude::*;

/// dy → dx: each window's dy, divided by its pixels, goes to all of them.
#[derive(Debug, Clone)]
pub struct AdaptiveAvgPool2dGrad {
    /// The pool.
    pub pool: AdaptiveAvgPool2d,
    /// Shape of x, which dy's does not determine.
    pub input: Shape,
}

impl Op for AdaptiveAvgPool2dGrad {
    fn name(&self) -> &'static str {
        "adaptive_avg_pool2d_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [dy] = expect_f32(self.name(), inputs)?;
        let expected = self.pool.output(self.name(), &self.input)?;
        expect_shape(self.name(), "dy", &expected, &dy)?;
        Ok(vec![TensorType::f32(self.input.clone())])
    }

    fn lower(&self, _: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = self.pool.constants(Kernel::linear(shader!("adaptive_avg_pool2d_grad"), 64), &self.input);
        Ok(elementwise(kernel, self.input.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let ddx = node.dy()?;
        Ok(vec![node.when(0, || emit.emit(self.pool, &[ddx]))?])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let mut dx = Reference::zeros(self.input.clone());
        for (window, dy) in self.pool.windows(&self.input).zip(&inputs[0].data) {
            for &i in &window {
                dx.data[i] += dy / window.len() as f64;
            }
        }
        vec![dx]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(pool, x): (AdaptiveAvgPool2d, [usize; 4])| {
        let dy = [x[0], x[1], pool.size[0], pool.size[1]];
        Example::new(AdaptiveAvgPool2dGrad { pool, input: x.into() }, [&dy])
    };
    AdaptiveAvgPool2d::cases().into_iter().map(case).collect()
}

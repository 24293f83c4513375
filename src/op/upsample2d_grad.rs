//! Cotangent of an image that was brought to another resolution.

use super::Upsample2d;
use super::prelude::*;

/// dy → dx: each pixel of x gets from dy what it gave to y.
#[derive(Debug, Clone)]
pub struct Upsample2dGrad {
    /// The forward op.
    pub upsample: Upsample2d,
    /// Shape of x, which dy's does not determine.
    pub input: Shape,
}

impl Op for Upsample2dGrad {
    fn name(&self) -> &'static str {
        "upsample2d_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [dy] = expect_f32(self.name(), inputs)?;
        let expected = self.upsample.output(self.name(), &self.input)?;
        expect_shape(self.name(), "dy", &expected, &dy)?;
        Ok(vec![TensorType::f32(self.input.clone())])
    }

    fn lower(&self, _: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = self.upsample.constants(Kernel::linear(shader!("upsample2d_grad"), 64), &self.input);
        Ok(elementwise(kernel, self.input.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let ddx = node.dy()?;
        Ok(vec![node.when(0, || emit.emit(self.upsample, &[ddx]))?])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let mut dx = Reference::zeros(self.input.clone());
        self.upsample.products(&self.input, |y, x, factor| dx.data[x] += factor * inputs[0].data[y]);
        vec![dx]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(upsample, x): (Upsample2d, [usize; 4])| {
        let dy = [x[0], x[1], upsample.size[0], upsample.size[1]];
        Example::new(Upsample2dGrad { upsample, input: x.into() }, [&dy])
    };
    Upsample2d::cases().into_iter().map(case).collect()
}

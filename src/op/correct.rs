//! Whether a classification is right, per sample: the metric behind accuracy.

use super::prelude::*;
use super::rows::{along_last, expect_labels, launch};

/// (logits [..., C], labels u32 [...]) → 1 where the largest logit, the first of several, is the label's; else 0. An
/// index that is ignored is never right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Correct {
    /// The class index that counts for nothing.
    pub ignore: Option<u32>,
}

impl Op for Correct {
    fn name(&self) -> &'static str {
        "correct"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [logits, labels] = expect_types(self.name(), inputs, [DType::F32, DType::U32])?;
        Ok(vec![TensorType::f32(expect_labels(self.name(), logits, labels)?)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let (rows, columns) = along_last(self.name(), &inputs[0].shape)?;
        let mut launch = launch(shader!("correct"), target, rows, columns, vec![input(0), input(1), output(0)]);
        if let Some(index) = self.ignore {
            launch.kernel = launch.kernel.define("IGNORING").constant("IGNORED", index);
        }
        Ok(launch.into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (logits, labels) = (inputs[0], inputs[1]);
        let columns = logits.shape[logits.shape.rank() - 1];
        vec![Reference::from_fn(labels.shape.clone(), |row| {
            let x = &logits.data[row * columns..][..columns];
            let best = (0..columns).fold(0, |best, c| if x[c] > x[best] { c } else { best });
            let ignored = self.ignore.is_some_and(|index| f64::from(index) == labels.data[row]);
            f64::from(!ignored && best == labels.data[row] as usize)
        })]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |lead: &[usize], classes: usize, ignore| {
        let logits = [lead, &[classes]].concat();
        Example::new(Correct { ignore }, [&logits]).labels(lead, classes as u32)
    };
    let cases: [(&[usize], usize); 6] = [(&[1], 1), (&[65], 2), (&[131], 10), (&[5, 7], 33), (&[63], 65), (&[3], 1000)];
    let ignoring = [case(&[65], 3, Some(1)), case(&[65], 33, Some(0))];
    cases.map(|(lead, classes)| case(lead, classes, None)).into_iter().chain(ignoring).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_logits_counts() {
        let logits = Reference { shape: [3, 3].into(), data: vec![1., 2., 2., 2., 2., 1., 0., 0., 0.] };
        let labels = Reference { shape: [3].into(), data: vec![1., 1., 0.] };
        assert_eq!(Correct::default().reference(&[&logits, &labels], &Step::default())[0].data, [1., 0., 1.]);
        let ignoring = Correct { ignore: Some(0) };
        assert_eq!(ignoring.reference(&[&logits, &labels], &Step::default())[0].data, [1., 0., 0.]);
    }
}

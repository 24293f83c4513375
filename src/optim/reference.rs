//! The optimizers in f64 on the host, written from their papers and PyTorch's documentation: what kernels are tested
//! against, by the tests and by each adapter's self-test.

use super::groups::Treatment;
use super::optimizer::Optimizer;

/// One parameter under an optimizer.
#[derive(Debug, Clone, PartialEq)]
pub struct ReferenceParameter {
    /// Its weights.
    pub weights: Vec<f64>,
    /// Its moments, in the order of [`Optimizer::moments`].
    pub moments: Vec<Vec<f64>>,
}

impl ReferenceParameter {
    /// A parameter before its first update.
    pub fn new(optimizer: &Optimizer, weights: &[f32]) -> Self {
        let weights: Vec<f64> = weights.iter().map(|&w| f64::from(w)).collect();
        let moments = vec![vec![0.0; weights.len()]; optimizer.moments().len()];
        Self { weights, moments }
    }

    /// The `t`-th update (from 1) at `rate`, by the averaged (and clipped) gradient.
    pub fn update(&mut self, optimizer: &Optimizer, treatment: Treatment, rate: f64, t: u64, gradient: &[f64]) {
        let rate = rate * f64::from(treatment.lr_scale);
        let steps: Vec<f64> = (0..gradient.len())
            .map(|i| {
                let mut moments: Vec<&mut f64> = self.moments.iter_mut().map(|moment| &mut moment[i]).collect();
                let decay = f64::from(treatment.weight_decay);
                step(optimizer, decay, t, self.weights[i], gradient[i], &mut moments)
            })
            .collect();
        let factor = match *optimizer {
            Optimizer::Lamb { clamp: [low, high], .. } => {
                let norm = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
                let (weights, step) = (norm(&self.weights), norm(&steps));
                let phi = weights.clamp(f64::from(low), f64::from(high));
                if weights > 0.0 && step > 0.0 { phi / step } else { 1.0 }
            }
            _ => 1.0,
        };
        self.weights.iter_mut().zip(steps).for_each(|(w, step)| *w -= rate * factor * step);
    }
}

/// What the learning rate is multiplied by and taken off the weight `w` of gradient `g`; the moments move on.
fn step(optimizer: &Optimizer, decay: f64, t: u64, w: f64, g: f64, moments: &mut [&mut f64]) -> f64 {
    let penalised = g + decay * w;
    match (*optimizer, moments) {
        (Optimizer::Sgd { momentum, nesterov, .. }, [v]) => {
            let momentum = f64::from(momentum);
            **v = momentum * **v + penalised;
            if nesterov { penalised + momentum * **v } else { **v }
        }
        (Optimizer::Adam { beta1, beta2, epsilon, .. }, [m, v]) => adam([beta1, beta2, epsilon], t, penalised, m, v),
        (Optimizer::AdamW { beta1, beta2, epsilon, .. } | Optimizer::Lamb { beta1, beta2, epsilon, .. }, [m, v]) => {
            adam([beta1, beta2, epsilon], t, g, m, v) + decay * w
        }
        (Optimizer::RmsProp { alpha, epsilon, momentum, centered, .. }, [square, rest @ ..]) => {
            let alpha = f64::from(alpha);
            let mean = |mean: &mut f64, x: f64| *mean = alpha * *mean + (1.0 - alpha) * x;
            mean(square, penalised * penalised);
            let (mut variance, mut rest) = (**square, rest.iter_mut());
            if centered && let Some(average) = rest.next() {
                mean(average, penalised);
                variance -= **average * **average;
            }
            let normalised = penalised / (variance.max(0.0).sqrt() + f64::from(epsilon));
            let Some(velocity) = rest.next() else { return normalised };
            **velocity = f64::from(momentum) * **velocity + normalised;
            **velocity
        }
        (Optimizer::Adagrad { lr_decay, epsilon, initial_accumulator, .. }, [sum]) => {
            **sum += penalised * penalised;
            let root = (f64::from(initial_accumulator) + **sum).sqrt() + f64::from(epsilon);
            penalised / root / (1.0 + (t - 1) as f64 * f64::from(lr_decay))
        }
        (Optimizer::Lion { beta1, beta2, .. }, [m]) => {
            let [beta1, beta2] = [beta1, beta2].map(f64::from);
            let blend = beta1 * **m + (1.0 - beta1) * g;
            **m = beta2 * **m + (1.0 - beta2) * g;
            let sign = if blend == 0.0 { 0.0 } else { blend.signum() };
            sign + decay * w
        }
        // SGD without momentum has no moments.
        _ => penalised,
    }
}

/// Adam's direction: m̂/(√v̂ + ε).
fn adam(settings: [f32; 3], t: u64, g: f64, m: &mut f64, v: &mut f64) -> f64 {
    let [beta1, beta2, epsilon] = settings.map(f64::from);
    *m = beta1 * *m + (1.0 - beta1) * g;
    *v = beta2 * *v + (1.0 - beta2) * g * g;
    let (m, v) = (*m / (1.0 - beta1.powf(t as f64)), *v / (1.0 - beta2.powf(t as f64)));
    m / (v.sqrt() + epsilon)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 0.1;

    /// The weight 1 after each of three updates by the gradients 1/2, −1/4 and 3/4 at the rate 0.1.
    fn weights(optimizer: Optimizer) -> [f64; 3] {
        let treatment = Treatment { lr_scale: 1.0, weight_decay: optimizer.weight_decay() };
        let mut parameter = ReferenceParameter::new(&optimizer, &[1.0]);
        let mut t = 0;
        [0.5, -0.25, 0.75].map(|gradient| {
            t += 1;
            parameter.update(&optimizer, treatment, RATE, t, &[gradient]);
            parameter.weights[0]
        })
    }

    /// The values are those of PyTorch's loops for single tensors (Lion: of its paper's program), gone through step by
    /// step in a program of its own. Settings are f32 here, so they agree to 7 digits.
    #[test]
    fn references_are_what_pytorch_computes() {
        let decay = 0.1;
        for (optimizer, expected) in [
            (Optimizer::sgd(0.9), [0.95, 0.93, 0.837]),
            (Optimizer::Sgd { momentum: 0.9, nesterov: true, weight_decay: decay }, [0.886, 0.868066, 0.678_406_146]),
            (
                Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: decay },
                [0.900_000_001_7, 0.854_441_367, 0.782_158_397],
            ),
            (
                Optimizer::AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: decay },
                [0.890_000_002, 0.854_466_299, 0.782_389_619],
            ),
            (
                Optimizer::RmsProp { alpha: 0.9, epsilon: 1e-8, momentum: 0.0, centered: false, weight_decay: 0.0 },
                [0.683_772_254, 0.831_214_201, 0.569_502_249],
            ),
            (
                Optimizer::RmsProp { alpha: 0.9, epsilon: 1e-8, momentum: 0.5, centered: true, weight_decay: decay },
                [0.666_666_685, 0.598_719_109, 0.286_937_924],
            ),
            (
                Optimizer::Adagrad { lr_decay: 0.5, epsilon: 1e-10, initial_accumulator: 0.25, weight_decay: decay },
                [0.923_177_872, 0.936_371_104, 0.900_020_768],
            ),
            (Optimizer::Lion { beta1: 0.9, beta2: 0.99, weight_decay: decay }, [0.89, 0.9811, 0.871_289]),
        ] {
            let found = weights(optimizer);
            let error = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(error < 3e-7, "{optimizer:?}: {found:?}, expected {expected:?}");
        }
    }

    /// One step from (3, 4) by (1, −2): Adam's direction is (1, −1), with the decay (1.3, −0.6), of norm √2.05; ‖w‖
    /// is 5.
    #[test]
    fn lamb_is_its_papers() {
        for (clamp, phi) in [([0.0, 10.0], 5.0), ([0.0, 4.0], 4.0), ([6.0, 10.0], 6.0)] {
            let optimizer = Optimizer::Lamb { beta1: 0.9, beta2: 0.999, epsilon: 1e-6, clamp, weight_decay: 0.1 };
            let mut parameter = ReferenceParameter::new(&optimizer, &[3.0, 4.0]);
            let treatment = Treatment { lr_scale: 0.5, weight_decay: 0.1 };
            parameter.update(&optimizer, treatment, 2.0 * RATE, 1, &[1.0, -2.0]);
            let factor = RATE * phi / 2.05_f64.sqrt();
            let expected = [3.0 - factor * 1.3, 4.0 + factor * 0.6];
            let error = parameter.weights.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(error < 1e-5, "{:?}, expected {expected:?}", parameter.weights);
        }
    }
}

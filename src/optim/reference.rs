//! The optimizers in f64 on the host, written from their papers and PyTorch's documentation: what kernels are tested
//! against, by the tests and by each adapter's self-test.

use super::groups::Treatment;
use super::optimizer::Optimizer;

/// One parameter under an optimizer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// Its weights.
    pub weights: Vec<f64>,
    /// Its moments, in the order of [`Optimizer::moments`].
    pub moments: Vec<Vec<f64>>,
}

impl Reference {
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

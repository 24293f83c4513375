//! Initial values of parameters.

use crate::graph::{Graph, Init};
use crate::rng::Stream;

/// The initial values of every parameter of `graph`, in its order. They depend on the seed and the parameter's name alone:
/// not on the number of devices, the order of the layers or the micro-batch.
pub fn initial_values(graph: &Graph, seed: u64) -> Vec<(String, Vec<f32>)> {
    let values = |name: &str, init: Init, count: usize| -> Vec<f32> {
        let mut stream = Stream::new(seed, name);
        match init {
            Init::Zeros => vec![0.0; count],
            Init::Ones => vec![1.0; count],
            Init::Normal { deviation } => (0..count).map(|_| (f64::from(deviation) * stream.normal()) as f32).collect(),
            Init::KaimingNormal { fan_in } => {
                let deviation = (2.0 / fan_in as f64).sqrt();
                (0..count).map(|_| (deviation * stream.normal()) as f32).collect()
            }
            Init::XavierUniform { fan_in, fan_out } => {
                let bound = (6.0 / (fan_in + fan_out) as f64).sqrt();
                (0..count).map(|_| (bound * (2.0 * stream.uniform() - 1.0)) as f32).collect()
            }
        }
    };
    graph.parameters().iter().map(|p| (p.name.clone(), values(&p.name, p.init, p.shape.elements()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: &[f32]) -> (f64, f64) {
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
        (mean, values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / values.len() as f64)
    }

    #[test]
    fn initial_values_have_their_variance_and_depend_on_name_and_seed_alone() {
        let graph = |names: &[&str]| {
            let mut graph = Graph::new();
            for name in names {
                graph.parameter(name, [200, 50], Init::KaimingNormal { fan_in: 50 }).unwrap();
            }
            graph.parameter("x", [100, 100], Init::XavierUniform { fan_in: 100, fan_out: 100 }).unwrap();
            graph.parameter("bias", [3], Init::Zeros).unwrap();
            graph
        };
        let one = initial_values(&graph(&["a", "b"]), 7);
        let other = initial_values(&graph(&["b", "a"]), 7);
        assert_eq!((&one[0], &one[1]), (&other[1], &other[0]));
        assert_ne!(one[0].1, one[1].1);
        assert_ne!(one, initial_values(&graph(&["a", "b"]), 8));
        let (mean, variance) = moments(&one[0].1);
        assert!(mean.abs() < 0.01 && (variance - 2.0 / 50.0).abs() < 0.002, "{mean} {variance}");
        let (mean, variance) = moments(&one[2].1);
        assert!(mean.abs() < 0.01 && (variance - 0.01).abs() < 0.0005, "{mean} {variance}");
        assert_eq!(one[3], ("bias".to_owned(), vec![0.0; 3]));
    }
}

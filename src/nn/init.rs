//! Initial values of parameters.

use crate::graph::{Graph, Init};
use crate::rng::Stream;
use crate::tensor::{Named, Shape};

/// The initial values of every parameter of `graph`, in its order. They depend on the seed and the parameter's name
/// alone: not on the number of devices, the order of the layers or the micro-batch.
pub fn initial_values(graph: &Graph, seed: u64) -> Named<Vec<f32>> {
    let parameters = graph.parameters().iter();
    let values = parameters.map(|p| (&p.name, values(p.init, &p.shape, Stream::new(seed, &p.name))));
    Named::of(values).expect("a graph has no two parameters of one name")
}

fn values(init: Init, shape: &Shape, mut stream: Stream) -> Vec<f32> {
    let count = shape.elements();
    let mut draw = |number: &dyn Fn(&mut Stream) -> f64| (0..count).map(|_| number(&mut stream) as f32).collect();
    match init {
        Init::Zeros => vec![0.0; count],
        Init::Ones => vec![1.0; count],
        Init::Constant { value } => vec![value; count],
        Init::Normal { deviation } => draw(&|s| f64::from(deviation) * s.normal()),
        Init::TruncatedNormal { deviation } => draw(&|s| f64::from(deviation) * truncated(s)),
        Init::Uniform { bound } => draw(&|s| f64::from(bound) * (2.0 * s.uniform() - 1.0)),
        Init::KaimingNormal { fan_in } => draw(&|s| (2.0 / fan_in as f64).sqrt() * s.normal()),
        Init::KaimingUniform { fan_in } => draw(&|s| (6.0 / fan_in as f64).sqrt() * (2.0 * s.uniform() - 1.0)),
        Init::XavierNormal { fan_in, fan_out } => draw(&|s| (2.0 / (fan_in + fan_out) as f64).sqrt() * s.normal()),
        Init::XavierUniform { fan_in, fan_out } => {
            draw(&|s| (6.0 / (fan_in + fan_out) as f64).sqrt() * (2.0 * s.uniform() - 1.0))
        }
        Init::Orthogonal { gain } => orthogonal(shape, f64::from(gain), &mut stream),
    }
}

/// Standard normal, of which what is beyond ±2 (one in 22) is drawn again.
fn truncated(stream: &mut Stream) -> f64 {
    loop {
        let number = stream.normal();
        if number.abs() <= 2.0 {
            return number;
        }
    }
}

/// `gain` times a matrix (first dimension, all others) whose shorter side's vectors are orthonormal: normal numbers,
/// made so by the modified Gram–Schmidt process. That is the QR decomposition whose R has a positive diagonal, which
/// makes Q uniform over all such matrices (Mezzadri, "How to generate random matrices from the classical compact
/// groups", 2007).
fn orthogonal(shape: &Shape, gain: f64, stream: &mut Stream) -> Vec<f32> {
    let rows = shape[0];
    let columns = shape.elements() / rows.max(1);
    let (vectors, length) = (rows.min(columns), rows.max(columns));
    let mut basis: Vec<Vec<f64>> = Vec::with_capacity(vectors);
    for _ in 0..vectors {
        let mut vector: Vec<f64> = (0..length).map(|_| stream.normal()).collect();
        for earlier in &basis {
            let along: f64 = vector.iter().zip(earlier).map(|(v, e)| v * e).sum();
            vector.iter_mut().zip(earlier).for_each(|(v, e)| *v -= along * e);
        }
        let norm = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
        vector.iter_mut().for_each(|v| *v /= norm);
        basis.push(vector);
    }
    let element = |row: usize, column: usize| if rows <= columns { basis[row][column] } else { basis[column][row] };
    (0..rows * columns).map(|i| (gain * element(i / columns, i % columns)) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Initializer;
    use crate::nn::{Loss, Sequential, training_graph};
    use crate::tensor::TensorType;

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
        let at = |values: &Named<Vec<f32>>, index| values.get_index(index).map(|(n, v)| (n.clone(), v.clone()));
        assert_eq!((at(&one, 0), at(&one, 1)), (at(&other, 1), at(&other, 0)));
        assert_ne!(one["a"], one["b"]);
        assert_ne!(one, initial_values(&graph(&["a", "b"]), 8));
        let (mean, variance) = moments(&one["a"]);
        assert!(mean.abs() < 0.01 && (variance - 2.0 / 50.0).abs() < 0.002, "{mean} {variance}");
        let (mean, variance) = moments(&one["x"]);
        assert!(mean.abs() < 0.01 && (variance - 0.01).abs() < 0.0005, "{mean} {variance}");
        assert_eq!(one["bias"], [0.0; 3]);
    }

    /// The values that a weight of this shape starts with.
    fn initial(shape: &[usize], initializer: Initializer) -> Vec<f32> {
        let mut graph = Graph::new();
        let weight = |graph: &mut Graph| graph.parameter("weight", shape.to_vec(), Init::Zeros);
        graph.initialized(initializer, weight).unwrap();
        initial_values(&graph, 7)["weight"].clone()
    }

    #[test]
    fn initialisers_have_the_variance_of_the_weights_fans() {
        // A window of 2 × 3: fan_in 20 · 6, fan_out 50 · 6.
        let shape = [50, 20, 2, 3];
        let (kaiming, xavier): (f64, f64) = (2.0 / 120.0, 2.0 / 420.0);
        for (initializer, expected, bound) in [
            (Initializer::Normal { deviation: 0.1 }, 0.01_f64, f64::INFINITY),
            // Of a normal cut at two deviations: 1 − 4 φ(2) / (2 Φ(2) − 1).
            (Initializer::TruncatedNormal { deviation: 0.1 }, 0.01 * 0.773_74, 0.2),
            (Initializer::KaimingNormal, kaiming, f64::INFINITY),
            (Initializer::KaimingUniform, kaiming, (3.0 * kaiming).sqrt()),
            (Initializer::XavierNormal, xavier, f64::INFINITY),
            (Initializer::XavierUniform, xavier, (3.0 * xavier).sqrt()),
        ] {
            let values = initial(&shape, initializer);
            let (mean, variance) = moments(&values);
            assert!(mean.abs() < 0.05 * expected.sqrt(), "{initializer:?}: {mean}");
            assert!((variance / expected - 1.0).abs() < 0.05, "{initializer:?}: {variance}, expected {expected}");
            let largest = values.iter().fold(0.0, |most: f64, &v| most.max(f64::from(v).abs()));
            assert!(largest <= bound * (1.0 + 1e-6), "{initializer:?}: {largest}");
            assert!(largest > 0.95 * bound.min(2.0 * expected.sqrt()), "{initializer:?}: {largest}");
        }
        assert_eq!(initial(&[2, 2], Initializer::Constant { value: 0.5 }), [0.5; 4]);
    }

    #[test]
    fn orthogonal_weights_have_orthonormal_rows_or_columns() {
        for (shape, rows, columns) in [(vec![7, 31], 7, 31), (vec![65, 16], 65, 16), (vec![12, 3, 2, 2], 12, 12)] {
            let values = initial(&shape, Initializer::Orthogonal { gain: 2.0 });
            let at = |vector: usize, i: usize| {
                let place = if rows <= columns { vector * columns + i } else { i * columns + vector };
                f64::from(values[place])
            };
            for a in 0..rows.min(columns) {
                for b in 0..rows.min(columns) {
                    let product: f64 = (0..rows.max(columns)).map(|i| at(a, i) * at(b, i)).sum();
                    let expected = if a == b { 4.0 } else { 0.0 };
                    assert!((product - expected).abs() < 1e-5, "{shape:?}: {a} and {b}: {product}");
                }
            }
        }
        // Of a uniform orthogonal matrix of two rows, a rotation or its mirror image, either sign comes up.
        let corner = |seed| {
            let mut graph = Graph::new();
            graph.parameter("weight", [2, 2], Init::Orthogonal { gain: 1.0 }).unwrap();
            initial_values(&graph, seed)["weight"][0]
        };
        let positive = (0..200).filter(|&seed| corner(seed) > 0.0).count();
        assert!((60..140).contains(&positive), "{positive} of 200");
    }

    #[test]
    fn an_initialiser_is_for_weights_alone_and_is_checked() {
        let build = |initializer| {
            let model = Sequential::new([4]).linear(3).init(initializer).relu().linear(2);
            training_graph(&model, &Loss::cross_entropy(), &TensorType::u32([]), 2)
        };
        let graph = build(Initializer::Constant { value: 0.5 }).unwrap();
        let inits: Vec<_> = graph.parameters().iter().map(|p| (p.name.as_str(), p.init)).collect();
        assert_eq!(inits[..2], [("linear_1.weight", Init::Constant { value: 0.5 }), ("linear_1.bias", Init::Zeros)]);
        assert_eq!(inits[2], ("linear_2.weight", Init::KaimingNormal { fan_in: 3 }));
        assert!(graph.to_string().contains("activation: Some(Relu)"), "{graph}");
        assert_eq!(
            build(Initializer::Normal { deviation: -1.0 }).unwrap_err().to_string(),
            "layer 1 (linear): expected a finite deviation of at least 0, got -1"
        );
    }
}

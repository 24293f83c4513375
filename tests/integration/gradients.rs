//! Every op's backward rule by random projection, on the f64 references.

use everygpu::op::OPS;
use everygpu::self_test::projection_error;

#[test]
fn backward_rules_agree_with_finite_differences() {
    let mut checked = 0;
    for example in OPS.iter().flat_map(|entry| (entry.examples)()) {
        let inputs: Vec<_> = example.inputs.iter().map(|(ty, _)| ty).collect();
        let outputs = example.op.infer(&inputs).expect("the example's shapes work").len();
        for output in 0..outputs {
            if let Some(error) = projection_error(&example, output).expect("the example runs") {
                assert!(error < 1e-6, "{:?} on {inputs:?}: output {output}: relative error {error:.2e}", example.op);
                checked += 1;
            }
        }
    }
    assert!(checked > 0);
}

#[test]
fn every_op_is_exercised_under_its_own_name() {
    for entry in OPS {
        let examples = (entry.examples)();
        assert!(!examples.is_empty(), "{} has no examples", entry.name);
        for example in examples {
            assert_eq!(example.op.name(), entry.name);
        }
    }
}

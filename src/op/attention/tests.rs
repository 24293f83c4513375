//! Shape rule, mask and launches of attention.

use super::Attention;
use crate::kernel::Constant;
use crate::op::expect::refusal;
use crate::op::prelude::*;

const PACKED: Attention = Attention { causal: true, scale: 1.0, lengths: false, packed: true };

#[test]
fn errors_name_what_was_given() {
    let message = |op: Attention, shapes: &[&[usize]]| refusal(&op, shapes);
    let separate = Attention { packed: false, ..PACKED };
    assert_eq!(message(PACKED, &[&[2, 5, 12]]), "attention: expected qkv [B, T, 3, H, D], got [[2, 5, 12]]");
    assert_eq!(
        message(separate, &[&[2, 5, 7, 4], &[2, 5, 6, 4], &[2, 5, 6, 4]]),
        "attention: expected as many keys as queries or more with a causal mask, got 6 and 7"
    );
    assert_eq!(
        message(separate, &[&[2, 5, 7, 4], &[2, 3, 7, 4], &[2, 3, 7, 4]]),
        "attention: expected q and k [B, H, T, D], got [2, 5, 7, 4] and [2, 3, 7, 4]"
    );
    let padded = Attention { lengths: true, ..PACKED };
    assert_eq!(message(padded, &[&[2, 5, 3, 1, 4]]), "attention: expected 2 inputs, got 1");
    assert_eq!(message(padded, &[&[2, 5, 3, 1, 4], &[2]]), "attention: expected lengths u32[2], got f32[2]");
}

#[test]
fn a_causal_query_sees_itself_and_what_was_before() {
    let x = Reference::from_fn([1, 3, 3, 1, 1], |i| [0.0, 0.0, (i / 3) as f64][i % 3]);
    let outputs = PACKED.reference(&[&x], &Step::default());
    assert_eq!(outputs[0].data, [0.0, 0.5, 1.0]);
    let expected = [0.0, 2.0_f64.ln(), 3.0_f64.ln()];
    assert!(outputs[1].data.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12));
}

#[test]
fn no_launch_iterates_too_often() {
    for (length, width) in [(20_000, 64), (3000, 256), (65_000, 8)] {
        let qkv = TensorType::f32([1, length, 3, 1, width]);
        for tiling in [Tiling::Registers, Tiling::Workgroup] {
            let target = Target { tiling, max_binding: 1 << 30, ..Target::default() };
            let outputs = PACKED.infer(&[&qkv]).unwrap();
            let launches = PACKED.lower(&[&qkv], &outputs.iter().collect::<Vec<_>>(), &target).unwrap().launches;
            let value = |launch: &Launch, name| {
                let found = launch.kernel.constants.iter().find(|(n, _)| *n == name);
                match found.expect("a constant").1 {
                    Constant::U32(value) => value as usize,
                    other => panic!("{other:?}"),
                }
            };
            let mut end = 0;
            for launch in &launches {
                assert_eq!(value(launch, "FIRST"), end);
                end = value(launch, "END");
                let iterations = (end - value(launch, "FIRST")).div_ceil(4) * (2 * width.div_ceil(4) + 1);
                assert!(iterations < 60_000, "{length} {width}: {iterations}");
            }
            assert_eq!(end, length);
            let flops: u64 = launches.iter().filter_map(|launch| launch.flops).sum();
            assert_eq!(flops, (2 * width * length * (length + 1)) as u64, "half the pairs, and the diagonal's");
        }
    }
}

use super::*;
use crate::gpu::Adapters;
use crate::kernel::Constant;

fn adapters() -> Vec<Adapter> {
    Adapters::discover().expect("the tests need an adapter: ./test.sh installs software ones").iter().cloned().collect()
}

/// Changes constant `name` of the kernels of `shader`.
fn constant(dispatch: &mut Dispatch, shader: &str, name: &str, change: fn(Constant) -> Constant) {
    if dispatch.kernel.shader.name == shader {
        let constants = dispatch.kernel.constants.iter_mut().filter(|(n, _)| *n == name);
        constants.for_each(|(_, value)| *value = change(*value));
    }
}

/// Changes size `name` of the kernels of `shader`.
fn size(dispatch: &mut Dispatch, shader: &str, name: &str, value: u32) {
    if dispatch.kernel.shader.name == shader {
        let sizes = dispatch.kernel.sizes.iter_mut().filter(|(n, _)| *n == name);
        sizes.for_each(|(_, size)| *size = value);
    }
}

#[test]
fn every_adapter_passes() {
    for adapter in adapters() {
        let verdict = self_test(&adapter).expect("the adapter works");
        println!("{} ({}): {verdict}", adapter.label(), adapter.driver());
        verdict.kernels.iter().for_each(|kernel| println!("  {kernel}"));
        assert!(verdict.passed(), "{}: {verdict}", adapter.label());
    }
}

/// What a defect is called, which kernels must be found wrong, and the defect.
type Defect = (&'static str, &'static [&'static str], fn(&mut Dispatch));

const DEFECTS: &[Defect] = &[
    ("zeros from the second row of tiles on", &["matmul"], |d| {
        if d.kernel.shader.name.starts_with("matmul") {
            d.groups[0] = (d.groups[0] / 2).max(1);
        }
    }),
    ("groups beyond one dimension do not run", &["binary"], |d| d.groups[1] = 1),
    ("the last term of a sum is left out", &["softmax"], |d| {
        constant(d, "softmax", "COLUMNS", |c| match c {
            Constant::U32(n) => Constant::U32(n - 1),
            other => other,
        });
    }),
    ("another mask", &["dropout"], |d| size(d, "dropout", "site_low", 3)),
    ("a moment decays too fast", &["adamw"], |d| constant(d, "adamw", "BETA1", |_| Constant::F32(0.8))),
    ("momentum is lost", &["sgd"], |d| constant(d, "sgd", "MU", |_| Constant::F32(0.0))),
    ("the norm is of a part of the gradient", &["adamw", "sgd"], |d| {
        size(d, "norm_partial", "count", 64);
    }),
];

#[test]
fn a_kernel_that_computes_wrongly_is_found_and_named() {
    for adapter in adapters() {
        for (defect, kernels, tamper) in DEFECTS {
            let verdict = run(&adapter, tamper).expect("the defects are silent");
            assert!(!verdict.passed(), "{}: {defect} was not noticed", adapter.label());
            for check in verdict.kernels.iter().filter(|check| !check.passed()) {
                let name = check.kernel.split(' ').next().unwrap_or_default();
                assert!(kernels.contains(&name), "{}: {defect}: {check}", adapter.label());
            }
        }
    }
}

#[test]
fn an_adapter_that_computes_wrongly_is_left_out_by_name() {
    let adapter = adapters().remove(0);
    let mut good = adapter.clone();
    good.index = 7;
    let test = |adapter: &Adapter| match adapter.index {
        7 => Ok(SelfTest::known()),
        _ => run(adapter, &|d| d.groups[1] = 1),
    };
    let (passed, rejected) = usable_by(vec![adapter.clone(), good], test).expect("one is left");
    assert_eq!(passed.iter().map(|a| a.index).collect::<Vec<_>>(), [7]);
    assert_eq!(rejected.len(), 1);
    let message = rejected[0].1.to_string();
    assert!(message.starts_with("binary of [2053, 1], [1, 2053] is off by"), "{message}");

    let error = usable_by(vec![adapter.clone()], test).unwrap_err().to_string();
    assert!(error.contains(&adapter.label()) && error.contains("it computes wrongly: binary of"), "{error}");
}

#[test]
fn a_driver_that_fails_or_panics_is_left_out() {
    let adapter = adapters().remove(0);
    let refused = usable_by(vec![adapter.clone()], |_| Err(Error::Training("a kernel does not compile".into())));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("it cannot be tested: ") && refused.contains("a kernel does not compile"), "{refused}");
    assert!(!refused.contains("wrongly"), "{refused}");
    let panicked = usable_by(vec![adapter], |_| panic!("in the driver"));
    assert!(panicked.unwrap_err().to_string().contains("panicked"));
}

//! Checks of single ops: kernels against their f64 references, backward rules against finite differences. The crate's
//! own tests run them on every op; they are public for ops that others write.

use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::gpu::{Adapter, Device, Duty, Engine, MicroBatch};
use crate::graph::{Graph, interpret};
use crate::kernel::{Step, Target};
use crate::op::{Emit, Example, Fill, Reference, Tolerance, ValueId};
use crate::plan::{Layout, Plan, Storage};
use crate::rng::Stream;
use crate::tensor::{DType, HostTensor, TensorType};

/// Any step that is not the first.
const STEP: Step = Step { seed: [1, 2], step: 3, first_row: 4, valid: 2, gradient_scale: 0.0, first: 1, reserved: 0 };

/// Distance of a finite difference to each side, and how far it may be from the derivative, relatively.
const EPSILON: f64 = 1e-6;

/// Checks an op on `adapter` with `examples`: every output and gradient against the f64 references, and the references'
/// gradients against finite differences. The largest error on the device, in units of [`Tolerance::of`]: at most 1.
///
/// # Errors
/// When something is off, a kernel does not compile, the adapter cannot be opened or fails; the message says what.
pub fn check_op(adapter: &Adapter, examples: &[Example]) -> Result<f64> {
    let device = Device::open(adapter, None)?;
    let mut largest = 0.0_f64;
    for example in examples {
        let name = || {
            let shapes: Vec<_> = example.inputs.iter().map(|(ty, _)| ty.to_string()).collect();
            format!("{:?} of {}", example.op, shapes.join(", "))
        };
        for (output, error) in OpCheck::new(example)?.errors(&device, device.target())? {
            if error > 1.0 {
                let message = format!("{output} is off by {error:.3e} × the tolerance on {}", adapter.label());
                return Err(Error::shape(name(), message));
            }
            largest = largest.max(error);
        }
        let inputs: Vec<_> = example.inputs.iter().map(|(ty, _)| ty).collect();
        for output in 0..example.op.infer(&inputs)?.len() {
            if let Some(error) = projection_error(example, output)?.filter(|error| *error > EPSILON) {
                let message =
                    format!("the gradient of output {output} is not the reference's: relative error {error:.1e}");
                return Err(Error::shape(name(), message));
            }
        }
    }
    Ok(largest)
}

/// One example of an op, to be checked on devices: its references are computed once for all of them.
#[derive(Debug)]
pub struct OpCheck {
    name: &'static str,
    graph: Graph,
    tensors: Vec<HostTensor>,
    /// By output of the graph.
    expected: OnceLock<Vec<Reference>>,
}

impl OpCheck {
    /// The check of the example's op, and of the gradients of its first output.
    ///
    /// # Errors
    /// When the op cannot work on the example.
    pub fn new(example: &Example) -> Result<Self> {
        let (graph, tensors) = with_gradients(example)?;
        Ok(Self { name: example.op.name(), graph, tensors, expected: OnceLock::new() })
    }

    /// What the references say of a step, the first time by computing them.
    fn expected(&self, step: &Step) -> Result<&[Reference]> {
        if let Some(known) = self.expected.get() {
            return Ok(known);
        }
        let references: Vec<Reference> = self.tensors.iter().map(Reference::from).collect();
        let wanted: Vec<_> = self.graph.outputs().iter().map(|(_, v)| *v).collect();
        let expected = interpret(&self.graph, &references, &[], step, &wanted)?;
        Ok(self.expected.get_or_init(|| expected))
    }

    /// The largest error, in units of [`Tolerance::of`], of each output of the op (`y0`) and of the gradients of its
    /// first one (`dx0`), computed on `device` by kernels for `target`, from the f64 references.
    ///
    /// # Errors
    /// When the op cannot work on the example, a kernel does not compile, or the device fails.
    pub fn errors(&self, device: &Arc<Device>, target: &Target) -> Result<Vec<(String, f64)>> {
        let layout = Arc::new(Layout::new(&self.graph, target)?);
        let plan = Arc::new(Plan::new(&self.graph, layout.clone(), target)?);
        let mut engine = Engine::new(device.clone(), &Storage::new(&layout, 0, false, false), &Duty::Inference)?;
        let mut executable = engine.compile(plan.clone())?;
        executable.poison(device)?;
        let step = Step { valid: plan.micro_batch as u32, ..STEP };
        let inputs: Vec<&[u8]> = self.tensors.iter().map(HostTensor::bytes).collect();
        engine.run(&mut executable, &MicroBatch { step, inputs: &inputs }, None)?;
        let got = engine.outputs(&mut executable)?;
        let names = plan.outputs.iter().map(|o| o.name.clone());
        let error = |(ty, bytes): &(TensorType, Vec<u8>), reference: &Reference| {
            // In f64: u32 values need not fit f32.
            let values: Vec<f64> = match ty.dtype {
                DType::F32 => bytemuck::pod_collect_to_vec::<u8, f32>(bytes).into_iter().map(f64::from).collect(),
                DType::U32 => bytemuck::pod_collect_to_vec::<u8, u32>(bytes).into_iter().map(f64::from).collect(),
            };
            if values.len() != reference.data.len() {
                let message = format!("its reference has {} elements, expected {}", reference.data.len(), values.len());
                return Err(Error::shape(self.name, message));
            }
            let tolerance = Tolerance::of(ty.dtype);
            Ok(values.iter().zip(&reference.data).map(|(&x, &r)| tolerance.error(x, r)).fold(0.0, f64::max))
        };
        let pairs = got.iter().zip(self.expected(&step)?);
        names.zip(pairs).map(|(name, (got, expected))| Ok((name, error(got, expected)?))).collect()
    }
}

/// The example's op on its inputs.
fn applied(example: &Example) -> Result<(Graph, Vec<ValueId>, Vec<ValueId>)> {
    let mut graph = Graph::new();
    let inputs = example.inputs.iter().enumerate().map(|(i, (ty, _))| graph.input(&format!("x{i}"), ty.clone()));
    let inputs: Vec<_> = inputs.collect();
    let outputs = graph.emit_all(example.op.clone(), &inputs)?;
    Ok((graph, inputs, outputs))
}

/// The gradients of `value` with respect to `wrt`; `None` where an op has no backward rule.
fn gradients(
    graph: &mut Graph,
    value: ValueId,
    seed: ValueId,
    wrt: &[ValueId],
) -> Result<Option<Vec<Option<ValueId>>>> {
    match graph.differentiate(value, seed, wrt) {
        Ok(gradients) => Ok(Some(gradients)),
        Err(error) if error.to_string().contains("no backward rule") => Ok(None),
        Err(error) => Err(error),
    }
}

/// The example's op, the gradients of its first output where it has any, and the inputs: all as outputs of one graph.
fn with_gradients(example: &Example) -> Result<(Graph, Vec<HostTensor>)> {
    let (mut graph, inputs, outputs) = applied(example)?;
    let mut tensors = example.tensors(5);
    for (i, output) in outputs.iter().enumerate() {
        graph.output(&format!("y{i}"), *output);
    }
    let y = outputs[0];
    if graph.type_of(y).dtype != DType::F32 {
        return Ok((graph, tensors));
    }
    let wrt: Vec<_> =
        inputs.iter().zip(&example.inputs).filter(|(_, (ty, _))| ty.dtype == DType::F32).map(|(v, _)| *v).collect();
    let forward = graph.clone();
    let seed_type = TensorType::f32(graph.shape(y).clone());
    let seed = graph.input("seed", seed_type.clone());
    let Some(gradients) = gradients(&mut graph, y, seed, &wrt)? else { return Ok((forward, tensors)) };
    for (i, gradient) in gradients.iter().enumerate().filter_map(|(i, g)| Some((i, (*g)?))) {
        graph.output(&format!("dx{i}"), gradient);
    }
    tensors.push(Fill::Normal.tensor(&seed_type, &mut Stream::new(7, "seed")));
    Ok((graph, tensors))
}

/// Holds the backward rule of the example's op for the output of this index against its reference by random projection:
/// for one random cotangent c and one random direction v, ⟨c, f(x + εv) − f(x − εv)⟩ / 2ε must equal ⟨∂⟨c, f⟩/∂x, v⟩.
/// (Not a plain sum as the loss: it is blind to softmax and normalisation gradients.) The relative difference of the
/// two; `None` where the op has no backward rule, or the output is whole numbers.
///
/// # Errors
/// When the op cannot work on the example.
pub fn projection_error(example: &Example, output: usize) -> Result<Option<f64>> {
    let (mut graph, inputs, outputs) = applied(example)?;
    let y = outputs[output];
    if graph.type_of(y).dtype != DType::F32 {
        return Ok(None);
    }
    let seed_type = TensorType::f32(graph.shape(y).clone());
    let seed = graph.input("seed", seed_type.clone());
    let moves = |(ty, fill): &(TensorType, Fill)| ty.dtype == DType::F32 && *fill != Fill::Mask;
    let floats: Vec<usize> = (0..inputs.len()).filter(|&i| moves(&example.inputs[i])).collect();
    let wrt: Vec<_> = floats.iter().map(|&i| inputs[i]).collect();
    let Some(gradients) = gradients(&mut graph, y, seed, &wrt)? else { return Ok(None) };

    let mut stream = Stream::new(11, "projection");
    let mut tensors: Vec<Reference> = example.tensors(5).iter().map(Reference::from).collect();
    let cotangent = Reference::from(&Fill::Normal.tensor(&seed_type, &mut stream));
    tensors.push(cotangent.clone());
    let directions: Vec<Reference> =
        floats.iter().map(|&i| Reference::from_fn(tensors[i].shape.clone(), |_| stream.normal())).collect();

    let wanted: Vec<_> = gradients.iter().flatten().copied().collect();
    let values = interpret(&graph, &tensors, &[], &STEP, &wanted)?;
    let moved = gradients.iter().zip(&directions).filter(|(gradient, _)| gradient.is_some());
    let analytic: f64 = moved.zip(&values).map(|((_, direction), gradient)| dot(gradient, direction)).sum();

    let along = |sign: f64| -> Result<f64> {
        let mut moved = tensors.clone();
        for (&i, direction) in floats.iter().zip(&directions) {
            moved[i] = tensors[i].zip(direction, |x, d| x + sign * EPSILON * d);
        }
        Ok(dot(&interpret(&graph, &moved, &[], &STEP, &[y])?[0], &cotangent))
    };
    let numeric = (along(1.0)? - along(-1.0)?) / (2.0 * EPSILON);
    let scale = analytic.abs().max(numeric.abs()).max(1e-3);
    Ok(Some((analytic - numeric).abs() / scale))
}

/// Σ aᵢbᵢ.
fn dot(a: &Reference, b: &Reference) -> f64 {
    a.data.iter().zip(&b.data).map(|(x, y)| x * y).sum()
}

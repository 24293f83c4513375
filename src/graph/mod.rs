//! The static graph: values, the ops that make them, and their roles in a step. It is built once for one micro-batch
//! size; [`Graph::differentiate`] appends the backward pass to it; the plan lowers it. It knows ops only through
//! [`Op`].

mod display;
mod init;
mod interpret;
mod onnx;
mod parts;
mod reverse;
mod role;

pub use init::{Init, Initializer};
pub use interpret::interpret;
pub use onnx::to_onnx;
pub use parts::{Accumulator, Carried, Input, Node, Parameter, ParameterId, Source, Value};
pub use role::{Role, Running};

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::op::{Emit, Op, ValueId};
use crate::tensor::{HostTensor, Shape, TensorType};

/// The name of the input that holds the samples: (N, ..).
pub(crate) const SAMPLE_INPUT: &str = "input";
/// The name of the input that holds what the samples should give: (N, ..).
pub(crate) const TARGET_INPUT: &str = "target";
/// The name of the input that holds the sample weights: f32 \[N\], 0 for rows that pad a micro-batch.
pub(crate) const WEIGHT_INPUT: &str = "weight";

/// A static graph for one micro-batch size: values, the ops that make them, and their roles in a step.
/// [`Graph::differentiate`] appends the backward pass.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    values: Vec<Value>,
    nodes: Vec<Node>,
    inputs: Vec<Input>,
    parameters: Vec<Parameter>,
    /// Parameters by name.
    names: HashMap<String, ParameterId>,
    carried: Vec<Carried>,
    accumulators: Vec<(Accumulator, ValueId)>,
    outputs: Vec<(String, ValueId)>,
    scope: String,
    initializer: Option<Initializer>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an input that the host fills.
    pub fn input(&mut self, name: &str, ty: TensorType) -> ValueId {
        let value = self.value(ty, Source::Input(self.inputs.len()));
        self.inputs.push(Input { name: name.to_owned(), value, constant: None });
        value
    }

    /// Adds a tensor that is the same in every micro-batch. It has no gradient, and nobody has to hand it in.
    pub fn constant(&mut self, name: &str, tensor: HostTensor) -> ValueId {
        let ty = TensorType { shape: tensor.shape().clone(), dtype: tensor.dtype() };
        let value = self.value(ty, Source::Input(self.inputs.len()));
        self.inputs.push(Input { name: name.to_owned(), value, constant: Some(Arc::new(tensor)) });
        value
    }

    /// Adds a trained parameter named after the current scope: `SCOPE.name`. A weight, which has two dimensions or
    /// more, starts as [`Graph::initialized`] says where that has been said, instead of `init`.
    ///
    /// # Errors
    /// When the name is taken, or a setting of the initialiser is out of range.
    pub fn parameter(&mut self, name: &str, shape: impl Into<Shape>, init: Init) -> Result<ValueId> {
        Ok(self.add_parameter(name, shape.into(), init, Role::Trained)?.1)
    }

    /// Adds a parameter that no gradient changes, named in the same way. A graph that trains must
    /// [`Graph::accumulate`] the sums that it is updated from, as [`Accumulator::Gradient`].
    ///
    /// # Errors
    /// When the name is taken.
    pub fn running(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        init: Init,
        running: Running,
    ) -> Result<(ParameterId, ValueId)> {
        self.add_parameter(name, shape.into(), init, Role::Running(running))
    }

    fn add_parameter(&mut self, name: &str, shape: Shape, init: Init, role: Role) -> Result<(ParameterId, ValueId)> {
        let name = self.scoped_name(name);
        if self.names.contains_key(&name) {
            return Err(Error::shape(format!("parameter {name}"), "the name is taken; give the layer another one"));
        }
        check_size(&format!("parameter {name}"), &shape)?;
        let init = match self.initializer {
            Some(initializer) if shape.rank() >= 2 => {
                initializer.init(&shape).map_err(|message| Error::shape(format!("parameter {name}"), message))?
            }
            _ => init,
        };
        let ty = TensorType::f32(shape.clone());
        let id = ParameterId(self.parameters.len());
        let value = self.value(ty, Source::Parameter(id));
        self.names.insert(name.clone(), id);
        self.parameters.push(Parameter { name, shape, init, role, value });
        Ok((id, value))
    }

    /// Adds a tensor that stays on the device from run to run, named after the current scope.
    pub fn carried(&mut self, name: &str, ty: TensorType) -> ValueId {
        let name = self.scoped_name(name);
        let value = self.value(ty, Source::Carried(self.carried.len()));
        self.carried.push(Carried { name, value });
        value
    }

    /// The parameter `name` of the current scope, or else of the nearest scope around it that has one: what a layer
    /// that shares another one's weights asks for. Gradients of several uses add up.
    pub fn find_parameter(&self, name: &str) -> Option<ValueId> {
        let mut scope = self.scope.as_str();
        loop {
            let full = if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") };
            if let Some(id) = self.names.get(&full) {
                return Some(self.parameters[id.0].value);
            }
            if scope.is_empty() {
                return None;
            }
            scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }

    /// Adds an op with a single output.
    ///
    /// # Errors
    /// When the op cannot work on these inputs.
    pub fn apply(&mut self, op: impl Op + 'static, inputs: &[ValueId]) -> Result<ValueId> {
        let emit: &mut dyn Emit = self;
        emit.emit(op, inputs)
    }

    /// Runs `build` with `name` as the scope (`block1.fc`), which names parameters and is put in front of errors.
    ///
    /// # Errors
    /// Those of `build`; and when the scope's name is beyond any use.
    pub fn scoped<T>(&mut self, name: &str, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let inner = self.scoped_name(name);
        if inner.len() > MOST_SCOPE {
            let message =
                format!("the names of layers in layers take {} bytes, expected at most {MOST_SCOPE}", inner.len());
            return Err(Error::shape("model", message));
        }
        let outer = std::mem::replace(&mut self.scope, inner);
        let result = build(self);
        self.scope = outer;
        result
    }

    /// Runs `build` with `initializer` for the weights that it adds.
    pub fn initialized<T>(
        &mut self,
        initializer: Initializer,
        build: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer = self.initializer.replace(initializer);
        let result = build(self);
        self.initializer = outer;
        result
    }

    fn scoped_name(&self, name: &str) -> String {
        if self.scope.is_empty() { name.to_owned() } else { format!("{}.{name}", self.scope) }
    }

    /// The scope that [`Graph::scoped`] has set: the path of the layer being built, empty outside of one.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Sums `value` into `accumulator` over the micro-batches of a step.
    pub fn accumulate(&mut self, accumulator: Accumulator, value: ValueId) {
        self.accumulators.push((accumulator, value));
    }

    /// Keeps `value` readable after a run.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.outputs.push((name.to_owned(), value));
    }

    /// All values, by [`ValueId::index`].
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// All nodes; each comes after those it depends on.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The inputs, constants among them.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The parameters, in the order they were added.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The tensors that stay from run to run.
    pub fn carried_tensors(&self) -> &[Carried] {
        &self.carried
    }

    /// What is summed over micro-batches.
    pub(crate) fn accumulators(&self) -> &[(Accumulator, ValueId)] {
        &self.accumulators
    }

    /// What stays readable.
    pub fn outputs(&self) -> &[(String, ValueId)] {
        &self.outputs
    }

    /// Consecutive samples of a batch whose results depend on each other ([`Op::group`]): the least common multiple
    /// over the nodes. Where a batch is cut, it must be at a multiple of this.
    pub fn group(&self) -> usize {
        self.nodes.iter().fold(1, |group, node| common_multiple(group, node.op.group().max(1)))
    }

    /// The shape of a value.
    pub fn shape(&self, value: ValueId) -> &Shape {
        &self.values[value.index()].ty.shape
    }

    fn value(&mut self, ty: TensorType, source: Source) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(Value { ty, source });
        id
    }

    /// Which nodes the accumulators and outputs depend on; the others need not run.
    pub fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        let mut stack: Vec<ValueId> =
            self.accumulators.iter().map(|(_, v)| *v).chain(self.outputs.iter().map(|(_, v)| *v)).collect();
        while let Some(value) = stack.pop() {
            if let Source::Node { node, .. } = self.values[value.index()].source
                && !std::mem::replace(&mut needed[node], true)
            {
                stack.extend(&self.nodes[node].inputs);
            }
        }
        needed
    }
}

impl Emit for Graph {
    fn emit_all(&mut self, op: Arc<dyn Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
        let types: Vec<&TensorType> = inputs.iter().map(|v| &self.values[v.index()].ty).collect();
        let stays = |v: &ValueId| matches!(self.values[v.index()].source, Source::Carried(_) | Source::Input(_));
        if op.is_in_place() && !inputs.first().is_some_and(stays) {
            return Err(Error::shape(op.name(), "works in place, on a carried tensor only"));
        }
        let inferred = op
            .infer(&types)
            .and_then(|outputs| outputs.iter().try_for_each(|ty| check_size(op.name(), &ty.shape)).map(|()| outputs));
        let outputs = inferred.map_err(|error| in_scope(&self.scope, error))?;
        let node = self.nodes.len();
        let outputs = outputs
            .into_iter()
            .enumerate()
            .map(|(output, ty)| self.value(ty, Source::Node { node, output }))
            .collect::<Vec<_>>();
        let scope = self.scope.clone();
        self.nodes.push(Node { op, inputs: inputs.to_vec(), outputs: outputs.clone(), scope });
        Ok(outputs)
    }

    fn type_of(&self, value: ValueId) -> &TensorType {
        &self.values[value.index()].ty
    }
}

/// The least common multiple, or the largest number there is where it is beyond: then no batch can be cut.
fn common_multiple(a: usize, b: usize) -> usize {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor).saturating_mul(b)
}

/// `error`, naming the layer that `scope` is.
fn in_scope(scope: &str, error: Error) -> Error {
    match error {
        Error::Shape { what, message } if !scope.is_empty() => {
            Error::Shape { what: format!("layer {scope} ({what})"), message }
        }
        other => other,
    }
}

/// Most bytes of a scope's name: every op and parameter in it has it.
const MOST_SCOPE: usize = 1024;

/// Beyond this, sums over sizes in bytes might overflow; what a device can hold is far below and checked there.
const MOST_ELEMENTS: u64 = 1 << 53;

fn check_size(what: &str, shape: &Shape) -> Result<()> {
    if shape.elements() as u64 <= MOST_ELEMENTS {
        return Ok(());
    }
    Err(Error::shape(what, format!("expected a tensor of at most {} elements, got {shape}", MOST_ELEMENTS)))
}

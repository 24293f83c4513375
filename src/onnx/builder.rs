//! Nodes and constants of a model that is being written.

use std::collections::HashMap;
use std::ops::Range;

use super::proto::{
    AttributeProto, DataType, GraphProto, NodeProto, TensorProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use super::{Attribute, Dim, Port, attribute};
use crate::error::{Error, Result};

/// A tensor of a model, by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Value(pub(super) String);

impl Value {
    /// An optional input that is left out.
    pub fn absent() -> Self {
        Self(String::new())
    }
}

/// A model that is being written, node by node. An op gets one to write itself with.
#[derive(Debug, Default)]
pub struct Builder {
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
    /// The constants by type, dimensions and bytes: equal ones are written once.
    known: HashMap<(DataType, Vec<i64>, Vec<u8>), Value>,
    /// Names that are taken, and how many others were made from each.
    taken: HashMap<String, usize>,
    scope: String,
    /// The tensor whose first dimension is the number of samples, and that number once it has been needed.
    samples: [Option<Value>; 2],
    /// Numbers of nodes and constants at the last [`Builder::news`].
    seen: [usize; 2],
}

impl Builder {
    /// Adds a node with one output.
    pub fn node(&mut self, operator: &str, inputs: &[&Value], attributes: &[(&str, Attribute)]) -> Value {
        let wish = self.wish(operator);
        let output = self.name(&wish);
        self.push(operator, inputs, vec![output.clone()], protos(attributes));
        output
    }

    /// What the output of a node wants to be called.
    fn wish(&self, operator: &str) -> String {
        if self.scope.is_empty() { operator.to_owned() } else { format!("{}/{operator}", self.scope) }
    }

    fn push(&mut self, operator: &str, inputs: &[&Value], outputs: Vec<Value>, attribute: Vec<AttributeProto>) {
        self.nodes.push(NodeProto {
            input: inputs.iter().map(|input| input.0.clone()).collect(),
            name: outputs.first().map(|output| output.0.clone()),
            output: outputs.into_iter().map(|output| output.0).collect(),
            op_type: Some(operator.to_owned()),
            attribute,
        });
    }

    /// Adds a node whose only input is `x`.
    pub fn unary(&mut self, operator: &str, x: &Value) -> Value {
        self.node(operator, &[x], &[])
    }

    /// Adds a node on `a` and `b` without attributes.
    pub fn binary(&mut self, operator: &str, a: &Value, b: &Value) -> Value {
        self.node(operator, &[a, b], &[])
    }

    /// Adds a node on `a` and the number `b`.
    pub fn with_number(&mut self, operator: &str, a: &Value, b: f32) -> Value {
        let b = self.number(b);
        self.binary(operator, a, &b)
    }

    /// `x` as floats.
    pub fn to_floats(&mut self, x: &Value) -> Value {
        self.node("Cast", &[x], &[("to", Attribute::Int(DataType::Float as i64))])
    }

    /// Where `x` is not 0.
    pub fn to_condition(&mut self, x: &Value) -> Value {
        self.node("Cast", &[x], &[("to", Attribute::Int(DataType::Bool as i64))])
    }

    /// A constant of floats.
    pub fn floats(&mut self, dims: &[usize], values: &[f32]) -> Value {
        self.constant(DataType::Float, dims, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// A constant of whole numbers.
    pub fn integers(&mut self, dims: &[usize], values: &[i64]) -> Value {
        self.constant(DataType::Int64, dims, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// A real number, as a constant without dimensions.
    pub fn number(&mut self, value: f32) -> Value {
        self.floats(&[], &[value])
    }

    /// A constant list of whole numbers, such as axes.
    pub fn list(&mut self, values: &[usize]) -> Value {
        self.integers(&[values.len()], &values.iter().map(|&value| value as i64).collect::<Vec<_>>())
    }

    fn constant(&mut self, kind: DataType, dims: &[usize], bytes: Vec<u8>) -> Value {
        let key = (kind, dims.iter().map(|&dim| dim as i64).collect::<Vec<_>>(), bytes);
        if let Some(value) = self.known.get(&key) {
            return value.clone();
        }
        let value = self.name("constant");
        self.constants.push(TensorProto {
            dims: key.1.clone(),
            data_type: Some(kind.into()),
            name: Some(value.0.clone()),
            raw_data: Some(key.2.clone()),
        });
        self.known.insert(key, value.clone());
        value
    }

    /// The part of `x` in `range` along `axis`.
    pub fn slice(&mut self, x: &Value, axis: usize, range: Range<usize>) -> Value {
        let [start, end, axis] = [range.start, range.end, axis].map(|value| self.list(&[value]));
        self.node("Slice", &[x, &start, &end, &axis], &[])
    }

    /// Runs `body` for one step after the other, which are dimension 1 of `x`: it gets the states, `states` before the
    /// first step, and the step's part of x; it gives the new states, all of them f32. The first state after every
    /// step, along dimension 1.
    pub fn scan(
        &mut self,
        states: &[&Value],
        x: &Value,
        body: impl FnOnce(&mut Self, &[Value], &Value) -> Vec<Value>,
    ) -> Value {
        let outside = std::mem::take(&mut self.nodes);
        let before: Vec<Value> = states.iter().map(|_| self.name("state")).collect();
        let step = self.name("step");
        let mut after = body(self, &before, &step);
        after.push(self.unary("Identity", &after[0]));
        let port = |value: &Value| {
            let tensor = TensorTypeProto { elem_type: Some(DataType::Float.into()), shape: None };
            let ty = TypeProto { tensor_type: Some(tensor) };
            ValueInfoProto { name: Some(value.0.clone()), r#type: Some(ty) }
        };
        let body = GraphProto {
            node: std::mem::replace(&mut self.nodes, outside),
            name: Some(step.0.clone()),
            initializer: Vec::new(),
            input: before.iter().chain([&step]).map(port).collect(),
            output: after.iter().map(port).collect(),
        };
        let axes = [("num_scan_inputs", 1.into()), ("scan_input_axes", [1].into()), ("scan_output_axes", [1].into())];
        let mut attributes = protos(&axes);
        attributes.push(attribute::body("body", body));
        let inputs: Vec<&Value> = states.iter().copied().chain([x]).collect();
        let wish = self.wish("Scan");
        let outputs: Vec<Value> = after.iter().map(|_| self.name(&wish)).collect();
        let steps = outputs[states.len()].clone();
        self.push("Scan", &inputs, outputs, attributes);
        steps
    }

    /// `dims` as a list of whole numbers, computed when the model runs where they depend on the number of samples.
    ///
    /// # Errors
    /// When they do, but no input's first dimension is the number of samples.
    pub fn shape(&mut self, dims: &[Dim]) -> Result<Value> {
        let fixed = dims.iter().map(|dim| dim.fixed()).collect::<Option<Vec<usize>>>();
        if let Some(extents) = fixed {
            return Ok(self.list(&extents));
        }
        let part = |dim: &Dim| match *dim {
            Dim::Fixed(extent) => Ok(self.list(&[extent])),
            Dim::PerSample(1) => self.samples(),
            Dim::PerSample(count) => {
                let (samples, count) = (self.samples()?, self.list(&[count]));
                Ok(self.binary("Mul", &samples, &count))
            }
        };
        let parts = dims.iter().map(part).collect::<Result<Vec<_>>>()?;
        Ok(self.node("Concat", &parts.iter().collect::<Vec<_>>(), &[("axis", 0.into())]))
    }

    /// The number of samples, as a list of one number.
    fn samples(&mut self) -> Result<Value> {
        if let Some(samples) = &self.samples[1] {
            return Ok(samples.clone());
        }
        let input = self.samples[0].clone().ok_or_else(|| {
            Error::shape("ONNX", "expected an input whose first dimension is the number of samples, there is none")
        })?;
        let samples = self.node("Shape", &[&input], &[("start", 0.into()), ("end", 1.into())]);
        self.samples[1] = Some(samples.clone());
        Ok(samples)
    }

    /// `x`, which has as many elements, with these dimensions.
    ///
    /// # Errors
    /// As [`Builder::shape`].
    pub fn reshape(&mut self, x: &Value, dims: &[Dim]) -> Result<Value> {
        let growing = dims.iter().filter(|dim| dim.fixed().is_none()).count();
        let shape = match growing {
            // −1: as many as are left.
            1 => {
                let extents = dims.iter().map(|dim| dim.fixed().map_or(-1, |extent| extent as i64));
                self.integers(&[dims.len()], &extents.collect::<Vec<_>>())
            }
            _ => self.shape(dims)?,
        };
        Ok(self.binary("Reshape", x, &shape))
    }

    /// A tensor that no node makes: an input or a parameter. Its name gets a number where it is taken.
    pub(crate) fn given(&mut self, name: &str) -> Value {
        self.name(name)
    }

    /// Says that `value`'s first dimension is the number of samples.
    pub(crate) fn counts_samples(&mut self, value: &Value) {
        self.samples[0].get_or_insert_with(|| value.clone());
    }

    /// Sets the path that the names of nodes start with.
    pub(crate) fn enter(&mut self, scope: &str) {
        scope.clone_into(&mut self.scope);
    }

    /// Gives `value` the name `output`, which [`Builder::given`] made.
    pub(crate) fn name_output(&mut self, value: &Value, output: &Value) {
        self.push("Identity", &[value], vec![output.clone()], Vec::new());
    }

    /// The nodes and constants that have been added since the last time.
    pub(crate) fn news(&mut self) -> (&[NodeProto], &[TensorProto]) {
        let seen = std::mem::replace(&mut self.seen, [self.nodes.len(), self.constants.len()]);
        (&self.nodes[seen[0]..], &self.constants[seen[1]..])
    }

    /// The finished graph.
    pub(crate) fn finish(self, inputs: &[Port], outputs: &[Port]) -> GraphProto {
        GraphProto {
            node: self.nodes,
            name: Some("prediction".to_owned()),
            initializer: self.constants,
            input: inputs.iter().map(Port::proto).collect(),
            output: outputs.iter().map(Port::proto).collect(),
        }
    }

    fn name(&mut self, wish: &str) -> Value {
        let mut name = wish.to_owned();
        while self.taken.contains_key(&name) {
            let count = self.taken.entry(wish.to_owned()).or_default();
            *count += 1;
            name = format!("{wish}_{count}");
        }
        self.taken.insert(name.clone(), 0);
        Value(name)
    }
}

fn protos(attributes: &[(&str, Attribute)]) -> Vec<AttributeProto> {
    attributes.iter().map(|(name, value)| value.clone().proto(name)).collect()
}

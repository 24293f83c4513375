//! A graph as an ONNX model. A graph is built for one number of samples, a model takes any: so the graph is built for
//! two, and what differs between them tells which dimensions grow with the samples. Each op writes itself, for both;
//! where what it writes is not the same, it computes with the number of samples, and there is no model.

use super::{Graph, Node, Source, in_scope};
use crate::error::{Error, Result};
use crate::onnx::{self, Builder, Dim, Model, Port, Tensor, Value};
use crate::op::ValueId;
use crate::tensor::{Elements, Named};

/// The model that computes the outputs of the graph that `build` gives for a number of samples. `weights` are the
/// values of its parameters by name.
///
/// # Errors
/// When the graph cannot be built, an op has no ONNX form, something depends on the number of samples in a way that a
/// model cannot express, or a parameter has no value of its shape.
pub fn to_onnx(build: &dyn Fn(usize) -> Result<Graph>, weights: &Named<Vec<f32>>) -> Result<Model> {
    let [few, many] = Dim::SAMPLES;
    let graphs = [build(few)?, build(many)?];
    let mut writer = Writer::new(&graphs)?;
    let outputs = writer.write()?;
    let inputs = writer.inputs();
    let Writer { builders: [builder, _], parameters, .. } = writer;
    let mut model = Model::new(builder.finish(&inputs, &outputs));
    for (index, name) in parameters {
        let parameter = &graphs[0].parameters[index];
        let values = weights.get(&parameter.name);
        let values = values.filter(|values| values.len() == parameter.shape.elements()).ok_or_else(|| {
            let given = values.map_or_else(|| "none".to_owned(), |values| values.len().to_string());
            let message = format!("expected values for {}, got {given}", parameter.shape);
            Error::shape(format!("parameter {}", parameter.name), message)
        })?;
        model.weight(&name, &parameter.shape, values);
    }
    Ok(model)
}

/// The two graphs while they are being written.
struct Writer<'a> {
    graphs: &'a [Graph; 2],
    builders: [Builder; 2],
    /// The dimensions of every value.
    dims: Vec<Vec<Dim>>,
    /// The values that have been written, by [`ValueId::index`].
    written: Vec<Option<Value>>,
    /// The parameters that have been used, and what they are called in the model.
    parameters: Vec<(usize, Value)>,
}

impl<'a> Writer<'a> {
    fn new(graphs: &'a [Graph; 2]) -> Result<Self> {
        let [few, many] = graphs;
        let alike = |(a, b): (&Node, &Node)| a.op.name() == b.op.name() && a.inputs == b.inputs;
        let [sizes, others] = graphs.each_ref().map(|graph| (graph.nodes.len(), graph.values.len()));
        if sizes != others || !few.nodes.iter().zip(&many.nodes).all(alike) {
            return Err(Error::shape("ONNX", "expected the same layers for every number of samples, got others"));
        }
        let dims = few.values.iter().zip(&many.values).map(|(few, many)| {
            let (few, many) = (&few.ty.shape, &many.ty.shape);
            let extents = few.dims().iter().zip(many.dims());
            let dims = extents.map(|(&few, &many)| Dim::of([few, many])).collect::<Option<Vec<_>>>();
            dims.filter(|_| few.rank() == many.rank()).ok_or_else(|| {
                let [a, b] = Dim::SAMPLES;
                let message =
                    format!("expected tensors that grow with the samples, got {few} for {a} and {many} for {b}");
                Error::shape("ONNX", message)
            })
        });
        let dims = dims.collect::<Result<Vec<_>>>()?;
        let written = vec![None; dims.len()];
        Ok(Self { graphs, builders: Default::default(), dims, written, parameters: Vec::new() })
    }

    /// Does the same to both builders.
    fn both<T>(&mut self, mut act: impl FnMut(&mut Builder) -> T) -> T {
        act(&mut self.builders[1]);
        act(&mut self.builders[0])
    }

    fn port(&self, name: &str, value: ValueId) -> Port {
        let ty = &self.graphs[0].values[value.index()].ty;
        Port { name: name.to_owned(), dtype: ty.dtype, dims: self.dims[value.index()].clone() }
    }

    fn inputs(&self) -> Vec<Port> {
        let given = self.graphs[0].inputs().iter().filter(|input| input.constant.is_none());
        given.map(|input| self.port(&input.name, input.value)).collect()
    }

    /// Writes the nodes that the outputs need; the outputs.
    fn write(&mut self) -> Result<Vec<Port>> {
        // First, so that they get their names as they are.
        for input in self.graphs[0].inputs().iter().filter(|input| input.constant.is_none()) {
            let value = self.both(|builder| builder.given(&input.name));
            if self.dims[input.value.index()].first() == Some(&Dim::PerSample(1)) {
                self.both(|builder| builder.counts_samples(&value));
            }
            self.written[input.value.index()] = Some(value);
        }
        let outputs = self.graphs[0].outputs();
        let names: Vec<Value> = outputs.iter().map(|(name, _)| self.both(|builder| builder.given(name))).collect();
        let needed = self.graphs[0].needed();
        for (index, _) in needed.iter().enumerate().filter(|(_, needed)| **needed) {
            let scope = &self.graphs[0].nodes[index].scope;
            self.both(|builder| builder.enter(scope));
            self.node(index).map_err(|error| in_scope(scope, error))?;
        }
        self.both(|builder| builder.enter(""));
        for ((_, value), name) in outputs.iter().zip(&names) {
            let value = self.value(*value)?;
            self.both(|builder| builder.name_output(&value, name));
        }
        Ok(outputs.iter().map(|(name, value)| self.port(name, *value)).collect())
    }

    fn node(&mut self, index: usize) -> Result<()> {
        let [node, other] = self.graphs.each_ref().map(|graph| &graph.nodes[index]);
        let inputs = node
            .inputs
            .iter()
            .map(|&input| Ok(Tensor { value: self.value(input)?, dims: self.dims[input.index()].clone() }));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let outputs = node.outputs.iter().map(|output| self.dims[output.index()].clone()).collect();
        let view = onnx::Node { inputs, outputs };
        let values = node.op.onnx(&mut self.builders[0], &view)?;
        other.op.onnx(&mut self.builders[1], &view)?;
        self.compare(node.op.name())?;
        for (output, value) in node.outputs.iter().zip(values) {
            self.written[output.index()] = Some(value);
        }
        Ok(())
    }

    /// Checks that both graphs have written the same since the last time.
    fn compare(&mut self, what: &str) -> Result<()> {
        let [few, many] = &mut self.builders;
        if few.news() == many.news() {
            return Ok(());
        }
        Err(Error::shape(what, "cannot be written for any number of samples: it computes with that number"))
    }

    /// The name of a value, which nodes have made before or which is written now.
    fn value(&mut self, id: ValueId) -> Result<Value> {
        if let Some(value) = &self.written[id.index()] {
            return Ok(value.clone());
        }
        let value = match self.graphs[0].values[id.index()].source {
            Source::Input(index) => self.constant(index)?,
            Source::Parameter(parameter) => {
                let graphs = self.graphs;
                let value = self.both(|builder| builder.given(&graphs[0].parameters[parameter.0].name));
                self.parameters.push((parameter.0, value.clone()));
                value
            }
            Source::Carried(index) => {
                let name = &self.graphs[0].carried[index].name;
                return Err(Error::shape(name.as_str(), "stays from run to run, which ONNX models cannot express"));
            }
            Source::Node { node, output } => {
                let name = self.graphs[0].nodes[node].op.name();
                return Err(Error::shape(name, format!("has no ONNX form of its output {output}")));
            }
        };
        self.written[id.index()] = Some(value.clone());
        Ok(value)
    }

    fn constant(&mut self, index: usize) -> Result<Value> {
        let graphs = self.graphs;
        let [value, _] = [0, 1].map(|which| {
            let tensor = &graphs[which].inputs[index].constant;
            let tensor = tensor.as_deref().expect("other inputs have been written before the nodes");
            let (builder, dims) = (&mut self.builders[which], tensor.shape().dims());
            match tensor.elements() {
                Elements::F32(values) => builder.floats(dims, values),
                Elements::U32(values) => {
                    builder.integers(dims, &values.iter().map(|&value| i64::from(value)).collect::<Vec<_>>())
                }
            }
        });
        self.compare(&graphs[0].inputs[index].name)?;
        Ok(value)
    }
}

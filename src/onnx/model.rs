//! A finished model: its file.

use prost::Message;

use super::proto::{
    DataType, DimensionProto, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use super::{Dim, Value};
use crate::error::{Error, Result};
use crate::tensor::{DType, Shape};

/// The operators' version. 18 is the first whose Resize takes the axes to resize.
const OPSET: i64 = 18;
/// The file format's version that came with it.
const IR_VERSION: i64 = 8;
/// The name of the dimension that is the number of samples.
const SAMPLES: &str = "batch";

/// An input or output of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The type of its elements here; unsigned ones are int64 in the file.
    pub dtype: DType,
    /// Its dimensions.
    pub dims: Vec<Dim>,
}

impl Port {
    pub(super) fn proto(&self) -> ValueInfoProto {
        let dim = |dim: &Dim| match *dim {
            Dim::Fixed(extent) => DimensionProto { dim_value: Some(extent as i64), dim_param: None },
            Dim::PerSample(1) => DimensionProto { dim_value: None, dim_param: Some(SAMPLES.to_owned()) },
            Dim::PerSample(n) => DimensionProto { dim_value: None, dim_param: Some(format!("{n}*{SAMPLES}")) },
        };
        let elements = match self.dtype {
            DType::F32 => DataType::Float,
            DType::U32 => DataType::Int64,
        };
        let shape = TensorShapeProto { dim: self.dims.iter().map(dim).collect() };
        let tensor = TensorTypeProto { elem_type: Some(elements.into()), shape: Some(shape) };
        ValueInfoProto { name: Some(self.name.clone()), r#type: Some(TypeProto { tensor_type: Some(tensor) }) }
    }
}

/// A model with its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    graph: GraphProto,
    metadata: Vec<StringStringEntryProto>,
}

impl Model {
    pub(crate) fn new(graph: GraphProto) -> Self {
        Self { graph, metadata: Vec::new() }
    }

    /// Adds the values of a parameter.
    pub(crate) fn weight(&mut self, name: &Value, shape: &Shape, values: &[f32]) {
        self.graph.initializer.push(TensorProto {
            dims: shape.dims().iter().map(|&dim| dim as i64).collect(),
            data_type: Some(DataType::Float.into()),
            name: Some(name.0.clone()),
            raw_data: Some(values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        });
    }

    /// Adds a fact about the model for those who use it (`metadata_props`).
    pub fn describe(&mut self, key: &str, value: &str) {
        self.metadata.push(StringStringEntryProto { key: Some(key.to_owned()), value: Some(value.to_owned()) });
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// When they would be more than 2 GiB, of which the format has no more in one file.
    pub fn encode(self) -> Result<Vec<u8>> {
        let proto = ModelProto {
            ir_version: Some(IR_VERSION),
            producer_name: Some(env!("CARGO_PKG_NAME").to_owned()),
            producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            graph: Some(self.graph),
            opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(OPSET) }],
            metadata_props: self.metadata,
        };
        check_size(proto.encoded_len() as u64)?;
        Ok(proto.encode_to_vec())
    }
}

fn check_size(bytes: u64) -> Result<()> {
    if bytes <= i32::MAX as u64 {
        return Ok(());
    }
    let message = format!("expected a model of at most 2 GiB, the most that an ONNX file holds, got {bytes} bytes");
    Err(Error::invalid("ONNX", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_beyond_what_the_format_holds_is_refused() {
        assert!(check_size((1 << 31) - 1).is_ok());
        let error = check_size(1 << 31).unwrap_err().to_string();
        let message = "ONNX: expected a model of at most 2 GiB, the most that an ONNX file holds, got 2147483648 bytes";
        assert_eq!(error, message);
    }
}

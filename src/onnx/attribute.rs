//! Attributes of nodes.

use super::proto::{AttributeProto, AttributeType, GraphProto};

/// The value of a node's attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// A real number.
    Float(f32),
    /// A word.
    Text(&'static str),
}

impl From<usize> for Attribute {
    fn from(value: usize) -> Self {
        Self::Int(value as i64)
    }
}

impl<const N: usize> From<[usize; N]> for Attribute {
    fn from(values: [usize; N]) -> Self {
        Self::from(&values[..])
    }
}

impl From<&[usize]> for Attribute {
    fn from(values: &[usize]) -> Self {
        Self::Ints(values.iter().map(|&value| value as i64).collect())
    }
}

impl From<bool> for Attribute {
    fn from(value: bool) -> Self {
        Self::Int(i64::from(value))
    }
}

/// The attribute `name` of a node that runs `graph` itself.
pub(super) fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        g: Some(graph),
        r#type: Some(AttributeType::Graph.into()),
        ..AttributeProto::default()
    }
}

impl Attribute {
    pub(super) fn proto(self, name: &str) -> AttributeProto {
        let mut proto = AttributeProto { name: Some(name.to_owned()), ..AttributeProto::default() };
        let kind = match self {
            Self::Int(value) => {
                proto.i = Some(value);
                AttributeType::Int
            }
            Self::Ints(values) => {
                proto.ints = values;
                AttributeType::Ints
            }
            Self::Float(value) => {
                proto.f = Some(value);
                AttributeType::Float
            }
            Self::Text(value) => {
                proto.s = Some(value.into());
                AttributeType::String
            }
        };
        proto.r#type = Some(kind.into());
        proto
    }
}

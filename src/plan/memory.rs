//! The bytes that training allocates on a device: the executor makes exactly these buffers, and a test holds its ledger
//! against them.

use std::fmt;

use super::{ALIGNMENT, Buffer, Plan};

/// One buffer to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// What it is for.
    pub label: String,
    /// Its size.
    pub bytes: u64,
}

impl Allocation {
    /// `bytes`, but at least 4 (WebGPU has no empty bindings) and a multiple of 4 (for copies).
    pub fn new(label: impl Into<String>, bytes: u64) -> Self {
        Self { label: label.into(), bytes: bytes.max(4).next_multiple_of(4) }
    }

    /// The allocation of a planned buffer.
    pub fn of(buffer: Buffer, bytes: u64) -> Self {
        Self::new(buffer.to_string(), bytes)
    }
}

/// A list of buffers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Footprint(pub Vec<Allocation>);

impl Footprint {
    /// The sum of their sizes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|a| a.bytes).sum()
    }
}

impl Plan {
    /// Bytes that the host writes for one micro-batch: the step uniform, then each input, 256-byte aligned.
    pub fn upload_bytes(&self) -> u64 {
        ALIGNMENT + self.inputs.iter().map(|i| (i.ty.bytes() as u64).next_multiple_of(ALIGNMENT)).sum::<u64>()
    }

    /// Bytes of all readable outputs, each 256-byte aligned.
    pub fn output_bytes(&self) -> u64 {
        self.outputs.iter().map(|o| (o.ty.bytes() as u64).next_multiple_of(ALIGNMENT)).sum()
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for allocation in &self.0 {
            writeln!(f, "{:>14}  {}", allocation.bytes, allocation.label)?;
        }
        writeln!(f, "{:>14}  total", self.bytes())
    }
}

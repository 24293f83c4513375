//! Named host tensors ↔ safetensors files, bit for bit. Knows the file format and the element types that a
//! [`HostTensor`] can have; not which tensors belong to which part of a run.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::Path;

use safetensors::tensor::{SafeTensorError, SafeTensors, View};

use super::atomic::write_atomic;
use crate::error::{Error, Result};
use crate::file;
use crate::tensor::{DType, Elements, HostTensor, Named, Shape};

/// How many tensors of each kind [`match_tensors`] lists.
const LISTED: usize = 10;

/// Writes named tensors to a safetensors file, atomically (see [`write_atomic`]). `metadata` goes into the file's
/// `__metadata__` for other tools to read.
///
/// # Errors
/// [`Error::Checkpoint`] when a tensor has a name that the format keeps for itself, [`Error::Io`] when the file cannot
/// be written.
pub fn write_tensors(path: impl AsRef<Path>, tensors: &Named<HostTensor>, metadata: &[(&str, &str)]) -> Result<()> {
    let path = path.as_ref();
    write_atomic(path, &encode(path, tensors, metadata)?)
}

/// Reads all tensors of a safetensors file, sorted by name.
///
/// # Errors
/// [`Error::Checkpoint`] when the file is missing, cut short, not a safetensors file or holds a type other than F32 and
/// U32; [`Error::Io`] when it cannot be read.
pub fn read_tensors(path: impl AsRef<Path>) -> Result<Named<HostTensor>> {
    let path = path.as_ref();
    decode(path, &read_safetensors(path)?)
}

/// Checks that `found` has exactly the tensors `expected`, by name and shape, in any order. `path` is the file or
/// folder that they were read from.
///
/// # Errors
/// [`Error::Checkpoint`] that lists the missing, the extra and the wrongly shaped tensors, the first ten of each.
pub(crate) fn match_tensors(path: impl AsRef<Path>, expected: &Named<Shape>, found: &Named<HostTensor>) -> Result<()> {
    let path = path.as_ref();
    let (mut missing, mut misshaped) = (Vec::new(), Vec::new());
    for (name, shape) in expected {
        match found.get(name).map(HostTensor::shape) {
            None => missing.push(format!("{name} {shape}")),
            Some(given) if given != shape => misshaped.push(format!("{name} is {given}, expected {shape}")),
            Some(_) => {}
        }
    }
    let extra: Vec<String> = found
        .iter()
        .filter(|(name, _)| !expected.contains_key(name.as_str()))
        .map(|(name, tensor)| format!("{name} {}", tensor.shape()))
        .collect();
    if missing.is_empty() && extra.is_empty() && misshaped.is_empty() {
        return Ok(());
    }
    let mut message = String::from("its tensors are not those of this model");
    for (kind, list) in [("missing", missing), ("extra", extra), ("wrong shape", misshaped)] {
        if list.is_empty() {
            continue;
        }
        let rest = list.len().saturating_sub(LISTED);
        let more = if rest > 0 { format!(", and {rest} more") } else { String::new() };
        let _ = write!(message, "; {kind}: {}{more}", list[..list.len() - rest].join(", "));
    }
    Err(Error::checkpoint(path, message))
}

/// The bytes of a safetensors file. `path` is only for messages.
pub(super) fn encode(path: &Path, tensors: &Named<HostTensor>, metadata: &[(&str, &str)]) -> Result<Vec<u8>> {
    if tensors.contains_key("__metadata__") {
        return Err(Error::checkpoint(path, "the name '__metadata__' is reserved by the safetensors format"));
    }
    let metadata: HashMap<_, _> = metadata.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    // Without tensors, an empty map would not be written as JSON.
    let metadata = (!metadata.is_empty()).then_some(metadata);
    safetensors::serialize(tensors.iter().map(|(name, tensor)| (name, LittleEndian(tensor))), metadata)
        .map_err(|error| Error::checkpoint(path, format!("cannot be written as safetensors: {error}")))
}

/// The tensors in the bytes of a safetensors file, sorted by name. `path` is only for messages.
pub(super) fn decode(path: &Path, bytes: &[u8]) -> Result<Named<HostTensor>> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| Error::checkpoint(path, explain(&error, bytes)))?;
    let mut tensors = Named::default();
    for (name, view) in file.iter() {
        let words = view.data().chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
        let elements = match view.dtype() {
            safetensors::Dtype::F32 => Elements::F32(words.map(f32::from_le_bytes).collect()),
            safetensors::Dtype::U32 => Elements::U32(words.map(u32::from_le_bytes).collect()),
            other => {
                return Err(Error::checkpoint(
                    path,
                    format!("tensor '{name}' is of type {other}; F32 and U32 are supported: convert the file first"),
                ));
            }
        };
        tensors.extend([(name, HostTensor::new(view.shape(), elements)?)])?;
    }
    Ok(tensors.sorted())
}

/// Reads a whole file.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>> {
    file::read(path, u64::MAX, "").map_err(|error| missing(path, error))
}

/// That a file is missing is an error of the checkpoint.
fn missing(path: &Path, error: Error) -> Error {
    match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            Error::checkpoint(path, "the file is missing")
        }
        other => other,
    }
}

/// Reads a file that should hold tensors; of one that does not begin like a safetensors file only the front, whatever
/// its size: enough to tell what it is.
pub(super) fn read_safetensors(path: &Path) -> Result<Vec<u8>> {
    const FRONT: u64 = 1 << 20;
    let mut front = Vec::new();
    file::open(path)
        .and_then(|file| file::read_within(file, FRONT, &mut front).map_err(Error::io(path)))
        .map_err(|error| missing(path, error))?;
    if front.get(8) == Some(&b'{') { read_file(path) } else { Ok(front) }
}

/// What a parser's error says about the file as a whole.
pub(super) fn explain(error: &SafeTensorError, bytes: &[u8]) -> String {
    // A header starts with '{' after its 8-byte length: if that much is there, the file was a safetensors file once.
    let header_begins = bytes.get(8) == Some(&b'{');
    let size = bytes.len();
    match error {
        SafeTensorError::MetadataIncompleteBuffer => format!(
            "its {size} bytes are not as many as its header declares: the file was cut short or appended to; use another \
             copy or an earlier checkpoint"
        ),
        SafeTensorError::InvalidHeaderLength if header_begins => format!(
            "its {size} bytes end inside the header: the file was cut short; use another copy or an earlier checkpoint"
        ),
        _ if size == 0 => "the file is empty; use another copy or an earlier checkpoint".into(),
        _ => format!("not a safetensors file ({error})"),
    }
}

/// A host tensor as a safetensors file stores it.
struct LittleEndian<'a>(&'a HostTensor);

impl View for LittleEndian<'_> {
    fn dtype(&self) -> safetensors::Dtype {
        match self.0.dtype() {
            DType::F32 => safetensors::Dtype::F32,
            DType::U32 => safetensors::Dtype::U32,
        }
    }

    fn shape(&self) -> &[usize] {
        self.0.shape().dims()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        if cfg!(target_endian = "little") {
            return Cow::Borrowed(self.0.bytes());
        }
        Cow::Owned(self.0.bytes().chunks_exact(4).flat_map(|b| [b[3], b[2], b[1], b[0]]).collect())
    }

    fn data_len(&self) -> usize {
        self.0.bytes().len()
    }
}

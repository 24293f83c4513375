//! Weights from and for other programs: safetensors files with PyTorch's names and layouts, under other names where the
//! modules are called otherwise.

use std::collections::BTreeSet;
use std::path::Path;

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{SafeTensors, TensorView};

use super::name_map::NameMap;
use super::tensors::{explain, match_tensors, read_safetensors, write_tensors};
use crate::error::{Error, Result};
use crate::tensor::{HostTensor, Named, Shape};

/// How closely a file of weights must match a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Every parameter has its tensor, every tensor its parameter.
    Strict,
    /// Tensors that fit a parameter by name and shape are taken, the others not.
    Partial,
}

/// What came of reading foreign weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    /// Values by parameter.
    pub values: Named<Vec<f32>>,
    /// Parameters that got none.
    pub missing: Vec<String>,
    /// Tensors of the file that were not used.
    pub unused: Vec<String>,
}

/// Whether the tensor `name` is the count of a batch norm's steps. PyTorch has an i64 scalar there, this crate an f32
/// \[1\] that nothing depends on; and PyTorch sets a module's own to 0 where a file without a version has none.
fn counts_steps(name: &str) -> bool {
    name.rsplit('.').next() == Some("num_batches_tracked")
}

/// The error where a name map gives two tensors one name.
fn same_name(path: &Path, error: &Error) -> Error {
    Error::checkpoint(path, format!("{error}; check the name map"))
}

/// Writes weights for other programs: a safetensors file with the tensors of a checkpoint under the names that `map`
/// gives them, in PyTorch's layout and without batch norm's `num_batches_tracked`. The number of tensors.
///
/// # Errors
/// When two tensors get one name, a rule of the map renames none, or the file cannot be written.
pub fn write_weights(path: &Path, weights: &Named<HostTensor>, map: &NameMap) -> Result<usize> {
    map.check(&weights.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>())?;
    let kept = weights.iter().filter(|(name, _)| !counts_steps(name));
    let renamed = Named::of(kept.map(|(name, tensor)| (map.apply(name), tensor.clone())));
    let renamed = renamed.map_err(|error| same_name(path, &error))?;
    // What PyTorch's own tools write there.
    write_tensors(path, &renamed, &[("format", "pt")])?;
    Ok(renamed.len())
}

/// The weights for a model with parameters `expected` from the safetensors file at `path`, whose names `map`
/// translates. Tensors of types F64, F16 and BF16 are converted to f32. Batch norm's `num_batches_tracked` is passed
/// over, in the file and among the parameters.
///
/// # Errors
/// When the file cannot be read, two of its tensors get one name, a rule of the map renames none, a value is not
/// finite, or with [`Match::Strict`] something is missing, left over or of another shape: the message lists all of it.
/// With [`Match::Partial`] when nothing fits.
pub fn read_weights(path: &Path, expected: &Named<Shape>, map: &NameMap, how: Match) -> Result<Imported> {
    let bytes = read_safetensors(path)?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| Error::checkpoint(path, other_format(&bytes).unwrap_or_else(|| explain(&error, &bytes))))?;
    map.check(&file.names())?;
    let expected = expected.iter().filter(|(name, _)| !counts_steps(name));
    let expected = Named::of(expected.map(|(name, shape)| (name, shape.clone())))?;
    let mut found = Named::default();
    for (original, view) in file.iter().filter(|(name, _)| !counts_steps(name)) {
        let tensor = HostTensor::f32(view.shape(), floats(path, original, &view)?)?;
        found.extend([(map.apply(original), tensor)]).map_err(|error| same_name(path, &error))?;
    }
    let found = found.sorted();
    if how == Match::Strict && !expected.is_empty() {
        match_tensors(path, &expected, &found)?;
    }
    let mut imported = Imported::default();
    for (name, tensor) in found {
        match expected.get(&name) {
            Some(shape) if shape == tensor.shape() => {
                imported.values.extend([(name, tensor.as_f32().unwrap_or_default().to_vec())])?;
            }
            _ => imported.unused.push(name),
        }
    }
    let missing = expected.iter().map(|(name, _)| name).filter(|name| !imported.values.contains_key(name.as_str()));
    imported.missing = missing.cloned().collect();
    if imported.values.is_empty() {
        let of = |names: &[String]| match names {
            [a, b, c, _, ..] => format!("{a}, {b}, {c}, …"),
            few => few.join(", "),
        };
        let message = match (&imported.unused[..], &imported.missing[..]) {
            (_, []) => "the model has no parameters, so that there is nothing to take from the file".to_owned(),
            ([], _) => "the file has no tensors".to_owned(),
            (theirs, ours) => {
                let (theirs, ours) = (of(theirs), of(ours));
                format!("no tensor fits the model: it has {theirs}; the model has {ours}; a name map may help")
            }
        };
        return Err(Error::checkpoint(path, message));
    }
    Ok(imported)
}

/// What a file of weights is that is no safetensors file, and what to do about it; `None` where that is not known.
fn other_format(bytes: &[u8]) -> Option<String> {
    let pickled = matches!(bytes, [b'P', b'K', 3, 4, ..] | [0x80, 2..=5, ..]);
    if pickled {
        return Some(
            "this is not a safetensors file but what torch.save writes (or another archive); convert it in Python: \
             safetensors.torch.save_file(torch.load(FILE, weights_only=True), \"w.safetensors\")"
                .to_owned(),
        );
    }
    let index: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let files: BTreeSet<&str> = index.get("weight_map")?.as_object()?.values().filter_map(|v| v.as_str()).collect();
    let first = files.first()?;
    Some(format!(
        "this is the index of weights that lie in {} files ({first}{}); join them in Python: \
         safetensors.torch.save_file({{k: v for f in FILES for k, v in safetensors.torch.load_file(f).items()}}, \
         \"w.safetensors\")",
        files.len(),
        if files.len() > 1 { ", …" } else { "" }
    ))
}

/// A tensor's elements as f32.
fn floats(path: &Path, name: &str, view: &TensorView<'_>) -> Result<Vec<f32>> {
    fn each<const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
        bytes.chunks_exact(N).map(|b| convert(b.try_into().expect("N bytes"))).collect()
    }
    let bytes = view.data();
    let values = match view.dtype() {
        Dtype::F32 => each(bytes, f32::from_le_bytes),
        Dtype::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
        Dtype::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
        Dtype::BF16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        other => {
            let message = format!("tensor '{name}' is of type {other}; expected F32, F64, F16 or BF16");
            return Err(Error::checkpoint(path, message));
        }
    };
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(values),
        Some(i) => {
            let message = format!("tensor '{name}', element {i} is {}, not a finite number", values[i]);
            Err(Error::checkpoint(path, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::name_map::tests::map;
    use super::super::write_tensors;
    use super::*;

    fn file(tensors: &[(&str, &[usize], f32)]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let tensors: Vec<_> = tensors
            .iter()
            .map(|(name, dims, value)| {
                let shape = Shape::from(*dims);
                let values = vec![*value; shape.elements()];
                (*name, HostTensor::f32(shape, values).unwrap())
            })
            .collect();
        write_tensors(&path, &Named::of(tensors).unwrap(), &[]).unwrap();
        (folder, path)
    }

    fn expected() -> Named<Shape> {
        Named::of([("fc.weight", Shape::from([2, 3])), ("fc.bias", Shape::from([2]))]).unwrap()
    }

    fn filled<const N: usize>(values: [(&str, usize, f32); N]) -> Named<Vec<f32>> {
        Named::of(values.map(|(name, len, value)| (name, vec![value; len]))).unwrap()
    }

    #[test]
    fn the_count_of_batch_norms_steps_is_left_out_on_both_ways() {
        let of = |name: &str, dims: &[usize]| (format!("norm.{name}"), Shape::from(dims));
        let model = Named::of([of("running_mean", &[2]), of("num_batches_tracked", &[1])]).unwrap();
        let (_folder, theirs) = file(&[("norm.running_mean", &[2], 3.0), ("norm.num_batches_tracked", &[], 7.0)]);
        let read = read_weights(&theirs, &model, &map(&[]), Match::Strict).unwrap();
        assert_eq!(read.values, filled([("norm.running_mean", 2, 3.0)]));
        assert!(read.missing.is_empty() && read.unused.is_empty());
        let ones = |shape: &Shape| HostTensor::f32(shape.clone(), vec![1.0; shape.elements()]).unwrap();
        let ours = Named::of(model.iter().map(|(name, shape)| (name, ones(shape)))).unwrap();
        assert_eq!(write_weights(&theirs, &ours, &map(&["norm=1"])).unwrap(), 1);
        let names: Vec<_> = super::super::read_tensors(&theirs).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["1.running_mean"]);
    }

    #[test]
    fn a_strict_match_takes_all_and_says_all_that_is_wrong() {
        let (_folder, path) =
            file(&[("0.weight", &[2, 3], 1.0), ("0.bias", &[2], 2.0), ("0.num_batches_tracked", &[], 0.0)]);
        let read = read_weights(&path, &expected(), &map(&["0=fc"]), Match::Strict).unwrap();
        assert_eq!(read.values, filled([("fc.bias", 2, 2.0), ("fc.weight", 6, 1.0)]));
        assert!(read.missing.is_empty() && read.unused.is_empty());

        let (_folder, path) = file(&[("fc.weight", &[3, 2], 1.0), ("head.bias", &[2], 2.0)]);
        let error = read_weights(&path, &expected(), &map(&[]), Match::Strict).unwrap_err().to_string();
        for part in ["missing: fc.bias [2]", "extra: head.bias [2]", "fc.weight is [3, 2], expected [2, 3]"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_partial_match_takes_what_fits() {
        let (_folder, path) = file(&[("fc.weight", &[3, 2], 1.0), ("fc.bias", &[2], 2.0), ("head.bias", &[2], 2.0)]);
        let read = read_weights(&path, &expected(), &map(&[]), Match::Partial).unwrap();
        assert_eq!(read.values, filled([("fc.bias", 2, 2.0)]));
        assert_eq!(
            (read.missing, read.unused),
            (vec!["fc.weight".into()], vec!["fc.weight".into(), "head.bias".into()])
        );
        let (_folder, path) = file(&[("a", &[1], 1.0)]);
        let error = read_weights(&path, &expected(), &map(&[]), Match::Partial).unwrap_err().to_string();
        assert!(
            error.contains("no tensor fits the model: it has a; the model has fc.weight, fc.bias; a name map"),
            "{error}"
        );
        let error = read_weights(&path, &expected(), &map(&["a=fc.bias"]), Match::Partial).unwrap_err();
        assert!(error.to_string().contains("no tensor fits"), "{error}");

        let (_folder, path) = file(&[("fc.bias", &[2], 1.0), ("0.bias", &[2], 2.0)]);
        let error = read_weights(&path, &expected(), &map(&["0=fc"]), Match::Partial).unwrap_err().to_string();
        assert!(error.contains("fc.bias: two have this name; names must be unique; check the name map"), "{error}");
    }

    #[test]
    fn halves_and_doubles_are_converted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let half: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect();
        let brain: Vec<u8> = [0.25_f32, 3.0].iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect();
        let double: Vec<u8> = [0.1_f64, f64::NAN].iter().flat_map(|v| v.to_le_bytes()).collect();
        let whole: Vec<u8> = vec![1; 8];
        let write = |tensors: Vec<(&str, Dtype, &[u8], usize)>| {
            let views = tensors.into_iter().map(|(n, d, b, len)| (n, TensorView::new(d, vec![len], b).unwrap()));
            std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        };
        let expected = Named::of([("a", Shape::from([2])), ("b", Shape::from([2]))]).unwrap();
        let read = |how| read_weights(&path, &expected, &NameMap::default(), how);
        write(vec![("a", Dtype::F16, &half, 2), ("b", Dtype::BF16, &brain, 2)]);
        let converted = Named::of([("a", vec![1.5, -2.0]), ("b", vec![0.25, 3.0])]).unwrap();
        assert_eq!(read(Match::Strict).unwrap().values, converted);
        write(vec![("a", Dtype::F64, &double, 2)]);
        let error = read(Match::Partial).unwrap_err().to_string();
        assert!(error.contains("tensor 'a', element 1 is NaN"), "{error}");
        write(vec![("a", Dtype::I64, &whole, 1)]);
        let error = read(Match::Partial).unwrap_err().to_string();
        assert!(error.contains("'a' is of type I64; expected F32, F64, F16 or BF16"), "{error}");
    }
}

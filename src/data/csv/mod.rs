//! Comma-separated tables as data sets: one sample a line, numbers as features, one column as the label. Every complaint
//! names file, line and column, because such files are edited by hand. Knows nothing of scaling or splitting.

mod labels;
mod table;

use std::path::PathBuf;

use self::labels::Labels;
use self::table::Table;
use super::{TensorDataset, source};
use crate::error::Result;
use crate::tensor::{HostTensor, Shape};

/// Which column holds the label.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum Label {
    /// By position from 0; negative positions count from the end, so -1 is the last column.
    Index(i64),
    /// By its name in the header.
    Name(String),
}

/// How to read a CSV file.
#[derive(Debug, Clone, PartialEq)]
pub struct CsvOptions {
    /// The file, plain or gzip-compressed.
    pub path: PathBuf,
    /// The label's column; `None` is the last one.
    pub label: Option<Label>,
    /// Whether the first line holds column names.
    pub header: bool,
    /// The byte between two fields.
    pub delimiter: u8,
    /// The shape that each line's features make up; `None` is `(features)`.
    pub sample_shape: Option<Vec<usize>>,
    /// Whether the label is a number to predict, f32 `(1)`, instead of a class.
    pub regression: bool,
    /// The classes by index, where they are known already (from training); another label is then an error. Without them
    /// the labels found are sorted: by value if all are integers, else by name.
    pub classes: Option<Vec<String>>,
}

impl CsvOptions {
    /// A comma-separated file with a header, whose last column is the class.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            label: None,
            header: true,
            delimiter: b',',
            sample_shape: None,
            regression: false,
            classes: None,
        }
    }
}

/// Reads a table with labels.
///
/// # Errors
/// [`Error::Data`](crate::error::Error::Data) with file, line and column: no such label column, a header that is data, a line with another number of
/// fields, a cell that is not a finite number, an unknown or missing label, no data at all.
pub fn read_csv(options: &CsvOptions) -> Result<TensorDataset> {
    parse(&source::read(&options.path)?, options)
}

/// Reads a table to predict from: `features` columns, or one more, the label's, which is then left out. Returns
/// `(n, ..sample)`.
///
/// # Errors
/// Like [`read_csv`]; also when the file has another number of columns.
pub fn read_csv_features(options: &CsvOptions, features: usize) -> Result<HostTensor> {
    let bytes = source::read(&options.path)?;
    let table = Table::open(&bytes, options)?;
    let label = match table.width() {
        width if width == features => None,
        width if width == features + 1 => Some(table.label_column()?),
        width => {
            let message = format!("expected {features} columns (or one more, with the label), got {width}");
            return Err(table.fault(message));
        }
    };
    let (_, inputs) = read_rows(table, options, label, |_, _, _, _| Ok(()))?;
    Ok(inputs)
}

/// Reads a table with labels from the file's content.
pub(super) fn parse(bytes: &[u8], options: &CsvOptions) -> Result<TensorDataset> {
    let table = Table::open(bytes, options)?;
    let label = table.label_column()?;
    if options.regression {
        let mut targets = Vec::new();
        let (n, inputs) = read_rows(table, options, Some(label), |table, offset, column, cell| {
            targets.push(table.number(offset, column, cell)?);
            Ok(())
        })?;
        return TensorDataset::regression(inputs, HostTensor::f32([n, 1], targets)?);
    }
    let mut labels = Labels::new(options.classes.as_deref());
    let (_, inputs) = read_rows(table, options, Some(label), |table, offset, column, cell| {
        labels.push(cell).map_err(|message| table.cell_fault(offset, column, message))
    })?;
    let (labels, classes) = labels.finish();
    TensorDataset::classification(inputs, labels, classes)
}

/// Reads all rows: hands the `label` cell of each to `on_label` (with its byte offset and column) and gathers the others.
fn read_rows<'a>(
    mut table: Table<'a>,
    options: &CsvOptions,
    label: Option<usize>,
    mut on_label: impl FnMut(&Table<'a>, u64, usize, &str) -> Result<()>,
) -> Result<(usize, HostTensor)> {
    table.check_header(label)?;
    let features = table.width() - usize::from(label.is_some());
    let sample = sample_shape(&table, options, features)?;
    let (mut n, mut values) = (0, Vec::new());
    while let Some((offset, record)) = table.next_record()? {
        for (column, cell) in record.iter().enumerate() {
            if Some(column) == label {
                on_label(&table, offset, column, cell)?;
            } else {
                values.push(table.number(offset, column, cell)?);
            }
        }
        n += 1;
    }
    if n == 0 {
        return Err(table.fault("there is no data after the header".to_string()));
    }
    Ok((n, HostTensor::f32(sample.batched(n), values)?))
}

fn sample_shape(table: &Table, options: &CsvOptions, features: usize) -> Result<Shape> {
    if features == 0 {
        return Err(table.fault(format!(
            "there is no column beside the label with '{}' as delimiter; set the delimiter if the file uses another",
            options.delimiter.escape_ascii()
        )));
    }
    let Some(dims) = &options.sample_shape else { return Ok(Shape::from([features])) };
    let elements = dims.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim));
    if elements == Some(features) {
        return Ok(Shape::from(dims.as_slice()));
    }
    let shape = Shape::from(dims.as_slice());
    let needs = elements.map_or("far more".to_string(), |e| e.to_string());
    Err(table.fault(format!("a sample of shape {shape} needs {needs} feature columns, got {features}")))
}

#[cfg(test)]
mod tests;

//! Comma-separated tables as data sets: one sample a line, numbers as features, one column as the label. Every
//! complaint names file, line and column, because such files are edited by hand. Knows nothing of scaling or splitting.

mod labels;
mod precision;
mod quotes;
mod table;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use self::labels::Labels;
use self::precision::Precision;
use self::table::Table;
use super::{TensorDataset, source};
use crate::error::Result;
use crate::tensor::{HostTensor, Shape};

/// Which column holds the label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Label {
    /// By position from 0; negative positions count from the end, so -1 is the last column.
    Index(i64),
    /// By its name in the header.
    Name(String),
}

/// What the columns of a table were in training, so that other files of the same run are read as its file was.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// Names of the feature columns, in the order of a sample's elements; none for a table without a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<String>>,
    /// The label column's name; none without a header, or where a feature has the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What is taken off each feature's values, in float64, before they become float32; empty where nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offsets: Vec<f64>,
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
    /// the labels found are sorted: by value if all are numbers, else by name.
    pub classes: Option<Vec<String>>,
    /// The columns that the training found, where they are known already: those are taken, wherever they stand, and
    /// others are passed over. Without a header columns are taken by position.
    pub columns: Option<Columns>,
    /// Whether a column whose values float32 cannot tell apart may have a constant taken off, which makes no difference
    /// to inputs that are standardized afterwards.
    pub offsets: bool,
    /// Most bytes of the file, decompressed.
    pub size_limit: u64,
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
            columns: None,
            offsets: false,
            size_limit: source::SIZE_LIMIT,
        }
    }

    /// What is taken off each feature's values, as far as that is known.
    fn known_offsets(&self) -> &[f64] {
        self.columns.as_ref().map_or(&[], |columns| &columns.offsets)
    }
}

/// Reads a table with labels.
///
/// # Errors
/// [`Error::Data`](crate::error::Error::Data) with file, line and column: no such label or feature column, a header
/// that is data, a quote that is not closed, a line with another number of fields, a cell that is not a finite number,
/// a column whose values float32 cannot tell apart, an unknown or missing label, no data at all, a file beyond the
/// limit.
pub fn read_csv(options: &CsvOptions) -> Result<TensorDataset> {
    read_csv_columns(options).map(|(data, _)| data)
}

/// The same, and what its columns are: for [`CsvOptions::columns`], with which other files are read as this one was.
///
/// # Errors
/// Like [`read_csv`].
pub fn read_csv_columns(options: &CsvOptions) -> Result<(TensorDataset, Columns)> {
    parse(&source::read_text(&options.path, options.size_limit)?, options)
}

/// Reads a table to predict from: where the names of the columns are known, those that have them; else `features`
/// columns, or one more, the label's, which is then left out. Returns `(n, ..sample)`.
///
/// # Errors
/// Like [`read_csv`]; also when a file without names has another number of columns.
pub fn read_csv_features(options: &CsvOptions, features: usize) -> Result<HostTensor> {
    let bytes = source::read_text(&options.path, options.size_limit)?;
    let bytes = table::quotes_checked(&bytes, options)?;
    let table = Table::open(&bytes, options)?;
    let label = match table.width() {
        _ if table.known_names().is_some() => None,
        width if width == features => None,
        width if width == features + 1 => Some(table.label_column()?),
        width => {
            let message = format!("expected {features} columns (or one more, with the label), got {width}");
            return Err(table.fault(message));
        }
    };
    let features = table.feature_columns(label)?;
    Ok(read_rows(table, &features, options.known_offsets(), None, |_, _, _, _| Ok(()))?.inputs)
}

/// Reads a table with labels from the file's content.
pub(super) fn parse(bytes: &[u8], options: &CsvOptions) -> Result<(TensorDataset, Columns)> {
    let bytes = table::quotes_checked(bytes, options)?;
    let open = || Table::open(&bytes, options);
    let table = open()?;
    let label = table.label_column()?;
    let features = table.feature_columns(Some(label))?;
    let mut columns = options.columns.clone().unwrap_or_else(|| table.columns(&features, label));

    let (mut targets, mut rounding) = (Vec::new(), Precision::default());
    let mut labels = Labels::new(options.classes.as_deref());
    let mut rows = read_rows(table, &features, &columns.offsets, Some(label), |table, offset, column, cell| {
        if !options.regression {
            return labels.push(cell).map_err(|message| table.cell_fault(offset, column, message));
        }
        let (exact, rounded) = table.number(offset, column, cell)?;
        rounding.push(exact, rounded);
        targets.push(rounded);
        Ok(())
    })?;
    if options.columns.is_none() {
        if options.offsets && rows.rounding.iter().any(|column| column.lost() > Precision::FINE) {
            let offset = |column: &Precision| if column.lost() > Precision::FINE { column.first } else { 0.0 };
            columns.offsets = rows.rounding.iter().map(offset).collect();
            rows = read_rows(open()?, &features, &columns.offsets, None, |_, _, _, _| Ok(()))?;
        }
        let all = features.iter().zip(&rows.rounding).chain(std::iter::once((&label, &rounding)));
        if let Some((&column, lost)) = all.into_iter().find(|(_, column)| column.lost() > Precision::COARSE) {
            return Err(open()?.column_fault(column, lost.complaint(column != label && !options.offsets)));
        }
    }
    let data = if options.regression {
        TensorDataset::regression(rows.inputs, HostTensor::f32([targets.len(), 1], targets)?)?
    } else {
        let (labels, classes) = labels.finish();
        TensorDataset::classification(rows.inputs, labels, classes)?
    };
    Ok((data, columns))
}

/// The features of a table.
struct Rows {
    /// `(n, ..sample)`.
    inputs: HostTensor,
    /// What rounding cost each of them.
    rounding: Vec<Precision>,
}

/// Reads all rows: hands the `label` cell of each to `on_label` (with its byte offset and column) and gathers the
/// columns `features` less their `offsets`.
fn read_rows<'a>(
    mut table: Table<'a>,
    features: &[usize],
    offsets: &[f64],
    label: Option<usize>,
    mut on_label: impl FnMut(&Table<'a>, u64, usize, &str) -> Result<()>,
) -> Result<Rows> {
    let sample = sample_shape(&table, features.len())?;
    let (mut n, mut values, mut rounding) = (0, Vec::new(), vec![Precision::default(); features.len()]);
    while let Some((offset, record)) = table.next_record()? {
        for (i, (&column, rounding)) in features.iter().zip(&mut rounding).enumerate() {
            let (exact, rounded) = table.number(offset, column, &record[column])?;
            let (exact, rounded) = match offsets.get(i) {
                Some(&constant) if constant != 0.0 => (exact - constant, (exact - constant) as f32),
                _ => (exact, rounded),
            };
            rounding.push(exact, rounded);
            values.push(rounded);
        }
        if let Some(column) = label {
            on_label(&table, offset, column, &record[column])?;
        }
        n += 1;
    }
    if n == 0 {
        return Err(table.fault("there is no data after the header".to_string()));
    }
    Ok(Rows { inputs: HostTensor::f32(sample.batched(n), values)?, rounding })
}

fn sample_shape(table: &Table, features: usize) -> Result<Shape> {
    let options = table.options();
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

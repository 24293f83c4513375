//! The rows of one CSV file with the place of each cell, for messages. Knows columns and numbers, not data sets.

use std::borrow::Cow;
use std::collections::HashMap;

use ::csv::{Reader, ReaderBuilder, StringRecord, Trim};

use super::labels::listed;
use super::{Columns, CsvOptions, Label, quotes};
use crate::error::{Error, Result};
use crate::file::{wide_text, without_mark};

/// The table in `bytes`, which are the content of `options.path`, without a byte order mark and without spaces around
/// quoted cells, as [`Table::open`] takes it.
///
/// # Errors
/// When it is no UTF-8 text, or the quotes of a cell do not end as they should.
pub(super) fn quotes_checked<'a>(bytes: &'a [u8], options: &CsvOptions) -> Result<Cow<'a, [u8]>> {
    let fault = |line, column, message: String| Error::Data { path: options.path.clone(), line, column, message };
    if let Some(message) = wide_text(bytes) {
        return Err(fault(None, None, message.to_owned()));
    }
    let bytes = without_mark(bytes);
    quotes::checked(bytes, options.delimiter).map_err(|cell| {
        let message = match cell.behind.map(|offset| line_of(bytes, offset)) {
            None => "the quote that opens here is not closed".to_owned(),
            Some(line) => format!(
                "the quote that opens here closes in line {line}, with text behind it; a quote inside of quotes is written twice"
            ),
        };
        fault(Some(line_of(bytes, cell.offset)), Some(cell.column + 1), message)
    })
}

/// The 1-based line that the byte at `offset` is in.
fn line_of(bytes: &[u8], offset: usize) -> u64 {
    let ends_line = |&i: &usize| match bytes[i] {
        b'\n' => true,
        b'\r' => bytes.get(i + 1) != Some(&b'\n'),
        _ => false,
    };
    1 + (0..offset).filter(ends_line).count() as u64
}

/// A table being read.
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    options: &'a CsvOptions,
    reader: Reader<&'a [u8]>,
    /// Column names, where the file has a header.
    names: Option<Vec<String>>,
    /// The first data row, when it was read to learn the width.
    first: Option<(u64, StringRecord)>,
    width: usize,
}

impl<'a> Table<'a> {
    /// Starts on the content of `options.path`, as [`quotes_checked`] gives it.
    pub(super) fn open(bytes: &'a [u8], options: &'a CsvOptions) -> Result<Self> {
        if matches!(options.delimiter, b'"' | b'\n' | b'\r') || !options.delimiter.is_ascii() {
            let message = format!("'{}' cannot stand between fields", options.delimiter.escape_ascii());
            return Err(Error::invalid("delimiter", message));
        }
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true) // rows of another width get our own message
            .delimiter(options.delimiter)
            .trim(Trim::All)
            .from_reader(bytes);
        let mut table = Self { bytes, options, reader, names: None, first: None, width: 0 };
        let Some((offset, record)) = table.read()? else {
            return Err(table.fault("the file is empty".to_string()));
        };
        table.width = record.len();
        if options.header {
            table.names = Some(record.iter().map(str::to_string).collect());
        } else {
            table.first = Some((offset, record));
        }
        Ok(table)
    }

    /// Number of columns.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The next data row and its byte offset.
    pub(super) fn next_record(&mut self) -> Result<Option<(u64, StringRecord)>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some((offset, record)) = self.read()? else { return Ok(None) };
        if record.len() != self.width {
            let message = format!("expected {} fields, got {}", self.width, record.len());
            return Err(self.fault_at(Some(self.line(offset)), None, message));
        }
        Ok(Some((offset, record)))
    }

    pub(super) fn options(&self) -> &'a CsvOptions {
        self.options
    }

    /// The names of the features, where they are known and this file has names too.
    pub(super) fn known_names(&self) -> Option<&'a [String]> {
        self.names.as_ref()?;
        self.options.columns.as_ref()?.features.as_deref()
    }

    /// The columns of the features, in the order of a sample's elements: those with the known names, else all but
    /// `label`.
    pub(super) fn feature_columns(&self, label: Option<usize>) -> Result<Vec<usize>> {
        let (Some(wanted), Some(names)) = (self.known_names(), &self.names) else {
            self.check_header(label)?;
            return Ok((0..self.width).filter(|column| Some(*column) != label).collect());
        };
        // Of several columns of one name each is taken once, from left to right.
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (column, name) in names.iter().enumerate().rev() {
            places.entry(name).or_default().push(column);
        }
        let none = wanted.iter().all(|name| !places.contains_key(name.as_str()));
        let missing = |name: &String| {
            let hint = if none { "; the first line must hold the columns' names" } else { "" };
            let message = format!(
                "there is no column '{}', which the run was trained on; the columns are {}{hint}",
                shown(name),
                listed(name, names)
            );
            self.fault(message)
        };
        let column = |name: &String| places.get_mut(name.as_str()).and_then(Vec::pop).ok_or_else(|| missing(name));
        wanted.iter().map(column).collect()
    }

    /// What other files of the same kind are to be read by.
    pub(super) fn columns(&self, features: &[usize], label: usize) -> Columns {
        let Some(names) = &self.names else { return Columns::default() };
        let features: Vec<String> = features.iter().map(|&column| names[column].clone()).collect();
        // A label that is called like a feature cannot be told from it by name.
        if features.contains(&names[label]) {
            return Columns::default();
        }
        Columns { features: Some(features), label: Some(names[label].clone()), ..Columns::default() }
    }

    /// The label's column, from 0.
    pub(super) fn label_column(&self) -> Result<usize> {
        let width = self.width as i64;
        let known = self.known_names().and(self.options.columns.as_ref()).and_then(|columns| columns.label.clone());
        let label = known.map(Label::Name).or_else(|| self.options.label.clone()).unwrap_or(Label::Index(-1));
        match (&label, &self.names) {
            (&Label::Index(index), _) => {
                let column = if index < 0 { index.saturating_add(width) } else { index };
                if (0..width).contains(&column) {
                    return Ok(column as usize);
                }
                Err(self.fault(format!(
                    "there is no label column {index}: the file has {width} columns (0 to {}, or -{width} to -1)",
                    width - 1
                )))
            }
            (Label::Name(name), None) => {
                Err(self.fault(format!("the label column is named '{name}', but the file is read without a header")))
            }
            (Label::Name(name), Some(names)) => {
                let mut found = names.iter().enumerate().filter(|(_, n)| *n == name);
                match (found.next(), found.next()) {
                    (Some((column, _)), None) => Ok(column),
                    (Some(_), Some(_)) => Err(self.fault(format!("the header has more than one column '{name}'"))),
                    (None, _) => Err(self
                        .fault(format!("there is no label column '{name}'; the columns are {}", listed(name, names)))),
                }
            }
        }
    }

    /// Refuses a header whose feature columns all have numbers for names: most likely the file has none, and the first
    /// sample would be lost without a word. Columns counted from 0 or 1 pass (tools name them so), and other
    /// consecutive integers (years).
    fn check_header(&self, label: Option<usize>) -> Result<()> {
        let Some(names) = &self.names else { return Ok(()) };
        let features = names.iter().enumerate().filter(|(column, _)| Some(*column) != label);
        let starts: Option<Vec<f64>> =
            features.map(|(column, name)| Some(name.parse::<f64>().ok()? - column as f64)).collect();
        match starts.as_deref() {
            None | Some([] | [0.0] | [1.0]) => Ok(()),
            Some([first, others @ ..]) if !others.is_empty() && others.iter().all(|start| start == first) => Ok(()),
            Some(_) => {
                let message =
                    "the first line looks like data: set header = false if it is, else give the columns names";
                Err(self.fault_at(Some(1), None, message.to_string()))
            }
        }
    }

    /// The finite number in `cell`, in float64 and in float32, each the one that is nearest.
    pub(super) fn number(&self, offset: u64, column: usize, cell: &str) -> Result<(f64, f32)> {
        let parsed = cell.parse::<f32>();
        if let (Ok(exact), Ok(rounded)) = (cell.parse::<f64>(), &parsed)
            && rounded.is_finite()
        {
            return Ok((exact, *rounded));
        }
        let cell_shown = shown(cell);
        let reason = match parsed {
            Ok(_) if cell.bytes().any(|b| b.is_ascii_digit()) => {
                format!("{cell_shown} is beyond the range of a float32")
            }
            Ok(_) => format!("'{cell_shown}' is not a finite number"),
            Err(_) if cell.is_empty() => "the cell is empty, expected a number".to_string(),
            Err(_) => format!("'{cell_shown}' is not a number"),
        };
        Err(self.cell_fault(offset, column, reason))
    }

    /// A fault of one cell, by the offset of its row.
    pub(super) fn cell_fault(&self, offset: u64, column: usize, message: String) -> Error {
        self.fault_at(Some(self.line(offset)), Some(column + 1), self.with_name(column, message))
    }

    /// A fault of a whole column.
    pub(super) fn column_fault(&self, column: usize, message: String) -> Error {
        self.fault_at(None, Some(column + 1), self.with_name(column, message))
    }

    fn with_name(&self, column: usize, mut message: String) -> String {
        if let Some(name) = self.names.as_ref().and_then(|names| names.get(column)) {
            message.push_str(&format!(" (column '{}')", shown(name)));
        }
        message
    }

    /// A fault of the whole file.
    pub(super) fn fault(&self, message: String) -> Error {
        self.fault_at(None, None, message)
    }

    fn fault_at(&self, line: Option<u64>, column: Option<usize>, message: String) -> Error {
        Error::Data { path: self.options.path.clone(), line, column, message }
    }

    fn read(&mut self) -> Result<Option<(u64, StringRecord)>> {
        let mut record = StringRecord::new();
        let offset = self.reader.position().byte();
        match self.reader.read_record(&mut record) {
            Ok(true) => Ok(Some((offset, record))),
            Ok(false) => Ok(None),
            Err(error) => {
                let message = match error.kind() {
                    ::csv::ErrorKind::Utf8 { .. } => "the line is not UTF-8 text".to_string(),
                    _ => error.to_string(),
                };
                Err(self.fault_at(Some(self.line(offset)), None, message))
            }
        }
    }

    /// The 1-based line of the row that was read from `offset` on: line ends and empty lines before it are not its own.
    /// Counted only when there is something to report.
    fn line(&self, offset: u64) -> u64 {
        let rest = &self.bytes[(offset as usize).min(self.bytes.len())..];
        let skipped = rest.iter().take_while(|b| matches!(b, b'\n' | b'\r')).count();
        line_of(self.bytes, self.bytes.len() - rest.len() + skipped)
    }
}

/// A cell as a message shows it: on one line, and not at any length.
pub(super) fn shown(cell: &str) -> String {
    const MOST: usize = 60;
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let text: String = cell.chars().take(MOST).map(escaped).collect();
    if cell.chars().nth(MOST).is_some() { text + "…" } else { text }
}

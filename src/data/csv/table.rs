//! The rows of one CSV file with the place of each cell, for messages. Knows columns and numbers, not data sets.

use ::csv::{Reader, ReaderBuilder, StringRecord, Trim};

use super::labels::listed;
use super::{CsvOptions, Label};
use crate::error::{Error, Result};

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
    /// Starts on the content of `options.path`.
    pub fn open(bytes: &'a [u8], options: &'a CsvOptions) -> Result<Self> {
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
    pub fn width(&self) -> usize {
        self.width
    }

    /// The next data row and its byte offset.
    pub fn next_record(&mut self) -> Result<Option<(u64, StringRecord)>> {
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

    /// The label's column, from 0.
    pub fn label_column(&self) -> Result<usize> {
        let width = self.width as i64;
        match (self.options.label.as_ref().unwrap_or(&Label::Index(-1)), &self.names) {
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
    /// sample would be lost without a word. Columns counted from 0 or 1 pass (tools name them so), and other consecutive
    /// integers (years).
    pub fn check_header(&self, label: Option<usize>) -> Result<()> {
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

    /// The finite number in `cell`.
    pub fn number(&self, offset: u64, column: usize, cell: &str) -> Result<f32> {
        let cell_shown = shown(cell);
        let reason = match cell.parse::<f32>() {
            Ok(value) if value.is_finite() => return Ok(value),
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
    pub fn cell_fault(&self, offset: u64, column: usize, mut message: String) -> Error {
        if let Some(name) = self.names.as_ref().and_then(|names| names.get(column)) {
            message.push_str(&format!(" (column '{name}')"));
        }
        self.fault_at(Some(self.line(offset)), Some(column + 1), message)
    }

    /// A fault of the whole file.
    pub fn fault(&self, message: String) -> Error {
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
        let before = self.bytes.len() - rest.len() + skipped;
        let ends_line = |&i: &usize| match self.bytes[i] {
            b'\n' => true,
            b'\r' => self.bytes.get(i + 1) != Some(&b'\n'),
            _ => false,
        };
        1 + (0..before).filter(ends_line).count() as u64
    }
}

/// A cell as a message shows it: on one line, and not at any length.
pub(super) fn shown(cell: &str) -> String {
    const MOST: usize = 60;
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let text: String = cell.chars().take(MOST).map(escaped).collect();
    if cell.chars().nth(MOST).is_some() { text + "…" } else { text }
}

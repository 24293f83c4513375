//! The quotes of a table, before the `csv` crate reads it. RFC 4180 has quotes around whole cells, each quote inside
//! written twice. The crate, like pandas and Python's `csv` module, takes a quote that is never closed, and text behind
//! a closing one, without a word, so that one stray quote swallows the rows up to the next; and it sees a quote only as
//! a cell's first byte, not behind a space. So both faults are found here, and spaces around quoted cells are taken
//! off. A quote within a cell that does not start with one is a character like any other, as it is there.

use std::borrow::Cow;

/// Where in a table the next byte stands.
#[derive(Clone, Copy)]
enum At {
    /// In front of a cell, or in the spaces there; from where on these are in the output.
    Start(usize),
    /// In a cell without quotes.
    Plain,
    /// Behind an opening quote.
    Quoted,
    /// Behind a quote in a quoted cell: the first of two, or the closing one.
    Quote,
    /// In the spaces behind a closing quote.
    Behind,
}

/// A quoted cell that does not end as one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Byte at which the cell's quote stands.
    pub offset: usize,
    /// The cell's column, from 0.
    pub column: usize,
    /// Byte of the text behind its closing quote; none where there is no closing quote.
    pub behind: Option<usize>,
}

/// `bytes` without spaces around quoted cells.
pub(super) fn checked(bytes: &[u8], delimiter: u8) -> Result<Cow<'_, [u8]>, Fault> {
    if !bytes.contains(&b'"') {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut out = Vec::with_capacity(bytes.len());
    let (mut at, mut column, mut opened) = (At::Start(0), 0, 0);
    for (offset, &byte) in bytes.iter().enumerate() {
        let space = matches!(byte, b' ' | b'\t') && byte != delimiter;
        let ends_cell = byte == delimiter || matches!(byte, b'\n' | b'\r');
        at = match at {
            At::Quoted if byte == b'"' => At::Quote,
            At::Quoted => At::Quoted,
            At::Quote if byte == b'"' => At::Quoted,
            At::Quote | At::Behind if space => At::Behind,
            At::Quote | At::Behind if !ends_cell => return Err(Fault { offset: opened, column, behind: Some(offset) }),
            At::Start(from) if byte == b'"' => {
                out.truncate(from);
                opened = offset;
                At::Quoted
            }
            At::Start(_) if space => at,
            _ if ends_cell => {
                column = if byte == delimiter { column + 1 } else { 0 };
                At::Start(out.len() + 1)
            }
            _ => At::Plain,
        };
        if !matches!(at, At::Behind) {
            out.push(byte);
        }
    }
    match at {
        At::Quoted => Err(Fault { offset: opened, column, behind: None }),
        _ => Ok(Cow::Owned(out)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cells(text: &str) -> String {
        String::from_utf8(checked(text.as_bytes(), b',').unwrap().into_owned()).unwrap()
    }

    #[test]
    fn spaces_around_quoted_cells_go_and_no_others() {
        assert_eq!(cells(" 1 , \"a, b\"\t,\" c \"\r\n \n\"\",x"), " 1 ,\"a, b\",\" c \"\r\n \n\"\",x");
        assert_eq!(cells("5\" pipe, \"6\"\"\",7\"\n"), "5\" pipe,\"6\"\"\",7\"\n");
        assert_eq!(&*checked(b"\"a\" \"b\"\n", b' ').unwrap(), b"\"a\" \"b\"\n");
    }

    #[test]
    fn cells_that_do_not_end_are_found() {
        let fault = |text: &str| checked(text.as_bytes(), b',').unwrap_err();
        assert_eq!(fault("1,2\n3, \"4\n5,6\n"), Fault { offset: 7, column: 1, behind: None });
        assert_eq!(fault("\"a\" b,c\n"), Fault { offset: 0, column: 0, behind: Some(4) });
        assert_eq!(fault("a,\"b\n1,\"c\"\n"), Fault { offset: 2, column: 1, behind: Some(8) });
        assert_eq!(fault("\"a\"\"\n"), Fault { offset: 0, column: 0, behind: None });
    }

    proptest! {
        /// What `csv` writes, with spaces put around its cells, is what it reads again.
        #[test]
        fn written_tables_come_back(rows in prop::collection::vec(prop::collection::vec("[a1, \"\n]{1,5}", 3), 1..5)) {
            let quoted = |cell: &String| format!(" \"{}\"  ", cell.replace('"', "\"\""));
            let line = |row: &Vec<String>| row.iter().map(quoted).collect::<Vec<_>>().join(",");
            let text = rows.iter().map(line).collect::<Vec<_>>().join("\n");
            let clean = checked(text.as_bytes(), b',').unwrap().into_owned();
            let reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(&clean[..]).into_records();
            let read: Vec<Vec<String>> = reader.map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
            prop_assert_eq!(read, rows);
        }
    }
}

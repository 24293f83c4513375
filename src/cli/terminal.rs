//! What commands print. Names, paths and values from files pass here on their way to the terminal: characters that
//! would control it are written out (`\u{1b}`), and a line of a megabyte is cut.

use std::io::{self, IsTerminal, StdoutLock, Write};

/// Most bytes of a line, and how many of them are its end.
const MOST: usize = 8000;
const END: usize = 2000;

/// Whether a terminal would obey `c`, or show what stands around it in another order.
fn controls(c: char) -> bool {
    let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders || matches!(c, '\u{2028}' | '\u{2029}')
}

/// `text` with such characters written out, but for those of `kept`.
fn written_out(text: &str, kept: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match controls(c) && !kept.contains(&c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// `text` as one line of a length that can be read.
pub fn line(text: &str) -> String {
    let mut text = written_out(text, &[]);
    if text.len() > MOST {
        let (begin, end) = (text.floor_char_boundary(MOST - END), text.ceil_char_boundary(text.len() - END));
        let left_out = format!(" … ({} bytes left out) … ", end - begin);
        text.replace_range(begin..end, &left_out);
    }
    text
}

/// Writes a line about a training that goes on: one that cannot be written (`everygpu train … | head`) does not end it.
pub fn say(text: impl std::fmt::Display) {
    let _ = writeln!(io::stdout(), "{}", line(&text.to_string()));
}

/// The same on standard error.
pub fn tell(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", line(&text.to_string()));
}

/// Text that a model has written, as standard output takes it: as it is, but for a terminal.
pub fn shown(text: &str) -> String {
    match io::stdout().is_terminal() {
        true => written_out(text, &['\n', '\t']),
        false => text.to_owned(),
    }
}

/// Standard output for people: each line as [`line`] makes it.
pub fn out() -> Lines<StdoutLock<'static>> {
    Lines::new(io::stdout().lock())
}

/// Standard output for programs (CSV, JSON): as it is, but for a terminal, which gets no control characters.
pub fn data() -> Box<dyn Write> {
    let out = io::stdout().lock();
    match out.is_terminal() {
        true => Box::new(Lines { make: |text| written_out(text, &[]), ..Lines::new(out) }),
        false => Box::new(out),
    }
}

/// Passes whole lines on.
pub struct Lines<W: Write> {
    to: W,
    /// What a line is made into.
    make: fn(&str) -> String,
    /// The line that has begun.
    begun: Vec<u8>,
}

impl<W: Write> Lines<W> {
    /// Lines to `to` as [`line`] makes them.
    pub fn new(to: W) -> Self {
        Self { to, make: line, begun: Vec::new() }
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if let Some(whole) = self.begun.strip_suffix(b"\n") {
                let made = (self.make)(&String::from_utf8_lossy(whole));
                self.begun.clear();
                writeln!(self.to, "{made}")?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_a_terminal_is_written_out() {
        let text = "a\u{1b}[31m\u{7}\u{9b}1m\u{202e}ü\u{2028}\r\n\t\u{0}b";
        assert_eq!(line(text), r"a\u{1b}[31m\u{7}\u{9b}1m\u{202e}ü\u{2028}\r\n\t\u{0}b");
        assert_eq!(written_out("a\n\u{1b}\tb", &['\n', '\t']), "a\n\\u{1b}\tb");
    }

    #[test]
    fn a_long_line_keeps_its_begin_and_its_end() {
        let cut = line(&format!("begin {} end", "ü".repeat(1 << 20)));
        assert!(cut.starts_with("begin üü") && cut.ends_with("üü end") && cut.contains(" bytes left out) … "), "{cut}");
        assert!(cut.len() < MOST + 100, "{}", cut.len());
        let whole = "x".repeat(MOST);
        assert_eq!(line(&whole), whole);
    }

    #[test]
    fn lines_come_in_parts() {
        let mut lines = Lines::new(Vec::new());
        lines.write_all(b"a\x1b").unwrap();
        write!(lines, "b\nc\n\nd").unwrap();
        assert_eq!(String::from_utf8(lines.to).unwrap(), "a\\u{1b}b\nc\n\n");
    }
}

//! A timeline of a run in Chrome's trace event format, which [Perfetto](https://ui.perfetto.dev) opens. Off unless started;
//! then each span costs a lock and a few words. One recording a process, like a log.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::error::{Error, Result};

static RECORDING: AtomicBool = AtomicBool::new(false);
static TIMELINE: Mutex<Option<Timeline>> = Mutex::new(None);

struct Timeline {
    begin: Instant,
    tracks: Vec<String>,
    spans: Vec<Recorded>,
}

struct Recorded {
    track: usize,
    name: &'static str,
    start: Duration,
    length: Duration,
    rows: Option<usize>,
}

/// Spans kept at most, so that a long run does not fill the memory (about 100 MB).
const MOST: usize = 2_000_000;

/// Starts recording; what was recorded before is dropped.
pub fn start() {
    let timeline = Timeline { begin: Instant::now(), tracks: Vec::new(), spans: Vec::new() };
    *TIMELINE.lock().unwrap_or_else(PoisonError::into_inner) = Some(timeline);
    RECORDING.store(true, Ordering::Relaxed);
}

/// Writes what was recorded to `path` and stops recording.
///
/// # Errors
/// When the file cannot be written.
pub fn finish(path: &Path) -> Result<()> {
    RECORDING.store(false, Ordering::Relaxed);
    let timeline = TIMELINE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(timeline) = timeline else { return Ok(()) };
    let write = || {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "[")?;
        for (id, track) in timeline.tracks.iter().enumerate() {
            let name = json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": id, "args": { "name": track } });
            writeln!(out, "{name},")?;
        }
        for span in &timeline.spans {
            let micros = |d: Duration| d.as_nanos() as f64 / 1e3;
            let args = span.rows.map_or_else(|| json!({}), |rows| json!({ "rows": rows }));
            let event = json!({
                "ph": "X", "name": span.name, "pid": 1, "tid": span.track,
                "ts": micros(span.start), "dur": micros(span.length), "args": args,
            });
            writeln!(out, "{event},")?;
        }
        let end = json!({ "ph": "M", "name": "process_name", "pid": 1, "args": { "name": "everygpu" } });
        writeln!(out, "{end}\n]")?;
        out.flush()
    };
    write().map_err(Error::io(path))
}

/// Measures from here to where it is dropped.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub struct Span {
    track: String,
    name: &'static str,
    start: Instant,
    rows: Option<usize>,
}

/// A span called `name` on the line `track()`; `None`, and `track` not called, while nothing is recorded.
pub fn span(track: impl FnOnce() -> String, name: &'static str) -> Option<Span> {
    let recording = RECORDING.load(Ordering::Relaxed);
    recording.then(|| Span { track: track(), name, start: Instant::now(), rows: None })
}

impl Span {
    /// Notes the number of samples.
    pub fn rows(mut self, rows: usize) -> Self {
        self.rows = Some(rows);
        self
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let length = self.start.elapsed();
        let mut timeline = TIMELINE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(timeline) = timeline.as_mut().filter(|t| t.spans.len() < MOST) else { return };
        let track = timeline.tracks.iter().position(|t| *t == self.track).unwrap_or_else(|| {
            timeline.tracks.push(std::mem::take(&mut self.track));
            timeline.tracks.len() - 1
        });
        let start = self.start.saturating_duration_since(timeline.begin);
        timeline.spans.push(Recorded { track, name: self.name, start, length, rows: self.rows });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_json_with_every_span_on_its_track() {
        assert!(span(|| unreachable!("not recording"), "early").is_none());
        start();
        drop(span(|| "device 0".to_owned(), "gradients").map(|s| s.rows(7)));
        drop(span(|| "host".to_owned(), "sum"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        finish(&path).unwrap();
        let events: Vec<serde_json::Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let named = |name: &str| events.iter().find(|e| e["name"] == name).unwrap();
        assert_eq!(named("gradients")["args"]["rows"], 7);
        assert_ne!(named("gradients")["tid"], named("sum")["tid"]);
        let tracks: Vec<_> = events.iter().filter(|e| e["name"] == "thread_name").map(|e| &e["args"]["name"]).collect();
        assert_eq!(tracks, ["device 0", "host"]);
    }
}

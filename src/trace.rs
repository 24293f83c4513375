//! A timeline of a run in Chrome's trace event format, which [Perfetto](https://ui.perfetto.dev) opens. Off unless
//! started; then each span costs a lock and a few words. One recording a process, like a log.

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
    tracks: Vec<Track>,
    spans: Vec<Recorded>,
}

/// Two threads may work under one name, on one adapter: each has a line of its own.
#[derive(PartialEq)]
struct Track {
    name: String,
    thread: String,
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
    let file = File::create(path).map_err(Error::io(path))?;
    let write = || {
        let mut out = BufWriter::new(file);
        writeln!(out, "[")?;
        for (id, Track { name, thread }) in timeline.tracks.iter().enumerate() {
            let shared = timeline.tracks.iter().filter(|track| track.name == *name).count() > 1;
            let line = if shared { format!("{name}, {thread}") } else { name.clone() };
            let named = json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": id, "args": { "name": line } });
            writeln!(out, "{named},")?;
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
    // Half of it would be no JSON.
    write().inspect_err(|_| drop(std::fs::remove_file(path))).map_err(Error::io(path))
}

/// Puts what happened from `start` on for `length` on this thread's line `track()`, under `name`, with the number of
/// samples where there is one. Nothing, and `track` not called, while nothing is recorded.
pub fn note(track: impl FnOnce() -> String, name: &'static str, start: Instant, length: Duration, rows: Option<usize>) {
    if !RECORDING.load(Ordering::Relaxed) {
        return;
    }
    let mut timeline = TIMELINE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(timeline) = timeline.as_mut().filter(|t| t.spans.len() < MOST) else { return };
    let track = Track { name: track(), thread: std::thread::current().name().unwrap_or_default().to_owned() };
    let track = timeline.tracks.iter().position(|t| *t == track).unwrap_or_else(|| {
        timeline.tracks.push(track);
        timeline.tracks.len() - 1
    });
    let start = start.saturating_duration_since(timeline.begin);
    timeline.spans.push(Recorded { track, name, start, length, rows });
}

/// Measures from here to where it is dropped.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub(crate) struct Measuring {
    track: String,
    name: &'static str,
    start: Instant,
    rows: Option<usize>,
}

/// A span called `name` on the line `track()`; `None`, and `track` not called, while nothing is recorded.
pub(crate) fn span(track: impl FnOnce() -> String, name: &'static str) -> Option<Measuring> {
    let recording = RECORDING.load(Ordering::Relaxed);
    recording.then(|| Measuring { track: track(), name, start: Instant::now(), rows: None })
}

impl Measuring {
    /// Notes the number of samples.
    pub(crate) fn rows(mut self, rows: usize) -> Self {
        self.rows = Some(rows);
        self
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        note(|| std::mem::take(&mut self.track), self.name, self.start, self.start.elapsed(), self.rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_json_with_every_span_on_its_threads_line() {
        assert!(span(|| unreachable!("not recording"), "early").is_none());
        start();
        drop(span(|| "test 0".to_owned(), "first").map(|s| s.rows(7)));
        drop(span(|| "test 1".to_owned(), "second"));
        for thread in ["replica 0", "replica 1"] {
            let work = || drop(span(|| "test 2".to_owned(), "third"));
            std::thread::Builder::new().name(thread.to_owned()).spawn(work).unwrap().join().unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        finish(&path).unwrap();
        let events: Vec<serde_json::Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let named = |name: &str| events.iter().find(|e| e["name"] == name).unwrap();
        assert_eq!(named("first")["args"]["rows"], 7);
        assert_ne!(named("first")["tid"], named("second")["tid"]);
        // Other tests may be recorded too.
        let tracks: Vec<_> = events.iter().filter_map(|e| e["args"]["name"].as_str()).collect();
        let own: Vec<_> = tracks.into_iter().filter(|track| track.starts_with("test ")).collect();
        assert_eq!(own, ["test 0", "test 1", "test 2, replica 0", "test 2, replica 1"]);
    }
}

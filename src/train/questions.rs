//! What the devices are asked about in a cross-check.

use std::sync::Arc;

use super::task::Task;
use crate::data::Batch;
use crate::error::Result;

/// Samples that are computed everywhere.
const ROWS: usize = 8;

/// What devices are asked about, of `batch`: a few samples that count, and others of which the same is true, as far as
/// there are any. Each has the target of another sample, so that losses are large however well the network has learned:
/// the gradient of what it knows is nothing but rounding.
pub(super) fn questions(task: &Task, batch: &Batch) -> Result<Vec<Arc<Batch>>> {
    let rows = ROWS.min(batch.len());
    let mut questions = Vec::new();
    for end in (rows..=batch.len()).step_by(rows.max(1)) {
        let rows: Vec<usize> = (end - rows..end).collect();
        let targets: Vec<usize> = rows.iter().map(|&row| other_target(batch, row)).collect();
        let question = batch.paired(&rows, &targets)?;
        if task.weight_sum(&question) > 0.0 {
            questions.push(Arc::new(question));
        }
        if questions.len() == 2 {
            break;
        }
    }
    Ok(questions)
}

/// A sample of `batch` with another target than sample `row` has; `row` itself where all have the same.
fn other_target(batch: &Batch, row: usize) -> usize {
    let target = |row: usize| batch.targets.row_bytes(row..row + 1);
    let others = (1..batch.len()).map(|distance| (row + distance) % batch.len());
    others.into_iter().find(|&other| target(other) != target(row)).unwrap_or(row)
}

//! How a device's rows are cut into micro-batches.

use crate::error::{Error, Result};

/// Rows that a device runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MicroBatchSize {
    /// As many of the shard's rows as fit the device, within reason.
    #[default]
    Auto,
    /// At most this many.
    Rows(usize),
}

/// Largest micro-batch that `auto` takes without being told to: beyond it, throughput no longer grows on any adapter we
/// have measured, while memory does.
const AUTO_ROWS: usize = 512;

impl MicroBatchSize {
    /// Most rows that a device is to run at once, memory permitting.
    pub const fn most(self) -> usize {
        match self {
            Self::Auto => AUTO_ROWS,
            Self::Rows(most) => most,
        }
    }

    /// Rows of each micro-batch for a shard of `rows`, where each `group` consecutive rows stay together: equal ones,
    /// so that the last is not mostly padding.
    pub fn rows(self, rows: usize, group: usize) -> usize {
        piece(rows, group, self.pieces(rows, group))
    }

    /// The fewest micro-batches that such a shard is cut into.
    pub(super) fn pieces(self, rows: usize, group: usize) -> usize {
        if rows <= self.most() {
            return 1;
        }
        rows.div_ceil(group).div_ceil((self.most() / group).max(1))
    }

    /// Checks that a micro-batch may hold a whole group, or a whole update's samples where these are fewer.
    ///
    /// # Errors
    /// When it may not.
    pub(crate) fn check(self, group: usize, window: usize) -> Result<()> {
        let least = group.min(window);
        match self {
            Self::Rows(rows) if rows < least => {
                let message = format!(
                    "expected {least} or more, since batch norm takes statistics of {group} samples together, got {rows}; \
                     raise it, or lower the layers' group"
                );
                Err(Error::invalid("train.micro_batch", message))
            }
            _ => Ok(()),
        }
    }
}

/// Rows of a micro-batch when a shard of `rows` is cut into about `pieces` equal ones: whole groups, or the whole
/// shard.
pub(super) fn piece(rows: usize, group: usize, pieces: usize) -> usize {
    let rows = rows.max(1);
    rows.div_ceil(group).div_ceil(pieces).saturating_mul(group).min(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_batches_are_equal_and_hold_whole_groups() {
        let size = |most, rows, group| MicroBatchSize::Rows(most).rows(rows, group);
        assert_eq!([size(32, 43, 1), size(32, 0, 1), size(100, 43, 1)], [22, 1, 43]);
        assert_eq!([size(100, 43, 32), size(40, 43, 32), size(64, 200, 32), size(8, 6, 32)], [43, 32, 64, 6]);
        for (rows, group, pieces) in [(100, 8, 3), (7, 32, 1), (96, 32, 2), (1000, 1, 7)] {
            let size = piece(rows, group, pieces);
            assert!(size == rows || size.is_multiple_of(group), "{size}");
            assert!(size * pieces >= rows);
        }
    }

    #[test]
    fn a_micro_batch_that_cannot_hold_a_group_is_refused() {
        let message = |rows| MicroBatchSize::Rows(rows).check(32, 64).map_err(|e| e.to_string());
        assert_eq!(message(32), Ok(()));
        let error = message(8).unwrap_err();
        assert!(error.starts_with("train.micro_batch: expected 32 or more") && error.contains("got 8"), "{error}");
        assert!(MicroBatchSize::Rows(8).check(32, 7).is_ok());
        assert!(MicroBatchSize::Auto.check(1000, 2000).is_ok());
    }
}

//! Which buffer holds which value: slots are whole buffers (wgpu tracks usage per buffer), reused once the last reader
//! of their value has run.

use std::collections::BTreeSet;

/// Assigns slots to values as their lifetimes begin and end.
#[derive(Debug, Default)]
pub(super) struct Slots {
    bytes: Vec<u64>,
    /// Size and number of each slot that holds no value now.
    free: BTreeSet<(u64, usize)>,
}

impl Slots {
    /// A slot for `bytes`: the smallest free one that is large enough, else the largest free one, grown, else a new
    /// one.
    pub(super) fn take(&mut self, bytes: u64) -> usize {
        let best = self.free.range((bytes, 0)..).next().or_else(|| self.free.last()).copied();
        match best {
            Some((size, slot)) => {
                self.free.remove(&(size, slot));
                self.bytes[slot] = size.max(bytes);
                slot
            }
            None => {
                self.bytes.push(bytes);
                self.bytes.len() - 1
            }
        }
    }

    /// Ends a lifetime.
    pub(super) fn give_back(&mut self, slot: usize) {
        let is_new = self.free.insert((self.bytes[slot], slot));
        debug_assert!(is_new, "a slot is given back once");
    }

    /// The slots' final sizes.
    pub(super) fn into_bytes(self) -> Vec<u64> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_best_fit_first() {
        let mut slots = Slots::default();
        let (a, b) = (slots.take(100), slots.take(400));
        slots.give_back(a);
        slots.give_back(b);
        assert_eq!(slots.take(90), a);
        assert_eq!(slots.take(500), b);
        assert_eq!(slots.take(8), 2);
        assert_eq!(slots.into_bytes(), [100, 500, 8]);
    }
}

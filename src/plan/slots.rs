//! Which buffer holds which value: slots are whole buffers (wgpu tracks usage per buffer), reused once the last reader of
//! their value has run.

/// Assigns slots to values as their lifetimes begin and end.
#[derive(Debug, Default)]
pub(super) struct Slots {
    bytes: Vec<u64>,
    free: Vec<usize>,
}

impl Slots {
    /// A slot for `bytes`: the smallest free one that is large enough, else the largest free one, grown, else a new one.
    pub(super) fn take(&mut self, bytes: u64) -> usize {
        let fitting = |&i: &usize| self.bytes[self.free[i]] >= bytes;
        let best = (0..self.free.len())
            .filter(fitting)
            .min_by_key(|&i| self.bytes[self.free[i]])
            .or_else(|| (0..self.free.len()).max_by_key(|&i| self.bytes[self.free[i]]));
        match best {
            Some(position) => {
                let slot = self.free.swap_remove(position);
                self.bytes[slot] = self.bytes[slot].max(bytes);
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
        debug_assert!(!self.free.contains(&slot), "a slot is given back once");
        self.free.push(slot);
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

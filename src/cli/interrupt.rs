//! What Ctrl-C and the signals for an end do to a training.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::exit::exit_at_once;

/// Signals that come within this time of the first one are that one: a Ctrl-C reaches the whole group of a terminal's
/// processes, and a wrapper among them (`timeout`, a script) passes it on once more.
const ONE_WISH: Duration = Duration::from_millis(500);

/// What a signal asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    /// The training is to end after the step.
    Finish,
    /// The program is to end now.
    Leave,
    /// The same as the signal before.
    Nothing,
}

/// The signals so far.
#[derive(Debug, Default)]
struct Signals {
    first: Option<Instant>,
}

impl Signals {
    /// What the signal that comes `now` asks for.
    fn next(&mut self, now: Instant) -> Wish {
        match self.first {
            None => {
                self.first = Some(now);
                Wish::Finish
            }
            Some(first) if now.duration_since(first) < ONE_WISH => Wish::Nothing,
            Some(_) => Wish::Leave,
        }
    }
}

/// From here on the first Ctrl-C (or termination signal) sets `flag`, which ends the training after the step; a second
/// one ends the program at once.
pub fn watch(flag: Arc<AtomicBool>) -> anyhow::Result<()> {
    let mut signals = Signals::default();
    ctrlc::set_handler(move || match signals.next(Instant::now()) {
        Wish::Finish => {
            flag.store(true, Ordering::Relaxed);
            let _ = writeln!(std::io::stderr(), "\nfinishing the step and saving; once more to end at once");
        }
        Wish::Leave => exit_at_once(1),
        Wish::Nothing => {}
    })
    .context("the handler for Ctrl-C cannot be installed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_come_together_are_one() {
        let (mut signals, begin) = (Signals::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        let wishes = [0, 2, 499, 500, 501].map(|ms| signals.next(at(ms)));
        assert_eq!(wishes, [Wish::Finish, Wish::Nothing, Wish::Nothing, Wish::Leave, Wish::Leave]);
    }
}

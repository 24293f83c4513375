//! How long each dispatch takes by itself: what profiles are made of.

use std::time::Instant;

use super::{Engine, MicroBatch};
use crate::error::Result;
use crate::gpu::clock::{Clock, Work, record_timed};
use crate::gpu::executable::Executable;
use crate::gpu::program::{Prepared, record};
use crate::optim::Update;

/// Which clock times a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedBy {
    /// The device's, in a compute pass of its own.
    Device,
    /// The host's, in a submission of its own: with what submitting and waiting take.
    Host,
}

impl Engine {
    /// Runs one micro-batch: seconds in each dispatch, in the plan's order. `None` where the device has no clock that
    /// is asked for, or it made no sense; the micro-batch may have been left half done then.
    ///
    /// # Errors
    /// When the inputs are not the plan's or the device fails.
    pub fn time_gradients(
        &mut self,
        executable: &mut Executable,
        batch: &MicroBatch<'_>,
        by: TimedBy,
    ) -> Result<Option<Vec<f64>>> {
        let mut encoder = self.encoder();
        executable.load(&self.device, &mut encoder, &batch.step, batch.inputs)?;
        let submission = self.submit(encoder);
        executable.loaded(submission);
        self.time(&executable.uniform, &executable.program, by)
    }

    /// Applies one update: seconds in each dispatch, in the update plan's order; `None` as with
    /// [`Engine::time_gradients`].
    ///
    /// # Errors
    /// When this device is not the lead or fails.
    pub fn time_update(&mut self, update: &Update, by: TimedBy) -> Result<Option<Vec<f64>>> {
        self.with_updater(update, |engine, updater| engine.time(&updater.uniform_group, &updater.program, by))
    }

    fn time(&mut self, uniform: &wgpu::BindGroup, prepared: &[Prepared], by: TimedBy) -> Result<Option<Vec<f64>>> {
        self.device.wait(None)?;
        match by {
            TimedBy::Device => self.time_passes(uniform, prepared),
            TimedBy::Host => {
                prepared.iter().map(|dispatch| self.time_submission(uniform, dispatch)).collect::<Result<_>>().map(Some)
            }
        }
    }

    /// By the device's clock, as many passes at once as it can time.
    fn time_passes(&mut self, uniform: &wgpu::BindGroup, prepared: &[Prepared]) -> Result<Option<Vec<f64>>> {
        let Some(most) = self.clock.as_ref().map(Clock::most) else { return Ok(None) };
        let mut seconds = Vec::with_capacity(prepared.len());
        for piece in prepared.chunks(most) {
            self.clock.iter_mut().for_each(Clock::restart);
            let mut encoder = self.encoder();
            for dispatch in piece {
                let work = Work { name: "dispatch", rows: None };
                record_timed(&mut encoder, Some(uniform), std::slice::from_ref(dispatch), &mut self.clock, work);
            }
            self.timed_report(encoder, |_| ())?;
            match self.clock.as_ref().and_then(Clock::each) {
                Some(each) => seconds.extend_from_slice(each),
                None => return Ok(None),
            }
        }
        Ok(Some(seconds))
    }

    /// By the host's clock, from the submission to the end of the wait for it.
    fn time_submission(&self, uniform: &wgpu::BindGroup, dispatch: &Prepared) -> Result<f64> {
        let mut encoder = self.encoder();
        record(&mut encoder, Some(uniform), std::slice::from_ref(dispatch), None);
        let begin = Instant::now();
        let submission = self.submit(encoder);
        self.device.wait(Some(submission))?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

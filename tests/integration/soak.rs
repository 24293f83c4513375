//! Thousands of small steps over the real adapters, in a process of their own: what a device holds and what the process
//! holds do not grow.

use std::process::Command;
use std::sync::Arc;

use everygpu::data::Dataset;
use everygpu::error::Result;
use everygpu::gpu::Device;
use everygpu::nn::Sequential;
use everygpu::optim::Optimizer;
use everygpu::train::{Flow, Observer, Progress, Task, TrainOptions, Trainer};

use crate::training::*;

/// Steps of the soak, where they are not 10,000.
const STEPS: &str = "EVERYGPU_SOAK_STEPS";

/// Bytes of this process in memory; `None` where the system does not tell in this way.
fn resident() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(4096 * pages)
}

/// Bytes of the heap that are in use, those of drivers included; `None` where the system does not tell in this way.
fn heap() -> Option<u64> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it reads the allocator's own counters, under their locks.
        let info = unsafe { libc::mallinfo2() };
        Some((info.uordblks + info.hblkhd) as u64)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

/// What is held at a time.
#[derive(Debug)]
struct Held {
    step: u64,
    ledgers: Vec<u64>,
    heap: Option<u64>,
    resident: Option<u64>,
}

/// Notes what is held after a tenth of the steps, and after the last.
struct Meter {
    devices: Vec<Arc<Device>>,
    steps: u64,
    held: Vec<Held>,
}

impl Observer for Meter {
    fn observe(&mut self, progress: &Progress<'_>, _: &mut Trainer) -> Result<Flow> {
        if let Progress::Step(record) = progress
            && [self.steps / 10, self.steps].contains(&(record.step + 1))
        {
            let ledgers = self.devices.iter().map(|device| device.bytes_in_use()).collect();
            self.held.push(Held { step: record.step + 1, ledgers, heap: heap(), resident: resident() });
            return Ok(if record.step + 1 == self.steps { Flow::Stop } else { Flow::Continue });
        }
        Ok(Flow::Continue)
    }
}

/// Alone in its process: `cargo test --all-features --test integration soak -- --ignored --nocapture`.
#[test]
#[ignore = "takes half a minute and more; a_short_soak runs it with fewer steps"]
fn ten_thousand_steps() {
    let steps = std::env::var(STEPS).map_or(10_000, |steps| steps.parse().expect("a number of steps"));
    let devices = devices(adapters().len().max(2));
    let task = Task::classification(Sequential::new([7]).linear(16).tanh().dropout(0.1).linear(5));
    let data: Arc<dyn Dataset> = Arc::new(classes(64, &[7], 5, 1));
    let options = TrainOptions { epochs: u64::MAX, optimizer: Optimizer::adamw(), ..options(16) };
    let mut trainer = trainer_on(&devices, &task, &options);
    let mut meter = Meter { devices, steps, held: Vec::new() };
    trainer.fit(&data, None, &mut meter).unwrap();
    agreed_weights(&mut trainer);
    let [early, late] = meter.held.as_slice() else { panic!("{:?}", meter.held) };
    println!("{early:?}\n{late:?}");
    assert_eq!(early.ledgers, late.ledgers);
    let grown =
        |of: fn(&Held) -> Option<u64>| of(late).zip(of(early)).map_or(0, |(late, early)| late.saturating_sub(early));
    // Lists that double now and then are no leak; a hundred bytes a step are one.
    let heap = grown(|held| held.heap);
    assert!(heap <= (64 << 10) + 50 * (late.step - early.step), "the heap has grown by {heap} bytes");
    // What the allocator and the drivers keep settles within the first steps.
    let resident = grown(|held| held.resident);
    assert!(resident <= 4 << 20, "{resident} bytes more are resident");
}

#[test]
fn a_short_soak() {
    let exe = std::env::current_exe().unwrap();
    let arguments = ["--exact", "soak::ten_thousand_steps", "--ignored", "--nocapture"];
    let output = Command::new(exe).args(arguments).env(STEPS, "300").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

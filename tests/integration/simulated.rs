//! Workers for tests: a device that computes a linear regression on the CPU and reports the seconds that a device of
//! set speed would have taken, and a layer of injected faults that goes around any worker, simulated or real.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use everygpu::error::{Error, Result};
use everygpu::gpu::Device;
use everygpu::nn::Sequential;
use everygpu::optim::{NormOutcome, Update};
use everygpu::plan::{Buffer, Layout, Placed};
use everygpu::train::{Shard, ShardReport, Task, TrainOptions, Trainer, Worker, WorkerFactory};

use crate::training::layout;

type Sink<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<()>;

pub const FEATURES: usize = 8;

/// y = w·x + b with mean squared error.
pub fn task() -> Task {
    Task::regression(Sequential::new([FEATURES]).linear(1), [1])
}

/// Its parameters in two buckets, so that a fault can come between them.
pub fn two_buckets() -> Arc<Layout> {
    let layout = layout(&task(), 256);
    assert_eq!(layout.buckets(), [256, 256]);
    layout
}

/// (a, b): n rows take a + b·n seconds. Shared with the test, which may change it.
pub type Speed = Arc<Mutex<(f64, f64)>>;

/// A device of speed (a, b).
pub fn speed(a: f64, b: f64) -> Speed {
    Arc::new(Mutex::new((a, b)))
}

/// A simulated device. Gradients are summed in f64 and handed out as f32; the lead updates with momentum 0.9.
pub struct Simulated {
    name: String,
    layout: Arc<Layout>,
    speed: Speed,
    parameters: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
    momentum: Option<Vec<Vec<f32>>>,
    prepared: usize,
}

impl Simulated {
    pub fn new(index: usize, layout: Arc<Layout>, speed: Speed) -> Self {
        let zeros: Vec<Vec<f32>> = layout.buckets().iter().map(|bytes| vec![0.0; *bytes as usize / 4]).collect();
        let name = format!("simulated {index}");
        Self { name, layout, speed, parameters: zeros.clone(), gradients: zeros, momentum: None, prepared: 0 }
    }

    fn place(&self, name: &str) -> &Placed {
        self.layout.parameters().iter().find(|p| p.name.ends_with(name)).expect("the layout has it")
    }

    fn report(&self, rows: usize, loss: f64) -> ShardReport {
        let (a, b) = *self.speed.lock().unwrap();
        ShardReport { statistics: vec![loss], seconds: a + b * rows as f64, kernels: None }
    }

    /// Σ weight·loss and the gradients of weight and bias.
    fn pass(&self, shard: &Shard) -> (f64, Vec<f64>, f64) {
        let (weight, bias) = (self.place("weight"), self.place("bias"));
        let w = &self.parameters[weight.bucket][weight.offset as usize / 4..][..FEATURES];
        let b = f64::from(self.parameters[bias.bucket][bias.offset as usize / 4]);
        let (inputs, targets) = (shard.batch.inputs.as_f32().unwrap(), shard.batch.targets.as_f32().unwrap());
        let (mut loss, mut dw, mut db) = (0.0, vec![0.0; FEATURES], 0.0);
        for row in shard.rows.clone() {
            let x = &inputs[row * FEATURES..][..FEATURES];
            let y: f64 = b + x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>();
            let (error, sample) = (y - f64::from(targets[row]), f64::from(shard.batch.weights[row]));
            loss += sample * error * error;
            db += sample * 2.0 * error;
            dw.iter_mut().zip(x).for_each(|(d, x)| *d += sample * 2.0 * error * f64::from(*x));
        }
        (loss, dw, db)
    }
}

impl Worker for Simulated {
    fn label(&self) -> String {
        self.name.clone()
    }

    fn prepare(&mut self, rows: usize) -> Result<usize> {
        self.prepared = rows;
        Ok(rows)
    }

    fn gradients(&mut self, shard: &Shard, sink: Option<Sink<'_>>) -> Result<ShardReport> {
        assert!(self.prepared > 0, "rows for a device that was not prepared");
        let (loss, dw, db) = self.pass(shard);
        let (weight, bias) = (self.place("weight").clone(), self.place("bias").clone());
        self.gradients.iter_mut().for_each(|bucket| bucket.fill(0.0));
        let to = &mut self.gradients[weight.bucket][weight.offset as usize / 4..];
        to.iter_mut().zip(&dw).for_each(|(g, d)| *g = *d as f32);
        self.gradients[bias.bucket][bias.offset as usize / 4] = db as f32;
        if let Some(sink) = sink {
            for (index, bucket) in self.gradients.iter().enumerate() {
                sink(index, bytemuck::cast_slice(bucket))?;
            }
        }
        Ok(self.report(shard.rows.len(), loss))
    }

    fn evaluate(&mut self, shard: &Shard) -> Result<ShardReport> {
        Ok(self.report(shard.rows.len(), self.pass(shard).0))
    }

    fn lead(&mut self) -> Result<()> {
        self.momentum = Some(self.layout.buckets().iter().map(|bytes| vec![0.0; *bytes as usize / 4]).collect());
        Ok(())
    }

    fn follow(&mut self) {
        self.momentum = None;
    }

    fn update(&mut self, update: &Update, sink: Option<Sink<'_>>) -> Result<NormOutcome> {
        let momentum = self.momentum.as_mut().ok_or_else(|| Error::Training("not the lead".into()))?;
        let mut squares = 0.0;
        for ((p, g), m) in self.parameters.iter_mut().zip(&self.gradients).zip(momentum) {
            for ((p, g), m) in p.iter_mut().zip(g).zip(m) {
                let g = g * update.inverse_weight;
                squares += f64::from(g) * f64::from(g);
                *m = 0.9 * *m + g;
                *p -= update.learning_rate * *m;
            }
        }
        if let Some(sink) = sink {
            for (index, bucket) in self.parameters.iter().enumerate() {
                sink(index, bytemuck::cast_slice(bucket))?;
            }
        }
        Ok(NormOutcome { norm: squares.sqrt() as f32, scale: update.inverse_weight, applied: 1, reserved: 0 })
    }

    fn write(&mut self, buffer: Buffer, values: &[f32]) -> Result<()> {
        let target = match buffer {
            Buffer::Parameter(b) => &mut self.parameters[b],
            Buffer::Gradient(b) => &mut self.gradients[b],
            Buffer::State { bucket, .. } => &mut self.momentum.as_mut().expect("it is the lead")[bucket],
            other => panic!("nobody writes {other}"),
        };
        target.copy_from_slice(values);
        Ok(())
    }

    fn fingerprints(&mut self) -> Result<Vec<u64>> {
        let mix = |print: u64, value: &f32| (print ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
        Ok(self.parameters.iter().map(|bucket| bucket.iter().fold(1, mix)).collect())
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<f32>> {
        Ok(match buffer {
            Buffer::Parameter(b) => self.parameters[b].clone(),
            Buffer::State { bucket, .. } => self.momentum.as_ref().expect("it is the lead")[bucket].clone(),
            other => panic!("nobody reads {other}"),
        })
    }
}

/// The call in which a fault comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Prepare,
    Gradients,
    /// After the first bucket of gradients was handed out.
    MidStream,
    Evaluate,
    Lead,
    Update,
    /// After the first bucket of weights was handed out.
    MidUpdate,
    Write,
    Fingerprints,
    Read,
}

/// What a fault does.
#[derive(Debug, Clone)]
pub enum Kind {
    Error,
    /// The driver says that the device is gone.
    Lost,
    /// The driver refuses what it was asked for.
    Invalid,
    OutOfMemory,
    Panic,
    /// The real device is gone; the call goes on to whatever the driver makes of that.
    Destroy(Arc<Device>),
    /// One bit of what is written is wrong; nobody says so.
    Corrupt,
    /// Gradients are wrong from this call on; nobody says so.
    Wrong,
    /// Gradients are rounded otherwise than elsewhere from this call on.
    Rounded,
    /// The call does not return for this long.
    Hang(std::time::Duration),
}

/// A fault: in the `call`-th call (from 1) of `phase`.
#[derive(Debug, Clone)]
pub struct Fault {
    pub phase: Phase,
    pub call: u64,
    pub kind: Kind,
}

/// Faults to come, and the calls so far, counted from when `armed` is set.
struct Faults {
    faults: Vec<Fault>,
    armed: Arc<AtomicBool>,
    calls: [u64; 10],
    wrong: bool,
    rounded: bool,
    /// Counts faults that came, so that a test knows that its fault did.
    struck: Arc<AtomicU64>,
}

impl Faults {
    /// Counts a call of `phase`; the fault that comes in it.
    fn count(&mut self, phase: Phase) -> Option<Fault> {
        if !self.armed.load(Ordering::SeqCst) {
            return None;
        }
        self.calls[phase as usize] += 1;
        let call = self.calls[phase as usize];
        self.faults.iter().find(|f| f.phase == phase && f.call == call).cloned()
    }

    fn strike(&self, fault: Option<Fault>) -> Result<()> {
        let Some(Fault { phase, kind, .. }) = fault else { return Ok(()) };
        self.struck.fetch_add(1, Ordering::SeqCst);
        match kind {
            Kind::Error => Err(Error::Training(format!("injected fault in {phase:?}"))),
            Kind::Lost => Err(Error::DeviceLost { adapter: "a device".into(), message: "injected loss".into() }),
            Kind::Invalid => Err(Error::Device { adapter: "a device".into(), message: "injected refusal".into() }),
            Kind::OutOfMemory => Err(Error::OutOfMemory {
                adapter: "a device".into(),
                buffer: "injected".into(),
                bytes: 1,
                in_use: 0,
                limit: None,
            }),
            Kind::Panic => panic!("injected panic in {phase:?}"),
            Kind::Destroy(device) => {
                device.destroy();
                Ok(())
            }
            Kind::Hang(time) => {
                std::thread::sleep(time);
                Ok(())
            }
            Kind::Corrupt | Kind::Wrong | Kind::Rounded => Ok(()),
        }
    }

    fn now(&mut self, phase: Phase) -> Result<()> {
        let fault = self.count(phase);
        self.wrong |= matches!(&fault, Some(Fault { kind: Kind::Wrong, .. }));
        self.rounded |= matches!(&fault, Some(Fault { kind: Kind::Rounded, .. }));
        self.strike(fault)
    }
}

/// Any worker, with faults.
pub struct Faulty {
    inner: Box<dyn Worker>,
    faults: Faults,
}

impl Faulty {
    pub fn new(inner: Box<dyn Worker>, faults: Vec<Fault>, struck: Arc<AtomicU64>) -> Self {
        Self::armed_by(Arc::new(AtomicBool::new(true)), inner, faults, struck)
    }

    fn armed_by(armed: Arc<AtomicBool>, inner: Box<dyn Worker>, faults: Vec<Fault>, struck: Arc<AtomicU64>) -> Self {
        Self { inner, faults: Faults { faults, armed, calls: [0; 10], wrong: false, rounded: false, struck } }
    }

    /// Runs `work` with a sink in front of whose second bucket a fault of `phase` comes.
    fn streamed<T>(
        &mut self,
        phase: Phase,
        sink: Option<Sink<'_>>,
        work: impl FnOnce(&mut dyn Worker, Option<Sink<'_>>) -> Result<T>,
    ) -> Result<T> {
        let Some(sink) = sink else { return work(self.inner.as_mut(), None) };
        let mut fault = self.faults.count(phase);
        let (faults, mut handed_out) = (&self.faults, 0);
        let mut wrapped = |bucket: usize, bytes: &[u8]| {
            if handed_out == 1 {
                faults.strike(fault.take())?;
            }
            handed_out += 1;
            let changed = |value: &f32| match (faults.wrong, faults.rounded) {
                (true, _) => 2.0 * value,
                (false, true) => value + 1e-6,
                (false, false) => *value,
            };
            let values: Vec<f32> = bytemuck::cast_slice::<u8, f32>(bytes).iter().map(changed).collect();
            sink(bucket, bytemuck::cast_slice(&values))
        };
        work(self.inner.as_mut(), Some(&mut wrapped))
    }
}

impl Worker for Faulty {
    fn label(&self) -> String {
        self.inner.label()
    }

    fn prepare(&mut self, rows: usize) -> Result<usize> {
        self.faults.now(Phase::Prepare)?;
        self.inner.prepare(rows)
    }

    fn gradients(&mut self, shard: &Shard, sink: Option<Sink<'_>>) -> Result<ShardReport> {
        self.faults.now(Phase::Gradients)?;
        self.streamed(Phase::MidStream, sink, |inner, sink| inner.gradients(shard, sink))
    }

    fn evaluate(&mut self, shard: &Shard) -> Result<ShardReport> {
        self.faults.now(Phase::Evaluate)?;
        self.inner.evaluate(shard)
    }

    fn lead(&mut self) -> Result<()> {
        self.faults.now(Phase::Lead)?;
        self.inner.lead()
    }

    fn follow(&mut self) {
        self.inner.follow();
    }

    fn update(&mut self, update: &Update, sink: Option<Sink<'_>>) -> Result<NormOutcome> {
        self.faults.now(Phase::Update)?;
        self.streamed(Phase::MidUpdate, sink, |inner, sink| inner.update(update, sink))
    }

    fn write(&mut self, buffer: Buffer, values: &[f32]) -> Result<()> {
        let fault = self.faults.count(Phase::Write);
        let corrupt = matches!(&fault, Some(Fault { kind: Kind::Corrupt, .. }));
        self.faults.strike(fault)?;
        let mut values = values.to_vec();
        if corrupt {
            values[0] = f32::from_bits(values[0].to_bits() ^ 1);
        }
        self.inner.write(buffer, &values)
    }

    fn clear_residuals(&mut self) -> Result<()> {
        self.inner.clear_residuals()
    }

    fn fingerprints(&mut self) -> Result<Vec<u64>> {
        self.faults.now(Phase::Fingerprints)?;
        self.inner.fingerprints()
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<f32>> {
        self.faults.now(Phase::Read)?;
        self.inner.read(buffer)
    }
}

/// A trainer over simulated devices of these speeds; `faults` gives each its faults. The counter counts those that
/// came.
pub fn trainer(
    options: &TrainOptions,
    speeds: &[Speed],
    faults: &[(usize, Fault)],
) -> Result<(Trainer, Arc<AtomicU64>)> {
    trainer_armed_by(&Arc::new(AtomicBool::new(true)), options, speeds, faults)
}

/// The same; the calls that faults come in are counted from when `armed` is set.
pub fn trainer_armed_by(
    armed: &Arc<AtomicBool>,
    options: &TrainOptions,
    speeds: &[Speed],
    faults: &[(usize, Fault)],
) -> Result<(Trainer, Arc<AtomicU64>)> {
    let (layout, struck) = (two_buckets(), Arc::new(AtomicU64::new(0)));
    let factory = |(index, speed): (usize, &Speed)| -> WorkerFactory {
        let (layout, speed, struck, armed) = (layout.clone(), speed.clone(), struck.clone(), armed.clone());
        let own: Vec<Fault> =
            faults.iter().filter(|(device, _)| *device == index).map(|(_, fault)| fault.clone()).collect();
        // A device that is tried again has had its faults.
        let made = AtomicU64::new(0);
        WorkerFactory::new(move || {
            let own = if made.fetch_add(1, Ordering::SeqCst) == 0 { own.clone() } else { Vec::new() };
            let device = Simulated::new(index, layout.clone(), speed.clone());
            Ok(Box::new(Faulty::armed_by(armed.clone(), Box::new(device), own, struck.clone())))
        })
    };
    let workers = speeds.iter().enumerate().map(factory).collect();
    Ok((Trainer::with_workers(task(), options.clone(), workers, layout.clone())?, struck))
}

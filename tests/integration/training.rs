//! What the tests of training share: data, devices that are opened once, trainers over them, and comparisons of
//! weights.

use std::sync::{Arc, Mutex, PoisonError};

use everygpu::data::{Dataset, Sampler, TensorDataset};
use everygpu::error::Result;
use everygpu::gpu::{Adapter, Adapters, Device};
use everygpu::kernel::Target;
use everygpu::optim::{Optimizer, Schedule, UpdatePlan};
use everygpu::plan::Layout;
use everygpu::rng::Stream;
use everygpu::tensor::{HostTensor, Named};
use everygpu::train::{
    EpochRecord, Flow, GpuWorker, MicroBatchSize, Observer, Progress, Split, StepRecord, Task, TrainOptions, Trainer,
    Worker, WorkerFactory,
};

/// All weights of a model, by name.
pub type Weights = Named<Vec<f32>>;

/// `count` devices over all adapters of this machine in turn, so that two drivers work side by side where there are two
/// (adapter 0 has the first).
pub fn devices(count: usize) -> Vec<Arc<Device>> {
    let adapters = adapters();
    (0..count).map(|i| open(&adapters[i % adapters.len()], None)).collect()
}

/// All adapters of this machine.
pub fn adapters() -> Vec<Adapter> {
    let adapters = Adapters::discover().expect("the tests need an adapter: ./test.sh installs software ones");
    adapters.iter().cloned().collect()
}

/// A device of `adapter` that nobody else uses. One without a limit is one that an earlier test has let go, where there
/// is one: compiled kernels stay with the device.
pub fn open(adapter: &Adapter, memory_limit: Option<u64>) -> Arc<Device> {
    static OPENED: Mutex<Vec<Arc<Device>>> = Mutex::new(Vec::new());
    if memory_limit.is_some() {
        return Device::open(adapter, memory_limit).expect("the adapter opens");
    }
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    // Here alone new handles are made of those that are in nobody's hands.
    let is_free = |device: &Arc<Device>| Arc::strong_count(device) == 1;
    opened.retain(|device| !is_free(device) || (device.check().is_ok() && device.bytes_in_use() == 0));
    let fits = |device: &Arc<Device>| device.label() == adapter.label() && *device.target() == adapter.target();
    if let Some(device) = opened.iter().find(|device| is_free(device) && fits(device)) {
        return device.clone();
    }
    let device = Device::open(adapter, None).expect("the adapter opens");
    opened.push(device.clone());
    device
}

/// As [`devices`], for a test that ends with some of them destroyed.
pub fn devices_to_lose(count: usize) -> Vec<Arc<Device>> {
    let adapters = adapters();
    (0..count).map(|i| Device::open(&adapters[i % adapters.len()], None).expect("the adapter opens")).collect()
}

/// The buckets of `task` when no binding may exceed `max_binding`: a small limit gives many buckets.
pub fn layout(task: &Task, max_binding: u64) -> Arc<Layout> {
    let target = Target { max_binding, ..Target::default() };
    Arc::new(Layout::new(&task.training(1).expect("the model works"), &target).expect("the parameters fit"))
}

/// A limit that lets all parameters of the small test models share a bucket.
pub const ONE_BUCKET: u64 = 128 << 20;

/// A worker on `device`, one of `count`.
pub fn gpu_worker(
    device: &Arc<Device>,
    count: usize,
    task: &Task,
    options: &TrainOptions,
    layout: &Arc<Layout>,
) -> Result<GpuWorker> {
    let update = UpdatePlan::new(&options.update_rule(), layout, device.target())?;
    let (micro_batch, compression) = (options.micro_batch, options.gradient_compression);
    let (device, update) = (device.clone(), Arc::new(update));
    GpuWorker::new(device, task.clone(), layout.clone(), update, micro_batch, count > 1, compression)
}

/// A trainer on `devices`; `wrap` may put something around the worker of a device.
pub fn trainer_with(
    devices: &[Arc<Device>],
    task: &Task,
    options: &TrainOptions,
    layout: &Arc<Layout>,
    wrap: impl Fn(usize, GpuWorker) -> Box<dyn Worker> + Send + Sync + 'static,
) -> Result<Trainer> {
    let wrap = Arc::new(wrap);
    let factory = |(index, device): (usize, &Arc<Device>)| -> WorkerFactory {
        let (device, count, task, options) = (device.clone(), devices.len(), task.clone(), options.clone());
        let (layout, wrap) = (layout.clone(), wrap.clone());
        WorkerFactory::new(move || Ok(wrap(index, gpu_worker(&device, count, &task, &options, &layout)?)))
    };
    let workers = devices.iter().enumerate().map(factory).collect();
    Trainer::with_workers(task.clone(), options.clone(), workers, layout.clone())
}

/// A trainer on `devices` with as few buckets as can be.
pub fn trainer_on(devices: &[Arc<Device>], task: &Task, options: &TrainOptions) -> Trainer {
    trainer_with(devices, task, options, &layout(task, ONE_BUCKET), |_, worker| Box::new(worker)).expect("it starts")
}

/// Random samples of `shape` in `classes` classes.
pub fn classes(n: usize, shape: &[usize], classes: usize, seed: u64) -> TensorDataset {
    let mut stream = Stream::new(seed, "data");
    let labels = (0..n).map(|_| stream.below(classes as u64) as u32).collect();
    TensorDataset::classification(random([&[n], shape].concat(), &mut stream), labels, names(classes)).unwrap()
}

/// Random samples of `features` numbers with one random number each as the target.
pub fn numbers(n: usize, features: usize, seed: u64) -> TensorDataset {
    let mut stream = Stream::new(seed, "data");
    TensorDataset::regression(random(vec![n, features], &mut stream), random(vec![n, 1], &mut stream)).unwrap()
}

/// Weights between 0.5 and 3.5, every fifth 0.
pub fn uneven_weights(n: usize) -> Vec<f32> {
    let mut stream = Stream::new(3, "weights");
    (0..n).map(|i| if i % 5 == 4 { 0.0 } else { 0.5 + 3.0 * stream.uniform() as f32 }).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|c| c.to_string()).collect()
}

fn random(shape: Vec<usize>, stream: &mut Stream) -> HostTensor {
    let values = (0..shape.iter().product()).map(|_| stream.normal() as f32).collect();
    HostTensor::f32(shape, values).unwrap()
}

/// A data set whose samples come in the order given here in epoch 0 of a run with these options: `inputs` and `targets`
/// hold `features` and 1 numbers a sample.
pub fn in_order(inputs: &[f32], targets: &[f32], features: usize, options: &TrainOptions) -> TensorDataset {
    let n = targets.len();
    let mut sampler = Sampler::new(n, options.window(), options.seed, true, false).unwrap();
    let order: Vec<usize> = (0..sampler.steps_per_epoch()).flat_map(|s| sampler.batch_indices(0, s)).collect();
    let (mut x, mut t) = (vec![0.0; n * features], vec![0.0; n]);
    for (position, &sample) in order.iter().enumerate() {
        x[sample * features..][..features].copy_from_slice(&inputs[position * features..][..features]);
        t[sample] = targets[position];
    }
    TensorDataset::regression(HostTensor::f32([n, features], x).unwrap(), HostTensor::f32([n, 1], t).unwrap()).unwrap()
}

/// Plain settings to start from: one micro-batch a shard, an even split, SGD.
pub fn options(batch: usize) -> TrainOptions {
    TrainOptions {
        batch,
        micro_batch: MicroBatchSize::Auto,
        split: Split::Even,
        optimizer: Optimizer::sgd(0.9),
        schedule: Schedule::constant(0.05),
        seed: 5,
        ..TrainOptions::default()
    }
}

/// Keeps all that is told, and stops after a number of steps.
#[derive(Debug, Default)]
pub struct Recorder {
    /// By step; after a roll-back, a step's later record replaces the earlier one.
    pub steps: Vec<StepRecord>,
    /// Epochs, as their records' text.
    pub epochs: Vec<String>,
    /// Devices that were lost.
    pub lost: Vec<usize>,
    /// What they were lost to.
    pub errors: Vec<String>,
    /// Names of those that came back.
    pub rejoined: Vec<String>,
    /// Why devices got no samples.
    pub idle: Vec<String>,
    /// Names of those that got some again.
    pub employed: Vec<String>,
    /// Names of those that took over the updates.
    pub led: Vec<String>,
    /// Steps that training went back to.
    pub rolled_back: Vec<u64>,
    /// Steps after which it stops; 0 for never.
    pub stop_after: u64,
}

impl Recorder {
    /// Stops after this many steps of the whole run.
    pub fn until(steps: u64) -> Self {
        Self { stop_after: steps, ..Self::default() }
    }
}

impl Observer for Recorder {
    fn observe(&mut self, progress: &Progress<'_>, _: &mut Trainer) -> Result<Flow> {
        match progress {
            Progress::Step(record) => {
                self.steps.retain(|earlier| earlier.step < record.step);
                self.steps.push((*record).clone());
                if record.step + 1 == self.stop_after {
                    return Ok(Flow::Stop);
                }
            }
            Progress::Epoch(epoch) => {
                let EpochRecord { epoch, skipped, train, validation, .. } = epoch;
                self.epochs.push(format!("{epoch} {skipped} skipped {train:?} {validation:?}"));
            }
            Progress::Lost(loss) => {
                self.lost.push(loss.device);
                self.errors.push(loss.error.to_string());
            }
            Progress::Rejoined(label) => self.rejoined.push((*label).to_owned()),
            Progress::Idle(idle) => self.idle.push(idle.to_string()),
            Progress::Employed(label) => self.employed.push((*label).to_owned()),
            Progress::Led(handover) => self.led.push(handover.to.clone()),
            Progress::RolledBack(back) => self.rolled_back.push(back.step),
        }
        Ok(Flow::Continue)
    }
}

/// Trains for `steps` steps in all; the record.
pub fn train(trainer: &mut Trainer, data: &Arc<dyn Dataset>, steps: u64) -> Recorder {
    let mut recorder = Recorder::until(steps);
    trainer.fit(data, None, &mut recorder).expect("training works");
    recorder
}

/// The weights, after a check that every device that works has the same, bit for bit.
pub fn agreed_weights(trainer: &mut Trainer) -> Weights {
    let alive: Vec<usize> =
        (0..trainer.coordinator().alive().len()).filter(|&i| trainer.coordinator().alive()[i]).collect();
    let first = trainer.weights_of(alive[0]).expect("weights are read");
    for &device in &alive[1..] {
        let other = trainer.weights_of(device).expect("weights are read");
        for ((name, a), (_, b)) in first.iter().zip(&other) {
            let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(a), bits(b), "{name} differs between devices {} and {device}", alive[0]);
        }
    }
    first
}

/// The largest difference between two models' weights; infinite where one is not a number.
pub fn distance(a: &Weights, b: &Weights) -> f64 {
    assert_eq!(a.len(), b.len());
    let mut worst: f64 = 0.0;
    for ((name, x), (other, y)) in a.iter().zip(b) {
        assert_eq!((name, x.len()), (other, y.len()));
        for (x, y) in x.iter().zip(y) {
            let difference = (f64::from(*x) - f64::from(*y)).abs();
            worst = worst.max(if difference.is_nan() { f64::INFINITY } else { difference });
        }
    }
    worst
}

#[test]
fn a_distance_sees_one_wrong_weight() {
    let weights = |last: f32| Named::of([("w", vec![1.0, 2.0, last])]).unwrap();
    assert_eq!(distance(&weights(3.0), &weights(3.0)), 0.0);
    assert_eq!(distance(&weights(3.0), &weights(3.5)), 0.5);
    assert_eq!(distance(&weights(3.0), &weights(f32::NAN)), f64::INFINITY);
}

//! An open device: its health, its ledger of bytes, its cache of compiled kernels.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Adapter;
use super::loops::check_loops;
use crate::error::{Error, Result};
use crate::kernel::{Access, Kernel, Target};
use crate::plan::Allocation;

/// What went wrong on a device, as its callbacks told us.
#[derive(Debug, Default)]
struct Health {
    lost: Option<String>,
    error: Option<String>,
}

/// Locks, also when a thread panicked while it held the lock: the data behind these locks is valid at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device of an adapter. Dropping the last handle frees it.
#[derive(Debug)]
pub struct Device {
    label: String,
    target: Target,
    pub(super) inner: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    health: Arc<Mutex<Health>>,
    memory_limit: Option<u64>,
    in_use: Arc<AtomicU64>,
    pipelines: Mutex<HashMap<String, wgpu::ComputePipeline>>,
    layouts: Mutex<HashMap<(Vec<Access>, bool), wgpu::BindGroupLayout>>,
    uniform_layout: wgpu::BindGroupLayout,
}

/// A buffer that is on the device's ledger until it is dropped.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) buffer: wgpu::Buffer,
    in_use: Arc<AtomicU64>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.in_use.fetch_sub(self.buffer.size(), Ordering::Relaxed);
    }
}

impl Device {
    /// Opens a device with all that the adapter offers. `memory_limit`, in bytes, caps what may be allocated: WebGPU
    /// does not tell how much memory there is.
    ///
    /// # Errors
    /// When the adapter refuses.
    pub fn open(adapter: &Adapter, memory_limit: Option<u64>) -> Result<Arc<Self>> {
        let label = adapter.label();
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("everygpu"),
            required_features: adapter.inner.features() & wgpu::Features::TIMESTAMP_QUERY,
            required_limits: adapter.limits(),
            ..Default::default()
        };
        let (inner, queue) = pollster::block_on(adapter.inner.request_device(&descriptor))
            .map_err(|e| Error::Device { adapter: label.clone(), message: format!("cannot be opened: {e}") })?;
        let health = Arc::new(Mutex::new(Health::default()));
        let at_loss = health.clone();
        inner.set_device_lost_callback(move |reason, message| {
            lock(&at_loss).lost.get_or_insert(format!("{reason:?}: {message}"));
        });
        let at_error = health.clone();
        inner.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            lock(&at_error).error.get_or_insert(error.to_string());
        }));
        let uniform_layout = inner.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some("uniform"),
            entries: &[layout_entry(0, wgpu::BufferBindingType::Uniform)],
        });
        Ok(Arc::new(Self {
            label,
            target: adapter.target(),
            inner,
            queue,
            health,
            memory_limit,
            in_use: Arc::default(),
            pipelines: Mutex::default(),
            layouts: Mutex::default(),
            uniform_layout,
        }))
    }

    /// The adapter's name and index.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The device's limits.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Bytes in buffers that are alive.
    pub fn bytes_in_use(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Whether it notes the times of its compute passes.
    pub fn has_clock(&self) -> bool {
        self.inner.features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    /// Drops the device's driver objects at once, as if it were unplugged. For tests.
    #[cfg(feature = "test-support")]
    pub fn destroy(&self) {
        self.inner.destroy();
    }

    /// Fails when the device is lost or has reported an error since the last call.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] or [`Error::Device`].
    pub fn check(&self) -> Result<()> {
        let mut health = lock(&self.health);
        if let Some(message) = &health.lost {
            return Err(Error::DeviceLost { adapter: self.label.clone(), message: message.clone() });
        }
        health.error.take().map_or(Ok(()), |message| Err(self.error(message)))
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        Error::Device { adapter: self.label.clone(), message: message.into() }
    }

    /// Runs queued work up to `submission` (all of it when `None`).
    pub(super) fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<()> {
        let outcome = self.inner.poll(wgpu::PollType::Wait { submission_index: submission, timeout: None });
        self.check()?;
        outcome.map(drop).map_err(|e| self.error(format!("waiting for the device failed: {e}")))
    }

    /// Makes a buffer, on the ledger.
    pub(super) fn allocate(&self, what: &Allocation, usage: wgpu::BufferUsages, mapped: bool) -> Result<Memory> {
        let bytes = what.bytes;
        if bytes > self.target.max_buffer {
            return Err(Error::Limit {
                adapter: self.label.clone(),
                what: what.label.clone(),
                needed: bytes,
                limit_name: "max_buffer_size",
                limit: self.target.max_buffer,
                advice: "take a smaller micro-batch, or leave this adapter out".to_owned(),
            });
        }
        let in_use = self.bytes_in_use();
        let full = || Error::OutOfMemory {
            adapter: self.label.clone(),
            buffer: what.label.clone(),
            bytes,
            in_use,
            limit: self.memory_limit,
        };
        if self.memory_limit.is_some_and(|limit| in_use + bytes > limit) {
            return Err(full());
        }
        let scope = self.inner.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.inner.create_buffer(&wgpu::BufferDescriptor {
            label: Some(&what.label),
            size: bytes,
            usage,
            mapped_at_creation: mapped,
        });
        if pollster::block_on(scope.pop()).is_some() {
            return Err(full());
        }
        self.check()?;
        self.in_use.fetch_add(bytes, Ordering::Relaxed);
        Ok(Memory { buffer, in_use: self.in_use.clone() })
    }

    /// The bind group layout of a kernel's storage buffers and, behind them, its sizes.
    pub(super) fn storage_layout(&self, kernel: &Kernel) -> wgpu::BindGroupLayout {
        let has_sizes = !kernel.sizes.is_empty();
        let make = |access: &[Access]| {
            let storage = |access| wgpu::BufferBindingType::Storage { read_only: access == Access::Read };
            let types = access.iter().map(|&access| storage(access));
            let types = types.chain(has_sizes.then_some(wgpu::BufferBindingType::Uniform));
            let entries: Vec<_> = (0..).zip(types).map(|(binding, ty)| layout_entry(binding, ty)).collect();
            let descriptor = wgpu::BindGroupLayoutDescriptor { label: Some("storage"), entries: &entries };
            self.inner.create_bind_group_layout(&descriptor)
        };
        let key = (kernel.bindings.clone(), has_sizes);
        lock(&self.layouts).entry(key).or_insert_with_key(|(access, _)| make(access)).clone()
    }

    /// A bind group of the one uniform that kernels see.
    pub(super) fn uniform_group(&self, uniform: &wgpu::Buffer) -> wgpu::BindGroup {
        self.inner.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("uniform"),
            layout: &self.uniform_layout,
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: uniform.as_entire_binding() }],
        })
    }

    /// Compiles those of `kernels` that are not in the cache, on as many threads as there are cores: a driver's
    /// compiler takes seconds for a large model on one.
    ///
    /// # Errors
    /// When one does not compile, or the device fails.
    pub(super) fn compile<'a>(&self, kernels: impl Iterator<Item = &'a Kernel>) -> Result<()> {
        let mut sources: HashMap<String, &Kernel> = kernels.map(|kernel| (kernel.source(), kernel)).collect();
        sources.retain(|source, _| !lock(&self.pipelines).contains_key(source));
        let waiting = Mutex::new(sources.into_values());
        let work = || {
            loop {
                let Some(kernel) = lock(&waiting).next() else { return Ok(()) };
                self.pipeline(kernel)?;
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let others = lock(&waiting).len().min(cores).saturating_sub(1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
            let own = work();
            let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread.join().unwrap_or_else(|_| Err(self.error("compiling its kernels failed")))
            };
            threads.into_iter().map(ended).fold(own, Result::and)
        })
    }

    /// The number of kernels that were compiled so far. For tests.
    #[cfg(feature = "test-support")]
    pub fn compiled(&self) -> usize {
        lock(&self.pipelines).len()
    }

    /// The compiled kernel, from the cache where it is there.
    pub(super) fn pipeline(&self, kernel: &Kernel) -> Result<wgpu::ComputePipeline> {
        let source = kernel.source();
        if let Some(pipeline) = lock(&self.pipelines).get(&source) {
            return Ok(pipeline.clone());
        }
        let label = kernel.label();
        let scope = self.inner.push_error_scope(wgpu::ErrorFilter::Validation);
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(&label),
            source: wgpu::ShaderSource::Wgsl(source.as_str().into()),
        };
        let module = if kernel.shader.is_audited() && check_loops(&source).is_ok() {
            let checks = wgpu::ShaderRuntimeChecks { force_loop_bounding: false, ..Default::default() };
            // SAFETY: the one check that is off guards against endless loops, and this kernel has none. The checks of
            // array bounds and of integer division stay on.
            unsafe { self.inner.create_shader_module_trusted(descriptor, checks) }
        } else {
            self.inner.create_shader_module(descriptor)
        };
        let storage = self.storage_layout(kernel);
        let groups = [Some(&storage), Some(&self.uniform_layout)];
        let used = if kernel.reads_uniform() { 2 } else { 1 };
        let layout = self.inner.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(&label),
            bind_group_layouts: &groups[..used],
            immediate_size: 0,
        });
        let pipeline = self.inner.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&label),
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                // This crate's own kernels write it before they read it.
                zero_initialize_workgroup_memory: !kernel.shader.is_audited(),
                ..Default::default()
            },
            cache: None,
        });
        if let Some(error) = pollster::block_on(scope.pop()) {
            return Err(self.error(format!("kernel {label} does not compile: {error}")));
        }
        self.check()?;
        lock(&self.pipelines).insert(source, pipeline.clone());
        Ok(pipeline)
    }
}

fn layout_entry(binding: u32, ty: wgpu::BufferBindingType) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    }
}

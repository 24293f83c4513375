//! Which adapters there are, one entry a physical GPU, and how a user picks among them.

use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::kernel::{Target, Tiling};

/// The process's one instance of the backends that are worth having, and one of GL for machines with nothing else: GL
/// drivers print to the terminal where there is no display, and offer few storage buffers. `WGPU_BACKEND` overrides.
fn instances() -> impl Iterator<Item = &'static wgpu::Instance> {
    static INSTANCES: [OnceLock<wgpu::Instance>; 2] = [OnceLock::new(), OnceLock::new()];
    let first = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all() - wgpu::Backends::GL);
    INSTANCES.iter().zip([first, wgpu::Backends::GL]).map(|(instance, backends)| {
        instance.get_or_init(|| {
            let descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
            // Without that flag wgpu compiles no shader of its own with each device, for a kind of dispatch that is
            // not used here.
            let flags = descriptor.flags.difference(wgpu::InstanceFlags::VALIDATION_INDIRECT_CALL);
            wgpu::Instance::new(wgpu::InstanceDescriptor { backends, flags, ..descriptor })
        })
    })
}

/// What an adapter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU behind a virtualisation layer.
    Virtual,
    /// The CPU (lavapipe, SwiftShader, WARP).
    Software,
    /// The driver does not say.
    Other,
}

impl Kind {
    /// The word for it, as `--adapters` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Software => "software",
            Self::Other => "other",
        }
    }

    fn of(info: &wgpu::AdapterInfo) -> Self {
        match info.device_type {
            wgpu::DeviceType::DiscreteGpu => Self::Discrete,
            wgpu::DeviceType::IntegratedGpu => Self::Integrated,
            wgpu::DeviceType::VirtualGpu => Self::Virtual,
            wgpu::DeviceType::Cpu => Self::Software,
            // GL names no type; Mesa's CPU renderers say in their name what they are.
            wgpu::DeviceType::Other if is_software_name(&info.name) => Self::Software,
            wgpu::DeviceType::Other => Self::Other,
        }
    }
}

fn is_software_name(name: &str) -> bool {
    let name = name.to_lowercase();
    ["llvmpipe", "lavapipe", "swiftshader", "softpipe"].iter().any(|s| name.contains(s))
}

/// A way to reach one GPU (or a CPU that acts as one).
#[derive(Debug, Clone)]
pub struct Adapter {
    /// Position in [`Adapters`].
    pub index: usize,
    pub(super) inner: wgpu::Adapter,
    info: wgpu::AdapterInfo,
    /// What [`Adapter::capped`] says.
    most: u64,
}

impl Adapter {
    /// The name that the driver gives it.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Name and index, for messages: unique even with two equal cards.
    pub fn label(&self) -> String {
        format!("adapter {} ({})", self.index, self.info.name)
    }

    /// `vulkan`, `metal`, `dx12` or `gl`.
    pub fn backend(&self) -> &'static str {
        self.info.backend.to_str()
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        Kind::of(&self.info)
    }

    /// The driver and its version, as the driver words it.
    pub fn driver(&self) -> String {
        format!("{} {}", self.info.driver, self.info.driver_info).trim().to_owned()
    }

    /// PCI vendor and device number; 0 where the backend does not tell.
    pub fn pci_id(&self) -> (u32, u32) {
        (self.info.vendor, self.info.device)
    }

    /// The same adapter as if no binding of it could have more than `bytes`. For tests.
    pub fn capped(self, bytes: u64) -> Self {
        Self { most: bytes, ..self }
    }

    pub(super) fn limits(&self) -> wgpu::Limits {
        let limits = self.inner.limits();
        let most = limits.max_storage_buffer_binding_size.min(self.most);
        wgpu::Limits { max_storage_buffer_binding_size: most, ..limits }
    }

    /// Its limits, and how kernels should tile on it.
    pub fn target(&self) -> Target {
        let limits = self.limits();
        Target {
            adapter: self.label(),
            // Sizes and offsets are u32 in kernels.
            max_binding: limits.max_storage_buffer_binding_size.min(u64::from(u32::MAX) & !255),
            max_buffer: limits.max_buffer_size,
            max_invocations: limits.max_compute_invocations_per_workgroup,
            max_workgroup_memory: limits.max_compute_workgroup_storage_size,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            tiling: if self.kind() == Kind::Software { Tiling::Registers } else { Tiling::Workgroup },
            unrolled: unrolled(&self.info.driver_info),
            threads: std::thread::available_parallelism().map_or(1, Into::into),
        }
    }

    /// Optional features that everygpu uses where they are offered, and whether they are.
    pub fn features(&self) -> Vec<(&'static str, bool)> {
        vec![("timestamp-query", self.has_clock())]
    }

    /// Whether its devices note the times of their compute passes.
    pub fn has_clock(&self) -> bool {
        self.inner.features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    fn backend_rank(&self) -> usize {
        let order = [wgpu::Backend::Metal, wgpu::Backend::Vulkan, wgpu::Backend::Dx12, wgpu::Backend::Gl];
        order.iter().position(|b| *b == self.info.backend).unwrap_or(order.len())
    }
}

/// Most multiply-adds that kernels write out one by one (`Target::unrolled`), by what the driver says of itself. LLVM
/// up to 15, with which Mesa 22.3 compiles, takes 9 s for 512 of them where later ones and SwiftShader take 0.5 s.
fn unrolled(driver_info: &str) -> usize {
    let version = driver_info.split_once("LLVM ").and_then(|(_, rest)| rest.split('.').next()?.parse::<u32>().ok());
    if version.is_some_and(|version| version <= 15) { 128 } else { 512 }
}

/// All adapters of the machine.
#[derive(Debug, Clone)]
pub struct Adapters(Vec<Adapter>);

impl Adapters {
    /// Finds every adapter, each physical GPU through one backend: Metal, else Vulkan, then DX12, then GL.
    ///
    /// ```no_run
    /// # use everygpu::prelude::*;
    /// for adapter in Adapters::discover()?.iter() {
    ///     println!("{} through {}", adapter.label(), adapter.backend());
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoAdapter`] when there is none that can compute; the message says what to install.
    pub fn discover() -> Result<Self> {
        let adapters = instances().map(|instance| one_backend_each(computing(instance))).find(|a| !a.is_empty());
        adapters.map(Self).ok_or_else(|| Error::NoAdapter(install_advice().to_owned()))
    }

    /// The adapters, by index.
    pub fn iter(&self) -> impl Iterator<Item = &Adapter> {
        self.0.iter()
    }

    /// Number of adapters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none (never, after [`Adapters::discover`]).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The adapters that `choice` names, in that order and each once: a comma-separated list of indices, kinds or parts
    /// of names (any case), `all`, or `auto`: every GPU, and software adapters only where there is no GPU.
    ///
    /// # Errors
    /// [`Error::UnknownAdapter`] when a word names none.
    pub fn select(&self, choice: &str) -> Result<Vec<Adapter>> {
        let mut chosen: Vec<usize> = Vec::new();
        for word in choice.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let matching = self.matching(word);
            if matching.is_empty() {
                return Err(self.unknown(word));
            }
            chosen.extend(matching.into_iter().filter(|index| !chosen.contains(index)).collect::<Vec<_>>());
        }
        if chosen.is_empty() {
            return Err(self.unknown(choice));
        }
        Ok(chosen.into_iter().map(|i| self.0[i].clone()).collect())
    }

    fn matching(&self, word: &str) -> Vec<usize> {
        let lower = word.to_lowercase();
        let pick = |f: &dyn Fn(&Adapter) -> bool| self.0.iter().filter(|a| f(a)).map(|a| a.index).collect::<Vec<_>>();
        if let Ok(index) = word.parse::<usize>() {
            return pick(&|a| a.index == index);
        }
        if lower == "all" {
            return pick(&|_| true);
        }
        let gpus = pick(&|a| a.kind() != Kind::Software);
        if lower == "auto" {
            return if gpus.is_empty() { pick(&|_| true) } else { gpus };
        }
        let kind = pick(&|a| a.kind().name() == lower);
        if kind.is_empty() { pick(&|a| a.name().to_lowercase().contains(&lower)) } else { kind }
    }

    fn unknown(&self, wanted: &str) -> Error {
        let available = self.0.iter().map(|a| format!("{} ({})", a.index, a.name())).collect::<Vec<_>>().join(", ");
        Error::UnknownAdapter { wanted: wanted.to_owned(), available }
    }
}

/// The instance's adapters that have compute shaders.
fn computing(instance: &wgpu::Instance) -> Vec<Adapter> {
    pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()))
        .into_iter()
        .filter(|a| a.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS))
        .map(|inner| Adapter { index: 0, info: inner.get_info(), inner, most: u64::MAX })
        .collect()
}

/// Leaves each physical GPU the best backend that lists it. Two equal cards are both kept: a backend lists them twice.
fn one_backend_each(candidates: Vec<Adapter>) -> Vec<Adapter> {
    let mut candidates = candidates;
    candidates.sort_by_key(Adapter::backend_rank);
    let mut kept: Vec<Adapter> = Vec::new();
    for adapter in candidates {
        if !kept.iter().any(|k| k.info.backend != adapter.info.backend && same_gpu(&k.info, &adapter.info)) {
            kept.push(adapter);
        }
    }
    // GPUs first, fastest kind first; the order within a kind is the driver's.
    kept.sort_by_key(|a| a.kind() as usize);
    for (index, adapter) in kept.iter_mut().enumerate() {
        adapter.index = index;
    }
    kept
}

fn same_gpu(a: &wgpu::AdapterInfo, b: &wgpu::AdapterInfo) -> bool {
    if !a.device_pci_bus_id.is_empty() && !b.device_pci_bus_id.is_empty() {
        return a.device_pci_bus_id == b.device_pci_bus_id;
    }
    // GL reports no device number: it lists the one GPU that a context was made on, which the other backends have too.
    let gl = a.backend == wgpu::Backend::Gl || b.backend == wgpu::Backend::Gl;
    let software = |info: &wgpu::AdapterInfo| Kind::of(info) == Kind::Software;
    if gl { a.vendor == b.vendor || (software(a) && software(b)) } else { (a.vendor, a.device) == (b.vendor, b.device) }
}

fn install_advice() -> &'static str {
    if cfg!(target_os = "linux") {
        "install the graphics driver of your GPU, or Mesa's software Vulkan driver \
         (Debian and Ubuntu: apt install mesa-vulkan-drivers libvulkan1; Fedora: dnf install mesa-vulkan-drivers \
         vulkan-loader; Arch: pacman -S vulkan-swrast vulkan-icd-loader)"
    } else if cfg!(windows) {
        "install the graphics driver of your GPU (DirectX 12 or Vulkan)"
    } else {
        "this system offers no Metal or Vulkan device"
    }
}

#[cfg(test)]
mod tests {
    use super::unrolled;

    #[test]
    fn old_compilers_get_less_to_unroll() {
        let drivers = [("Mesa 22.3.6 (LLVM 15.0.6)", 128), ("Mesa 26.2.6-1 (LLVM 22.1.8)", 512), ("", 512)];
        for (driver_info, multiply_adds) in drivers {
            assert_eq!(unrolled(driver_info), multiply_adds, "{driver_info}");
        }
    }
}

//! Every shader of every op example, without an adapter: naga parses and validates it, its reflected bindings are the
//! declared ones, it fits WebGPU's default limits, and naga's writers translate it for Vulkan, Metal, DX12 and GL.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use everygpu::kernel::{Access, Kernel, Target, Tiling};
use everygpu::shaders::all_kernels;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

/// A kernel as naga reads it.
struct Parsed {
    kernel: Kernel,
    module: naga::Module,
    info: ModuleInfo,
}

/// Every distinct kernel.
static KERNELS: LazyLock<Vec<Parsed>> = LazyLock::new(|| {
    let mut kernels = BTreeMap::new();
    for tiling in [Tiling::Registers, Tiling::Workgroup] {
        let target = Target { tiling, ..Target::default() };
        for kernel in all_kernels(&target).expect("every example lowers") {
            kernels.insert(kernel.source(), kernel);
        }
    }
    assert!(!kernels.is_empty());
    kernels.into_iter().map(|(source, kernel)| parsed(&source, kernel)).collect()
});

fn parsed(source: &str, kernel: Kernel) -> Parsed {
    let label = kernel.label();
    let module =
        naga::front::wgsl::parse_str(source).unwrap_or_else(|e| panic!("{label}: {}", e.emit_to_string(source)));
    let info = Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(&module)
        .unwrap_or_else(|e| panic!("{label}: {}", e.emit_to_string(source)));
    Parsed { kernel, module, info }
}

#[test]
fn naga_accepts_every_kernel_and_reflects_the_declared_bindings() {
    let target = Target::default();
    for Parsed { kernel, module, info } in KERNELS.iter() {
        let label = kernel.label();
        let mut storage = BTreeMap::new();
        let mut memory = 0;
        let mut layouter = naga::proc::Layouter::default();
        layouter.update(module.to_ctx()).expect("validated types have a layout");
        for (handle, variable) in module.global_variables.iter() {
            let binding = variable.binding.map(|b| (b.group, b.binding));
            match variable.space {
                naga::AddressSpace::Storage { access } => {
                    let write = access.contains(naga::StorageAccess::STORE);
                    let (group, binding) = binding.expect("storage is bound");
                    assert_eq!(group, 0, "{label}: storage buffers are in group 0");
                    storage.insert(binding, if write { Access::ReadWrite } else { Access::Read });
                    assert!(!info.get_entry_point(0)[handle].is_empty(), "{label}: binding {binding} is never used");
                }
                naga::AddressSpace::Uniform => {
                    let (behind, name) = (kernel.bindings.len() as u32, variable.name.as_deref());
                    let expected = if name == Some("sizes") { (0, behind) } else { (1, 0) };
                    assert_eq!(binding, Some(expected), "{label}: uniform {name:?}");
                }
                naga::AddressSpace::WorkGroup => memory += layouter[variable.ty].size,
                _ => {}
            }
        }
        let reflected: Vec<_> =
            storage.into_iter().enumerate().map(|(i, (b, access))| (i as u32 == b, access)).collect();
        let declared: Vec<_> = kernel.bindings.iter().map(|access| (true, *access)).collect();
        assert_eq!(reflected, declared, "{label}: bindings");
        assert_eq!(module.entry_points.len(), 1, "{label}: one entry point");
        assert_eq!(module.entry_points[0].name, "main", "{label}: entry point");
        assert_eq!(module.entry_points[0].workgroup_size, kernel.workgroup, "{label}: workgroup size");
        let invocations: u32 = kernel.workgroup.iter().product();
        assert!(invocations <= target.max_invocations, "{label}: {invocations} invocations");
        assert!(memory <= target.max_workgroup_memory, "{label}: {memory} bytes of workgroup memory");
        assert!(kernel.bindings.len() <= target.max_storage_buffers as usize, "{label}: storage buffers");
    }
}

#[test]
fn every_kernel_translates_to_spirv_msl_hlsl_and_glsl() {
    for Parsed { kernel, module, info } in KERNELS.iter() {
        let label = kernel.label();
        naga::back::spv::write_vec(module, info, &naga::back::spv::Options::default(), None)
            .unwrap_or_else(|e| panic!("{label}: SPIR-V: {e}"));
        let options = naga::back::msl::Options { fake_missing_bindings: true, ..Default::default() };
        naga::back::msl::write_string(module, info, &options, &Default::default())
            .unwrap_or_else(|e| panic!("{label}: MSL: {e}"));
        let options = naga::back::hlsl::Options { fake_missing_bindings: true, ..Default::default() };
        let mut text = String::new();
        let pipeline = naga::back::hlsl::PipelineOptions::default();
        naga::back::hlsl::Writer::new(&mut text, &options, &pipeline)
            .write(module, info, None)
            .unwrap_or_else(|e| panic!("{label}: HLSL: {e}"));
        let options =
            naga::back::glsl::Options { version: naga::back::glsl::Version::new_gles(310), ..Default::default() };
        let pipeline = naga::back::glsl::PipelineOptions {
            shader_stage: naga::ShaderStage::Compute,
            entry_point: "main".into(),
            multiview: None,
        };
        let mut text = String::new();
        naga::back::glsl::Writer::new(&mut text, module, info, &options, &pipeline, Default::default())
            .and_then(|mut writer| writer.write())
            .unwrap_or_else(|e| panic!("{label}: GLSL ES 3.10: {e}"));
    }
}

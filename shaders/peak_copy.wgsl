// y = x, an invocation four neighbouring elements: as many bytes as kernels can read and write (profile::ceilings).
#import elementwise

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>; // (count)
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>; // (count)

fn element(i: u32) {
    y[i] = x[i];
}

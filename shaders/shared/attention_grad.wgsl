// What the kernels of attention's gradient share: the cotangent of o, and what they know of each query.
#import attention

@group(0) @binding(0) var<storage, read> d_o: array<f32>; // as O_B, O_H and O_T say
@group(0) @binding(1) var<storage, read> statistics: array<vec2<f32>>; // (batch, HEADS, QUERIES): logsumexp, sum of do ∘ o

fn load_do(at: u32, d: u32) -> vec4<f32> {
    let p = four(at, d);
    return vec4<f32>(d_o[p.x], d_o[p.y], d_o[p.z], d_o[p.w]);
}

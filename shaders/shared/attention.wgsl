// What attention's kernels share: q, k and v, separate or packed, by rows of WIDTH elements as vectors of four; which
// keys a query sees; and the workgroups, each of which has WG of the ROWS rows of a head. The kernel's `walk` gets the
// sample b, the head h, the first of the rows, and the invocation's index among them.
#import linear

#ifdef PACKED
@group(0) @binding(QKV) var<storage, read> qkv: array<f32>; // (batch, T, 3, HEADS, WIDTH)
#else
@group(0) @binding(QKV) var<storage, read> q: array<f32>; // (batch, HEADS, QUERIES, WIDTH)
@group(0) @binding(QKV + 1u) var<storage, read> k: array<f32>; // (batch, HEADS, KEYS, WIDTH)
@group(0) @binding(QKV + 2u) var<storage, read> v: array<f32>; // (batch, HEADS, KEYS, WIDTH)
#endif
#ifdef LENGTHS
@group(0) @binding(LENGTHS_AT) var<storage, read> lengths: array<u32>; // (batch)
#endif

const VECTORS: u32 = (WIDTH + 3u) / 4u;
// Vectors of an array that an invocation keeps a row in. One more than there are: a loop as long as the array that it
// walks is unrolled by Mesa's software driver whatever its length, which takes minutes for long rows.
const OWN: u32 = VECTORS + 1u;
const NEXT = vec4<u32>(0u, 1u, 2u, 3u);
const BLOCKS: u32 = (ROWS + WG - 1u) / WG;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = linear_group(group, groups);
    if index < sizes.batch * HEADS * BLOCKS {
        walk(index / BLOCKS / HEADS, index / BLOCKS % HEADS, index % BLOCKS * WG, local);
    }
}

// Where the elements of vector d of the row at `at` are; those beyond the row are its last one.
fn four(at: u32, d: u32) -> vec4<u32> {
#ifdef RAGGED
    return at + min(4u * d + NEXT, vec4<u32>(WIDTH - 1u));
#else
    return at + 4u * d + NEXT;
#endif
}

// Vector d with elements beyond the row as 0: one factor of each product has to be.
fn padded(d: u32, x: vec4<f32>) -> vec4<f32> {
#ifdef RAGGED
    return select(vec4<f32>(), x, 4u * d + NEXT < vec4<u32>(WIDTH));
#else
    return x;
#endif
}

fn load_q(at: u32, d: u32) -> vec4<f32> {
    let p = four(at, d);
#ifdef PACKED
    return vec4<f32>(qkv[p.x], qkv[p.y], qkv[p.z], qkv[p.w]);
#else
    return vec4<f32>(q[p.x], q[p.y], q[p.z], q[p.w]);
#endif
}

fn load_k(at: u32, d: u32) -> vec4<f32> {
    let p = four(at, d);
#ifdef PACKED
    return vec4<f32>(qkv[p.x], qkv[p.y], qkv[p.z], qkv[p.w]);
#else
    return vec4<f32>(k[p.x], k[p.y], k[p.z], k[p.w]);
#endif
}

fn load_v(at: u32, d: u32) -> vec4<f32> {
    let p = four(at, d);
#ifdef PACKED
    return vec4<f32>(qkv[p.x], qkv[p.y], qkv[p.z], qkv[p.w]);
#else
    return vec4<f32>(v[p.x], v[p.y], v[p.z], v[p.w]);
#endif
}

fn q_row(b: u32, h: u32, row: u32) -> u32 {
    return b * Q_B + h * Q_H + row * Q_T;
}

fn o_row(b: u32, h: u32, row: u32) -> u32 {
    return b * O_B + h * O_H + row * O_T;
}

fn k_row(b: u32, h: u32, row: u32) -> u32 {
    return K_BASE + b * KV_B + h * KV_H + row * KV_T;
}

fn v_row(b: u32, h: u32, row: u32) -> u32 {
    return V_BASE + b * KV_B + h * KV_H + row * KV_T;
}

// Keys of a sample.
fn keys_of(b: u32) -> u32 {
#ifdef LENGTHS
    return min(KEYS, lengths[b]);
#else
    return KEYS;
#endif
}

// Keys that a query sees.
fn seen_by(b: u32, query: u32) -> u32 {
#ifdef CAUSAL
    return min(keys_of(b), query + 1u + (KEYS - QUERIES));
#else
    return keys_of(b);
#endif
}

// VECTORS. Software drivers are not to know it: they would unroll the kernels' loops, which takes them seconds and
// gains nothing. The drivers of GPUs are to: only in unrolled loops can an invocation's arrays be registers.
fn vector_count() -> u32 {
#ifdef STAGED
    return VECTORS;
#else
#ifdef PACKED
    return min(VECTORS, arrayLength(&qkv));
#else
    return min(VECTORS, arrayLength(&q));
#endif
#endif
}

fn sum_of(x: vec4<f32>) -> f32 {
    return (x.x + x.y) + (x.z + x.w);
}

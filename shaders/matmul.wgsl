// y = f(a·b + bias) by tiles in workgroup memory: an invocation has 4 × 4 elements of its workgroup's TILE_M × TILE_N.
// With PARTS > 1, y holds that many partial products over CHUNK terms each, for matmul_sum to add.
#import linear
#import broadcast
#import activation

@group(0) @binding(0) var<storage, read> a: array<f32>; // (D0, D1, D2, D3, M, K), or (…, K, M)
@group(0) @binding(1) var<storage, read> b: array<f32>; // (D0, D1, D2, D3, K, N), or (…, N, K)
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (PARTS, BATCH, M, N)
#ifdef BIAS
@group(0) @binding(3) var<storage, read> bias: array<f32>; // (N)
#endif

// Terms that are staged at once.
const STEP: u32 = 16u;
// Terms that are summed on their own before they join the total: rounding grows with the number of additions in a row.
const BLOCK: u32 = 128u;
// One element more than a row, so that writing a column of a tile meets every memory bank.
const STRIDE_A: u32 = TILE_M + 1u;
const STRIDE_B: u32 = TILE_N + 1u;
// Invocations down and across.
const DOWN: u32 = TILE_M / 4u;
const ACROSS: u32 = TILE_N / 4u;

var<workgroup> tile_a: array<f32, STEP * STRIDE_A>; // (STEP, TILE_M)
var<workgroup> tile_b: array<f32, STEP * STRIDE_B>; // (STEP, TILE_N)

fn store(base: u32, row: u32, column: u32, value: vec4<f32>) {
    if row < M {
        for (var j = 0u; j < 4u; j += 1u) {
            let n = column + j * ACROSS;
            if n < N {
#ifdef BIAS
                y[base + row * N + n] = activate(value[j] + bias[n]);
#else
                y[base + row * N + n] = activate(value[j]);
#endif
            }
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    const TILES_M: u32 = (M + TILE_M - 1u) / TILE_M;
    const TILES_N: u32 = (N + TILE_N - 1u) / TILE_N;
    let index = linear_group(group, groups);
    if index >= TILES_M * TILES_N * BATCH * PARTS {
        return;
    }
    let first_n = (index % TILES_N) * TILE_N;
    let first_m = (index / TILES_N % TILES_M) * TILE_M;
    let matrix = index / (TILES_N * TILES_M); // part · BATCH + batch
    let at = coordinates(matrix % BATCH);
    let base_a = position(at, vec4<u32>(A0, A1, A2, A3)) * (M * K);
    let base_b = position(at, vec4<u32>(B0, B1, B2, B3)) * (K * N);
    let first_k = (matrix / BATCH) * CHUNK;
    let end_k = min(first_k + CHUNK, K);

    let row = local / ACROSS;
    let column = local % ACROSS;
    var total = mat4x4<f32>(); // an invocation's rows
    var sum = mat4x4<f32>();
    for (var k = first_k; k < end_k; k += STEP) {
        // Neighbouring invocations read neighbouring elements, whichever way a matrix is stored.
        for (var i = local; i < STEP * TILE_M; i += WG) {
#ifdef TRANSPOSE_A
            let at_m = i % TILE_M;
            let at_k = i / TILE_M;
            let from_a = base_a + (k + at_k) * M + first_m + at_m;
#else
            let at_m = i / STEP;
            let at_k = i % STEP;
            let from_a = base_a + (first_m + at_m) * K + k + at_k;
#endif
            var value_a = 0.0;
            if first_m + at_m < M && k + at_k < end_k {
                value_a = a[from_a];
            }
            tile_a[at_k * STRIDE_A + at_m] = value_a;
        }
        for (var i = local; i < STEP * TILE_N; i += WG) {
#ifdef TRANSPOSE_B
            let at_n = i / STEP;
            let at_k = i % STEP;
            let from_b = base_b + (first_n + at_n) * K + k + at_k;
#else
            let at_n = i % TILE_N;
            let at_k = i / TILE_N;
            let from_b = base_b + (k + at_k) * N + first_n + at_n;
#endif
            var value_b = 0.0;
            if first_n + at_n < N && k + at_k < end_k {
                value_b = b[from_b];
            }
            tile_b[at_k * STRIDE_B + at_n] = value_b;
        }
        workgroupBarrier();
        for (var t = 0u; t < STEP; t += 1u) {
            let p = t * STRIDE_A + row;
            let q = t * STRIDE_B + column;
            let v = vec4<f32>(tile_b[q], tile_b[q + ACROSS], tile_b[q + 2u * ACROSS], tile_b[q + 3u * ACROSS]);
            sum[0] += tile_a[p] * v;
            sum[1] += tile_a[p + DOWN] * v;
            sum[2] += tile_a[p + 2u * DOWN] * v;
            sum[3] += tile_a[p + 3u * DOWN] * v;
        }
        workgroupBarrier();
        if (k - first_k) % BLOCK == BLOCK - STEP || k + STEP >= end_k {
            total += sum;
            sum = mat4x4<f32>();
        }
    }
    let base = matrix * (M * N);
    store(base, first_m + row, first_n + column, total[0]);
    store(base, first_m + row + DOWN, first_n + column, total[1]);
    store(base, first_m + row + 2u * DOWN, first_n + column, total[2]);
    store(base, first_m + row + 3u * DOWN, first_n + column, total[3]);
}

// y = f(a·b + bias) by tiles in workgroup memory: an invocation has 4 × 4 elements of its workgroup's TILE_M × TILE_N.
#import matmul

// Terms that are staged at once.
const STEP: u32 = 16u;
// One element more than a row, so that writing a column of a tile meets every memory bank.
const STRIDE_A: u32 = TILE_M + 1u;
const STRIDE_B: u32 = TILE_N + 1u;
// Invocations down and across.
const DOWN: u32 = TILE_M / 4u;
const ACROSS: u32 = TILE_N / 4u;

var<workgroup> tile_a: array<f32, STEP * STRIDE_A>; // (STEP, TILE_M)
var<workgroup> tile_b: array<f32, STEP * STRIDE_B>; // (STEP, TILE_N)

fn store(base: u32, row: u32, column: u32, value: vec4<f32>) {
    if row < m_size() {
        for (var j = 0u; j < 4u; j += 1u) {
            let n = column + j * ACROSS;
            if n < N {
                let at = base + row * N + n;
#ifdef BIAS
                y[at] = added(y[at], activate(value[j] + bias[n]));
#else
                y[at] = added(y[at], activate(value[j]));
#endif
            }
        }
    }
}

fn work(index: u32, local: u32) {
    if index >= tiles() {
        return;
    }
    let part = part_of(index);
    let first_m = part.first_m;
    let first_n = part.first_n;
    let first_k = part.first_k;
    let end_k = min(first_k + sizes.chunk, k_size());

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
            let from_a = part.base_a + (k + at_k) * m_size() + first_m + at_m;
#else
            let at_m = i / STEP;
            let at_k = i % STEP;
            let from_a = part.base_a + (first_m + at_m) * k_size() + k + at_k;
#endif
            var value_a = 0.0;
            if first_m + at_m < m_size() && k + at_k < end_k {
                value_a = a[from_a];
            }
            tile_a[at_k * STRIDE_A + at_m] = value_a;
        }
        for (var i = local; i < STEP * TILE_N; i += WG) {
#ifdef TRANSPOSE_B
            let at_n = i / STEP;
            let at_k = i % STEP;
            let from_b = part.base_b + (first_n + at_n) * k_size() + k + at_k;
#else
            let at_n = i % TILE_N;
            let at_k = i / TILE_N;
            let from_b = part.base_b + (k + at_k) * N + first_n + at_n;
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
    let base = part.matrix * (m_size() * N);
    store(base, first_m + row, first_n + column, total[0]);
    store(base, first_m + row + DOWN, first_n + column, total[1]);
    store(base, first_m + row + 2u * DOWN, first_n + column, total[2]);
    store(base, first_m + row + 3u * DOWN, first_n + column, total[3]);
}

// y = f(a·b + bias) by tiles in registers: a workgroup has TILE_M rows, which are the same for all its lanes, and each lane
// has 1 or 4 columns, WG apart. So a's loads are uniform, b's are neighbouring, and no barrier is needed.
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

// Elements between two terms, two rows of a, and two columns of b.
#ifdef TRANSPOSE_A
const A_TERM: u32 = M;
const A_ROW: u32 = 1u;
#else
const A_TERM: u32 = 1u;
const A_ROW: u32 = K;
#endif
#ifdef TRANSPOSE_B
const B_TERM: u32 = 1u;
const B_COLUMN: u32 = K;
#else
const B_TERM: u32 = N;
const B_COLUMN: u32 = 1u;
#endif

fn store(base: u32, row: u32, column: u32, value: vec4<f32>) {
    if column < N {
#ifdef BIAS
        let shift = bias[column];
#else
        let shift = 0.0;
#endif
        for (var i = 0u; i < 4u; i += 1u) {
            if row + i < M {
                y[base + (row + i) * N + column] = activate(value[i] + shift);
            }
        }
    }
}

// Rows and columns beyond the matrix read its last ones; `store` leaves them out.
fn rows_at(row: u32) -> vec4<u32> {
    return min(row + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(M - 1u)) * A_ROW;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    const TILES_M: u32 = (M + TILE_M - 1u) / TILE_M;
    const TILES_N: u32 = (N + TILE_N - 1u) / TILE_N;
    let index = linear_group(group, groups);
    if index >= TILES_M * TILES_N * BATCH * PARTS {
        return;
    }
    let column = (index % TILES_N) * TILE_N + lane;
    let row = (index / TILES_N % TILES_M) * TILE_M;
    let matrix = index / (TILES_N * TILES_M); // part · BATCH + batch
    let at = coordinates(matrix % BATCH);
    let base_a = position(at, vec4<u32>(A0, A1, A2, A3)) * (M * K);
    let base_b = position(at, vec4<u32>(B0, B1, B2, B3)) * (K * N);
    let first_k = (matrix / BATCH) * CHUNK;
    let end_k = min(first_k + CHUNK, K);

    let low = rows_at(row) + base_a;
    let column_0 = min(column, N - 1u) * B_COLUMN + base_b;
    var low_0 = vec4<f32>();
#ifdef ROWS8
    let high = rows_at(row + 4u) + base_a;
    var high_0 = vec4<f32>();
#endif
#ifdef COLUMNS4
    let column_1 = min(column + WG, N - 1u) * B_COLUMN + base_b;
    let column_2 = min(column + 2u * WG, N - 1u) * B_COLUMN + base_b;
    let column_3 = min(column + 3u * WG, N - 1u) * B_COLUMN + base_b;
    var low_1 = vec4<f32>();
    var low_2 = vec4<f32>();
    var low_3 = vec4<f32>();
#ifdef ROWS8
    var high_1 = vec4<f32>();
    var high_2 = vec4<f32>();
    var high_3 = vec4<f32>();
#endif
#endif
    for (var k = first_k; k < end_k; k += 1u) {
        let p = k * A_TERM;
        let q = k * B_TERM;
        let u = vec4<f32>(a[low.x + p], a[low.y + p], a[low.z + p], a[low.w + p]);
        let v_0 = b[column_0 + q];
        low_0 += u * v_0;
#ifdef ROWS8
        let w = vec4<f32>(a[high.x + p], a[high.y + p], a[high.z + p], a[high.w + p]);
        high_0 += w * v_0;
#endif
#ifdef COLUMNS4
        let v_1 = b[column_1 + q];
        let v_2 = b[column_2 + q];
        let v_3 = b[column_3 + q];
        low_1 += u * v_1;
        low_2 += u * v_2;
        low_3 += u * v_3;
#ifdef ROWS8
        high_1 += w * v_1;
        high_2 += w * v_2;
        high_3 += w * v_3;
#endif
#endif
    }
    let base = matrix * (M * N);
    store(base, row, column, low_0);
#ifdef ROWS8
    store(base, row + 4u, column, high_0);
#endif
#ifdef COLUMNS4
    store(base, row, column + WG, low_1);
    store(base, row, column + 2u * WG, low_2);
    store(base, row, column + 3u * WG, low_3);
#ifdef ROWS8
    store(base, row + 4u, column + WG, high_1);
    store(base, row + 4u, column + 2u * WG, high_2);
    store(base, row + 4u, column + 3u * WG, high_3);
#endif
#endif
}

// Products y = f(a·b + bias), cut into tiles of TILE_M × TILE_N, a workgroup a tile. With PARTS > 1, y holds that many
// partial products over CHUNK terms each, for matmul_sum to add.
#import workgroups
#import broadcast
#import activation

@group(0) @binding(0) var<storage, read> a: array<f32>; // (D0, D1, D2, D3, M, K), or (…, K, M)
@group(0) @binding(1) var<storage, read> b: array<f32>; // (D0, D1, D2, D3, K, N), or (…, N, K)
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (PARTS, BATCH, M, N)
#ifdef BIAS
@group(0) @binding(3) var<storage, read> bias: array<f32>; // (N)
#endif

// Terms that are summed on their own before they join the total: rounding grows with the number of additions in a row.
const BLOCK: u32 = 128u;
const TILES_M: u32 = (M + TILE_M - 1u) / TILE_M;
const TILES_N: u32 = (N + TILE_N - 1u) / TILE_N;
const TILES: u32 = TILES_M * TILES_N * BATCH * PARTS;

// What a workgroup has of a product.
struct Part {
    matrix: u32, // part · BATCH + batch
    // Where the batch's matrices begin.
    base_a: u32,
    base_b: u32,
    // Of the tile, and of the terms.
    first_m: u32,
    first_n: u32,
    first_k: u32,
}

fn part_of(index: u32) -> Part {
    let matrix = index / (TILES_N * TILES_M);
    let at = coordinates(matrix % BATCH);
    let base_a = position(at, vec4<u32>(A0, A1, A2, A3)) * (M * K);
    let base_b = position(at, vec4<u32>(B0, B1, B2, B3)) * (K * N);
    let first_m = (index / TILES_N % TILES_M) * TILE_M;
    let first_n = (index % TILES_N) * TILE_N;
    return Part(matrix, base_a, base_b, first_m, first_n, (matrix / BATCH) * CHUNK);
}

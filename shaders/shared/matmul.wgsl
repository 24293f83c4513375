// Products y = f(a·b + bias), cut into tiles of TILE_M × TILE_N, a workgroup a tile. Where K is cut into several parts,
// y holds that many partial products over a chunk of the terms each, for sum_parts to add.
#import workgroups
#import broadcast
#import activation
#import add

@group(0) @binding(0) var<storage, read> a: array<f32>; // (D0, D1, D2, D3, M, K), or (…, K, M)
@group(0) @binding(1) var<storage, read> b: array<f32>; // (D0, D1, D2, D3, K, N), or (…, N, K)
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (parts, batch, M, N)
#ifdef BIAS
@group(0) @binding(3) var<storage, read> bias: array<f32>; // (N)
#endif

const TILES_N: u32 = (N + TILE_N - 1u) / TILE_N;

// M and K: one of them is a constant.
fn m_size() -> u32 {
#ifdef TRANSPOSE_A
    return M;
#else
    return sizes.m;
#endif
}

fn k_size() -> u32 {
#ifdef TRANSPOSE_A
    return sizes.k;
#else
    return K;
#endif
}

// Rows of a tile.
fn tile_m() -> u32 {
#ifdef TALL
    return sizes.tile_m;
#else
    return TILE_M;
#endif
}

fn tiles_m() -> u32 {
    return (m_size() + tile_m() - 1u) / tile_m();
}

fn tiles() -> u32 {
    return tiles_m() * TILES_N * sizes.batch * sizes.parts;
}

// What a workgroup has of a product.
struct Part {
    matrix: u32, // part · batch size + batch
    // Where the batch's matrices begin.
    base_a: u32,
    base_b: u32,
    // Of the tile, and of the terms.
    first_m: u32,
    first_n: u32,
    first_k: u32,
}

fn part_of(index: u32) -> Part {
    let matrix = index / (TILES_N * tiles_m());
    let at = coordinates(matrix % sizes.batch);
    let base_a = position(at, vec4<u32>(A0, A1, A2, A3)) * (m_size() * k_size());
    let base_b = position(at, vec4<u32>(B0, B1, B2, B3)) * (k_size() * N);
    let first_m = (index / TILES_N % tiles_m()) * tile_m();
    let first_n = (index % TILES_N) * TILE_N;
    return Part(matrix, base_a, base_b, first_m, first_n, (matrix / sizes.batch) * sizes.chunk);
}

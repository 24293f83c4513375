// dw[o, c, ky, kx] = sum of dy[n, o, oy, ox] x[n, c, iy, ix] over n, oy, ox. Rows of dy are dealt out to several
// partial sums, added up by sum_to. A workgroup shares its TILE channels o, so dy comes by uniform loads; an invocation
// has a tap (c, ky, kx) of its own, or with WIDE four neighbouring kx.
#import workgroups
#import conv2d
#import add

@group(0) @binding(1) var<storage, read> dy: array<f32>; // (n, GROUPS OG, OH, OW)
@group(0) @binding(2) var<storage, read_write> dw: array<f32>; // (splits, GROUPS OG, CG, KH, KW)

#ifdef WIDE
const LANES = 4u;
#else
const LANES = 1u;
#endif
const SEGMENTS = (KW + LANES - 1u) / LANES; // of kx
const STEP = i32(DW);
const TAPS = CG * KH * SEGMENTS;
const TAP_GROUPS = (TAPS + WG - 1u) / WG;

#ifdef WIDE
alias Sum = vec4<f32>;
#else
alias Sum = f32;
#endif

// Adds the products at one pixel of dy: `position` is its position in channel `first`, `start` x's column at the first
// tap.
fn add(sums: ptr<function, array<Sum, TILE>>, first: u32, position: u32, row: i32, start: i32) {
#ifdef WIDE
    let v = vec4<f32>(at(row, start), at(row, start + STEP), at(row, start + 2 * STEP), at(row, start + 3 * STEP));
#else
    let v = at(row, start);
#endif
    for (var t = 0u; t < TILE; t += 1u) {
        (*sums)[t] = fma(Sum(dy[position + min(t, OG - 1u - first) * (OH * OW)]), v, (*sums)[t]);
    }
}

fn work(id: u32, lane: u32) {
    let block = id % (GROUPS * BLOCKS);
    let tap = id / (GROUPS * BLOCKS) % TAP_GROUPS * WG + lane;
    let split = id / (GROUPS * BLOCKS * TAP_GROUPS);
    if tap >= TAPS || split >= sizes.splits {
        return;
    }
    let first = block % BLOCKS * TILE; // channel in its group
    let channels = block / BLOCKS; // the group of channels
    let c = tap / (KH * SEGMENTS);
    let ky = tap / SEGMENTS % KH;
    let kx = tap % SEGMENTS * LANES;
    let left = i32(kx * DW) - i32(PL);
    var sums: array<Sum, TILE>;
    for (var t = 0u; t < TILE; t += 1u) {
        sums[t] = Sum();
    }
    for (var r = split * sizes.rows; r < min(split * sizes.rows + sizes.rows, sizes.n * OH); r += 1u) {
        let n = r / OH;
        let oy = r % OH;
        let iy = i32(oy * SH + ky * DH) - i32(PT);
        let plane = i32(((n * GROUPS + channels) * CG + c) * (H * W));
        let row = select(-1, plane + iy * i32(W), u32(iy) < H);
        let dys = (((n * GROUPS + channels) * OG + first) * OH + oy) * OW;
        // Constant bounds within a chunk, for compilers to unroll.
        for (var chunk = 0u; chunk < OW / CHUNK * CHUNK; chunk += CHUNK) {
            for (var i = 0u; i < CHUNK; i += 1u) {
                add(&sums, first, dys + chunk + i, row, left + i32((chunk + i) * SW));
            }
        }
        for (var ox = OW / CHUNK * CHUNK; ox < OW; ox += 1u) {
            add(&sums, first, dys + ox, row, left + i32(ox * SW));
        }
    }
    for (var t = 0u; t < TILE; t += 1u) {
        let channel = (split * GROUPS + channels) * OG + first + t;
        let out = ((channel * CG + c) * KH + ky) * KW + kx;
        if first + t < OG {
#ifdef WIDE
            for (var j = 0u; j < 4u; j += 1u) {
                if kx + j < KW {
                    dw[out + j] = added(dw[out + j], sums[t][j]);
                }
            }
#else
            dw[out] = added(dw[out], sums[t]);
#endif
        }
    }
}

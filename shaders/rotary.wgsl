// Rotates pairs of elements of the first VECTORS of J vectors at each position; an invocation has a pair.
#import elementwise

@group(0) @binding(0) var<storage, read> x: array<f32>; // (N, POSITIONS, J, 2 HALF)
@group(0) @binding(1) var<storage, read> turns: array<u32>; // (POSITIONS, HALF), in units of 2^-32 turns
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (N, POSITIONS, J, 2 HALF)

// Cosine and sine, within rounding (WGSL's own may be off by 2^-11): the rest beside the nearest quarter turn by
// Taylor's series.
fn cos_sin(turn: u32) -> vec2<f32> {
    let quarter = (turn + 0x20000000u) >> 30u;
    let a = f32(bitcast<i32>(turn - (quarter << 30u))) * 1.4629180792671596e-9; // 2 pi / 2^32
    let s = a * a;
    let sine = a * (1.0 + s * (-0.16666667 + s * (8.3333333e-3 + s * (-1.9841270e-4 + s * 2.7557319e-6))));
    let cosine = 1.0 + s * (-0.5 + s * (0.041666667 + s * (-1.3888889e-3 + s * (2.4801587e-5 - s * 2.7557319e-7))));
    let swapped = select(vec2<f32>(cosine, sine), vec2<f32>(-sine, cosine), (quarter & 1u) == 1u);
    return select(swapped, -swapped, (quarter & 2u) == 2u);
}

fn element(index: u32) {
    let i = index % HALF;
    let vector = index / HALF;
#ifdef INTERLEAVED
    let first = vector * (2u * HALF) + 2u * i;
    let second = first + 1u;
#else
    let first = vector * (2u * HALF) + i;
    let second = first + HALF;
#endif
    var turn = vec2<f32>(1.0, 0.0);
    if vector % J < VECTORS {
        turn = cos_sin(turns[vector / J % POSITIONS * HALF + i]);
    }
    let a = x[first];
    let b = x[second];
    y[first] = a * turn.x - b * (turn.y * SIGN);
    y[second] = b * turn.x + a * (turn.y * SIGN);
}

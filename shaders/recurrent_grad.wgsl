// The steps FIRST to END - 1, counted from the last one, of a recurrent layer backwards (op::RecurrentGrad): a
// workgroup a sequence, and an invocation a hidden unit, or every WG-th.
#import workgroups
#import activation

@group(0) @binding(0) var<storage, read> kept: array<f32>; // (sequences, LENGTH, KEPT, HIDDEN)
@group(0) @binding(1) var<storage, read> weight: array<f32>; // (GATES, HIDDEN, HIDDEN): from h to the gates
@group(0) @binding(2) var<storage, read> dy: array<f32>; // (sequences, LENGTH, HIDDEN)
@group(0) @binding(3) var<storage, read_write> carry: array<f32>; // (sequences, 2, HIDDEN): dh and dc between two launches
@group(0) @binding(4) var<storage, read_write> dx: array<f32>; // (sequences, LENGTH, GATES, HIDDEN)
#ifdef GRU
@group(0) @binding(5) var<storage, read> y: array<f32>; // (sequences, LENGTH, HIDDEN): h
@group(0) @binding(6) var<storage, read_write> dp: array<f32>; // (sequences, LENGTH, GATES, HIDDEN): of h's part
#endif

// Of the step that comes next. Each unit is its own invocation's.
var<workgroup> dh: array<f32, HIDDEN>;
var<workgroup> dc: array<f32, HIDDEN>;
// One gate's cotangents, for all.
var<workgroup> gate: array<f32, HIDDEN>;

fn work(sequence: u32, local: u32) {
    if sequence >= sizes.sequences {
        return;
    }
    let carried = sequence * 2u * HIDDEN;
    for (var unit = local; unit < HIDDEN; unit += WG) {
#ifdef CONTINUES
        dh[unit] = carry[carried + unit];
        dc[unit] = carry[carried + HIDDEN + unit];
#else
        dh[unit] = 0.0;
        dc[unit] = 0.0;
#endif
    }
    for (var step = FIRST; step < END; step += 1u) {
        let t = LENGTH - 1u - step;
        let row = sequence * LENGTH + t;
        for (var unit = local; unit < HIDDEN; unit += WG) {
            let keep = row * KEPT * HIDDEN + unit;
            let at = row * GATES * HIDDEN + unit;
            let d = dy[row * HIDDEN + unit] + dh[unit];
#ifdef GRU
            let r = kept[keep];
            let z = kept[keep + HIDDEN];
            let n = kept[keep + 2u * HIDDEN];
            var h = 0.0; // in front of the step
            if t > 0u {
                h = y[(row - 1u) * HIDDEN + unit];
            }
            let d_n = d * (1.0 - z) * (1.0 - n * n);
            let d_r = d_n * kept[keep + 3u * HIDDEN] * r * (1.0 - r);
            let d_z = d * (h - n) * z * (1.0 - z);
            dx[at] = d_r;
            dx[at + HIDDEN] = d_z;
            dx[at + 2u * HIDDEN] = d_n;
            dp[at] = d_r;
            dp[at + HIDDEN] = d_z;
            dp[at + 2u * HIDDEN] = d_n * r;
            dh[unit] = d * z;
#else
            let i = kept[keep];
            let f = kept[keep + HIDDEN];
            let g = kept[keep + 2u * HIDDEN];
            let o = kept[keep + 3u * HIDDEN];
            let bent = bounded_tanh(kept[keep + 4u * HIDDEN]);
            var c = 0.0; // in front of the step
            if t > 0u {
                c = kept[keep - HIDDEN];
            }
            let d_c = dc[unit] + d * o * (1.0 - bent * bent);
            dx[at] = d_c * g * i * (1.0 - i);
            dx[at + HIDDEN] = d_c * c * f * (1.0 - f);
            dx[at + 2u * HIDDEN] = d_c * i * (1.0 - g * g);
            dx[at + 3u * HIDDEN] = d * bent * o * (1.0 - o);
            dc[unit] = d_c * f;
            dh[unit] = 0.0;
#endif
        }
        for (var part = 0u; part < GATES; part += 1u) {
            for (var unit = local; unit < HIDDEN; unit += WG) {
#ifdef GRU
                gate[unit] = dp[(row * GATES + part) * HIDDEN + unit];
#else
                gate[unit] = dx[(row * GATES + part) * HIDDEN + unit];
#endif
            }
            workgroupBarrier();
            for (var unit = local; unit < HIDDEN; unit += WG) {
                var sum = 0.0;
                for (var k = 0u; k < HIDDEN; k += UNROLL) {
                    let at = (part * HIDDEN + k) * HIDDEN + unit;
                    sum += gate[k] * weight[at];
#ifdef QUADS
                    sum += gate[k + 1u] * weight[at + HIDDEN];
                    sum += gate[k + 2u] * weight[at + 2u * HIDDEN];
                    sum += gate[k + 3u] * weight[at + 3u * HIDDEN];
#endif
                }
                dh[unit] += sum;
            }
            workgroupBarrier();
        }
    }
    for (var unit = local; unit < HIDDEN; unit += WG) {
        carry[carried + unit] = dh[unit];
        carry[carried + HIDDEN + unit] = dc[unit];
    }
}

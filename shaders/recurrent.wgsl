// Steps FIRST to END - 1 of a recurrent layer (op::Recurrent): a workgroup a sequence, which carries h in its memory,
// and an invocation a hidden unit, or every WG-th.
#import workgroups
#import activation

@group(0) @binding(0) var<storage, read> x: array<f32>; // (sequences, LENGTH, GATES, HIDDEN), the input's part of the gates
@group(0) @binding(1) var<storage, read> weight: array<f32>; // (HIDDEN, GATES, HIDDEN): from h to the gates
@group(0) @binding(2) var<storage, read> bias: array<f32>; // (GATES, HIDDEN)
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // (sequences, LENGTH, HIDDEN): h
@group(0) @binding(4) var<storage, read_write> kept: array<f32>; // (sequences, LENGTH, KEPT, HIDDEN)

// h in front of a step and behind it, in turn.
var<workgroup> state: array<f32, 2u * HIDDEN>;

fn sigmoid(v: f32) -> f32 {
    return 1.0 / (1.0 + exp(-v));
}

// What unit k of h adds to the gates of a unit; `h` is where h begins in the workgroup's memory.
fn share(h: u32, k: u32, unit: u32) -> vec4<f32> {
    let at = k * GATES * HIDDEN + unit;
#ifdef GRU
    let last = 0.0;
#else
    let last = weight[at + 3u * HIDDEN];
#endif
    return state[h + k] * vec4<f32>(weight[at], weight[at + HIDDEN], weight[at + 2u * HIDDEN], last);
}

fn work(sequence: u32, local: u32) {
    if sequence >= sizes.sequences {
        return;
    }
    for (var unit = local; unit < HIDDEN; unit += WG) {
#ifdef CONTINUES
        state[FIRST % 2u * HIDDEN + unit] = y[(sequence * LENGTH + FIRST - 1u) * HIDDEN + unit];
#else
        state[unit] = 0.0;
#endif
    }
    workgroupBarrier();
    for (var t = FIRST; t < END; t += 1u) {
        let row = sequence * LENGTH + t;
        let before = t % 2u * HIDDEN;
        for (var unit = local; unit < HIDDEN; unit += WG) {
            var sum = vec4<f32>(0.0);
            for (var k = 0u; k < HIDDEN; k += UNROLL) {
                sum += share(before, k, unit);
#ifdef QUADS
                sum += share(before, k + 1u, unit);
                sum += share(before, k + 2u, unit);
                sum += share(before, k + 3u, unit);
#endif
            }
            let at = row * GATES * HIDDEN + unit;
            let keep = row * KEPT * HIDDEN + unit;
            var h = 0.0;
#ifdef GRU
            let r = sigmoid(x[at] + bias[unit] + sum.x);
            let z = sigmoid(x[at + HIDDEN] + bias[HIDDEN + unit] + sum.y);
            let m = bias[2u * HIDDEN + unit] + sum.z;
            let n = bounded_tanh(x[at + 2u * HIDDEN] + r * m);
            h = (1.0 - z) * n + z * state[before + unit];
            kept[keep] = r;
            kept[keep + HIDDEN] = z;
            kept[keep + 2u * HIDDEN] = n;
            kept[keep + 3u * HIDDEN] = m;
#else
            let i = sigmoid(x[at] + bias[unit] + sum.x);
            let f = sigmoid(x[at + HIDDEN] + bias[HIDDEN + unit] + sum.y);
            let g = bounded_tanh(x[at + 2u * HIDDEN] + bias[2u * HIDDEN + unit] + sum.z);
            let o = sigmoid(x[at + 3u * HIDDEN] + bias[3u * HIDDEN + unit] + sum.w);
            var c = i * g;
            if t > 0u {
                c += f * kept[keep - HIDDEN]; // the last of those kept in the step before
            }
            h = o * bounded_tanh(c);
            kept[keep] = i;
            kept[keep + HIDDEN] = f;
            kept[keep + 2u * HIDDEN] = g;
            kept[keep + 3u * HIDDEN] = o;
            kept[keep + 4u * HIDDEN] = c;
#endif
            y[row * HIDDEN + unit] = h;
            state[HIDDEN - before + unit] = h;
        }
        workgroupBarrier();
    }
}

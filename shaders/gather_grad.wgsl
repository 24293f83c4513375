// dx = the sums of dy over the picks FIRST .. END that took an element; with FURTHER, on top of earlier picks' sums.
#import elementwise
#import broadcast

@group(0) @binding(0) var<storage, read> index: array<u32>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>; // (D0, D1, D2, D3)

fn element(i: u32) {
    let at = coordinates(i);
    let first_index = position(at, vec4<u32>(I0, I1, I2, I3));
    let first_dy = position(at, vec4<u32>(Y0, Y1, Y2, Y3));
    let mine = position(at, vec4<u32>(P0, P1, P2, P3));
#ifdef FURTHER
    var sum = dx[i];
#else
    var sum = 0.0;
#endif
    for (var pick = FIRST; pick < END; pick += 1u) {
        if min(index[first_index + pick * INDEX_STEP], EXTENT - 1u) == mine {
            sum += dy[first_dy + pick * DY_STEP];
        }
    }
    dx[i] = sum;
}

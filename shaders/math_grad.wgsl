// dx = dy f'(v), elementwise; f by definition (op::Math). v is the output of exp, sqrt and reciprocal, else the input.
#import elementwise
#import power

@group(0) @binding(0) var<storage, read> v: array<f32>; // (count)
@group(0) @binding(1) var<storage, read> dy: array<f32>; // (count)
@group(0) @binding(2) var<storage, read_write> dx: array<f32>; // (count)

fn pull_back(v: f32, dy: f32) -> f32 {
    var dx = dy;
#ifdef EXP
    dx = dy * v;
#endif
#ifdef LOG
    dx = dy / v;
#endif
#ifdef SQRT
    dx = dy / (2.0 * v);
#endif
#ifdef ABS
    dx = dy * sign(v);
#endif
#ifdef NEG
    dx = -dy;
#endif
#ifdef SQUARE
    dx = 2.0 * dy * v;
#endif
#ifdef RECIPROCAL
    dx = -dy * v * v;
#endif
#ifdef POW
    dx = dy * (BY * power(v));
#endif
#ifdef CLAMP
    dx = select(0.0, dy, v >= LOW && v <= HIGH);
#endif
#ifdef SCALE
    dx = dy * BY;
#endif
    return dx;
}

fn element(i: u32) {
    dx[i] = pull_back(v[i], dy[i]);
}

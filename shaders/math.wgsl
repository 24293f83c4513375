// y = f(x), elementwise; f by definition (op::Math).
#import elementwise
#import power

@group(0) @binding(0) var<storage, read> x: array<f32>; // (count)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (count)

fn f(x: f32) -> f32 {
    var y = x;
#ifdef EXP
    y = exp(x);
#endif
#ifdef LOG
    y = log(x);
#endif
#ifdef SQRT
    y = sqrt(x);
#endif
#ifdef ABS
    y = abs(x);
#endif
#ifdef NEG
    y = -x;
#endif
#ifdef SQUARE
    y = x * x;
#endif
#ifdef RECIPROCAL
    y = 1.0 / x;
#endif
#ifdef POW
    y = power(x);
#endif
#ifdef CLAMP
    y = clamp(x, LOW, HIGH);
#endif
#ifdef SCALE
    y = x * BY;
#endif
#ifdef OFFSET
    y = x + BY;
#endif
    return y;
}

fn element(i: u32) {
    y[i] = f(x[i]);
}

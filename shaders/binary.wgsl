// y = f(a, b), broadcast; f by definition (op::Binary).
#import elementwise
#import broadcast
#import nan

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (D0, D1, D2, D3)

fn f(a: f32, b: f32) -> f32 {
    var y = a;
#ifdef ADD
    y = a + b;
#endif
#ifdef SUB
    y = a - b;
#endif
#ifdef MUL
    y = a * b;
#endif
#ifdef DIV
    y = a / b;
#endif
#ifdef MAXIMUM
    y = select(max(a, b), a + b, is_nan(a) || is_nan(b));
#endif
#ifdef MINIMUM
    y = select(min(a, b), a + b, is_nan(a) || is_nan(b));
#endif
#ifdef GREATER
    y = select(0.0, 1.0, a > b);
#endif
#ifdef GREATER_EQUAL
    y = select(0.0, 1.0, a >= b);
#endif
#ifdef LESS
    y = select(0.0, 1.0, a < b);
#endif
#ifdef LESS_EQUAL
    y = select(0.0, 1.0, a <= b);
#endif
#ifdef EQUAL
    y = select(0.0, 1.0, a == b);
#endif
#ifdef ABOVE
    y = select(select(0.0, 0.5, a == b), 1.0, a > b);
#endif
#ifdef KEEP_IF
    y = select(0.0, a, b != 0.0);
#endif
#ifdef KEEP_UNLESS
    y = select(a, 0.0, b != 0.0);
#endif
    return y;
}

fn element(i: u32) {
    let at = coordinates(i);
    y[i] = f(a[position(at, vec4<u32>(A0, A1, A2, A3))], b[position(at, vec4<u32>(B0, B1, B2, B3))]);
}

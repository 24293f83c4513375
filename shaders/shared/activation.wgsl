// Activations and their derivatives, chosen by definition (op::Activation); without one it is the identity.

#ifdef GELU
// The error function, within 1.5e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26).
fn erf(x: f32) -> f32 {
    let a = abs(x);
    let t = 1.0 / (1.0 + 0.3275911 * a);
    let poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return sign(x) * (1.0 - poly * exp(-a * a));
}
#endif

// tanh, clamped: where it is built from exp, a large argument gives inf/inf on some drivers.
fn bounded_tanh(x: f32) -> f32 {
    return tanh(clamp(x, -15.0, 15.0));
}

// exp(x) - 1 without cancellation near zero.
fn exp_m1(x: f32) -> f32 {
    let series = x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0)))));
    return select(exp(x) - 1.0, series, abs(x) < 0.25);
}

// log(1 + x) for x in [0, 1], without cancellation near zero.
fn log_1p(x: f32) -> f32 {
    return select(log(1.0 + x), x * (1.0 - x * (0.5 - x * (1.0 / 3.0 - 0.25 * x))), x < 0.02);
}

// The n with which tanh(log(1 + exp(x))) = n / (n + 2). Beyond 20 that is 1.
fn mish_n(x: f32) -> f32 {
    let e = exp(min(x, 20.0));
    return e * (e + 2.0);
}

fn activate(x: f32) -> f32 {
    var y = x;
#ifdef RELU
    y = max(x, 0.0);
#endif
#ifdef GELU
    y = 0.5 * x * (1.0 + erf(x * 0.70710678));
#endif
#ifdef TANH
    y = bounded_tanh(x);
#endif
#ifdef SIGMOID
    y = 1.0 / (1.0 + exp(-x));
#endif
#ifdef LEAKY_RELU
    y = select(SLOPE * x, x, x > 0.0);
#endif
#ifdef ELU
    y = select(ALPHA * exp_m1(min(x, 0.0)), x, x > 0.0);
#endif
#ifdef GELU_TANH
    let u = clamp(x, -10.0, 10.0); // where tanh has long been ±1
    y = 0.5 * x * (1.0 + bounded_tanh(0.79788456 * u * (1.0 + 0.044715 * u * u)));
#endif
#ifdef SILU
    y = x / (1.0 + exp(-x));
#endif
#ifdef MISH
    let n = mish_n(x);
    y = x * (n / (n + 2.0));
#endif
#ifdef SOFTPLUS
    y = max(x, 0.0) + log_1p(exp(-abs(x)));
#endif
    return y;
}

// The derivative: from the output with FROM_OUTPUT, else from the input. Each function knows only the one that
// Activation::grad_from_output says, except for those whose parameter decides.
fn activate_grad(v: f32) -> f32 {
    var d = 1.0;
#ifdef RELU
    d = select(0.0, 1.0, v > 0.0);
#endif
#ifdef GELU
    d = 0.5 * (1.0 + erf(v * 0.70710678)) + v * 0.39894228 * exp(-0.5 * v * v);
#endif
#ifdef TANH
    d = 1.0 - v * v;
#endif
#ifdef SIGMOID
    d = v * (1.0 - v);
#endif
#ifdef LEAKY_RELU
    d = select(SLOPE, 1.0, v > 0.0);
#endif
#ifdef ELU
#ifdef FROM_OUTPUT
    d = select(v + ALPHA, 1.0, v > 0.0);
#else
    d = select(ALPHA * exp(min(v, 0.0)), 1.0, v > 0.0);
#endif
#endif
#ifdef GELU_TANH
    let u = clamp(v, -10.0, 10.0);
    let t = bounded_tanh(0.79788456 * u * (1.0 + 0.044715 * u * u));
    d = 0.5 * (1.0 + t) + 0.5 * u * (1.0 - t * t) * 0.79788456 * (1.0 + 0.134145 * u * u);
#endif
#ifdef SILU
    let s = 1.0 / (1.0 + exp(-v));
    d = s * (1.0 + v * (1.0 - s));
#endif
#ifdef MISH
    let n = mish_n(v);
    let t = n / (n + 2.0);
    // 1 - t² = 4 (n + 1) / (n + 2)², without cancellation.
    d = t + clamp(v, -100.0, 100.0) * (4.0 * (n + 1.0) / ((n + 2.0) * (n + 2.0))) / (1.0 + exp(-v));
#endif
#ifdef SOFTPLUS
    d = -exp_m1(-v);
#endif
    return d;
}

// Activations and their derivatives, chosen by definition: RELU, GELU, TANH or SIGMOID; none of them is the identity.

// The error function, within 1.5e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26).
fn erf(x: f32) -> f32 {
    let a = abs(x);
    let t = 1.0 / (1.0 + 0.3275911 * a);
    let poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return sign(x) * (1.0 - poly * exp(-a * a));
}

fn activate(x: f32) -> f32 {
#ifdef RELU
    return max(x, 0.0);
#else
#ifdef GELU
    return 0.5 * x * (1.0 + erf(x * 0.70710678));
#else
#ifdef TANH
    // Clamped: where tanh is built from exp, a large argument gives inf/inf on some drivers.
    return tanh(clamp(x, -15.0, 15.0));
#else
#ifdef SIGMOID
    return 1.0 / (1.0 + exp(-x));
#else
    return x;
#endif
#endif
#endif
#endif
}

// The derivative, from the input for GELU and from the output for the others.
fn activate_grad(v: f32) -> f32 {
#ifdef RELU
    return select(0.0, 1.0, v > 0.0);
#else
#ifdef GELU
    return 0.5 * (1.0 + erf(v * 0.70710678)) + v * 0.39894228 * exp(-0.5 * v * v);
#else
#ifdef TANH
    return 1.0 - v * v;
#else
#ifdef SIGMOID
    return v * (1.0 - v);
#else
    return 1.0;
#endif
#endif
#endif
#endif
}

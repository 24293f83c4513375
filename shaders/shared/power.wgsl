// x to the power EXPONENT (op::Math::Pow). Not WGSL's pow alone, which knows no negative x.
#import nan

#ifdef POW
fn power(x: f32) -> f32 {
#ifdef FACTORS
    var y = 1.0;
    for (var k = 0u; k < FACTOR_COUNT; k += 1u) {
        y *= x;
    }
    return select(y, 1.0 / y, EXPONENT < 0.0);
#else
    let a = abs(x);
    // At 0: 0 for a positive exponent, infinite for a negative one.
    let magnitude = select(pow(a, EXPONENT), select(a, 1.0 / a, EXPONENT < 0.0), a == 0.0);
#ifdef ODD
    return select(magnitude, -magnitude, x < 0.0);
#else
#ifdef EVEN
    return magnitude;
#else
    // A negative number has no such power: not a number.
    return select(magnitude, bitcast<f32>(0x7fc00000u | u32(x < 0.0)), x < 0.0);
#endif
#endif
#endif
}
#endif

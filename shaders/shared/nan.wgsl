// NaN. By bits, since a compiler may take comparisons to know none.

fn is_nan(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
}

// Whether `v` takes the place of `best`, the largest value so far: the first of equal ones stays, and so does the first
// NaN.
fn wins(v: f32, best: f32) -> bool {
    return !is_nan(best) && (is_nan(v) || v > best);
}

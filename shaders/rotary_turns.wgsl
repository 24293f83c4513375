// turns = (FIRST + t) · START · FACTOR^i modulo a turn, in units of 2^-32 turns; START and FACTOR in units of 2^-64.
#import elementwise

#ifdef OFFSET
@group(0) @binding(0) var<storage, read> offset: array<u32>; // (1)
@group(0) @binding(1) var<storage, read_write> turns: array<u32>; // (T, HALF)
#else
@group(0) @binding(0) var<storage, read_write> turns: array<u32>; // (T, HALF)
#endif

// The product's high and low word.
fn wide(a: u32, b: u32) -> vec2<u32> {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let middle = ((al * bl) >> 16u) + ((al * bh) & 0xffffu) + ((ah * bl) & 0xffffu);
    let high = ah * bh + ((al * bh) >> 16u) + ((ah * bl) >> 16u) + (middle >> 16u);
    return vec2<u32>(high, a * b);
}

fn add_low(a: vec2<u32>, low: u32) -> vec2<u32> {
    let sum = a.y + low;
    return vec2<u32>(a.x + select(0u, 1u, sum < low), sum);
}

fn element(index: u32) {
    var step = vec2<u32>(START_HIGH, START_LOW);
    for (var i = 0u; i < index % HALF; i += 1u) {
        let product = wide(step.x, FACTOR_HIGH);
        step = add_low(add_low(product, wide(step.x, FACTOR_LOW).x), wide(step.y, FACTOR_HIGH).x);
    }
    var position = FIRST + index / HALF;
#ifdef OFFSET
    position += offset[0];
#endif
    turns[index] = position * step.x + wide(position, step.y).x;
}

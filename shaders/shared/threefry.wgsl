// Threefry-2x32 with 20 rounds (Salmon et al., SC 2011): the device's twin of src/rng.rs.

fn rotate_left(x: u32, bits: u32) -> u32 {
    return (x << bits) | (x >> (32u - bits));
}

fn threefry_rounds(x: vec2<u32>, rotations: vec4<u32>) -> vec2<u32> {
    var y = x;
    y.x += y.y;
    y.y = rotate_left(y.y, rotations.x) ^ y.x;
    y.x += y.y;
    y.y = rotate_left(y.y, rotations.y) ^ y.x;
    y.x += y.y;
    y.y = rotate_left(y.y, rotations.z) ^ y.x;
    y.x += y.y;
    y.y = rotate_left(y.y, rotations.w) ^ y.x;
    return y;
}

fn threefry2x32(key: vec2<u32>, counter: vec2<u32>) -> vec2<u32> {
    let even = vec4<u32>(13u, 15u, 26u, 6u);
    let odd = vec4<u32>(17u, 29u, 16u, 24u);
    let last = 0x1BD11BDAu ^ key.x ^ key.y;
    var x = counter + key;
    x = threefry_rounds(x, even) + vec2<u32>(key.y, last + 1u);
    x = threefry_rounds(x, odd) + vec2<u32>(last, key.x + 2u);
    x = threefry_rounds(x, even) + vec2<u32>(key.x, key.y + 3u);
    x = threefry_rounds(x, odd) + vec2<u32>(key.y, last + 4u);
    x = threefry_rounds(x, even) + vec2<u32>(last, key.x + 5u);
    return x;
}

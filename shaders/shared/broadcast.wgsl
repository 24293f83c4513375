// Positions of broadcast operands (op::broadcast::Walk): D1…D3 are the common dimensions but the outermost, which no
// position needs, strides come as vec4.

fn coordinates(index: u32) -> vec4<u32> {
    let outer = index / D3;
    return vec4<u32>(outer / (D1 * D2), (outer / D2) % D1, outer % D2, index % D3);
}

fn position(at: vec4<u32>, strides: vec4<u32>) -> u32 {
    return at.x * strides.x + at.y * strides.y + at.z * strides.z + at.w * strides.w;
}

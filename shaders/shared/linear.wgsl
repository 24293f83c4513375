// Indices of a dispatch that the host folded into y (kernel::fold): as if it had one dimension.

fn linear_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.y * groups.x + group.x;
}

fn linear_index(global: vec3<u32>, groups: vec3<u32>) -> u32 {
    return global.y * (groups.x * WG) + global.x;
}

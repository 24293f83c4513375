// A 64-bit fingerprint of a bucket: sums, modulo 2^32, of two mixings of each element's bits with its position. Integer
// addition commutes, so the result does not depend on the order of the workgroups.
#import linear

@group(0) @binding(0) var<storage, read> values: array<u32>; // (COUNT)
@group(0) @binding(1) var<storage, read_write> sums: array<atomic<u32>, 2>;

// The finaliser of MurmurHash3 (Appleby): every input bit flips every output bit with probability one half.
fn mix(key: u32) -> u32 {
    var h = key;
    h = (h ^ (h >> 16u)) * 0x85ebca6bu;
    h = (h ^ (h >> 13u)) * 0xc2b2ae35u;
    return h ^ (h >> 16u);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let first = linear_index(global, groups) * EACH;
    var low = 0u;
    var high = 0u;
    for (var i = first; i < min(first + EACH, COUNT); i += 1u) {
        let mixed = mix(values[i] ^ mix(i + 0x9e3779b9u));
        low += mixed;
        high += mix(mixed + i);
    }
    if first < COUNT {
        atomicAdd(&sums[0], low);
        atomicAdd(&sums[1], high);
    }
}

// An invocation an element (kernel::elementwise): the kernel's `element` is called for each index below the count.
#import linear

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i < sizes.count {
        element(i);
    }
}

// A workgroup a piece of work: the kernel's `work` gets the workgroup's index and the invocation's in it. There may be
// more workgroups than asked for (kernel::fold).
#import linear

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    work(linear_group(group, groups), local);
}

// For attention's kernels that walk the keys, with their values.
#import attention_walk

const WALKED: u32 = KEYS;
const ROW_T: u32 = KV_T;
const PARTNER_T: u32 = KV_T;

fn load_row(at: u32, d: u32) -> vec4<f32> {
    return load_k(at, d);
}

fn load_partner(at: u32, d: u32) -> vec4<f32> {
    return load_v(at, d);
}

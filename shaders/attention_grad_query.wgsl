// dq = SCALE ds k with ds = p ∘ (do vᵀ - sum of do ∘ o) and p = exp(SCALE q kᵀ - logsumexp); an invocation has a query and
// walks the keys FIRST to END, four at a time. With CONTINUE it adds to what the launches before it left.
#import attention_grad

@group(0) @binding(2) var<storage, read_write> dq: array<f32>; // like q, or like qkv

#ifdef STAGED
var<workgroup> tile_k: array<vec4<f32>, TILE * VECTORS>;
var<workgroup> tile_v: array<vec4<f32>, TILE * VECTORS>;
#endif

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    const BLOCKS: u32 = (QUERIES + WG - 1u) / WG;
    let index = linear_group(group, groups);
    if index >= BATCH * HEADS * BLOCKS {
        return;
    }
    let h = index / BLOCKS % HEADS;
    let b = index / BLOCKS / HEADS;
    let first_query = index % BLOCKS * WG;
    // Invocations beyond the last query do the same as it, and store nothing.
    let query = min(first_query + local, QUERIES - 1u);
    let seen = seen_by(b, query);
    let end = min(END, seen_by(b, min(first_query + WG, QUERIES) - 1u));
    let own_row = q_row(b, h, query);
    let outer = o_row(b, h, query);
    let statistic = statistics[(b * HEADS + h) * QUERIES + query];
    let keys = k_row(b, h, 0u);
    let values = v_row(b, h, 0u);
    let vectors = vector_count();

    var own: array<vec4<f32>, OWN>;
    var d_own: array<vec4<f32>, OWN>;
    var sum: array<vec4<f32>, OWN>;
    for (var d = 0u; d < vectors; d += 1u) {
        own[d] = padded(d, load_q(own_row, d)) * SCALE;
        d_own[d] = padded(d, load_do(outer, d));
        sum[d] = vec4<f32>();
    }
    for (var tile = FIRST; tile < end; tile += TILE) {
#ifdef STAGED
        workgroupBarrier();
        for (var i = local; i < TILE * VECTORS; i += WG) {
            let at = min(tile + i / VECTORS, KEYS - 1u) * KV_T;
            tile_k[i] = load_k(keys + at, i % VECTORS);
            tile_v[i] = load_v(values + at, i % VECTORS);
        }
        workgroupBarrier();
#endif
        for (var key = tile; key < min(tile + TILE, end); key += 4u) {
#ifdef STAGED
            let at = (key - tile + NEXT) * VECTORS;
#else
            let at = min(key + NEXT, vec4<u32>(KEYS - 1u)) * KV_T;
#endif
            var s = mat4x4<f32>();
            var t = mat4x4<f32>();
            for (var d = 0u; d < vectors; d += 1u) {
                let x = own[d];
                let y = d_own[d];
#ifdef STAGED
                s[0] += x * tile_k[at.x + d];
                s[1] += x * tile_k[at.y + d];
                s[2] += x * tile_k[at.z + d];
                s[3] += x * tile_k[at.w + d];
                t[0] += y * tile_v[at.x + d];
                t[1] += y * tile_v[at.y + d];
                t[2] += y * tile_v[at.z + d];
                t[3] += y * tile_v[at.w + d];
#else
                s[0] += x * load_k(keys + at.x, d);
                s[1] += x * load_k(keys + at.y, d);
                s[2] += x * load_k(keys + at.z, d);
                s[3] += x * load_k(keys + at.w, d);
                t[0] += y * load_v(values + at.x, d);
                t[1] += y * load_v(values + at.y, d);
                t[2] += y * load_v(values + at.z, d);
                t[3] += y * load_v(values + at.w, d);
#endif
            }
            let visible = key + NEXT < vec4<u32>(min(seen, END));
            let scores = vec4<f32>(sum_of(s[0]), sum_of(s[1]), sum_of(s[2]), sum_of(s[3]));
            let products = vec4<f32>(sum_of(t[0]), sum_of(t[1]), sum_of(t[2]), sum_of(t[3]));
            let p = exp(scores - statistic.x);
            let ds = select(vec4<f32>(), p * (products - statistic.y), visible);
            for (var d = 0u; d < vectors; d += 1u) {
#ifdef STAGED
                let low = ds.x * tile_k[at.x + d] + ds.y * tile_k[at.y + d];
                let rest = ds.z * tile_k[at.z + d] + ds.w * tile_k[at.w + d];
#else
                let low = ds.x * load_k(keys + at.x, d) + ds.y * load_k(keys + at.y, d);
                let rest = ds.z * load_k(keys + at.z, d) + ds.w * load_k(keys + at.w, d);
#endif
                sum[d] += low + rest;
            }
        }
    }
    if first_query + local >= QUERIES {
        return;
    }
    for (var d = 0u; d < vectors; d += 1u) {
        for (var i = 0u; i < 4u; i += 1u) {
            if 4u * d + i < WIDTH {
                let at = own_row + 4u * d + i;
#ifdef CONTINUE
                dq[at] += sum[d][i] * SCALE;
#else
                dq[at] = sum[d][i] * SCALE;
#endif
            }
        }
    }
}

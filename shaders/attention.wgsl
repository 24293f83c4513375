// o = softmax(SCALE q kᵀ) v and the softmax's logsumexp; an invocation has a query and walks the keys FIRST to END, four at
// a time, with the maximum and the sum so far. With CONTINUE it takes up what the launch before it left.
#import attention

@group(0) @binding(0) var<storage, read_write> o: array<f32>; // as O_B, O_H and O_T say
@group(0) @binding(1) var<storage, read_write> logsumexp: array<f32>; // (BATCH, HEADS, QUERIES)

// op::attention::NOTHING: below every score, and finite, since WGSL knows no infinities.
const NOTHING: f32 = -1e30;

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
    let to = o_row(b, h, query);
    let statistic = (b * HEADS + h) * QUERIES + query;
    let keys = k_row(b, h, 0u);
    let values = v_row(b, h, 0u);
    let vectors = vector_count();

    var own: array<vec4<f32>, OWN>;
    var sum: array<vec4<f32>, OWN>;
    for (var d = 0u; d < vectors; d += 1u) {
        own[d] = padded(d, load_q(q_row(b, h, query), d)) * SCALE;
        sum[d] = vec4<f32>();
    }
    var top = NOTHING;
    var total = 0.0;
#ifdef CONTINUE
    top = logsumexp[statistic];
    if top > NOTHING {
        total = 1.0;
        for (var d = 0u; d < vectors; d += 1u) {
            let p = four(to, d);
            sum[d] = vec4<f32>(o[p.x], o[p.y], o[p.z], o[p.w]);
        }
    }
#endif
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
            for (var d = 0u; d < vectors; d += 1u) {
                let x = own[d];
#ifdef STAGED
                s[0] += x * tile_k[at.x + d];
                s[1] += x * tile_k[at.y + d];
                s[2] += x * tile_k[at.z + d];
                s[3] += x * tile_k[at.w + d];
#else
                s[0] += x * load_k(keys + at.x, d);
                s[1] += x * load_k(keys + at.y, d);
                s[2] += x * load_k(keys + at.z, d);
                s[3] += x * load_k(keys + at.w, d);
#endif
            }
            let visible = key + NEXT < vec4<u32>(min(seen, END));
            let scores = vec4<f32>(sum_of(s[0]), sum_of(s[1]), sum_of(s[2]), sum_of(s[3]));
            let masked = select(vec4<f32>(NOTHING), scores, visible);
            let high = max(max(top, max(masked.x, masked.y)), max(masked.z, masked.w));
            let p = select(vec4<f32>(), exp(masked - high), visible);
            let kept = exp(top - high);
            top = high;
            total = total * kept + sum_of(p);
            for (var d = 0u; d < vectors; d += 1u) {
#ifdef STAGED
                let low = p.x * tile_v[at.x + d] + p.y * tile_v[at.y + d];
                let rest = p.z * tile_v[at.z + d] + p.w * tile_v[at.w + d];
#else
                let low = p.x * load_v(values + at.x, d) + p.y * load_v(values + at.y, d);
                let rest = p.z * load_v(values + at.z, d) + p.w * load_v(values + at.w, d);
#endif
                sum[d] = sum[d] * kept + (low + rest);
            }
        }
    }
    if first_query + local >= QUERIES {
        return;
    }
    let scale = select(0.0, 1.0 / total, total > 0.0);
    for (var d = 0u; d < vectors; d += 1u) {
        for (var i = 0u; i < 4u; i += 1u) {
            if 4u * d + i < WIDTH {
                o[to + 4u * d + i] = sum[d][i] * scale;
            }
        }
    }
    logsumexp[statistic] = select(NOTHING, top + log(max(total, 1e-30)), total > 0.0);
}

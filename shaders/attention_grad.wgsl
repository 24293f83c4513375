// dv = pᵀ do and dk = SCALE dsᵀ q with ds = p ∘ (do vᵀ - sum of do ∘ o) and p = exp(SCALE q kᵀ - logsumexp); an invocation
// has a key and walks the queries FIRST to END, four at a time. With CONTINUE it adds to what the launches before it left.
#import attention_grad

#ifdef PACKED
@group(0) @binding(2) var<storage, read_write> dqkv: array<f32>; // like qkv
#else
@group(0) @binding(2) var<storage, read_write> dk: array<f32>; // like k
@group(0) @binding(3) var<storage, read_write> dv: array<f32>; // like v
#endif

#ifdef STAGED
var<workgroup> tile_q: array<vec4<f32>, TILE * VECTORS>;
var<workgroup> tile_o: array<vec4<f32>, TILE * VECTORS>;
#endif

fn store(at_k: u32, at_v: u32, of_k: f32, of_v: f32) {
#ifdef PACKED
#ifdef CONTINUE
    dqkv[at_k] += of_k;
    dqkv[at_v] += of_v;
#else
    dqkv[at_k] = of_k;
    dqkv[at_v] = of_v;
#endif
#else
#ifdef CONTINUE
    dk[at_k] += of_k;
    dv[at_v] += of_v;
#else
    dk[at_k] = of_k;
    dv[at_v] = of_v;
#endif
#endif
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    const BLOCKS: u32 = (KEYS + WG - 1u) / WG;
    let index = linear_group(group, groups);
    if index >= BATCH * HEADS * BLOCKS {
        return;
    }
    let h = index / BLOCKS % HEADS;
    let b = index / BLOCKS / HEADS;
    let first_key = index % BLOCKS * WG;
    // Invocations beyond the last key do the same as it, and store nothing.
    let key = min(first_key + local, KEYS - 1u);
    let there = key < keys_of(b);
    let at_k = k_row(b, h, key);
    let at_v = v_row(b, h, key);
    let queries = q_row(b, h, 0u);
    let outers = o_row(b, h, 0u);
    let head = (b * HEADS + h) * QUERIES;
    let vectors = vector_count();

    var own_k: array<vec4<f32>, OWN>;
    var own_v: array<vec4<f32>, OWN>;
    var sum_k: array<vec4<f32>, OWN>;
    var sum_v: array<vec4<f32>, OWN>;
    for (var d = 0u; d < vectors; d += 1u) {
        own_k[d] = padded(d, load_k(at_k, d)) * SCALE;
        own_v[d] = padded(d, load_v(at_v, d));
        sum_k[d] = vec4<f32>();
        sum_v[d] = vec4<f32>();
    }
#ifdef CAUSAL
    // The first query that sees the block's first key, and the first that sees this one.
    let begin = max(FIRST, max(first_key + QUERIES, KEYS) - KEYS);
    let sees = max(key + QUERIES, KEYS) - KEYS;
#else
    let begin = FIRST;
    let sees = 0u;
#endif
    for (var tile = begin; tile < END; tile += TILE) {
#ifdef STAGED
        workgroupBarrier();
        for (var i = local; i < TILE * VECTORS; i += WG) {
            let row = min(tile + i / VECTORS, QUERIES - 1u);
            tile_q[i] = load_q(queries + row * Q_T, i % VECTORS);
            tile_o[i] = load_do(outers + row * O_T, i % VECTORS);
        }
        workgroupBarrier();
#endif
        for (var query = tile; query < min(tile + TILE, END); query += 4u) {
            let rows = min(query + NEXT, vec4<u32>(QUERIES - 1u));
#ifdef STAGED
            let at = (query - tile + NEXT) * VECTORS;
#else
            let at = queries + rows * Q_T;
            let to = outers + rows * O_T;
#endif
            var s = mat4x4<f32>();
            var t = mat4x4<f32>();
            for (var d = 0u; d < vectors; d += 1u) {
                let x = own_k[d];
                let y = own_v[d];
#ifdef STAGED
                s[0] += x * tile_q[at.x + d];
                s[1] += x * tile_q[at.y + d];
                s[2] += x * tile_q[at.z + d];
                s[3] += x * tile_q[at.w + d];
                t[0] += y * tile_o[at.x + d];
                t[1] += y * tile_o[at.y + d];
                t[2] += y * tile_o[at.z + d];
                t[3] += y * tile_o[at.w + d];
#else
                s[0] += x * load_q(at.x, d);
                s[1] += x * load_q(at.y, d);
                s[2] += x * load_q(at.z, d);
                s[3] += x * load_q(at.w, d);
                t[0] += y * load_do(to.x, d);
                t[1] += y * load_do(to.y, d);
                t[2] += y * load_do(to.z, d);
                t[3] += y * load_do(to.w, d);
#endif
            }
            let of_0 = statistics[head + rows.x];
            let of_1 = statistics[head + rows.y];
            let of_2 = statistics[head + rows.z];
            let of_3 = statistics[head + rows.w];
            let number = query + NEXT;
            let visible = (number < vec4<u32>(END)) & (number >= vec4<u32>(sees)) & vec4<bool>(there);
            let scores = vec4<f32>(sum_of(s[0]), sum_of(s[1]), sum_of(s[2]), sum_of(s[3]));
            let products = vec4<f32>(sum_of(t[0]), sum_of(t[1]), sum_of(t[2]), sum_of(t[3]));
            let p = select(vec4<f32>(), exp(scores - vec4<f32>(of_0.x, of_1.x, of_2.x, of_3.x)), visible);
            let ds = p * (products - vec4<f32>(of_0.y, of_1.y, of_2.y, of_3.y));
            for (var d = 0u; d < vectors; d += 1u) {
#ifdef STAGED
                let k_low = ds.x * tile_q[at.x + d] + ds.y * tile_q[at.y + d];
                let k_rest = ds.z * tile_q[at.z + d] + ds.w * tile_q[at.w + d];
                let v_low = p.x * tile_o[at.x + d] + p.y * tile_o[at.y + d];
                let v_rest = p.z * tile_o[at.z + d] + p.w * tile_o[at.w + d];
#else
                let k_low = ds.x * load_q(at.x, d) + ds.y * load_q(at.y, d);
                let k_rest = ds.z * load_q(at.z, d) + ds.w * load_q(at.w, d);
                let v_low = p.x * load_do(to.x, d) + p.y * load_do(to.y, d);
                let v_rest = p.z * load_do(to.z, d) + p.w * load_do(to.w, d);
#endif
                sum_k[d] += k_low + k_rest;
                sum_v[d] += v_low + v_rest;
            }
        }
    }
    if first_key + local >= KEYS {
        return;
    }
    for (var d = 0u; d < vectors; d += 1u) {
        for (var i = 0u; i < 4u; i += 1u) {
            if 4u * d + i < WIDTH {
                let c = 4u * d + i;
                store(at_k + c, at_v + c, sum_k[d][i] * SCALE, sum_v[d][i]);
            }
        }
    }
}

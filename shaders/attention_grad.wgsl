// dv = pᵀ do and dk = SCALE dsᵀ q with ds = p ∘ (do vᵀ - sum of do ∘ o) and p = exp(SCALE q kᵀ - logsumexp); an
// invocation has a key and walks the queries FIRST to END, four at a time. With CONTINUE it adds to what the launches
// before it left.
#import attention_grad
#import attention_walk

#ifdef PACKED
@group(0) @binding(2) var<storage, read_write> dqkv: array<f32>; // like qkv
#else
@group(0) @binding(2) var<storage, read_write> dk: array<f32>; // like k
@group(0) @binding(3) var<storage, read_write> dv: array<f32>; // like v
#endif

const WALKED: u32 = QUERIES;
const ROW_T: u32 = Q_T;
const PARTNER_T: u32 = O_T;

fn load_row(at: u32, d: u32) -> vec4<f32> {
    return load_q(at, d);
}

fn load_partner(at: u32, d: u32) -> vec4<f32> {
    return load_do(at, d);
}

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

fn walk(b: u32, h: u32, first_key: u32, local: u32) {
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
        stage(tile, queries, outers, local);
#endif
        for (var query = tile; query < min(tile + TILE, END); query += 4u) {
            let at = four_from(query, tile, queries, outers);
            var s = mat4x4<f32>();
            var t = mat4x4<f32>();
            for (var d = 0u; d < vectors; d += 1u) {
                s += times_rows(own_k[d], at.rows, d);
                t += times_partners(own_v[d], at.partners, d);
            }
            let rows = head + min(query + NEXT, vec4<u32>(QUERIES - 1u));
            let of_0 = statistics[rows.x];
            let of_1 = statistics[rows.y];
            let of_2 = statistics[rows.z];
            let of_3 = statistics[rows.w];
            let number = query + NEXT;
            let visible = (number < vec4<u32>(END)) & (number >= vec4<u32>(sees)) & vec4<bool>(there);
            let p = select(vec4<f32>(), exp(sums_of(s) - vec4<f32>(of_0.x, of_1.x, of_2.x, of_3.x)), visible);
            let ds = p * (sums_of(t) - vec4<f32>(of_0.y, of_1.y, of_2.y, of_3.y));
            for (var d = 0u; d < vectors; d += 1u) {
                sum_k[d] += sum_rows(ds, at.rows, d);
                sum_v[d] += sum_partners(p, at.partners, d);
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

// dq = SCALE ds k with ds = p ∘ (do vᵀ - sum of do ∘ o) and p = exp(SCALE q kᵀ - logsumexp); an invocation has a query
// and walks the keys FIRST to END, four at a time. With CONTINUE it adds to what the launches before it left.
#import attention_grad
#import attention_keys

@group(0) @binding(2) var<storage, read_write> dq: array<f32>; // like q, or like qkv

fn walk(b: u32, h: u32, first_query: u32, local: u32) {
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
        stage(tile, keys, values, local);
#endif
        for (var key = tile; key < min(tile + TILE, end); key += 4u) {
            let at = four_from(key, tile, keys, values);
            var s = mat4x4<f32>();
            var t = mat4x4<f32>();
            for (var d = 0u; d < vectors; d += 1u) {
                s += times_rows(own[d], at.rows, d);
                t += times_partners(d_own[d], at.partners, d);
            }
            let visible = key + NEXT < vec4<u32>(min(seen, END));
            let p = exp(sums_of(s) - statistic.x);
            let ds = select(vec4<f32>(), p * (sums_of(t) - statistic.y), visible);
            for (var d = 0u; d < vectors; d += 1u) {
                sum[d] += sum_rows(ds, at.rows, d);
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

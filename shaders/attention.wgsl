// o = softmax(SCALE q kᵀ) v and the softmax's logsumexp; an invocation has a query and walks the keys FIRST to END,
// four at a time, with the maximum and the sum so far. With CONTINUE it takes up what the launch before it left.
#import attention_keys

@group(0) @binding(0) var<storage, read_write> o: array<f32>; // as O_B, O_H and O_T say
@group(0) @binding(1) var<storage, read_write> logsumexp: array<f32>; // (batch, HEADS, QUERIES)

// op::attention::NOTHING: below every score, and finite, since WGSL knows no infinities.
const NOTHING: f32 = -1e30;

fn walk(b: u32, h: u32, first_query: u32, local: u32) {
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
        stage(tile, keys, values, local);
#endif
        for (var key = tile; key < min(tile + TILE, end); key += 4u) {
            let at = four_from(key, tile, keys, values);
            var s = mat4x4<f32>();
            for (var d = 0u; d < vectors; d += 1u) {
                s += times_rows(own[d], at.rows, d);
            }
            let visible = key + NEXT < vec4<u32>(min(seen, END));
            let masked = select(vec4<f32>(NOTHING), sums_of(s), visible);
            let high = max(max(top, max(masked.x, masked.y)), max(masked.z, masked.w));
            let p = select(vec4<f32>(), exp(masked - high), visible);
            let kept = exp(top - high);
            top = high;
            total = total * kept + sum_of(p);
            for (var d = 0u; d < vectors; d += 1u) {
                sum[d] = sum[d] * kept + sum_partners(p, at.partners, d);
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

// y = f(a·b + bias) by blocks of b that stay where they are while rows of a go past. A workgroup has TILE_N columns,
// each of its lanes VECTORS of them, WG apart, and tile_m() rows. It loads a block of TERMS rows of b into values of its
// lanes, goes over its rows, and adds each row's sums over the block to y; then comes the next block. An element of a
// is the same for all lanes, and serves as many products as there are columns. No other invocation uses these elements
// of y.
#import matmul

// Elements between two terms, two rows of a, and two columns of b.
#ifdef TRANSPOSE_A
const A_TERM: u32 = M;
#else
const A_TERM: u32 = 1u;
#endif
#ifdef TRANSPOSE_B
const B_TERM: u32 = 1u;
#else
const B_TERM: u32 = N;
#endif

fn a_row() -> u32 {
#ifdef TRANSPOSE_A
    return 1u;
#else
    return k_size();
#endif
}

fn b_column() -> u32 {
#ifdef TRANSPOSE_B
    return k_size();
#else
    return 1u;
#endif
}

// A lane's columns of the block of b. They are in memory, from where a product takes them without a detour.
var<private> block: array<f32, TERMS_0 * VECTORS>; // (TERMS, VECTORS)

// Blocks of two heights: 0 for as long as they are whole, 1 for the rest.
#repeat height HEIGHTS
// Adds the terms from k on, of which `left` are left, at most TERMS_{height}, to the rows from part.first_m to end_m;
// the bias comes with the `last`.
fn add_block_{height}(part: Part, end_m: u32, lane: u32, k: u32, left: u32, last: bool) {
    let column = part.first_n + lane;
#repeat v VECTORS
    let column_{v} = part.base_b + min(column + {v}u * WG, N - 1u) * b_column();
#end
    for (var t = 0u; t < TERMS_{height}; t += 1u) {
        let term = (k + t) * B_TERM;
#repeat v VECTORS
        block[t * VECTORS + {v}u] = select(0.0, b[term + column_{v}], t < left);
#end
    }
#ifdef BIAS
#repeat v VECTORS
    let bias_{v} = bias[min(column + {v}u * WG, N - 1u)];
#end
#endif
    for (var m = part.first_m; m < end_m; m += 1u) {
        let row = part.base_a + m * a_row() + k * A_TERM;
#repeat v VECTORS
        var sum_{v} = 0.0;
#end
#repeat t TERMS_{height}
        let x_{t} = select(0.0, a[row + {t}u * A_TERM], {t}u < left);
#repeat v VECTORS
        sum_{v} = fma(x_{t}, block[{t}u * VECTORS + {v}u], sum_{v});
#end
#end
        let place = (part.matrix * m_size() + m) * N + column;
        if k > part.first_k {
#repeat v VECTORS
            sum_{v} += y[place + {v}u * WG];
#end
        } else {
#repeat v VECTORS
            sum_{v} = added(y[place + {v}u * WG], sum_{v});
#end
        }
#ifdef BIAS
        if last {
#repeat v VECTORS
            sum_{v} += bias_{v};
#end
        }
#endif
#repeat v VECTORS
#ifdef EDGE
        if column + {v}u * WG < N {
            y[place + {v}u * WG] = sum_{v};
        }
#else
        y[place + {v}u * WG] = sum_{v};
#endif
#end
    }
}
#end

fn work(index: u32, lane: u32) {
    if index >= tiles() {
        return;
    }
    let part = part_of(index);
    let end_m = min(part.first_m + tile_m(), m_size());
    let end_k = min(part.first_k + sizes.chunk, k_size());
    var k = part.first_k;
    for (; k + (TERMS_0 - 1u) < end_k; k += TERMS_0) {
        add_block_0(part, end_m, lane, k, TERMS_0, k + TERMS_0 == end_k);
    }
#ifdef REST
    for (; k < end_k; k += TERMS_1) {
        add_block_1(part, end_m, lane, k, end_k - k, k + TERMS_1 >= end_k);
    }
#endif
#ifdef ACTIVATED
    for (var m = part.first_m; m < end_m; m += 1u) {
        for (var column = part.first_n + lane; column < min(part.first_n + TILE_N, N); column += WG) {
            let i = (part.matrix * m_size() + m) * N + column;
            y[i] = activate(y[i]);
        }
    }
#endif
}

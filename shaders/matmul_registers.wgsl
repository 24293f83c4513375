// y = f(a·b + bias) by tiles in registers: a workgroup has TILE_M rows, which are the same for all its lanes, and each
// lane has 2 or 4 columns, WG apart. So a's loads are uniform, b's are neighbouring, and no barrier is needed.
#import matmul

// Elements between two terms, two rows of a, and two columns of b.
#ifdef TRANSPOSE_A
const A_TERM: u32 = M;
const A_ROW: u32 = 1u;
#else
const A_TERM: u32 = 1u;
const A_ROW: u32 = K;
#endif
#ifdef TRANSPOSE_B
const B_TERM: u32 = 1u;
#else
const B_TERM: u32 = N;
#endif
fn b_column() -> u32 {
#ifdef TRANSPOSE_B
    return k_size();
#else
    return 1u;
#endif
}

// Where a lane's rows of a and columns of b begin.
struct Place {
    low: vec4<u32>,
    high: vec4<u32>,
    columns: vec4<u32>,
}

// A lane's elements: a vector is four rows of a column, rows 0 to 3 in `low` and 4 to 7 in `high`.
struct Tile {
    low_0: vec4<f32>,
    low_1: vec4<f32>,
    low_2: vec4<f32>,
    low_3: vec4<f32>,
    high_0: vec4<f32>,
    high_1: vec4<f32>,
    high_2: vec4<f32>,
    high_3: vec4<f32>,
}

// sum += the outer product of column k of a and row k of b.
fn add_term(sum: ptr<function, Tile>, place: Place, k: u32) {
    let low = place.low + k * A_TERM;
    let columns = place.columns + k * B_TERM;
    let u = vec4<f32>(a[low.x], a[low.y], a[low.z], a[low.w]);
    let v_0 = vec4<f32>(b[columns.x]);
    let v_1 = vec4<f32>(b[columns.y]);
    (*sum).low_0 = fma(u, v_0, (*sum).low_0);
    (*sum).low_1 = fma(u, v_1, (*sum).low_1);
#ifdef COLUMNS4
    let v_2 = vec4<f32>(b[columns.z]);
    let v_3 = vec4<f32>(b[columns.w]);
    (*sum).low_2 = fma(u, v_2, (*sum).low_2);
    (*sum).low_3 = fma(u, v_3, (*sum).low_3);
#endif
#ifdef ROWS8
    let high = place.high + k * A_TERM;
    let w = vec4<f32>(a[high.x], a[high.y], a[high.z], a[high.w]);
    (*sum).high_0 = fma(w, v_0, (*sum).high_0);
    (*sum).high_1 = fma(w, v_1, (*sum).high_1);
#ifdef COLUMNS4
    (*sum).high_2 = fma(w, v_2, (*sum).high_2);
    (*sum).high_3 = fma(w, v_3, (*sum).high_3);
#endif
#endif
}

fn add_tile(total: ptr<function, Tile>, sum: Tile) {
    (*total).low_0 += sum.low_0;
    (*total).low_1 += sum.low_1;
    (*total).low_2 += sum.low_2;
    (*total).low_3 += sum.low_3;
    (*total).high_0 += sum.high_0;
    (*total).high_1 += sum.high_1;
    (*total).high_2 += sum.high_2;
    (*total).high_3 += sum.high_3;
}

// Rows beyond the matrix read its last one; `store` leaves them out.
fn rows_at(row: u32) -> vec4<u32> {
    return min(row + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(m_size() - 1u)) * A_ROW;
}

fn store(base: u32, row: u32, column: u32, low: vec4<f32>, high: vec4<f32>) {
    if column < N {
#ifdef BIAS
        let shift = bias[column];
#else
        let shift = 0.0;
#endif
        for (var i = 0u; i < TILE_M; i += 1u) {
            if row + i < m_size() {
                let at = base + (row + i) * N + column;
                y[at] = added(y[at], activate(select(high[i % 4u], low[i % 4u], i < 4u) + shift));
            }
        }
    }
}

fn work(index: u32, lane: u32) {
    if index >= tiles() {
        return;
    }
    let part = part_of(index);
    let row = part.first_m;
    let column = part.first_n + lane;
    let first_k = part.first_k;
    let end_k = min(first_k + sizes.chunk, k_size());

    let columns = min(column + vec4<u32>(0u, WG, 2u * WG, 3u * WG), vec4<u32>(N - 1u));
    let place = Place(rows_at(row) + part.base_a, rows_at(row + 4u) + part.base_a, columns * b_column() + part.base_b);
    var total = Tile();
    for (var block = first_k; block < end_k; block += BLOCK) {
        var sum = Tile();
        let end = min(block + BLOCK, end_k);
        var k = block;
        // Four terms a round: the loop's own cost is as high as a term's.
        for (; k + 3u < end; k += 4u) {
            add_term(&sum, place, k);
            add_term(&sum, place, k + 1u);
            add_term(&sum, place, k + 2u);
            add_term(&sum, place, k + 3u);
        }
        for (; k < end; k += 1u) {
            add_term(&sum, place, k);
        }
        add_tile(&total, sum);
    }
    let base = part.matrix * (m_size() * N);
    store(base, row, column, total.low_0, total.high_0);
    store(base, row, column + WG, total.low_1, total.high_1);
#ifdef COLUMNS4
    store(base, row, column + 2u * WG, total.low_2, total.high_2);
    store(base, row, column + 3u * WG, total.low_3, total.high_3);
#endif
}

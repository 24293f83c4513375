// Rows that attention's kernels walk four at a time, each beside its partner: keys and values, or queries and do. They
// come from their buffers by load_row and load_partner or, with STAGED, TILE of them by way of workgroup memory. The
// kernel has those functions, WALKED, the number of rows, and ROW_T and PARTNER_T, the distances between two.
#import attention

#ifdef STAGED
var<workgroup> tile_rows: array<vec4<f32>, TILE * VECTORS>;
var<workgroup> tile_partners: array<vec4<f32>, TILE * VECTORS>;

// Brings the rows from `tile` on, of those that begin at `rows` and `partners`. To be called by the whole workgroup.
fn stage(tile: u32, rows: u32, partners: u32, local: u32) {
    workgroupBarrier();
    for (var i = local; i < TILE * VECTORS; i += WG) {
        let row = min(tile + i / VECTORS, WALKED - 1u);
        tile_rows[i] = load_row(rows + row * ROW_T, i % VECTORS);
        tile_partners[i] = load_partner(partners + row * PARTNER_T, i % VECTORS);
    }
    workgroupBarrier();
}
#endif

// Four rows from `row` on, of the tile that begins at `tile`: where they are.
struct Four {
    rows: vec4<u32>,
    partners: vec4<u32>,
}

fn four_from(row: u32, tile: u32, rows: u32, partners: u32) -> Four {
#ifdef STAGED
    let at = (row - tile + NEXT) * VECTORS;
    return Four(at, at);
#else
    let number = min(row + NEXT, vec4<u32>(WALKED - 1u));
    return Four(rows + number * ROW_T, partners + number * PARTNER_T);
#endif
}

fn row_at(at: u32, d: u32) -> vec4<f32> {
#ifdef STAGED
    return tile_rows[at + d];
#else
    return load_row(at, d);
#endif
}

fn partner_at(at: u32, d: u32) -> vec4<f32> {
#ifdef STAGED
    return tile_partners[at + d];
#else
    return load_partner(at, d);
#endif
}

// x times vector d of four rows, or of their partners, element by element.
fn times_rows(x: vec4<f32>, at: vec4<u32>, d: u32) -> mat4x4<f32> {
    return mat4x4<f32>(x * row_at(at.x, d), x * row_at(at.y, d), x * row_at(at.z, d), x * row_at(at.w, d));
}

fn times_partners(x: vec4<f32>, at: vec4<u32>, d: u32) -> mat4x4<f32> {
    return mat4x4<f32>(
        x * partner_at(at.x, d),
        x * partner_at(at.y, d),
        x * partner_at(at.z, d),
        x * partner_at(at.w, d),
    );
}

// Vector d of four rows, or of their partners, each times its weight, summed.
fn sum_rows(weights: vec4<f32>, at: vec4<u32>, d: u32) -> vec4<f32> {
    let low = weights.x * row_at(at.x, d) + weights.y * row_at(at.y, d);
    let rest = weights.z * row_at(at.z, d) + weights.w * row_at(at.w, d);
    return low + rest;
}

fn sum_partners(weights: vec4<f32>, at: vec4<u32>, d: u32) -> vec4<f32> {
    let low = weights.x * partner_at(at.x, d) + weights.y * partner_at(at.y, d);
    let rest = weights.z * partner_at(at.z, d) + weights.w * partner_at(at.w, d);
    return low + rest;
}

// The sum of each column.
fn sums_of(x: mat4x4<f32>) -> vec4<f32> {
    return vec4<f32>(sum_of(x[0]), sum_of(x[1]), sum_of(x[2]), sum_of(x[3]));
}

// dx = dy * w, the transpose of conv2d in x, gathered: dx[iy] = sum of w[ky] dy[(iy + PT - ky DH) / SH] over the ky
// that divide. Pixels of one remainder (of iy by SH, ix by SW) share a workgroup, which so skips the other taps
// uniformly. An invocation computes TILE channels of four such pixels of a row.
#import workgroups

@group(0) @binding(0) var<storage, read> w: array<f32>; // (GROUPS OG, CG, KH, KW)
@group(0) @binding(1) var<storage, read> dy: array<f32>; // (n, GROUPS OG, OH, OW)
@group(0) @binding(2) var<storage, read_write> dx: array<f32>; // (n, GROUPS CG, H, W)

const ROWS = (H + SH - 1u) / SH; // of one remainder
const SEGMENTS = (W + 4u * SW - 1u) / (4u * SW); // in a row, of one remainder
const BLOCKS = (CG + TILE - 1u) / TILE; // of channels, in a group

// dy at a column of a row, 0 outside. `row` is negative where the whole row is outside.
fn at(row: i32, column: i32) -> f32 {
    let inside = row >= 0 && u32(column) < OW;
    return select(0.0, dy[select(0, row + column, inside)], inside);
}

fn work(id: u32, lane: u32) {
    let block = id % (GROUPS * BLOCKS);
    let phase = id / (GROUPS * BLOCKS) % (SH * SW);
    let segment = id / (GROUPS * BLOCKS * SH * SW) * WG + lane;
    if segment >= sizes.n * ROWS * SEGMENTS {
        return;
    }
    let first = block % BLOCKS * TILE; // channel in its group
    let channels = block / BLOCKS; // the group of channels
    let remainder = vec2<u32>(phase / SW, phase % SW);
    let n = segment / (ROWS * SEGMENTS);
    let row = segment / SEGMENTS % ROWS;
    let column = segment % SEGMENTS * 4u;

    var sums: array<vec4<f32>, TILE>;
    for (var t = 0u; t < TILE; t += 1u) {
        sums[t] = vec4<f32>();
    }
    for (var chunk = 0u; chunk < OG; chunk += CHUNK) {
        for (var o = chunk; o < chunk + CHUNK; o += 1u) {
            let plane = i32(((n * GROUPS + channels) * OG + o) * (OH * OW));
            let weights = (channels * OG + o) * CG;
            for (var ky = 0u; ky < KH; ky += 1u) {
                let down = i32(remainder.x + PT) - i32(ky * DH);
                if down % i32(SH) != 0 {
                    continue;
                }
                let oy = i32(row) + down / i32(SH);
                let start = select(-1, plane + oy * i32(OW), u32(oy) < OH);
                for (var kx = 0u; kx < KW; kx += 1u) {
                    let right = i32(remainder.y + PL) - i32(kx * DW);
                    if right % i32(SW) != 0 {
                        continue;
                    }
                    let ox = i32(column) + right / i32(SW);
                    let v = vec4<f32>(at(start, ox), at(start, ox + 1), at(start, ox + 2), at(start, ox + 3));
                    for (var t = 0u; t < TILE; t += 1u) {
                        let channel = weights + min(first + t, CG - 1u);
                        sums[t] = fma(vec4<f32>(w[(channel * KH + ky) * KW + kx]), v, sums[t]);
                    }
                }
            }
        }
    }
    let iy = row * SH + remainder.x;
    for (var t = 0u; t < TILE; t += 1u) {
        let out = (((n * GROUPS + channels) * CG + first + t) * H + iy) * W;
        for (var j = 0u; j < 4u; j += 1u) {
            let ix = (column + j) * SW + remainder.y;
            if first + t < CG && iy < H && ix < W {
                dx[out + ix] = sums[t][j];
            }
        }
    }
}

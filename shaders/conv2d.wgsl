// y = f(x * w + b): direct convolution. An invocation computes TILE channels of four neighbouring pixels of a row; the
// workgroup shares its channels, so that weights are uniform loads. Loop bounds are constants: compilers unroll the
// inner loops (CHUNK channels, the taps, TILE), read a pixel once for all the taps it is under, and keep the sums in
// registers.
#import workgroups
#import conv2d
#import activation

@group(0) @binding(1) var<storage, read> w: array<f32>; // (GROUPS OG, CG, KH, KW)
#ifdef BIAS
@group(0) @binding(2) var<storage, read> b: array<f32>; // (GROUPS OG)
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // (n, GROUPS OG, OH, OW)
#else
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (n, GROUPS OG, OH, OW)
#endif

const SEGMENTS = (OW + 3u) / 4u; // in a row
const STEP = i32(SW);

fn work(id: u32, lane: u32) {
    let block = id % (GROUPS * BLOCKS);
    let segment = id / (GROUPS * BLOCKS) * WG + lane;
    if segment >= sizes.n * OH * SEGMENTS {
        return;
    }
    let first = block % BLOCKS * TILE; // channel in its group
    let channels = block / BLOCKS; // the group of channels
    let n = segment / (OH * SEGMENTS);
    let oy = segment / SEGMENTS % OH;
    let ox = segment % SEGMENTS * 4u;
    let top = i32(oy * SH) - i32(PT);
    let left = i32(ox * SW) - i32(PL);

    var sums: array<vec4<f32>, TILE>;
    for (var t = 0u; t < TILE; t += 1u) {
#ifdef BIAS
        sums[t] = vec4<f32>(b[channels * OG + min(first + t, OG - 1u)]);
#else
        sums[t] = vec4<f32>();
#endif
    }
    for (var chunk = 0u; chunk < CG; chunk += CHUNK) {
        for (var c = chunk; c < chunk + CHUNK; c += 1u) {
            let plane = i32(((n * GROUPS + channels) * CG + c) * (H * W));
            for (var ky = 0u; ky < KH; ky += 1u) {
                let iy = top + i32(ky * DH);
                let row = select(-1, plane + iy * i32(W), u32(iy) < H);
                for (var kx = 0u; kx < KW; kx += 1u) {
                    let ix = left + i32(kx * DW);
                    let v = vec4<f32>(at(row, ix), at(row, ix + STEP), at(row, ix + 2 * STEP), at(row, ix + 3 * STEP));
                    for (var t = 0u; t < TILE; t += 1u) {
                        let channel = channels * OG + min(first + t, OG - 1u);
                        sums[t] = fma(vec4<f32>(w[((channel * CG + c) * KH + ky) * KW + kx]), v, sums[t]);
                    }
                }
            }
        }
    }
    for (var t = 0u; t < TILE; t += 1u) {
        let out = ((n * GROUPS + channels) * OG + first + t) * (OH * OW) + oy * OW + ox;
        for (var j = 0u; j < 4u; j += 1u) {
            if first + t < OG && ox + j < OW {
                y[out + j] = activate(sums[t][j]);
            }
        }
    }
}

// dx = for each pixel of x, the sum of dy over the pixels of y it was mixed into, times its part. Gathered: no atomics.
#import elementwise
#import resample

@group(0) @binding(0) var<storage, read> dy: array<f32>; // (PLANES, OH, OW)
@group(0) @binding(1) var<storage, read_write> dx: array<f32>; // (PLANES, H, W)

// The pixels of y, from x to below y, that pixel i of `extent` can have a part in; some at the ends may have none.
fn targets(i: u32, size: u32, extent: u32) -> vec2<u32> {
#ifdef BILINEAR
    // Those that lie above i - 1 and below i + 1; all in front of the first and behind the last pixel are theirs.
    let first = max(i32(size) * (2 * i32(i) - 1) - i32(extent), 0) / (2 * i32(extent));
    let end = (size * (2u * i + 3u) + extent) / (2u * extent);
    return vec2<u32>(u32(first), select(min(end, size), size, i + 1u == extent));
#else
    return vec2<u32>((i * size + extent - 1u) / extent, ((i + 1u) * size + extent - 1u) / extent);
#endif
}

// The part of pixel i in pixel o of y.
fn part(o: u32, i: u32, size: u32, extent: u32) -> f32 {
    let s = source(o, size, extent);
    return select(0.0, 1.0 - s.part, s.first == i) + select(0.0, s.part, s.second == i);
}

fn element(i: u32) {
    let plane = i / (H * W) * (OH * OW);
    let iy = i / W % H;
    let ix = i % W;
    let rows = targets(iy, OH, H);
    let columns = targets(ix, OW, W);
    var sum = 0.0;
    for (var oy = rows.x; oy < rows.y; oy += 1u) {
        for (var ox = columns.x; ox < columns.y; ox += 1u) {
            sum += dy[plane + oy * OW + ox] * part(oy, iy, OH, H) * part(ox, ix, OW, W);
        }
    }
    dx[i] = sum;
}

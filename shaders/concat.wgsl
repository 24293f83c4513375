// Writes x into y, PART long along an axis of EXTENT, at START.
#import elementwise

@group(0) @binding(0) var<storage, read> x: array<f32>; // (count / (PART INNER), PART, INNER)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (count / (PART INNER), EXTENT, INNER)

fn element(i: u32) {
    let outer = i / (PART * INNER);
    y[(outer * EXTENT + START) * INNER + i % (PART * INNER)] = x[i];
}

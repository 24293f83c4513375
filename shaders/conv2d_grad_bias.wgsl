// Partial sums of dy over n and pixels, for each channel: an invocation takes every parts-th pixel.
#import elementwise

@group(0) @binding(0) var<storage, read> dy: array<f32>; // (n, O, PIXELS)
@group(0) @binding(1) var<storage, read_write> parts: array<f32>; // (parts, O)

fn element(i: u32) {
    let channel = i / sizes.parts;
    var sum = 0.0;
    for (var p = i % sizes.parts; p < sizes.pixels; p += max(sizes.parts, 1u)) {
        sum += dy[(p / PIXELS * O + channel) * PIXELS + p % PIXELS];
    }
    parts[i % sizes.parts * O + channel] = sum;
}

// Partial sums of dy over n and pixels, for each channel: an invocation takes every PARTS-th pixel.
#import elementwise

@group(0) @binding(0) var<storage, read> dy: array<f32>; // (N, O, PIXELS)
@group(0) @binding(1) var<storage, read_write> parts: array<f32>; // (O, PARTS)

fn element(i: u32) {
    let channel = i / PARTS;
    var sum = 0.0;
    for (var p = i % PARTS; p < N * PIXELS; p += PARTS) {
        sum += dy[(p / PIXELS * O + channel) * PIXELS + p % PIXELS];
    }
    parts[i] = sum;
}

// Merges the means and Σ(x − mean)² of parts of PART elements (Chan, Golub and LeVeque, 1983).
#import elementwise
#import batch_norm

@group(0) @binding(0) var<storage, read> parts: array<f32>; // (PARTS, count, 2): mean, Σ(x − mean)²
@group(0) @binding(1) var<storage, read_write> statistics: array<f32>; // (count, 2): mean, variance; count = groups · CHANNELS

fn elements(part: u32, total: u32) -> f32 {
    let first = min(part * PART, total);
    return f32(min(total - first, PART));
}

fn element(i: u32) {
    let total = valid_samples(i / CHANNELS) * SPAN;
    let count = f32(max(total, 1u));
    var mean = 0.0;
    for (var part = 0u; part < PARTS; part += 1u) {
        mean += parts[2u * (part * sizes.count + i)] * (elements(part, total) / count);
    }
    var squares = 0.0;
    for (var part = 0u; part < PARTS; part += 1u) {
        let at = 2u * (part * sizes.count + i);
        let d = parts[at] - mean;
        squares += parts[at + 1u] + elements(part, total) * d * d;
    }
    statistics[2u * i] = mean;
    statistics[2u * i + 1u] = select(squares / count, 1.0, total == 0u);
}

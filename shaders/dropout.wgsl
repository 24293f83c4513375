// y = x · SCALE where an element is kept, else 0; its random word is keyed as op::Dropout says.
#import elementwise
#import step
#import threefry

@group(0) @binding(0) var<storage, read> x: array<f32>; // (count / COLUMNS, COLUMNS)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (count / COLUMNS, COLUMNS)

fn element(i: u32) {
    let key = threefry2x32(step.seed, vec2<u32>(step.step, (sizes.site_high << 16u) | sizes.site_low));
    let word = threefry2x32(key, vec2<u32>(step.first_row + i / COLUMNS, i % COLUMNS)).x;
    y[i] = select(0.0, x[i] * SCALE, word >= THRESHOLD);
}

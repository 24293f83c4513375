// x[n, .., position[n], :] = row[n, .., 0, :].
#import elementwise

@group(0) @binding(0) var<storage, read> row: array<f32>; // (N, BETWEEN, 1, WIDTH)
@group(0) @binding(1) var<storage, read> position: array<u32>; // (N)
@group(0) @binding(2) var<storage, read_write> x: array<f32>; // (N, BETWEEN, LENGTH, WIDTH)

fn element(i: u32) {
    let group = i / WIDTH;
    let t = min(position[group / BETWEEN], LENGTH - 1u);
    x[(group * LENGTH + t) * WIDTH + i % WIDTH] = row[i];
}

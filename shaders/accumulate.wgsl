// sum += x, elementwise: gradients and statistics over the micro-batches of a step.
#import elementwise
#import add

@group(0) @binding(0) var<storage, read> x: array<f32>; // (count)
@group(0) @binding(1) var<storage, read_write> sum: array<f32>; // (count)

fn element(i: u32) {
    sum[i] = added(sum[i], x[i]);
}

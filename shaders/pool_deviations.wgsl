// Merges a micro-batch's Σ(x − mean)² into the step's (Chan, Golub and LeVeque, 1983), before its n and Σ(x − r) are
// added.
#import elementwise
#import add

@group(0) @binding(0) var<storage, read> squares: array<f32>; // (count): Σ(x − mean)², mean that of the micro-batch
@group(0) @binding(1) var<storage, read> shifts: array<f32>; // (count): Σ(x − r)
@group(0) @binding(2) var<storage, read> n: array<f32>; // (1)
// The same of the step, so far. All are written elsewhere in their bucket, so that none is bound to be read only.
@group(0) @binding(3) var<storage, read_write> step_squares: array<f32>; // (count)
@group(0) @binding(4) var<storage, read_write> step_shifts: array<f32>; // (count)
@group(0) @binding(5) var<storage, read_write> step_n: array<f32>; // (1)

fn element(i: u32) {
    let count = so_far(step_n[0]);
    let apart = shifts[i] / n[0] - so_far(step_shifts[i]) / max(count, 1.0);
    step_squares[i] = added(step_squares[i], squares[i] + apart * (apart * (count * (n[0] / (count + n[0])))));
}

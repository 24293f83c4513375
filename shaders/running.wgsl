// Running statistics and a step's sums over n values, as graph::Running says. Nothing changes when the step is skipped.
#import elementwise
#import norm

@group(0) @binding(0) var<storage, read_write> running: array<f32>; // (count)
@group(0) @binding(1) var<storage, read> outcome: Norm;
#ifdef STEPS
#else
@group(0) @binding(2) var<storage, read> sum: array<f32>; // (count): Σ(x − r) or Σ(x − mean)²
@group(0) @binding(3) var<storage, read> n: array<f32>; // (1)
#endif

fn element(i: u32) {
    if outcome.applied == 0u {
        return;
    }
    let value = running[i];
#ifdef STEPS
    running[i] = value + 1.0;
#else
#ifdef VARIANCE
    running[i] = value + MOMENTUM * (sum[i] / n[0] - value);
#else
    running[i] = value + MOMENTUM * (sum[i] / n[0]);
#endif
#endif
}

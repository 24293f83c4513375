// dx = dy f'(v), elementwise; v is the activation's output with FROM_OUTPUT, else its input.
#import elementwise
#import activation

@group(0) @binding(0) var<storage, read> v: array<f32>; // (count)
@group(0) @binding(1) var<storage, read> dy: array<f32>; // (count)
@group(0) @binding(2) var<storage, read_write> dx: array<f32>; // (count)

fn element(i: u32) {
    dx[i] = dy[i] * activate_grad(v[i]);
}

// optim::NormOutcome, as update kernels read it.

struct Norm {
    norm: f32,
    scale: f32,
    applied: u32,
    reserved: u32,
}

// What a cross-entropy wants of class c in a row of logits (op::ClassTargets): the weight of its -log probability.

#ifdef SOFT
@group(0) @binding(1) var<storage, read> targets: array<f32>; // (rows, COLUMNS)
#else
@group(0) @binding(1) var<storage, read> labels: array<u32>; // (rows)
#endif
#ifdef WEIGHTED
@group(0) @binding(CLASS_WEIGHTS) var<storage, read> class_weights: array<f32>; // (COLUMNS)
#endif

fn class_target(row: u32, c: u32) -> f32 {
#ifdef SOFT
    var t = targets[row * COLUMNS + c];
#else
    var t = select(0.0, 1.0, c == min(labels[row], COLUMNS - 1u));
#endif
#ifdef SPREAD
    t = (1.0 - SMOOTHING) * t + SMOOTHING / f32(COLUMNS);
#endif
#ifdef WEIGHTED
    t *= class_weights[c];
#endif
    return t;
}

fn ignored(row: u32) -> bool {
#ifdef IGNORING
    return labels[row] == IGNORED;
#else
    return false;
#endif
}

// x as batch norm sees it (op::batch_norm): (samples, CHANNELS, SPAN), in groups groups of GROUP consecutive samples.
// An element of a channel in a group is counted over the group's samples, then the span.
#import step

// Samples of a group whose statistics are taken: no padding. 0 where the group is all padding.
fn valid_samples(group: u32) -> u32 {
    let first = group * GROUP;
    return min(max(step.valid, first) - first, GROUP);
}

// Position in x.
fn position(group: u32, channel: u32, element: u32) -> u32 {
    return ((group * GROUP + element / SPAN) * CHANNELS + channel) * SPAN + element % SPAN;
}

// Windows of a pool (op::window::Pool); positions are (row, column). No window lies wholly on padding.
#import nan

// Position of a window's first tap; negative on padding.
fn window_start(window: vec2<u32>) -> vec2<i32> {
    return vec2<i32>(window * vec2<u32>(SH, SW)) - vec2<i32>(i32(PT), i32(PL));
}

// Whether a tap is on the input.
fn inside(at: vec2<i32>) -> bool {
#ifdef PADDED
    return u32(at.x) < H && u32(at.y) < W;
#else
    return true;
#endif
}

// The first window that covers a pixel.
fn first_window(pixel: vec2<u32>) -> vec2<u32> {
    let past = max(vec2<i32>(pixel + vec2<u32>(PT, PL)) - vec2<i32>(i32(KH), i32(KW)), vec2<i32>(-1));
    return (vec2<u32>(past + vec2<i32>(1)) + vec2<u32>(SH - 1u, SW - 1u)) / vec2<u32>(SH, SW);
}

// One past the last window that covers a pixel.
fn windows_end(pixel: vec2<u32>) -> vec2<u32> {
    return min((pixel + vec2<u32>(PT, PL)) / vec2<u32>(SH, SW) + vec2<u32>(1u), vec2<u32>(OH, OW));
}

// What a mean over a window divides by.
fn divisor(window: vec2<u32>) -> f32 {
#ifdef COUNT_PADDING
    return f32(KH * KW);
#else
    let start = window_start(window);
    let end = min(start + vec2<i32>(i32(KH), i32(KW)), vec2<i32>(i32(H), i32(W)));
    let extent = end - max(start, vec2<i32>());
    return f32(extent.x * extent.y);
#endif
}

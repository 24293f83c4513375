// Positions of op::Upsample2d along an axis, in whole numbers: pixel o of `size` is mixed from two pixels of `extent`.

struct Source {
    first: u32,
    second: u32,
    part: f32, // of the second
}

fn source(o: u32, size: u32, extent: u32) -> Source {
#ifdef BILINEAR
    let position = max((2u * o + 1u) * extent, size) - size; // in units of 1/(2 size)
    let first = position / (2u * size);
    return Source(first, min(first + 1u, extent - 1u), f32(position % (2u * size)) / f32(2u * size));
#else
    let first = o * extent / size;
    return Source(first, first, 0.0);
#endif
}

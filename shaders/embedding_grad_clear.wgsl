// tables = 0.
#import elementwise
#import add

@group(0) @binding(0) var<storage, read_write> tables: array<f32>; // (count)

fn element(i: u32) {
    tables[i] = added(tables[i], 0.0);
}

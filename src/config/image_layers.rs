//! Layers of a run file that slide windows or change a resolution.

use super::fields::{Fields, Settings};
use super::sizes::{padding, padding1d, pair, sides};
use super::values::{choice, flag, whole};
use crate::nn::layers::{
    AdaptiveAvgPool2d, AvgPool2d, Conv1d, Conv2d, ConvTranspose2d, GlobalAvgPool, GlobalMaxPool, Interpolation,
    MaxPool2d, Padding, Resolution, Upsample,
};

const INTERPOLATIONS: [(&str, Interpolation); 2] =
    [("nearest", Interpolation::Nearest), ("bilinear", Interpolation::Bilinear)];

/// What describes the keys that several layers have.
const KERNEL: &str = "the window's extents";
const STRIDE: &str = "Steps of the window";
const PADDING: &str = "What is put around the input";
const DILATION: &str = "Distance of the window's elements";

fn out(f: &mut Fields<'_>, out: &mut usize) {
    f.required("out", "the number of output channels", whole(1..), out);
}

fn last(f: &mut Fields<'_>, groups: &mut usize, bias: &mut bool) {
    f.field("groups", "Groups of channels, each with windows of its own", whole(1..), groups);
    f.field("bias", "Whether something is added to each channel", flag(), bias);
}

impl Settings for Conv2d {
    fn fields(&mut self, f: &mut Fields<'_>) {
        out(f, &mut self.out);
        f.required("kernel", KERNEL, pair(1), &mut self.kernel);
        f.field("stride", STRIDE, pair(1), &mut self.stride);
        f.field("padding", PADDING, padding(), &mut self.padding);
        f.field("dilation", DILATION, pair(1), &mut self.dilation);
        last(f, &mut self.groups, &mut self.bias);
    }
}

impl Settings for Conv1d {
    fn fields(&mut self, f: &mut Fields<'_>) {
        out(f, &mut self.out);
        f.required("kernel", "the window's extent", whole(1..), &mut self.kernel);
        f.field("stride", STRIDE, whole(1..), &mut self.stride);
        f.field("padding", PADDING, padding1d(), &mut self.padding);
        f.field("dilation", DILATION, whole(1..), &mut self.dilation);
        last(f, &mut self.groups, &mut self.bias);
    }
}

impl Settings for ConvTranspose2d {
    fn fields(&mut self, f: &mut Fields<'_>) {
        out(f, &mut self.out);
        f.required("kernel", KERNEL, pair(1), &mut self.kernel);
        f.field("stride", STRIDE, pair(1), &mut self.stride);
        f.field("padding", "What is cut off the output", sides(), &mut self.padding);
        f.field("output_padding", "What is added to the output", pair(0), &mut self.output_padding);
        f.field("dilation", DILATION, pair(1), &mut self.dilation);
        last(f, &mut self.groups, &mut self.bias);
    }
}

/// What pools over windows have.
fn pool(f: &mut Fields<'_>, kernel: &mut [usize; 2], stride: &mut [usize; 2], around: &mut Padding) {
    f.required("kernel", KERNEL, pair(1), kernel);
    f.derived("stride", STRIDE, pair(1), ("kernel", *kernel), stride);
    f.field("padding", PADDING, padding(), around);
}

impl Settings for MaxPool2d {
    fn fields(&mut self, f: &mut Fields<'_>) {
        pool(f, &mut self.kernel, &mut self.stride, &mut self.padding);
    }
}

impl Settings for AvgPool2d {
    fn fields(&mut self, f: &mut Fields<'_>) {
        pool(f, &mut self.kernel, &mut self.stride, &mut self.padding);
        f.field("count_include_pad", "Whether padding counts", flag(), &mut self.count_include_pad);
    }
}

impl Settings for AdaptiveAvgPool2d {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.required("size", "the output's height and width", pair(1), &mut self.size);
    }
}

impl Settings for Upsample {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let (mut size, mut scale) = match self.to {
            Resolution::Size(size) => (Some(size), [2; 2]),
            Resolution::Scale(scale) => (None, scale),
        };
        f.optional("size", "The output's height and width, in the place of scale", pair(1), &mut size);
        if size.is_none() {
            f.field("scale", "The output's height and width, in those of the input", pair(1), &mut scale);
        }
        self.to = size.map_or(Resolution::Scale(scale), Resolution::Size);
        f.field("mode", "What is taken between pixels", choice(&INTERPOLATIONS), &mut self.interpolation);
    }
}

impl Settings for GlobalAvgPool {}
impl Settings for GlobalMaxPool {}

//! Layers of a run file that slide windows or change a resolution.

use super::layers::LayerSpec;
use super::reader::{Read, Section, any_of, choice, flag, list, whole};
use super::tree::{Value, quoted};
use crate::error::Result;
use crate::nn::layers::{
    AdaptiveAvgPool2d, AvgPool2d, Conv1d, Conv2d, ConvTranspose2d, Interpolation, MaxPool2d, Padding, Resolution,
    Upsample,
};

const INTERPOLATIONS: [(&str, Interpolation); 2] =
    [("nearest", Interpolation::Nearest), ("bilinear", Interpolation::Bilinear)];

/// A number for both directions, or \[vertical, horizontal\].
fn pair(least: u32) -> impl Fn(&Value) -> Read<[usize; 2]> {
    move |value| {
        let both = whole(least)(value).map(|v| [v; 2]);
        let each = || list(whole(least))(value).ok()?.try_into().ok();
        both.or_else(|_| each().ok_or_else(|| format!("a whole number of at least {least}, or [vertical, horizontal]")))
    }
}

/// A number, \[vertical, horizontal\] or \[top, bottom, left, right\].
pub(super) fn sides(value: &Value) -> Read<[usize; 4]> {
    let each = || list(whole(0))(value).ok()?.try_into().ok();
    let both = pair(0)(value).map(|[vertical, horizontal]| [vertical, vertical, horizontal, horizontal]);
    both.or_else(|_| each().ok_or_else(|| any_of(&SIDES.map(str::to_owned))))
}

const SIDES: [&str; 3] = ["a whole number", "[vertical, horizontal]", "[top, bottom, left, right]"];

/// `"same"`, or what [`sides`] takes.
fn padding(value: &Value) -> Read<Padding> {
    if matches!(value, Value::String(v) if v == "same") {
        return Ok(Padding::Same);
    }
    sides(value).map(Padding::Sides).map_err(|_| {
        let names = [&["\"same\""], &SIDES[..]].concat();
        any_of(&names.into_iter().map(str::to_owned).collect::<Vec<_>>())
    })
}

/// `"same"`, a number or \[front, behind\].
fn padding1d(value: &Value) -> Read<Option<[usize; 2]>> {
    if matches!(value, Value::String(v) if v == "same") {
        return Ok(None);
    }
    let each = || list(whole(0))(value).ok()?.try_into().ok();
    let both = whole(0)(value).map(|v| [v; 2]).ok().or_else(each);
    both.map(Some).ok_or_else(|| "\"same\", a whole number or [front, behind]".to_owned())
}

fn write_padding(padding: Padding) -> String {
    match padding {
        Padding::Same => quoted("same"),
        Padding::Sides(sides) => format!("{sides:?}"),
    }
}

/// The layer, if it is of a kind that this file knows.
pub(super) fn read(kind: &str, section: &mut Section) -> Result<Option<LayerSpec>> {
    const EXTENTS: &str = "the window's extents";
    const CHANNELS: &str = "the number of output channels";
    Ok(Some(match kind {
        "conv2d" => {
            let default = Conv2d::new(section.required("out", CHANNELS, whole(1))?, 1);
            LayerSpec::Conv2d(Conv2d {
                kernel: section.required("kernel", EXTENTS, pair(1))?,
                stride: section.get("stride", default.stride, pair(1))?,
                padding: section.get("padding", default.padding, padding)?,
                dilation: section.get("dilation", default.dilation, pair(1))?,
                groups: section.get("groups", 1, whole(1))?,
                bias: section.get("bias", true, flag)?,
                ..default
            })
        }
        "conv1d" => {
            let default = Conv1d::new(section.required("out", CHANNELS, whole(1))?, 1);
            LayerSpec::Conv1d(Conv1d {
                kernel: section.required("kernel", "the window's extent", whole(1))?,
                stride: section.get("stride", 1, whole(1))?,
                padding: section.get("padding", default.padding, padding1d)?,
                dilation: section.get("dilation", 1, whole(1))?,
                groups: section.get("groups", 1, whole(1))?,
                bias: section.get("bias", true, flag)?,
                ..default
            })
        }
        "conv_transpose2d" => {
            let default = ConvTranspose2d::new(section.required("out", CHANNELS, whole(1))?, 1);
            LayerSpec::ConvTranspose2d(ConvTranspose2d {
                kernel: section.required("kernel", EXTENTS, pair(1))?,
                stride: section.get("stride", default.stride, pair(1))?,
                padding: section.get("padding", default.padding, sides)?,
                output_padding: section.get("output_padding", default.output_padding, pair(0))?,
                dilation: section.get("dilation", default.dilation, pair(1))?,
                groups: section.get("groups", 1, whole(1))?,
                bias: section.get("bias", true, flag)?,
                ..default
            })
        }
        "max_pool2d" => {
            let kernel = section.required("kernel", EXTENTS, pair(1))?;
            LayerSpec::MaxPool2d(MaxPool2d {
                kernel,
                stride: section.get("stride", kernel, pair(1))?,
                padding: section.get("padding", Padding::default(), padding)?,
            })
        }
        "avg_pool2d" => {
            let kernel = section.required("kernel", EXTENTS, pair(1))?;
            LayerSpec::AvgPool2d(AvgPool2d {
                kernel,
                stride: section.get("stride", kernel, pair(1))?,
                padding: section.get("padding", Padding::default(), padding)?,
                count_include_pad: section.get("count_include_pad", true, flag)?,
            })
        }
        "adaptive_avg_pool2d" => {
            let size = section.required("size", "the output's height and width", pair(1))?;
            LayerSpec::AdaptiveAvgPool2d(AdaptiveAvgPool2d { size })
        }
        "upsample" => {
            let size = section.optional("size", pair(1))?.map(Resolution::Size);
            let to = match size {
                Some(size) => size,
                None => Resolution::Scale(section.get("scale", [2; 2], pair(1))?),
            };
            let interpolation = section.get("mode", Interpolation::Nearest, choice(&INTERPOLATIONS))?;
            LayerSpec::Upsample(Upsample { to, interpolation })
        }
        _ => return Ok(None),
    }))
}

/// The keys of such a layer and their values as TOML.
pub(super) fn write(layer: &LayerSpec) -> Vec<(&'static str, String)> {
    match layer {
        LayerSpec::Conv2d(l) => vec![
            ("out", l.out.to_string()),
            ("kernel", format!("{:?}", l.kernel)),
            ("stride", format!("{:?}", l.stride)),
            ("padding", write_padding(l.padding)),
            ("dilation", format!("{:?}", l.dilation)),
            ("groups", l.groups.to_string()),
            ("bias", l.bias.to_string()),
        ],
        LayerSpec::Conv1d(l) => vec![
            ("out", l.out.to_string()),
            ("kernel", l.kernel.to_string()),
            ("stride", l.stride.to_string()),
            ("padding", l.padding.map_or_else(|| quoted("same"), |sides| format!("{sides:?}"))),
            ("dilation", l.dilation.to_string()),
            ("groups", l.groups.to_string()),
            ("bias", l.bias.to_string()),
        ],
        LayerSpec::ConvTranspose2d(l) => vec![
            ("out", l.out.to_string()),
            ("kernel", format!("{:?}", l.kernel)),
            ("stride", format!("{:?}", l.stride)),
            ("padding", format!("{:?}", l.padding)),
            ("output_padding", format!("{:?}", l.output_padding)),
            ("dilation", format!("{:?}", l.dilation)),
            ("groups", l.groups.to_string()),
            ("bias", l.bias.to_string()),
        ],
        LayerSpec::MaxPool2d(l) => vec![
            ("kernel", format!("{:?}", l.kernel)),
            ("stride", format!("{:?}", l.stride)),
            ("padding", write_padding(l.padding)),
        ],
        LayerSpec::AvgPool2d(l) => vec![
            ("kernel", format!("{:?}", l.kernel)),
            ("stride", format!("{:?}", l.stride)),
            ("padding", write_padding(l.padding)),
            ("count_include_pad", l.count_include_pad.to_string()),
        ],
        LayerSpec::AdaptiveAvgPool2d(l) => vec![("size", format!("{:?}", l.size))],
        LayerSpec::Upsample(l) => {
            let to = match l.to {
                Resolution::Scale(scale) => ("scale", format!("{scale:?}")),
                Resolution::Size(size) => ("size", format!("{size:?}")),
            };
            let mode =
                INTERPOLATIONS.iter().find(|(_, mode)| *mode == l.interpolation).expect("every mode is listed").0;
            vec![to, ("mode", quoted(mode))]
        }
        _ => Vec::new(),
    }
}

//! Zeros around images, so that a network for images of one size takes those of another. Knows nothing of files.

use serde::{Deserialize, Serialize};

use super::{Dataset, TensorDataset};
use crate::error::{Error, Result};
use crate::tensor::{Elements, HostTensor, Shape};

/// Most elements of a data set that borders make more than [`MOST_TIMES`] as large: 512 MiB. A slip in a number is not
/// to take all memory.
const MOST_ELEMENTS: usize = 1 << 27;
/// How many times as large borders may make a data set of any size.
const MOST_TIMES: usize = 4;

/// Rows and columns of zeros at the top, bottom, left and right of every image, in the values as they are in the file:
/// what is scaled is the image with its border, as with torchvision's `Pad` in front of `Normalize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Border(pub [usize; 4]);

impl Border {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The shape of a sample of this shape with its border.
    ///
    /// # Errors
    /// When the sample is no image (channels, height, width), or would be larger than memory can be.
    pub fn around(&self, sample: &Shape) -> Result<Shape> {
        if self.is_none() {
            return Ok(sample.clone());
        }
        let [channels, height, width] = *sample.dims() else {
            let message = format!("expected samples of shape [channels, height, width] to pad, got {sample}");
            return Err(Error::invalid("data.padding", message));
        };
        let [top, bottom, left, right] = self.0;
        let sum = |parts: [usize; 3]| parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(*part));
        let dims = sum([top, height, bottom]).zip(sum([left, width, right]));
        let fits = |&(height, width): &(usize, usize)| {
            channels
                .checked_mul(height)
                .and_then(|rows| rows.checked_mul(width))
                .is_some_and(|n| n <= u32::MAX as usize)
        };
        let too_large = || Error::invalid("data.padding", format!("{:?} around {sample} is beyond any use", self.0));
        let (height, width) = dims.filter(fits).ok_or_else(too_large)?;
        Ok([channels, height, width].into())
    }

    /// The shape of a sample without its border, `sample` being with it.
    ///
    /// # Errors
    /// When the border does not fit into the sample.
    pub fn inside(&self, sample: &Shape) -> Result<Shape> {
        if self.is_none() {
            return Ok(sample.clone());
        }
        let [top, bottom, left, right] = self.0;
        let inner = |extent: usize, a: usize, b: usize| extent.checked_sub(a)?.checked_sub(b).filter(|rest| *rest > 0);
        let image = match *sample.dims() {
            [channels, height, width] => {
                inner(height, top, bottom).zip(inner(width, left, right)).map(|(h, w)| [channels, h, w])
            }
            _ => None,
        };
        let no_image = || Error::invalid("data.padding", format!("{sample} is no image with a border of {:?}", self.0));
        Ok(image.ok_or_else(no_image)?.into())
    }

    /// Samples (N, channels, height, width) with their borders.
    ///
    /// # Errors
    /// When the samples are no images, or tokens, or their borders would be most of a data set that takes very much
    /// memory.
    pub fn apply_inputs(&self, inputs: HostTensor) -> Result<HostTensor> {
        if self.is_none() {
            return Ok(inputs);
        }
        let (shape, elements) = inputs.into_parts();
        let Elements::F32(values) = elements else {
            return Err(Error::invalid("data.padding", "expected f32 images to pad, got u32"));
        };
        let sample = Shape::from(&shape.dims()[1..]);
        let padded = self.around(&sample)?;
        let ([top, _, left, _], samples) = (self.0, shape[0]);
        let elements = samples.saturating_mul(padded.elements());
        if elements > MOST_ELEMENTS.max(shape.elements().saturating_mul(MOST_TIMES)) {
            let size = elements as f64 * 4.0 / f64::from(1 << 30);
            let message = format!(
                "{:?} around {sample} makes {samples} samples of {padded}, {size:.1} GiB; expected at most {} MiB, or {MOST_TIMES} \
                 times the images",
                self.0,
                MOST_ELEMENTS >> 18
            );
            return Err(Error::invalid("data.padding", message));
        }
        let (height, width) = (sample[1], sample[2]);
        let mut out = vec![0.0; samples * padded.elements()];
        // Channels are images of their own.
        for (image, padded_image) in values.chunks(height * width).zip(out.chunks_mut(padded[1] * padded[2])) {
            let rows = padded_image.chunks_mut(padded[2]).skip(top);
            for (row, padded_row) in image.chunks(width).zip(rows) {
                padded_row[left..left + width].copy_from_slice(row);
            }
        }
        HostTensor::f32(padded.batched(samples), out)
    }

    /// The data set with borders around its samples.
    ///
    /// # Errors
    /// Like [`Border::apply_inputs`].
    pub fn apply(&self, dataset: TensorDataset) -> Result<TensorDataset> {
        self.around(&dataset.input_type().shape)?;
        dataset.with_inputs(|inputs| self.apply_inputs(inputs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_stand_around_every_channel_of_every_image() {
        let border = Border([1, 0, 0, 2]);
        let images = HostTensor::f32([2, 2, 1, 2], (1..=8).map(|v| v as f32).collect()).unwrap();
        let padded = border.apply_inputs(images.clone()).unwrap();
        assert_eq!(padded.shape().dims(), [2, 2, 2, 4]);
        let expected = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]].map(|[a, b]| [0., 0., 0., 0., a, b, 0., 0.]);
        assert_eq!(padded.as_f32().unwrap(), expected.concat());
        assert_eq!(Border::default().apply_inputs(images.clone()).unwrap(), images);
        let data = TensorDataset::classification(images, vec![0, 0], vec!["a".into()]).unwrap();
        assert_eq!(*border.apply(data).unwrap().inputs(), padded);
    }

    #[test]
    fn what_is_around_an_image_can_be_taken_off() {
        let border = Border([1, 2, 3, 4]);
        let image = Shape::from([3, 5, 6]);
        assert_eq!(border.around(&image).unwrap(), [3, 8, 13].into());
        assert_eq!(border.inside(&[3, 8, 13].into()).unwrap(), image);
        let error = border.inside(&[3, 3, 13].into()).unwrap_err().to_string();
        assert_eq!(error, "data.padding: [3, 3, 13] is no image with a border of [1, 2, 3, 4]");
        let flat = Shape::from([64]);
        assert_eq!(Border::default().around(&flat).unwrap(), flat);
        assert_eq!(Border::default().inside(&flat).unwrap(), flat);
    }

    #[test]
    fn samples_that_are_no_images_are_refused() {
        let border = Border([2; 4]);
        let error = border.apply_inputs(HostTensor::f32([1, 4], vec![0.0; 4]).unwrap()).unwrap_err().to_string();
        assert_eq!(error, "data.padding: expected samples of shape [channels, height, width] to pad, got [4]");
        let tokens = HostTensor::u32([1, 1, 1, 1], vec![0]).unwrap();
        let error = border.apply_inputs(tokens).unwrap_err().to_string();
        assert_eq!(error, "data.padding: expected f32 images to pad, got u32");
        for wide in [usize::MAX, 1 << 31] {
            let error = Border([0, wide, 2, 0]).around(&[1, 8, 8].into()).unwrap_err().to_string();
            assert!(error.ends_with("around [1, 8, 8] is beyond any use"), "{error}");
        }
    }
}

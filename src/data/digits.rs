//! The data set that is compiled into the library, so that a first run needs no file and no network. See
//! `data/README.md` for its source and licence.

use super::csv::{CsvOptions, parse};
use super::dataset::TensorDataset;
use super::source;
use crate::error::Result;

static DIGITS: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// 1797 real handwritten digits (UCI, E. Alpaydin and C. Kaynak, 1998, CC BY 4.0): inputs `(1, 8, 8)` with raw pixel
/// values 0 to 16, ten classes named `0` to `9`.
///
/// # Errors
/// None in practice: the embedded file is checked by the tests.
pub fn digits() -> Result<TensorDataset> {
    let options =
        CsvOptions { header: false, sample_shape: Some(vec![1, 8, 8]), ..CsvOptions::new("data/digits.csv.gz") };
    Ok(parse(&source::read_bytes(DIGITS, &options.path)?, &options)?.0)
}

#[cfg(test)]
mod tests {
    use super::super::Dataset;
    use super::*;
    use crate::tensor::TensorType;

    #[test]
    fn the_embedded_digits_are_whole() {
        let data = digits().unwrap();
        assert_eq!((data.len(), data.input_type()), (1797, TensorType::f32([1, 8, 8])));
        assert_eq!(data.classes().unwrap(), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        assert!(data.inputs().as_f32().unwrap().iter().all(|&p| (0.0..=16.0).contains(&p) && p.fract() == 0.0));
        let mut counts = [0; 10];
        data.targets().as_u32().unwrap().iter().for_each(|&label| counts[label as usize] += 1);
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    }
}

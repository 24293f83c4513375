//! The idx format of MNIST and its relatives (<http://yann.lecun.com/exdb/mnist/>): a magic number, big-endian sizes,
//! then bytes. The header is not believed: memory is taken as bytes arrive, and the file must hold exactly what it
//! announces. Knows nothing of scaling: pixels stay 0 to 255.

use std::io::Read;
use std::path::Path;

use super::{TensorDataset, source};
use crate::error::{Error, Result};
use crate::file::too_large;
use crate::tensor::HostTensor;

/// Unsigned bytes in 3 dimensions.
const IMAGES: u32 = 0x0803;
/// Unsigned bytes in 1 dimension.
const LABELS: u32 = 0x0801;

/// Reads an image file and its label file, each plain or gzip-compressed: inputs `(1, rows, columns)`. Without
/// `classes` there are as many as the largest label needs, named by their numbers.
///
/// # Errors
/// [`Error::Data`] when a file is cut short, goes on after its end, is of another kind, the counts differ, or a label
/// has no class.
pub fn read_idx(images: &Path, labels: &Path, classes: Option<&[String]>) -> Result<TensorDataset> {
    read_within(images, labels, classes, source::SIZE_LIMIT)
}

/// The same for files of at most `limit` bytes each, decompressed.
pub(crate) fn read_within(
    images: &Path,
    labels: &Path,
    classes: Option<&[String]>,
    limit: u64,
) -> Result<TensorDataset> {
    let inputs = read_images_within(images, limit)?;
    let (_, found) = read_items::<1>(labels, LABELS, "labels", limit)?;
    let n = inputs.shape()[0];
    if n != found.len() {
        let message = format!("{} labels, but {} holds {n} images", found.len(), images.display());
        return Err(Error::data(labels, message));
    }
    let classes = match classes {
        Some(classes) => classes.to_vec(),
        None => (0..=found.iter().copied().max().unwrap_or(0)).map(|c| c.to_string()).collect(),
    };
    if let Some(i) = found.iter().position(|&label| usize::from(label) >= classes.len()) {
        let message = format!("label {} of item {i} is out of range: there are {} classes", found[i], classes.len());
        return Err(Error::data(labels, message));
    }
    TensorDataset::classification(inputs, found.into_iter().map(u32::from).collect(), classes)
}

/// Reads an image file, plain or gzip-compressed: f32 `(n, 1, rows, columns)`, 0 to 255.
///
/// # Errors
/// [`Error::Data`] when the file is cut short, goes on after its end, is of another kind, is empty, or larger than
/// 4 GiB.
pub fn read_idx_images(path: &Path) -> Result<HostTensor> {
    read_images_within(path, source::SIZE_LIMIT)
}

/// The same for a file of at most `limit` bytes, decompressed.
pub(crate) fn read_images_within(path: &Path, limit: u64) -> Result<HostTensor> {
    let (dims, bytes) = read_items::<3>(path, IMAGES, "images", limit)?;
    let values = bytes.into_iter().map(f32::from).collect();
    HostTensor::f32([dims[0], 1, dims[1], dims[2]], values)
}

/// Reads a label file, plain or gzip-compressed.
///
/// # Errors
/// Like [`read_idx_images`].
pub fn read_idx_labels(path: &Path) -> Result<Vec<u8>> {
    read_items::<1>(path, LABELS, "labels", source::SIZE_LIMIT).map(|(_, bytes)| bytes)
}

/// The sizes and content of an idx file of unsigned bytes in `D` dimensions.
fn read_items<const D: usize>(path: &Path, magic: u32, what: &str, limit: u64) -> Result<([usize; D], Vec<u8>)> {
    let fault = |message: String| Error::data(path, message);
    let mut reader = source::open(path)?;
    let header = 4 * (D + 1);
    let mut bytes = Vec::new();
    fill(&mut reader, header as u64, &mut bytes, path)?;
    let word = |i: usize| bytes.get(4 * i..4 * i + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    match word(0) {
        Some(found) if found == magic => {}
        Some(found) => {
            let kind = match found {
                IMAGES => ", an image file",
                LABELS => ", a label file",
                _ => "",
            };
            return Err(fault(format!("wrong magic {found:#010x}{kind}: idx {what} start with {magic:#010x}")));
        }
        None => return Err(fault(format!("not an idx file of {what}: it has only {} bytes", bytes.len()))),
    }
    let mut dims = [0; D];
    for (i, dim) in dims.iter_mut().enumerate() {
        *dim = word(i + 1).ok_or_else(|| fault(format!("cut short in its {header}-byte header")))? as usize;
    }
    let announced = dims.map(|d| d.to_string()).join("×");
    let size = dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim as u64));
    let Some(size) = size.filter(|&size| size < u64::MAX) else {
        return Err(fault(format!("the header announces {announced} bytes: no file holds that many")));
    };
    if size == 0 {
        return Err(fault(format!("it holds no {what}: the header announces {announced}")));
    }
    bytes.clear();
    fill(&mut reader, size.min(limit).saturating_add(1), &mut bytes, path)?; // one more shows whether the file goes on
    match bytes.len() as u64 {
        read if read > limit => Err(too_large(path, limit, source::REMEDY)),
        read if read < size => {
            Err(fault(format!("cut short: the header announces {announced} = {size} bytes of {what}, got {read}")))
        }
        read if read > size => {
            Err(fault(format!("it goes on after the {announced} = {size} bytes of {what} announced")))
        }
        _ => Ok((dims, bytes)),
    }
}

/// Appends up to `limit` bytes to `bytes`, as they come.
fn fill(reader: &mut impl Read, limit: u64, bytes: &mut Vec<u8>, path: &Path) -> Result<()> {
    reader.take(limit).read_to_end(bytes).map_err(|error| source::read_error(path, error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::super::Dataset;
    use super::*;
    use crate::tensor::TensorType;

    fn idx(magic: u32, dims: &[u32], bytes: &[u8]) -> Vec<u8> {
        let mut file = magic.to_be_bytes().to_vec();
        dims.iter().for_each(|d| file.extend(d.to_be_bytes()));
        file.extend(bytes);
        file
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }
        fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        }
        fn images_error(&self, bytes: &[u8]) -> String {
            let path = self.file("images", bytes);
            let error = read_idx_images(&path).unwrap_err().to_string();
            error.strip_prefix(&format!("{}: ", path.display())).unwrap().to_string()
        }
    }

    proptest! {
        #[test]
        fn images_and_labels_come_back(
            (n, rows, columns) in (1_u32..20, 1_u32..9, 1_u32..9), seed: u8, compressed: bool,
        ) {
            let folder = Folder::new();
            let pixels: Vec<u8> = (0..n * rows * columns).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
            let labels: Vec<u8> = (0..n).map(|i| (i % 5) as u8).collect();
            let pack = |bytes: Vec<u8>| if compressed { source::gzip(&bytes) } else { bytes };
            let images = folder.file("images", &pack(idx(IMAGES, &[n, rows, columns], &pixels)));
            let label_file = folder.file("labels", &pack(idx(LABELS, &[n], &labels)));
            let data = read_idx(&images, &label_file, None).unwrap();
            prop_assert_eq!(data.input_type(), TensorType::f32([1, rows as usize, columns as usize]));
            prop_assert_eq!(data.inputs().as_f32().unwrap(), pixels.iter().map(|&p| f32::from(p)).collect::<Vec<_>>());
            let expected: Vec<u32> = labels.iter().map(|&l| u32::from(l)).collect();
            prop_assert_eq!(data.targets().as_u32().unwrap(), expected);
            prop_assert_eq!(data.classes().unwrap().len(), n.min(5) as usize);
        }
    }

    #[test]
    fn files_that_lie_are_refused() {
        let folder = Folder::new();
        let good = idx(IMAGES, &[2, 2, 2], &[7; 8]);
        assert_eq!(
            folder.images_error(&good[..good.len() - 1]),
            "cut short: the header announces 2×2×2 = 8 bytes of images, got 7"
        );
        assert_eq!(folder.images_error(&good[..10]), "cut short in its 16-byte header");
        assert_eq!(folder.images_error(&good[..3]), "not an idx file of images: it has only 3 bytes");
        assert_eq!(folder.images_error(b""), "not an idx file of images: it has only 0 bytes");
        let long = [good.clone(), vec![0]].concat();
        assert_eq!(folder.images_error(&long), "it goes on after the 2×2×2 = 8 bytes of images announced");
        assert_eq!(
            folder.images_error(&idx(LABELS, &[8], &[7; 8])),
            "wrong magic 0x00000801, a label file: idx images start with 0x00000803"
        );
        assert!(folder.images_error(b"\x89PNG\r\n\x1a\n........").starts_with("wrong magic 0x89504e47: idx images"));
        assert_eq!(
            folder.images_error(&idx(IMAGES, &[0, 28, 28], &[])),
            "it holds no images: the header announces 0×28×28"
        );
        let cut = source::gzip(&good);
        assert_eq!(folder.images_error(&cut[..cut.len() - 9]), "the compressed file is cut short");
    }

    #[test]
    fn an_enormous_announcement_takes_no_memory() {
        let folder = Folder::new();
        let huge = folder.images_error(&idx(IMAGES, &[60_000, 65_536, 65_536], &[0; 4]));
        assert!(huge.starts_with("cut short: the header announces 60000×65536×65536"), "{huge}");
        let endless = folder.images_error(&idx(IMAGES, &[u32::MAX; 3], &[0; 4]));
        assert!(endless.ends_with("no file holds that many"), "{endless}");
    }

    #[test]
    fn images_and_labels_must_belong_together() {
        let folder = Folder::new();
        let images = folder.file("images", &idx(IMAGES, &[2, 1, 1], &[1, 2]));
        let labels = folder.file("labels", &idx(LABELS, &[3], &[0, 1, 2]));
        let error = read_idx(&images, &labels, None).unwrap_err().to_string();
        assert!(error.ends_with(&format!("labels: 3 labels, but {} holds 2 images", images.display())), "{error}");
        let labels = folder.file("labels", &idx(LABELS, &[2], &[1, 2]));
        let classes = ["a".to_string(), "b".to_string()];
        let error = read_idx(&images, &labels, Some(&classes)).unwrap_err().to_string();
        assert!(error.ends_with("label 2 of item 1 is out of range: there are 2 classes"), "{error}");
    }
}

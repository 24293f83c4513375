//! Flat parameter buckets: where each parameter, its gradient and its optimizer state live. The bucket is the unit of
//! reduction, update, broadcast and checkpoint.
//!
//! Parameters stand in reverse order of use, so that a bucket's gradients are complete as early in the backward pass as
//! can be; the first bucket is small, so that its transfer starts early (Li et al., "PyTorch Distributed", VLDB 2020).
//! Running statistics have buckets of their own behind those: what is said of gradients, their norm or an optimizer, is
//! then said of whole buckets.

use crate::error::{Error, Result};
use crate::graph::{Graph, ParameterId, Role};
use crate::kernel::Target;
use crate::tensor::{Named, Shape};

/// Alignment of a parameter in its bucket: the largest that WebGPU lets an adapter ask for.
pub(crate) const ALIGNMENT: u64 = 256;
/// Size that the first bucket is filled to.
const FIRST_BUCKET: u64 = 1 << 20;
/// Size that the others are filled to.
const BUCKET: u64 = 25 << 20;

/// A parameter's place.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The parameter's name.
    pub name: String,
    /// Its dimensions.
    pub shape: Shape,
    /// What changes it.
    pub role: Role,
    /// Its bucket.
    pub bucket: usize,
    /// Its first byte in the bucket; a multiple of 256.
    pub offset: u64,
    /// Its bytes, without padding.
    pub bytes: u64,
}

/// The buckets of a model. Equal on all devices of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// By [`ParameterId`].
    parameters: Vec<Placed>,
    /// Bytes of each bucket, padding included.
    buckets: Vec<u64>,
    /// How many of them, the first ones, hold trained parameters.
    trained: usize,
}

impl Layout {
    /// The buckets of the graph's parameters, each within the target's binding limit.
    ///
    /// # Errors
    /// When one parameter alone is over the limit.
    pub fn new(graph: &Graph, target: &Target) -> Result<Self> {
        let limit = target.largest_binding();
        let mut buckets: Vec<u64> = Vec::new();
        let mut trained = 0;
        let mut places = vec![None; graph.parameters().len()];
        let of = |is_trained| {
            graph.parameters().iter().enumerate().rev().filter(move |(_, p)| p.role.is_trained() == is_trained)
        };
        for (index, parameter) in of(true).chain(of(false)) {
            let bytes = parameter.shape.elements() as u64 * 4;
            let padded = bytes.next_multiple_of(ALIGNMENT);
            check_limit(&parameter.name, bytes, target)?;
            let full = if buckets.len() <= 1 { FIRST_BUCKET } else { BUCKET }.min(limit);
            match buckets.last() {
                Some(&used) if used + padded <= full && (parameter.role.is_trained() || buckets.len() > trained) => {}
                _ => buckets.push(0),
            }
            if parameter.role.is_trained() {
                trained = buckets.len();
            }
            let bucket = buckets.len() - 1;
            let (name, shape) = (parameter.name.clone(), parameter.shape.clone());
            places[index] = Some(Placed { name, shape, role: parameter.role, bucket, offset: buckets[bucket], bytes });
            buckets[bucket] += padded;
        }
        let parameters = places.into_iter().map(|p| p.expect("every parameter is placed")).collect();
        Ok(Self { parameters, buckets, trained })
    }

    /// The buckets that devices of these `targets` share: those of them that can hold each parameter, which
    /// [`Layout::check_limits`] says.
    ///
    /// # Errors
    /// When none of them can; the message names the parameter and the largest limit.
    pub fn shared(graph: &Graph, targets: &[Target]) -> Result<Self> {
        let limit = |target: &&Target| target.largest_binding();
        let fitting = targets.iter().filter(|target| Self::new(graph, target).is_ok());
        let target = fitting.min_by_key(limit).or_else(|| targets.iter().max_by_key(limit));
        Self::new(graph, target.ok_or_else(|| Error::NoAdapter("no adapter was chosen".into()))?)
    }

    /// Checks that a device of `target` can hold each parameter.
    ///
    /// # Errors
    /// [`Error::Limit`] for the first that is over its limit.
    pub fn check_limits(&self, target: &Target) -> Result<()> {
        self.parameters.iter().try_for_each(|placed| check_limit(&placed.name, placed.bytes, target))
    }

    /// The parameters, by [`ParameterId`].
    pub fn parameters(&self) -> &[Placed] {
        &self.parameters
    }

    /// A parameter's place.
    pub fn place(&self, parameter: ParameterId) -> &Placed {
        &self.parameters[parameter.0]
    }

    /// Bytes of each bucket.
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// How many buckets, the first ones, hold trained parameters; the others hold running statistics.
    pub(crate) fn trained_buckets(&self) -> usize {
        self.trained
    }

    /// Bytes of all buckets.
    pub fn bytes(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Checks that `graph` has the parameters that are placed here.
    ///
    /// # Errors
    /// When it has others, which would let a plan read another model's weights.
    pub fn check(&self, graph: &Graph) -> Result<()> {
        let placed = self.parameters.iter().map(|p| (&p.name, &p.shape, p.role));
        if graph.parameters().iter().map(|p| (&p.name, &p.shape, p.role)).eq(placed) {
            return Ok(());
        }
        Err(Error::shape("parameters", "the model's parameters depend on the batch size or on the mode; they must not"))
    }

    /// One bucket's bytes from its parameters' values, padding zero.
    ///
    /// # Errors
    /// When a parameter has no value of its shape.
    pub fn pack(&self, bucket: usize, values: &Named<Vec<f32>>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.buckets[bucket] as usize];
        for placed in self.parameters.iter().filter(|p| p.bucket == bucket) {
            let values = values
                .get(&placed.name)
                .filter(|v| v.len() as u64 * 4 == placed.bytes)
                .ok_or_else(|| Error::shape(format!("parameter {}", placed.name), "has no value of its shape"))?;
            bytes[placed.offset as usize..][..placed.bytes as usize].copy_from_slice(bytemuck::cast_slice(values));
        }
        Ok(bytes)
    }

    /// A parameter's values out of its bucket's bytes.
    pub fn unpack(&self, placed: &Placed, bucket: &[u8]) -> Vec<f32> {
        bytemuck::pod_collect_to_vec(&bucket[placed.offset as usize..][..placed.bytes as usize])
    }
}

/// Checks that a parameter of `bytes` can be bound, with its padding.
fn check_limit(name: &str, bytes: u64, target: &Target) -> Result<()> {
    if bytes.next_multiple_of(ALIGNMENT) <= target.largest_binding() {
        return Ok(());
    }
    let advice = "make the layer smaller, or use an adapter with a larger limit";
    Err(target.over_binding(format!("parameter {name}"), bytes, advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Init, Running};

    fn layout(sizes: &[usize], target: &Target) -> Result<Layout> {
        let mut graph = Graph::new();
        for (i, &size) in sizes.iter().enumerate() {
            graph.parameter(&format!("p{i}"), [size], Init::Zeros)?;
        }
        Layout::new(&graph, target)
    }

    #[test]
    fn the_last_parameter_comes_first_and_all_are_aligned() {
        let layout = layout(&[3, 100, 65], &Target::default()).unwrap();
        let offsets: Vec<_> = layout.parameters().iter().map(|p| (p.bucket, p.offset, p.bytes)).collect();
        assert_eq!(offsets, [(0, 1024, 12), (0, 512, 400), (0, 0, 260)]);
        assert_eq!(layout.buckets(), [1280]);
    }

    #[test]
    fn the_first_bucket_is_small() {
        let megabyte = 1 << 18;
        let layout = layout(&[megabyte; 30], &Target::default()).unwrap();
        assert_eq!(layout.buckets(), [1 << 20, 25 << 20, 4 << 20]);
    }

    #[test]
    fn running_statistics_have_buckets_of_their_own() {
        let mut graph = Graph::new();
        graph.parameter("a", [3], Init::Zeros).unwrap();
        graph.running("steps", [1], Init::Zeros, Running::Steps).unwrap();
        graph.parameter("b", [100], Init::Zeros).unwrap();
        let layout = Layout::new(&graph, &Target::default()).unwrap();
        let places: Vec<_> = layout.parameters().iter().map(|p| (p.bucket, p.offset)).collect();
        assert_eq!(places, [(0, 512), (1, 0), (0, 0)]);
        assert_eq!((layout.buckets(), layout.trained_buckets()), (&[768, 256][..], 1));
    }

    #[test]
    fn a_parameter_over_the_binding_limit_is_named() {
        let error = layout(&[40 << 20], &Target::default()).unwrap_err().to_string();
        assert!(error.contains("parameter p0") && error.contains("max_storage_buffer_binding_size"), "{error}");
    }

    #[test]
    fn packing_and_unpacking_are_inverse() {
        let layout = layout(&[3, 5], &Target::default()).unwrap();
        let values = Named::of([("p0", vec![1.0, 2.0, 3.0]), ("p1", vec![4.0; 5])]).unwrap();
        let bucket = layout.pack(0, &values).unwrap();
        for placed in layout.parameters() {
            assert_eq!(layout.unpack(placed, &bucket), values[&placed.name]);
        }
    }
}

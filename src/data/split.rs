//! Holds out part of a data set for validation. Which samples depends on the seed and the data set alone, so a resumed
//! run and a later evaluation see the same split. Knows nothing of training.

use super::{Dataset, TensorDataset};
use crate::error::{Error, Result};
use crate::rng::Stream;
use crate::tensor::Elements;

/// Which samples go where: both ascending, disjoint, together all samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Samples to train on.
    pub train: Vec<usize>,
    /// Samples held out.
    pub held_out: Vec<usize>,
}

/// Splits off `fraction` of the samples; returns the training part and the held-out part. See [`split_indices`].
///
/// # Errors
/// Like [`split_indices`].
pub fn split(
    dataset: &TensorDataset,
    fraction: f64,
    seed: u64,
    stratified: bool,
) -> Result<(TensorDataset, TensorDataset)> {
    let Split { train, held_out } = split_indices(dataset, fraction, seed, stratified)?;
    Ok((dataset.select(&train)?, dataset.select(&held_out)?))
}

/// Which samples [`split`] puts where: `round(fraction · n)` are held out. `stratified` holds out the same share of
/// every class (rounded by largest remainder) but never a class's last sample, even if fewer samples than asked for are
/// held out then; without classes it makes no difference.
///
/// # Errors
/// When `fraction` is not between 0 and 1, or nothing would be held out.
pub fn split_indices(dataset: &TensorDataset, fraction: f64, seed: u64, stratified: bool) -> Result<Split> {
    if !(fraction > 0.0 && fraction < 1.0) {
        return Err(Error::invalid("data.validation", format!("expected between 0 and 1, got {fraction}")));
    }
    let n = dataset.len();
    let wanted = (fraction * n as f64).round() as usize;
    let mut groups = match (dataset.targets().elements(), dataset.classes()) {
        (Elements::U32(labels), Some(classes)) if stratified => by_class(labels, classes.len()),
        _ => vec![(0..n).collect()],
    };
    let counts: Vec<usize> = groups.iter().map(Vec::len).collect();
    let (mut train, mut held_out) = (Vec::new(), Vec::new());
    for ((class, group), quota) in groups.iter_mut().enumerate().zip(quotas(&counts, fraction, wanted)) {
        Stream::new(seed, &format!("split {class}")).shuffle(group);
        held_out.extend_from_slice(&group[..quota]);
        train.extend_from_slice(&group[quota..]);
    }
    if held_out.is_empty() {
        let message = format!("{fraction} of {n} samples holds out none: nothing is left for validation");
        return Err(Error::invalid("data.validation", message));
    }
    train.sort_unstable();
    held_out.sort_unstable();
    Ok(Split { train, held_out })
}

/// The samples of each class, ascending.
fn by_class(labels: &[u32], classes: usize) -> Vec<Vec<usize>> {
    let mut groups = vec![Vec::new(); classes];
    for (sample, &label) in labels.iter().enumerate() {
        groups[label as usize].push(sample);
    }
    groups
}

/// How many samples of each group to hold out: its share rounded down, then one more where the remainder is largest
/// (Hamilton's method) until `wanted` are held out, and never all of a group.
fn quotas(counts: &[usize], fraction: f64, wanted: usize) -> Vec<usize> {
    let spare = |class: usize| counts[class].saturating_sub(1);
    let share = |class: usize| fraction * counts[class] as f64;
    let mut quotas: Vec<usize> = (0..counts.len()).map(|class| (share(class) as usize).min(spare(class))).collect();
    let mut by_remainder: Vec<usize> = (0..counts.len()).collect();
    by_remainder.sort_by(|&a, &b| share(b).fract().total_cmp(&share(a).fract()).then(a.cmp(&b)));
    let mut missing = wanted.saturating_sub(quotas.iter().sum());
    while missing > 0 {
        let before = missing;
        for &class in &by_remainder {
            if missing > 0 && quotas[class] < spare(class) {
                quotas[class] += 1;
                missing -= 1;
            }
        }
        if missing == before {
            break; // every class is down to its last sample
        }
    }
    quotas
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tensor::HostTensor;

    fn labelled(labels: &[u32]) -> TensorDataset {
        let n = labels.len();
        let inputs = HostTensor::f32([n, 1], (0..n as u16).map(f32::from).collect()).unwrap();
        let classes = (0..8).map(|c| c.to_string()).collect();
        TensorDataset::classification(inputs, labels.to_vec(), classes).unwrap()
    }

    proptest! {
        #[test]
        fn a_split_is_stratified_disjoint_and_of_the_right_size(
            labels in prop::collection::vec(0_u32..8, 30..400), fraction in 0.1_f64..0.6, seed: u64,
        ) {
            let data = labelled(&labels);
            let Split { train, held_out } = split_indices(&data, fraction, seed, true).unwrap();
            let mut all = [train.clone(), held_out.clone()].concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..labels.len()).collect::<Vec<_>>());
            let count = |samples: &[usize], class| samples.iter().filter(|&&s| labels[s] == class).count();
            let all_samples: Vec<usize> = (0..labels.len()).collect();
            let mut capped = false;
            for class in 0..8 {
                let total = count(&all_samples, class);
                capped |= total <= 2;
                let held = count(&held_out, class);
                prop_assert!(total == 0 || count(&train, class) > 0);
                prop_assert!((held as f64 - fraction * total as f64).abs() < 1.0 || capped);
            }
            if !capped {
                prop_assert_eq!(held_out.len(), (fraction * labels.len() as f64).round() as usize);
            }
        }
    }

    #[test]
    fn the_digits_are_held_out_in_equal_shares() {
        let data = super::super::digits().unwrap();
        let (train, held_out) = split(&data, 0.2, 42, true).unwrap();
        assert_eq!((train.len(), held_out.len()), (1438, 359));
        let mut counts = [0; 10];
        held_out.targets().as_u32().unwrap().iter().for_each(|&label| counts[label as usize] += 1);
        assert!(counts.iter().all(|count| (34..=37).contains(count)), "{counts:?}");
        assert_eq!(train.classes(), data.classes());
    }

    #[test]
    fn a_split_depends_on_the_seed_only() {
        let data = labelled(&[0, 1].repeat(50));
        let of = |seed, stratified| split_indices(&data, 0.3, seed, stratified).unwrap();
        assert_eq!(of(1, true), of(1, true));
        assert_ne!(of(1, true), of(2, true));
        assert_eq!(of(1, false).held_out.len(), 30);
        assert!(of(1, true).held_out.is_sorted() && of(1, true).train.is_sorted());
    }

    #[test]
    fn a_class_keeps_its_last_sample() {
        assert_eq!(quotas(&[1, 1, 8], 0.5, 5), [0, 0, 5]);
        assert_eq!(quotas(&[1, 0, 2], 0.9, 3), [0, 0, 1]);
        assert_eq!(quotas(&[5, 5, 5], 0.5, 8), [3, 3, 2]);
    }

    #[test]
    fn splits_without_a_part_are_refused() {
        let error = |labels: &[u32], fraction, stratified| {
            split_indices(&labelled(labels), fraction, 0, stratified).unwrap_err().to_string()
        };
        for fraction in [0.0, 1.0, -0.5, f64::NAN] {
            assert!(error(&[0, 1], fraction, true).contains("expected between 0 and 1"));
        }
        assert!(
            error(&[0, 0, 0], 0.1, true).contains("0.1 of 3 samples holds out none: nothing is left for validation")
        );
        assert!(error(&[0, 1], 0.5, true).contains("nothing is left for validation"));
    }
}

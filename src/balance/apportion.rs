//! Dividing a batch over devices, in proportion or by speed. The unit is the group of samples that must stay together;
//! the batch's last group may be smaller, and is the last device's that has any.

/// `samples` in proportion to `shares`, by largest remainder; of equal remainders the first device's goes first.
pub(super) fn apportion(samples: usize, group: usize, shares: &[f64]) -> Vec<usize> {
    let total: f64 = shares.iter().sum();
    if total <= 0.0 {
        return vec![0; shares.len()];
    }
    let units = samples.div_ceil(group);
    let exact: Vec<f64> = shares.iter().map(|s| s / total * units as f64).collect();
    let mut groups: Vec<usize> = exact.iter().map(|e| e.floor() as usize).collect();
    let mut order: Vec<usize> = (0..shares.len()).filter(|&i| shares[i] > 0.0).collect();
    order.sort_by(|&i, &j| exact[j].fract().total_cmp(&exact[i].fract()));
    let left = units - groups.iter().sum::<usize>().min(units);
    order.iter().cycle().take(left).for_each(|&i| groups[i] += 1);
    in_rows(&groups, samples, group)
}

/// Shards for which the last device finishes earliest: groups are given one by one, in effect, to whoever would finish
/// first. `lines` says (a, b) of each device: n rows take a + b·n. A device whose fixed cost alone is over the common
/// finish gets none.
pub(super) fn equal_finish(samples: usize, group: usize, lines: &[Option<(f64, f64)>]) -> Vec<usize> {
    let units = samples.div_ceil(group);
    let lines: Vec<_> = lines.iter().map(|line| line.map(|(a, b)| (a, b * group as f64))).collect();
    let groups_by = |time: f64| {
        let groups = |line: &Option<(f64, f64)>| match line {
            Some((a, b)) if time > *a => ((time - a) / b).floor() as usize,
            _ => 0,
        };
        lines.iter().map(groups).collect::<Vec<_>>()
    };
    // The common finish, by bisection: the latest time by which not yet all samples are done.
    let slowest = |line: &(f64, f64)| line.0 + line.1 * units as f64;
    let (mut low, mut high) = (0.0, lines.iter().flatten().map(slowest).fold(0.0, f64::max));
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if groups_by(middle).iter().sum::<usize>() < units { low = middle } else { high = middle }
    }
    let mut groups = groups_by(low);
    for _ in groups.iter().sum::<usize>()..units {
        let finish = |&i: &usize| lines[i].map_or(f64::INFINITY, |(a, b)| a + b * (groups[i] + 1) as f64);
        let first = (0..lines.len()).min_by(|i, j| finish(i).total_cmp(&finish(j))).expect("there are devices");
        groups[first] += 1;
    }
    in_rows(&groups, samples, group)
}

/// Whether `shards` have their boundaries between groups.
pub(super) fn keeps_groups(shards: &[usize], group: usize) -> bool {
    let samples: usize = shards.iter().sum();
    let mut end = 0;
    shards.iter().all(|rows| {
        end += rows;
        end == samples || end.is_multiple_of(group)
    })
}

/// Rows of so many groups a device, as far as the samples go.
pub(super) fn in_rows(groups: &[usize], samples: usize, group: usize) -> Vec<usize> {
    let mut left = samples;
    let take = |count: &usize| {
        let rows = count.saturating_mul(group).min(left);
        left -= rows;
        rows
    };
    groups.iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_whole_groups_but_for_the_batchs_end() {
        assert_eq!(apportion(64, 32, &[1.0; 3]), [32, 32, 0]);
        assert_eq!(apportion(100, 32, &[1.0; 3]), [64, 32, 4]);
        assert_eq!(apportion(100, 32, &[1.0, 3.0, 0.0]), [32, 68, 0]);
        assert_eq!(apportion(20, 32, &[1.0; 3]), [20, 0, 0]);
        assert_eq!(apportion(20, usize::MAX, &[0.0, 1.0]), [0, 20]);
        assert_eq!(equal_finish(100, 8, &[Some((0.0, 1.0)), Some((0.0, 3.0))]), [80, 20]);
    }

    #[test]
    fn a_boundary_inside_a_group_is_seen() {
        assert!(keeps_groups(&[64, 0, 32, 4], 32) && keeps_groups(&[4, 0], 32) && keeps_groups(&[3, 2, 2], 1));
        assert!(!keeps_groups(&[60, 40], 32) && !keeps_groups(&[32, 4, 32], 32));
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_lost_and_no_group_is_cut(
            samples in 1_usize..500,
            group in 1_usize..70,
            lines in proptest::collection::vec((0.0_f64..2.0, 0.01_f64..3.0), 1..7),
        ) {
            let shares: Vec<f64> = lines.iter().map(|(_, b)| 1.0 / b).collect();
            let lines: Vec<_> = lines.into_iter().map(Some).collect();
            for shards in [apportion(samples, group, &shares), equal_finish(samples, group, &lines)] {
                proptest::prop_assert_eq!(shards.iter().sum::<usize>(), samples);
                proptest::prop_assert!(keeps_groups(&shards, group), "{:?}", shards);
            }
        }
    }
}
